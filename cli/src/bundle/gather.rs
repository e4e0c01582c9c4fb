//! Reading one cluster.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::api::{ApiResource, DynamicObject, ListParams, LogParams};
use kube::{Api, Client, ResourceExt as _};
use tokio::time::timeout;

use super::redact::redact;
use crate::check;

/// Lines of a log that one request reads. The API server cuts a log by bytes at its end, so a limit in bytes
/// would lose the newest lines.
const LINES_PER_MIB: i64 = 10_000;
/// Most objects of one kind. The file says how many were left out.
const MOST: u32 = 5_000;
const PATIENCE: Duration = Duration::from_secs(30);

/// Kinds that are read in all namespaces: group, version, kind, plural.
const EVERYWHERE: [(&str, &str, &str, &str); 14] = [
    ("kueue.x-k8s.io", "v1beta2", "AdmissionCheck", "admissionchecks"),
    ("kueue.x-k8s.io", "v1beta2", "ClusterQueue", "clusterqueues"),
    ("kueue.x-k8s.io", "v1beta2", "Cohort", "cohorts"),
    ("kueue.x-k8s.io", "v1beta2", "LocalQueue", "localqueues"),
    ("kueue.x-k8s.io", "v1beta2", "MultiKueueCluster", "multikueueclusters"),
    ("kueue.x-k8s.io", "v1beta2", "MultiKueueConfig", "multikueueconfigs"),
    ("kueue.x-k8s.io", "v1beta2", "ResourceFlavor", "resourceflavors"),
    ("kueue.x-k8s.io", "v1beta2", "Topology", "topologies"),
    ("kueue.x-k8s.io", "v1beta2", "Workload", "workloads"),
    ("kueue.x-k8s.io", "v1beta2", "WorkloadPriorityClass", "workloadpriorityclasses"),
    ("", "v1", "Node", "nodes"),
    (
        "admissionregistration.k8s.io",
        "v1",
        "MutatingWebhookConfiguration",
        "mutatingwebhookconfigurations",
    ),
    (
        "admissionregistration.k8s.io",
        "v1",
        "ValidatingWebhookConfiguration",
        "validatingwebhookconfigurations",
    ),
    ("batch", "v1", "Job", "jobs"),
];

/// Kinds that are read in Switchyard's namespace.
const IN_NAMESPACE: [(&str, &str, &str, &str); 6] = [
    ("apps", "v1", "Deployment", "deployments"),
    ("", "v1", "ConfigMap", "configmaps"),
    ("", "v1", "Event", "events"),
    ("", "v1", "Pod", "pods"),
    ("", "v1", "Service", "services"),
    ("coordination.k8s.io", "v1", "Lease", "leases"),
];

#[derive(Default)]
pub(super) struct Gathered {
    /// Path and content.
    pub(super) files: Vec<(String, String)>,
    pub(super) errors: Vec<String>,
}

/// Reads a cluster, below a directory of the archive.
pub(super) async fn cluster(
    client: &Client,
    directory: &str,
    namespace: &str,
    log_mib: u16,
) -> Gathered {
    let mut all = Gathered::default();
    match timeout(PATIENCE, client.apiserver_version()).await {
        Ok(Ok(version)) => {
            let text = format!("{} ({})\n", version.git_version, version.platform);
            all.files.push((format!("{directory}/kubernetes-version.txt"), text));
        }
        Ok(Err(error)) => {
            all.errors.push(format!("{directory}: {}", crate::cause(&error)));
            return all;
        }
        Err(_) => {
            all.errors.push(format!("{directory}: no answer within {PATIENCE:?}"));
            return all;
        }
    }
    let kinds = EVERYWHERE.iter().map(|kind| (kind, None));
    let kinds = kinds.chain(IN_NAMESPACE.iter().map(|kind| (kind, Some(namespace))));
    for (kind, namespace) in kinds {
        let path = format!("{directory}/{}.yaml", kind.3);
        match objects(client, *kind, namespace).await {
            Ok(text) => all.files.push((path, text)),
            Err(error) => all.errors.push(format!("{path}: {error}")),
        }
    }
    let args = check::Args::of_namespace(namespace);
    match Box::pin(check::run(client.clone(), &args)).await {
        Ok(report) => all.files.push((format!("{directory}/check.txt"), report.text())),
        Err(error) => all.errors.push(format!("{directory}/check.txt: {error:#}")),
    }
    logs(client, directory, namespace, log_mib, &mut all).await;
    all
}

/// The objects of one kind, as YAML documents.
async fn objects(
    client: &Client,
    (group, version, kind, plural): (&str, &str, &str, &str),
    namespace: Option<&str>,
) -> anyhow::Result<String> {
    let gvk = kube::core::GroupVersionKind::gvk(group, version, kind);
    let resource = ApiResource::from_gvk_with_plural(&gvk, plural);
    let api: Api<DynamicObject> = match namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    };
    let listed = timeout(PATIENCE, api.list(&ListParams::default().limit(MOST))).await?;
    let listed = listed.map_err(|error| anyhow::anyhow!(crate::cause(&error)))?;
    let mut out = String::new();
    for object in listed.items {
        let mut value = serde_json::to_value(object)?;
        if kind == "ConfigMap" && !is_configuration(&value) {
            continue;
        }
        redact(&mut value);
        out.push_str("---\n");
        out.push_str(&serde_saphyr::to_string(&value)?);
    }
    if let Some(more) = listed.metadata.remaining_item_count {
        out.push_str(&format!("# {more} more were left out\n"));
    }
    Ok(out)
}

/// Whether a ConfigMap is Switchyard's configuration. Others may hold anything.
fn is_configuration(object: &serde_json::Value) -> bool {
    object.pointer("/data/controller_manager_config.yaml").is_some()
}

/// The last lines of a text, at most `bytes` bytes.
fn newest(text: &str, bytes: usize) -> &str {
    let Some(first) = text.len().checked_sub(bytes).filter(|first| *first > 0) else { return text };
    let line = text.as_bytes().iter().skip(first).position(|byte| *byte == b'\n');
    line.and_then(|line| text.get(first + line + 1..)).unwrap_or_default()
}

/// Reads the newest part of each container's log, and of the previous container's after a restart.
async fn logs(client: &Client, directory: &str, namespace: &str, log_mib: u16, all: &mut Gathered) {
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let listed = match timeout(PATIENCE, pods.list(&ListParams::default())).await {
        Ok(Ok(listed)) => listed.items,
        Ok(Err(error)) => {
            return all.errors.push(format!("{directory}/logs: {}", crate::cause(&error)));
        }
        Err(error) => return all.errors.push(format!("{directory}/logs: {error}")),
    };
    for pod in listed {
        let name = pod.name_any();
        let statuses = pod.status.and_then(|status| status.container_statuses);
        for status in statuses.unwrap_or_default() {
            for previous in [false, true] {
                if previous && status.restart_count == 0 {
                    continue;
                }
                let params = LogParams {
                    container: Some(status.name.clone()),
                    tail_lines: Some(i64::from(log_mib) * LINES_PER_MIB),
                    previous,
                    timestamps: true,
                    ..LogParams::default()
                };
                let which = if previous { "-previous" } else { "" };
                let path = format!("{directory}/logs/{name}-{}{which}.log", status.name);
                match timeout(PATIENCE, pods.logs(&name, &params)).await {
                    Ok(Ok(text)) => {
                        all.files
                            .push((path, newest(&text, usize::from(log_mib) << 20).to_owned()));
                    }
                    Ok(Err(error)) => all.errors.push(format!("{path}: {}", crate::cause(&error))),
                    Err(error) => all.errors.push(format!("{path}: {error}")),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_log_keeps_its_last_whole_lines() {
        assert_eq!(newest("one\ntwo\nthree\n", 100), "one\ntwo\nthree\n");
        assert_eq!(newest("one\ntwo\nthree\n", 9), "three\n");
        assert_eq!(newest("one\ntwö\n", 3), "");
    }
}
