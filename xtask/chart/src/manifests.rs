//! Renders one manifest for each mode from the chart, for `kubectl apply --server-side`.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, ensure};

/// The namespace of all manifests.
const NAMESPACE: &str = "switchyard-system";

/// A manifest of one mode.
#[derive(Clone, Debug)]
pub struct Manifest {
    pub name: &'static str,
    /// The objects.
    pub yaml: String,
}

/// The name of each manifest, a description, and the chart's values.
const MODES: [(&str, &str, &[&str]); 3] = [
    ("single.yaml", "queues for one cluster", &["mode=single"]),
    ("hub.yaml", "a hub that sends jobs to workers", &["mode=hub"]),
    (
        "worker.yaml",
        "a worker with an agent",
        &["mode=agent", "agent.existingSecret=switchyard-agent-join"],
    ),
];

/// Labels that only objects of a Helm release have.
const OF_RELEASES: [&str; 3] =
    ["app.kubernetes.io/managed-by: Helm", "helm.sh/chart: ", "helm.sh/resource-policy: "];

/// The manifest of each mode, rendered by the program `helm`. `chart` is a directory or a package.
///
/// # Errors
/// When Helm refuses the chart.
pub fn manifests(helm: &Path, chart: &Path) -> anyhow::Result<Vec<Manifest>> {
    let made = MODES.iter().map(|(name, what, values)| {
        let mut command = Command::new(helm);
        command.args(["template", "switchyard"]).arg(chart).args(["--namespace", NAMESPACE]);
        // Without a cluster, Helm needs a version: the oldest that the chart allows.
        command.args(["--kube-version", "1.32.0"]);
        command
            .args(["--api-versions", "admissionregistration.k8s.io/v1/ValidatingAdmissionPolicy"]);
        command.args(values.iter().map(|value| format!("--set={value}")));
        let output =
            command.output().with_context(|| format!("cannot start {}", helm.display()))?;
        let error = || String::from_utf8_lossy(&output.stderr).into_owned();
        ensure!(output.status.success(), "helm template for {name}: {}", error());
        Ok(Manifest { name, yaml: manifest(name, what, &String::from_utf8_lossy(&output.stdout)) })
    });
    made.collect()
}

/// Helm's output, with the namespace object first and without the labels of Helm releases.
fn manifest(name: &str, what: &str, rendered: &str) -> String {
    let head = format!(
        "# Switchyard: {what}. Made from the Helm chart. Install and upgrade with\n#\n\
         #     kubectl apply --server-side --filename {name}\n#\n---\n\
         apiVersion: v1\nkind: Namespace\nmetadata:\n  name: {NAMESPACE}\n"
    );
    let of_release = |line: &&str| OF_RELEASES.iter().any(|it| line.trim_start().starts_with(it));
    let kept: String =
        rendered.lines().filter(|line| !of_release(line)).map(|line| format!("{line}\n")).collect();
    // The only annotation of the CRDs was Helm's, so the key is empty now.
    head + &kept.replace("  annotations:\n  name:", "  name:")
}

#[cfg(test)]
mod tests {
    use super::manifest;

    #[test]
    fn a_manifest_makes_its_namespace_and_names_no_release() {
        let rendered = "---\nkind: A\nmetadata:\n  annotations:\n    helm.sh/resource-policy: keep\n  labels:\n    \
                        app.kubernetes.io/managed-by: Helm\n    helm.sh/chart: switchyard-0.1.0\n    \
                        app.kubernetes.io/name: hub\n  name: a\n";
        let text = manifest("hub.yaml", "a hub", rendered);
        assert!(
            text.contains("kind: Namespace\nmetadata:\n  name: switchyard-system\n---\nkind: A")
        );
        assert!(text.contains("  labels:\n    app.kubernetes.io/name: hub\n"));
        assert!(!text.contains("elm.sh") && !text.contains("managed-by"), "{text}");
    }
}
