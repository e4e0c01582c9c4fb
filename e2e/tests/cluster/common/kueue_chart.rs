//! Kueue's own Helm chart, from its module. Its pods are played: Kueue itself runs as a process.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use kube::api::{ListParams, Patch, PatchParams};
use serde_json::{Value, json};
use switchyard_e2e::stock::NAMESPACE;
use switchyard_e2e::{Cluster, Part, Parts};

use super::shell::Shell;

/// The chart's published place.
const PUBLISHED: &str = "oci://registry.k8s.io/kueue/charts/kueue";
/// The name in Kueue's manifests.
pub(crate) const DEPLOYMENT: &str = "kueue-controller-manager";
/// The image of the release; the chart in the module names one of its branch.
pub(crate) const IMAGE: &str = "registry.k8s.io/kueue/kueue:v0.19.2";

fn chart() -> String {
    let source = Parts::new().unwrap().own_source_dir(Part::Kueue).unwrap();
    source.join("charts/kueue").display().to_string()
}

/// A command with the chart of the module in place of the published one.
pub(crate) fn from_module(command: &str) -> String {
    command.replace(PUBLISHED, &chart())
}

/// Installs Kueue over the CRDs and roles that may be there.
pub(crate) fn install(shell: &Shell) {
    let (repository, tag) = IMAGE.split_once(':').unwrap();
    let image = "controllerManager.manager.image";
    shell.run(&format!(
        "helm install kueue {} --namespace {NAMESPACE} --create-namespace --take-ownership \
         --force-conflicts --set {image}.repository={repository},{image}.tag={tag}",
        chart()
    ));
}

/// Kueue's manifests have its conversion behind a Service, where no server answers once its pods are gone.
pub(crate) async fn converts_behind_a_service(cluster: &Cluster) {
    let crds: Api<CustomResourceDefinition> = Api::all(cluster.admin.clone());
    for crd in crds.list(&ListParams::default()).await.unwrap() {
        if crd.spec.conversion.as_ref().is_some_and(|conversion| conversion.webhook.is_some()) {
            let service = json!({"name": "kueue-webhook-service", "namespace": NAMESPACE, "path": "/convert"});
            let client: Value = json!({"url": null, "service": service});
            let patch = json!({"spec": {"conversion": {"webhook": {"clientConfig": client}}}});
            let name = crd.metadata.name.unwrap();
            crds.patch(&name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
        }
    }
}
