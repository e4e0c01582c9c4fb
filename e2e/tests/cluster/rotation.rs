//! The webhooks' certificates are exchanged while an API server calls all the time, with each issuer.
use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use anyhow::ensure;
use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use switchyard_config::Configuration;
use switchyard_controller::webhook::{Advertise, WebhookOptions};
use switchyard_controller::{Handle, Options};
use switchyard_e2e::Authority;
use switchyard_e2e::{Cluster, ClusterSpec, Environment, JobBuilder, fixture, wait};
use switchyard_platform::cert::CertLifetimes;

const NAMESPACE: &str = "switchyard-system";
const WAIT: Duration = Duration::from_secs(60);
/// Everything is exchanged within a minute, as it is within two years otherwise. The overlap is what an API server takes
/// to learn of a new CA, and much on top for a busy machine.
const LIVES: CertLifetimes = CertLifetimes {
    ca: Duration::from_secs(70),
    serving: Duration::from_secs(40),
    overlap: Duration::from_secs(12),
    backdate: Duration::from_secs(2),
    check_interval: Duration::from_secs(1),
};

/// A controller in this process, which may not be ready yet.
async fn start(cluster: &Cluster, external_certificates: bool) -> Handle {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let url = format!("https://127.0.0.1:{}", listener.local_addr().unwrap().port());
    let (client, _) = cluster.service_account(NAMESPACE, "switchyard").await.unwrap();
    let mut options =
        Options::new(client, Arc::new(Configuration::default()), "rotation", NAMESPACE);
    // A request that the webhook does not answer is refused, and not let through.
    let usual = WebhookOptions::new(listener, Advertise::Url(url));
    options.webhook =
        Some(WebhookOptions { lives: LIVES, fail_closed: true, external_certificates, ..usual });
    switchyard_controller::start(options).unwrap()
}

/// Creates a job by dry run: the API server calls the webhook and stores nothing.
async fn admitted(jobs: &Api<Job>, namespace: &str) -> anyhow::Result<()> {
    let job: Job =
        serde_json::from_value(JobBuilder::new(namespace, "probe").queue("none").build())?;
    let answer = jobs.create(&PostParams { dry_run: true, ..PostParams::default() }, &job).await?;
    ensure!(
        answer.spec.is_some_and(|spec| spec.suspend == Some(true)),
        "the webhook was not asked"
    );
    Ok(())
}

#[test]
fn no_request_fails_while_certificates_and_cas_rotate() {
    fixture::run(async {
        let environment = Environment::builder("rotation")
            .cluster(ClusterSpec::new("one"))
            .start()
            .await
            .unwrap();
        let cluster = environment.cluster("one");
        cluster.install().await.unwrap();
        let controller = start(cluster, false).await;
        controller.ready(WAIT).await.unwrap();
        let namespace = cluster.namespace("rotation").await.unwrap();
        let jobs: Api<Job> = Api::namespaced(cluster.admin.clone(), &namespace);
        wait::eventually(WAIT, "the webhook to be asked", async || {
            admitted(&jobs, &namespace).await
        })
        .await
        .unwrap();

        let secrets: Api<Secret> = Api::namespaced(cluster.admin.clone(), NAMESPACE);
        let (mut serving, mut signers, mut asked) = (BTreeSet::new(), BTreeSet::new(), 0);
        let until = tokio::time::Instant::now() + 5 * WAIT;
        // Two of each have signed or served, and a third serves: all ways from one to the next have been gone.
        while serving.len() < 4 || signers.len() < 3 {
            assert!(
                tokio::time::Instant::now() < until,
                "{} served, {} signed",
                serving.len(),
                signers.len()
            );
            let secret = secrets.get("switchyard-webhook-cert").await.unwrap();
            let data = secret.data.unwrap_or_default();
            serving.insert(data["tls.crt"].0.clone());
            signers.insert(data["signer.crt"].0.clone());
            for _ in 0..5 {
                asked += 1;
                if let Err(error) = admitted(&jobs, &namespace).await {
                    panic!(
                        "request {asked}, certificate {}, CA {}: {error:#}",
                        serving.len(),
                        signers.len()
                    );
                }
            }
        }
        println!("{asked} requests, {} serving certificates, {} CAs", serving.len(), signers.len());
    });
}

/// The Secret as cert-manager writes it.
fn kept(name: &str, signer: &Authority, trusted: &[&Authority]) -> Secret {
    let serving = signer.server(&["127.0.0.1"]).unwrap();
    let trusted: String = trusted.iter().map(|authority| authority.pem()).collect();
    Secret {
        metadata: ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() },
        type_: Some("kubernetes.io/tls".to_owned()),
        string_data: Some(BTreeMap::from([
            ("tls.crt".to_owned(), serving.certificate),
            ("tls.key".to_owned(), serving.key),
            ("ca.crt".to_owned(), trusted),
        ])),
        ..Secret::default()
    }
}

#[test]
fn external_certificates_are_awaited_and_reloaded() {
    fixture::run(async {
        let environment =
            Environment::builder("kept").cluster(ClusterSpec::new("one")).start().await.unwrap();
        let cluster = environment.cluster("one");
        cluster.install().await.unwrap();
        let secrets: Api<Secret> = Api::namespaced(cluster.admin.clone(), NAMESPACE);
        let (name, apply) = ("switchyard-webhook-cert", PatchParams::apply("cert-manager").force());
        let write = async |secret: Secret| {
            secrets.patch(name, &apply, &Patch::Apply(&secret)).await.unwrap()
        };
        let (first, second) = (Authority::new("first").unwrap(), Authority::new("second").unwrap());

        let controller = start(cluster, true).await;
        assert!(
            controller.ready(Duration::from_secs(2)).await.is_err(),
            "ready without a certificate"
        );
        assert!(secrets.get_opt(name).await.unwrap().is_none(), "it is not ours to make");
        write(kept(name, &first, &[&first])).await;
        controller.ready(WAIT).await.unwrap();
        let namespace = cluster.namespace("kept").await.unwrap();
        let jobs: Api<Job> = Api::namespaced(cluster.admin.clone(), &namespace);
        wait::eventually(WAIT, "the webhook to be asked", async || {
            admitted(&jobs, &namespace).await
        })
        .await
        .unwrap();

        // Both are trusted before the new one signs, as docs/certificates.md asks.
        write(kept(name, &first, &[&first, &second])).await;
        let webhooks: Api<MutatingWebhookConfiguration> = Api::all(cluster.admin.clone());
        let trusts = async |trusted: &Authority, other: Option<&Authority>| {
            let bundle = webhooks
                .get("switchyard")
                .await?
                .webhooks
                .unwrap_or_default()
                .remove(0)
                .client_config
                .ca_bundle;
            let bundle = String::from_utf8(bundle.unwrap_or_default().0)?;
            ensure!(bundle.contains(trusted.pem().trim()), "{bundle}");
            ensure!(other.is_none_or(|other| !bundle.contains(other.pem().trim())), "{bundle}");
            Ok(())
        };
        let both = async || trusts(&second, None).await;
        wait::eventually(WAIT, "the new authority to be trusted", both).await.unwrap();
        // The time until an API server learns of it.
        tokio::time::sleep(LIVES.overlap).await;
        write(kept(name, &second, &[&second])).await;
        let replaced = async || {
            admitted(&jobs, &namespace).await.unwrap();
            trusts(&second, Some(&first)).await
        };
        wait::eventually(WAIT, "the old authority to be forgotten", replaced).await.unwrap();
        admitted(&jobs, &namespace).await.unwrap();
    });
}
