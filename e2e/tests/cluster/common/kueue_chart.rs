//! Kueue's own Helm chart, from its module.

use std::path::Path;

use serde_json::{Value, json};
use switchyard_e2e::nodes::KUEUE;
pub(crate) use switchyard_e2e::stock::NAMESPACE;
use switchyard_e2e::{Part, Parts};

use super::shell::Shell;

/// The chart's published place.
const PUBLISHED: &str = "oci://registry.k8s.io/kueue/charts/kueue";
/// The name in Kueue's manifests.
pub(crate) const DEPLOYMENT: &str = "kueue-controller-manager";

fn chart() -> String {
    let source = Parts::new().unwrap().own_source_dir(Part::Kueue).unwrap();
    source.join("charts/kueue").display().to_string()
}

/// A command with the chart of the module in place of the published one.
pub(crate) fn from_module(command: &str) -> String {
    command.replace(PUBLISHED, &chart())
}

/// Waits until the pods of Kueue are ready. The flags select a cluster.
pub(crate) fn becomes_ready(shell: &Shell, flags: &str) {
    let rollout = "rollout status --timeout=3m deployment";
    shell.run(&format!("kubectl {flags} -n {NAMESPACE} {rollout} {DEPLOYMENT}"));
}

/// Installs Kueue over the CRDs and roles that may be there. The chart in the module names an image of
/// its branch; the published chart names the release's.
pub(crate) fn install(shell: &Shell, flags: &str) {
    let (repository, tag) = KUEUE.split_once(':').unwrap();
    let image = "controllerManager.manager.image";
    shell.run(&format!(
        "helm install kueue {} --namespace {NAMESPACE} --create-namespace --take-ownership \
         --force-conflicts --set {image}.repository={repository},{image}.tag={tag} \
         --set {image}.pullPolicy=IfNotPresent {flags}",
        chart()
    ));
}

/// A flag of [`install`] for the chart's configuration with Jobs as its only kind. A manager with all
/// kinds connects to no worker that lacks the CRD of one.
pub(crate) fn jobs_alone(shell: &Shell) -> &'static str {
    let values = std::fs::read_to_string(Path::new(&chart()).join("values.yaml")).unwrap();
    let values: Value = serde_saphyr::from_str(&values).unwrap();
    let text = values["managerConfig"]["controllerManagerConfigYaml"].as_str().unwrap();
    let mut configuration: Value = serde_saphyr::from_str(text).unwrap();
    configuration["integrations"]["frameworks"] = json!(["batch/job"]);
    let text = configuration.to_string();
    let values = json!({"managerConfig": {"controllerManagerConfigYaml": text}});
    shell.run(&format!("cat > jobs-alone.json <<'END'\n{values}\nEND"));
    "--values jobs-alone.json"
}
