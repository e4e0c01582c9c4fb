//! Rights of the account of an installed program, and its webhooks after the release is gone.

use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::Client;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use serde_json::json;
use switchyard_e2e::wait::eventually;
use switchyard_e2e::{Cluster, ClusterSpec, Environment, fixture};

use super::{AGENT, HUB, Helm, NAMESPACE, allowed_namespaces, chart};

/// Longer than an API server takes to know of a webhook.
const SOON: Duration = Duration::from_secs(60);
/// The name of both configurations.
pub(super) const CONFIGURATION: &str = "switchyard";

/// Registers a webhook for pods with a queue, as the program does. No server answers it.
async fn register(
    client: &Client,
    name: &str,
    ca_pem: &str,
) -> Result<MutatingWebhookConfiguration, kube::Error> {
    let has_queue =
        "has(object.metadata.labels) && 'kueue.x-k8s.io/queue-name' in object.metadata.labels";
    let webhook = json!({
        "name": "mpod.kb.io", "failurePolicy": "Fail", "timeoutSeconds": 1, "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "clientConfig": {"url": "https://127.0.0.1:1/mutate--v1-pod", "caBundle": BASE64_STANDARD.encode(ca_pem)},
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "operations": ["CREATE"]}],
        "matchConditions": [{"name": "concerns-a-queue", "expression": has_queue}],
    });
    let configuration = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": name}, "webhooks": [webhook],
    });
    let all: Api<MutatingWebhookConfiguration> = Api::all(client.clone());
    all.patch(name, &PatchParams::apply("switchyard").force(), &Patch::Apply(configuration)).await
}

/// As [`register`] with the configuration of a release. The API server takes a moment to know a role.
pub(super) async fn register_once_allowed(client: &Client, ca_pem: &str) {
    eventually(SOON, "the right to register webhooks", async || {
        Ok(register(client, CONFIGURATION, ca_pem).await.map(drop)?)
    })
    .await
    .unwrap();
}

/// The CA bundle of the registered webhook.
pub(super) async fn ca_bundle(cluster: &Cluster) -> Option<Vec<u8>> {
    let all: Api<MutatingWebhookConfiguration> = Api::all(cluster.admin.clone());
    let webhooks = all.get(CONFIGURATION).await.unwrap().webhooks?;
    webhooks.into_iter().next()?.client_config.ca_bundle.map(|bundle| bundle.0)
}

/// Creates a pod with a queue by dry run.
async fn queued_pod(cluster: &Cluster) -> anyhow::Result<()> {
    let pod: Pod = serde_json::from_value(json!({
        "metadata": {"name": "queued", "labels": {"kueue.x-k8s.io/queue-name": "q"}},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    }))?;
    let pods: Api<Pod> = Api::namespaced(cluster.admin.clone(), "default");
    pods.create(&PostParams { dry_run: true, ..PostParams::default() }, &pod).await?;
    Ok(())
}

fn is_forbidden<T: std::fmt::Debug>(result: Result<T, kube::Error>) -> bool {
    matches!(result, Err(kube::Error::Api(status)) if status.code == 403)
}

#[test]
fn webhooks_outlive_upgrades_and_go_with_the_release() {
    fixture::run(async {
        let environment =
            Environment::builder("hooks").cluster(ClusterSpec::new("one")).start().await.unwrap();
        let cluster = environment.cluster("one");
        let (helm, chart) = (Helm::new(Some(cluster), NAMESPACE), chart());
        allowed_namespaces(cluster).await;
        for (account, values) in
            [("switchyard", &[][..]), ("switchyard-hub", &HUB), ("switchyard-agent", &AGENT)]
        {
            helm.ok(&[&["install", "ours", &chart, "--create-namespace"], values].concat());
            queued_pod(cluster).await.unwrap();
            let (program, _) = cluster.service_account(NAMESPACE, account).await.unwrap();
            register_once_allowed(&program, cluster.ca_pem()).await;
            assert!(
                is_forbidden(register(&program, "another", cluster.ca_pem()).await),
                "{account} creates none"
            );
            let mutating: Api<MutatingWebhookConfiguration> = Api::all(program.clone());
            assert!(
                is_forbidden(mutating.delete(CONFIGURATION, &DeleteParams::default()).await),
                "{account}"
            );
            assert!(is_forbidden(mutating.list(&ListParams::default()).await), "{account}");
            eventually(SOON, "a pod with a queue to be refused", async || {
                match queued_pod(cluster).await {
                    Err(error) if error.to_string().contains("failed calling webhook") => Ok(()),
                    answer => bail!("{answer:?}"),
                }
            })
            .await
            .unwrap();

            // By server-side apply, which is Helm 4's way, and by a merge of three, which is Helm 3's.
            for (replicas, way) in [("1", "--server-side=true"), ("2", "--server-side=false")] {
                let replicas = format!("--set=controllerManager.replicas={replicas}");
                helm.ok(&["upgrade", "ours", &chart, "--reset-then-reuse-values", &replicas, way]);
                let kept = ca_bundle(cluster).await;
                assert_eq!(kept.as_deref(), Some(cluster.ca_pem().as_bytes()), "{account}, {way}");
                register(&program, CONFIGURATION, cluster.ca_pem()).await.unwrap();
            }

            helm.ok(&["uninstall", "ours"]);
            let mutating: Api<MutatingWebhookConfiguration> = Api::all(cluster.admin.clone());
            let validating: Api<ValidatingWebhookConfiguration> = Api::all(cluster.admin.clone());
            assert!(mutating.get_opt(CONFIGURATION).await.unwrap().is_none(), "{account}");
            assert!(validating.get_opt(CONFIGURATION).await.unwrap().is_none(), "{account}");
            eventually(SOON, "a pod with a queue to be created", async || {
                queued_pod(cluster).await.context("refused after the release is gone")
            })
            .await
            .unwrap();
        }
    });
}

#[test]
fn hub_reads_the_secrets_that_are_listed() {
    fixture::run(async {
        let environment =
            Environment::builder("secrets").cluster(ClusterSpec::new("one")).start().await.unwrap();
        let cluster = environment.cluster("one");
        let (helm, chart) = (Helm::new(Some(cluster), NAMESPACE), chart());
        let authority = "switchyard-hub-ca";
        for (case, values, may, may_not) in [
            ("all of the namespace", &[][..], &[authority, "east", "another"][..], &[][..]),
            ("one", &["--set=hub.kubeconfigSecrets={east}"], &[authority, "east"], &["another"]),
            ("none", &["--set-json=hub.kubeconfigSecrets=[]"], &[authority], &["east", "another"]),
        ] {
            helm.ok(
                &[&["install", "ours", &chart, "--create-namespace"], &HUB[..], values].concat()
            );
            let (program, _) = cluster.service_account(NAMESPACE, "switchyard-hub").await.unwrap();
            let secrets: Api<Secret> = Api::namespaced(program.clone(), NAMESPACE);
            // The API server takes a moment to know a role, and to forget that of the case before.
            eventually(SOON, format!("the roles to be known: {case}"), async || {
                for name in may {
                    ensure!(!is_forbidden(secrets.get_opt(name).await), "{name} is forbidden");
                }
                for name in may_not {
                    ensure!(is_forbidden(secrets.get_opt(name).await), "{name} is allowed");
                }
                Ok(())
            })
            .await
            .unwrap();
            assert!(is_forbidden(secrets.list(&ListParams::default()).await), "{case}");
            let elsewhere: Api<Secret> = Api::namespaced(program.clone(), "default");
            assert!(is_forbidden(elsewhere.get_opt("east").await), "{case}");
            helm.ok(&["uninstall", "ours"]);
        }
    });
}
