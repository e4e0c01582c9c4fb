//! The manifest of each mode, applied, upgraded and removed by kubectl on a real API server.

use std::process::Command;
use std::time::Duration;

use anyhow::ensure;
use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, ListParams};
use switchyard_chart::{Manifest, ReleasedImages, manifests, package};
use switchyard_e2e::wait::eventually;
use switchyard_e2e::{Cluster, ClusterSpec, Environment, Part, Parts, fixture, paths};

use super::images::IMAGE_DIGEST;
use super::rights::{CONFIGURATION, ca_bundle, register_once_allowed};
use super::{Helm, accepted_by};

/// The namespace that the manifests make.
const NAMESPACE: &str = "switchyard-system";

const WAIT: Duration = Duration::from_secs(60);

/// The kinds that docs/install.md names for removal.
const OF_CLUSTER: &str = "mutatingwebhookconfigurations,validatingwebhookconfigurations,validatingadmissionpolicies,\
                          validatingadmissionpolicybindings,clusterrolebindings,clusterroles";

/// The chart's package, as a release has it.
fn released_package() -> Vec<u8> {
    let images = ReleasedImages {
        registry: "registry.example/team".to_owned(),
        hub: IMAGE_DIGEST.to_owned(),
        agent: IMAGE_DIGEST.to_owned(),
    };
    let time = "2026-11-26T04:38:18Z".parse().unwrap();
    package(&paths::root().join("deploy/charts/switchyard"), &images, time).unwrap()
}

/// The manifests that are made from the package.
fn of_a_release() -> Vec<Manifest> {
    let helm = Helm::new(None, NAMESPACE);
    let file = helm.home.path().join("switchyard.tgz");
    std::fs::write(&file, released_package()).unwrap();
    helm.ok(&["lint", "--strict", file.to_str().unwrap()]);
    manifests(&helm.program, &file).unwrap()
}

/// The output of kubectl, or its errors.
pub(super) fn try_kubectl(cluster: &Cluster, words: &[&str]) -> anyhow::Result<String> {
    let mut command = Command::new(Parts::new()?.binary(Part::Kubectl)?);
    let output = command.arg("--kubeconfig").arg(cluster.kubeconfig()).args(words).output()?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "kubectl {words:?}: {errors}");
    Ok(String::from_utf8(output.stdout)?)
}

/// The output of kubectl, which must succeed.
fn kubectl(cluster: &Cluster, words: &[&str]) -> String {
    try_kubectl(cluster, words).unwrap()
}

async fn deployment(cluster: &Cluster, name: &str) -> Deployment {
    Api::namespaced(cluster.admin.clone(), NAMESPACE).get(name).await.unwrap()
}

#[test]
fn manifest_of_each_mode_is_applied_again_and_removed() {
    fixture::run(async {
        let environment =
            Environment::builder("applied").cluster(ClusterSpec::new("one")).start().await.unwrap();
        let cluster = environment.cluster("one");
        let manifests = tokio::task::spawn_blocking(of_a_release).await.unwrap();
        for (manifest, name, program, mode) in [
            (&manifests[0], "switchyard", "switchyard-hub", None),
            (&manifests[2], "switchyard-agent", "switchyard-agent", None),
            // The last one: from then on, kubectl conflicts with Helm.
            (&manifests[1], "switchyard-hub", "switchyard-hub", Some("mode=hub")),
        ] {
            let file = cluster.state_dir().join(manifest.name);
            std::fs::write(&file, &manifest.yaml).unwrap();
            let apply = ["apply", "--server-side", "--filename", file.to_str().unwrap()];
            // The API server may still reject objects of a namespace that it has just deleted.
            eventually(WAIT, "the manifest to be applied", async || try_kubectl(cluster, &apply))
                .await
                .unwrap();
            let first = deployment(cluster, name).await;
            let pod = first.spec.as_ref().and_then(|spec| spec.template.spec.clone()).unwrap();
            let image = format!(
                "registry.example/team/{program}:{}@{IMAGE_DIGEST}",
                env!("CARGO_PKG_VERSION")
            );
            assert_eq!(pod.containers[0].image.as_deref(), Some(image.as_str()));
            accepted_by(program, &pod.containers[0]);

            // The program fills in its webhooks, and a later manifest leaves them alone.
            let (account, _) = cluster.service_account(NAMESPACE, name).await.unwrap();
            register_once_allowed(&account, cluster.ca_pem()).await;
            kubectl(cluster, &apply);
            assert_eq!(
                ca_bundle(cluster).await.as_deref(),
                Some(cluster.ca_pem().as_bytes()),
                "{}",
                manifest.name
            );
            let second = deployment(cluster, name).await;
            assert_eq!(
                first.metadata.generation, second.metadata.generation,
                "applied again, nothing changes"
            );
            if let Some(mode) = mode {
                let file = cluster.state_dir().join("switchyard.tgz");
                std::fs::write(&file, released_package()).unwrap();
                let install = ["install", "switchyard", file.to_str().unwrap()];
                let takes_over = ["--take-ownership", "--force-conflicts", "--set", mode];
                Helm::new(Some(cluster), NAMESPACE).ok(&[&install[..], &takes_over[..]].concat());
                let third = deployment(cluster, name).await;
                assert_eq!(second.metadata.uid, third.metadata.uid, "Helm takes it over");
                let ca = ca_bundle(cluster).await;
                assert_eq!(ca.as_deref(), Some(cluster.ca_pem().as_bytes()), "{mode}");
            }

            let selector = "--selector=app.kubernetes.io/instance=switchyard";
            kubectl(cluster, &["delete", OF_CLUSTER, selector]);
            kubectl(cluster, &["delete", "namespace", NAMESPACE, "--wait=false"]);
            kubectl(cluster, &["delete", "rolebindings", "--all-namespaces", selector]);
            let webhooks: Api<MutatingWebhookConfiguration> = Api::all(cluster.admin.clone());
            assert!(webhooks.get_opt(CONFIGURATION).await.unwrap().is_none(), "{}", manifest.name);
            let crds: Api<CustomResourceDefinition> = Api::all(cluster.admin.clone());
            assert_eq!(
                crds.list(&ListParams::default()).await.unwrap().items.len(),
                11,
                "CRDs and their objects stay"
            );
            let namespace = format!("namespace/{NAMESPACE}");
            kubectl(cluster, &["wait", "--for=delete", &namespace, "--timeout=180s"]);
        }
    });
}

#[test]
fn manifests_are_made_of_the_chart_alone() {
    for manifest in of_a_release() {
        assert!(
            !manifest.yaml.contains("helm.sh") && !manifest.yaml.contains("managed-by: Helm"),
            "{}",
            manifest.name
        );
        assert_eq!(manifest.yaml.matches("kind: Deployment\n").count(), 1, "{}", manifest.name);
        assert_eq!(
            manifest.yaml.matches("kind: CustomResourceDefinition\n").count(),
            11,
            "{}",
            manifest.name
        );
        assert_eq!(
            manifest.yaml.contains("ValidatingAdmissionPolicy"),
            manifest.name == "worker.yaml"
        );
        assert!(!manifest.yaml.contains("kind: Secret"), "{}: no token is in it", manifest.name);
    }
}
