//! Reading one cluster.

mod metrics;

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Event, Pod};
use kube::api::{ApiResource, DynamicObject, ListParams, LogParams};
use kube::core::PartialObjectMeta;
use kube::{Api, Client, ResourceExt as _};
use serde_json::Value;
use switchyard_api::v1beta2::Workload;
use tokio::time::{Instant, timeout};

use super::redact::{is_configuration, redact, redact_configuration};
use crate::check;

/// Lines of a log that one request reads. The API server cuts a log by bytes at its end, so a limit in bytes
/// would lose the newest lines.
const LINES_PER_MIB: i64 = 10_000;
/// Most objects of one kind. The file says how many were left out.
const MOST: u32 = 5_000;
/// Most namespaces whose events are read: those with most Workloads.
const MOST_NAMESPACES: usize = 50;
/// Most events of a namespace with jobs: the newest.
const MOST_EVENTS: usize = 500;
const PATIENCE: Duration = Duration::from_secs(30);
/// For the events of all namespaces with jobs.
const EVENTS_DEADLINE: Duration = Duration::from_secs(120);

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
    events_of_jobs(client, directory, namespace, &mut all).await;
    of_pods(client, directory, namespace, log_mib, &mut all).await;
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
    let mut values = Vec::with_capacity(listed.items.len());
    for object in listed.items {
        values.push(serde_json::to_value(object)?);
    }
    let left_out = listed.metadata.remaining_item_count.unwrap_or_default();
    documents(kind, values, usize::try_from(left_out).unwrap_or_default())
}

/// Redacted objects of a kind as YAML documents, with the number of those that are left out.
fn documents(kind: &str, objects: Vec<Value>, left_out: usize) -> anyhow::Result<String> {
    let mut out = String::new();
    for mut object in objects {
        match kind {
            "ConfigMap" if !is_configuration(&object) => continue,
            "ConfigMap" => redact_configuration(&mut object),
            _ => redact(&mut object),
        }
        out.push_str("---\n");
        out.push_str(&serde_saphyr::to_string(&object)?);
    }
    if left_out > 0 {
        out.push_str(&format!("# {left_out} more were left out\n"));
    }
    Ok(out)
}

/// Reads the newest events of the namespaces with jobs.
async fn events_of_jobs(client: &Client, directory: &str, own: &str, all: &mut Gathered) {
    let workloads: Api<Workload> = Api::all(client.clone());
    let params = ListParams::default().limit(MOST);
    let listed = match timeout(PATIENCE, workloads.list_metadata(&params)).await {
        Ok(Ok(listed)) => listed,
        Ok(Err(error)) => {
            return all.errors.push(format!("{directory}/events: {}", crate::cause(&error)));
        }
        Err(error) => return all.errors.push(format!("{directory}/events: {error}")),
    };
    if listed.metadata.remaining_item_count.is_some_and(|left| left > 0) {
        all.errors.push(format!(
            "{directory}/events: the namespaces of the first {MOST} Workloads alone"
        ));
    }
    let (namespaces, left_out) = namespaces(&listed.items, own);
    if !left_out.is_empty() {
        all.errors.push(format!(
            "{directory}/events: the namespaces {} were left out",
            check::shorten(&left_out)
        ));
    }
    let resource = ApiResource::erase::<Event>(&());
    let end = Instant::now() + EVENTS_DEADLINE;
    for namespace in namespaces {
        if Instant::now() > end {
            all.errors.push(format!(
                "{directory}/events: from {namespace} on, left out after {EVENTS_DEADLINE:?}"
            ));
            break;
        }
        let path = format!("{directory}/events/{namespace}.yaml");
        let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), &namespace, &resource);
        let read = async {
            let listed = timeout(PATIENCE, api.list(&params)).await?;
            let listed = listed.map_err(|error| anyhow::anyhow!(crate::cause(&error)))?;
            let unread = listed.metadata.remaining_item_count.unwrap_or_default();
            let events = listed.items.into_iter().map(serde_json::to_value);
            let (events, older) = newest_events(events.collect::<Result<_, _>>()?);
            documents("Event", events, older + usize::try_from(unread).unwrap_or_default())
        };
        match read.await {
            Ok(text) => all.files.push((path, text)),
            Err(error) => all.errors.push(format!("{path}: {error}")),
        }
    }
}

/// The namespaces with most Workloads, and those that are left out. `own` is read as a whole.
fn namespaces(workloads: &[PartialObjectMeta<Workload>], own: &str) -> (Vec<String>, Vec<String>) {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for namespace in workloads.iter().filter_map(kube::ResourceExt::namespace) {
        if namespace != own {
            *counts.entry(namespace).or_default() += 1;
        }
    }
    let mut all: Vec<(String, usize)> = counts.into_iter().collect();
    all.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let mut names: Vec<String> = all.into_iter().map(|(name, _)| name).collect();
    let left_out = names.split_off(MOST_NAMESPACES.min(names.len()));
    (names, left_out)
}

/// The newest events, oldest first, and how many older ones there are.
fn newest_events(mut events: Vec<Value>) -> (Vec<Value>, usize) {
    let time = |event: &Value| {
        let at = |path: &str| event.pointer(path).and_then(Value::as_str).unwrap_or_default();
        // RFC 3339 in UTC, which sorts as text.
        let times = ["/series/lastObservedTime", "/lastTimestamp", "/eventTime"].map(at);
        times.into_iter().max().unwrap_or_default().to_owned()
    };
    events.sort_by_cached_key(time);
    let older = events.len().saturating_sub(MOST_EVENTS);
    (events.split_off(older), older)
}

/// The last lines of a text, at most `bytes` bytes.
fn newest(text: &str, bytes: usize) -> &str {
    let Some(first) = text.len().checked_sub(bytes).filter(|first| *first > 0) else { return text };
    let line = text.as_bytes().iter().skip(first).position(|byte| *byte == b'\n');
    line.and_then(|line| text.get(first + line + 1..)).unwrap_or_default()
}

/// Reads the metrics of each pod, the newest part of each container's log, and of the previous
/// container's after a restart.
async fn of_pods(
    client: &Client,
    directory: &str,
    namespace: &str,
    log_mib: u16,
    all: &mut Gathered,
) {
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let listed = match timeout(PATIENCE, pods.list(&ListParams::default())).await {
        Ok(Ok(listed)) => listed.items,
        Ok(Err(error)) => {
            return all.errors.push(format!("{directory}/logs: {}", crate::cause(&error)));
        }
        Err(error) => return all.errors.push(format!("{directory}/logs: {error}")),
    };
    if !listed.iter().any(metrics::is_switchyard) {
        all.errors.push(format!(
            "{directory}/metrics: no pod of Switchyard is in namespace {namespace}, so there are no metrics and no logs"
        ));
    }
    for pod in listed.iter().filter(|pod| metrics::is_switchyard(pod)) {
        let path = format!("{directory}/metrics/{}.txt", pod.name_any());
        match metrics::read(client, namespace, pod).await {
            Ok(text) => all.files.push((path, text)),
            Err(error) => all.errors.push(format!("{path}: {error}")),
        }
        logs(&pods, directory, pod, log_mib, all).await;
    }
}

async fn logs(pods: &Api<Pod>, directory: &str, pod: &Pod, log_mib: u16, all: &mut Gathered) {
    let name = pod.name_any();
    let statuses = pod.status.as_ref().and_then(|status| status.container_statuses.as_deref());
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
                    all.files.push((path, newest(&text, usize::from(log_mib) << 20).to_owned()));
                }
                Ok(Err(error)) => all.errors.push(format!("{path}: {}", crate::cause(&error))),
                Err(error) => all.errors.push(format!("{path}: {error}")),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn long_log_keeps_its_last_whole_lines() {
        assert_eq!(newest("one\ntwo\nthree\n", 100), "one\ntwo\nthree\n");
        assert_eq!(newest("one\ntwo\nthree\n", 9), "three\n");
        assert_eq!(newest("one\ntwö\n", 3), "");
    }

    #[test]
    fn namespaces_with_most_workloads_are_chosen() {
        let in_namespace = |name: String| -> PartialObjectMeta<Workload> {
            serde_json::from_value(json!({"metadata": {"name": "w", "namespace": name}})).unwrap()
        };
        let mut all: Vec<_> =
            (0..MOST_NAMESPACES + 1).map(|at| in_namespace(format!("ns-{at:02}"))).collect();
        all.extend(["ns-50", "own"].map(|name| in_namespace(name.to_owned())));
        let (chosen, left_out) = namespaces(&all, "own");
        assert_eq!((&*chosen[0], chosen.len()), ("ns-50", MOST_NAMESPACES));
        assert_eq!(left_out, ["ns-49"]);
    }

    #[test]
    fn newest_events_are_kept_and_older_counted() {
        let at = |second: usize| json!({"lastTimestamp": format!("2026-11-21T10:{:02}:{:02}Z", second / 60, second % 60)});
        let mut all: Vec<Value> = (0..MOST_EVENTS + 2).rev().map(at).collect();
        all.push(json!({"eventTime": "2026-11-21T11:00:00.000000Z", "lastTimestamp": null}));
        let (kept, older) = newest_events(all);
        assert_eq!((kept.len(), older), (MOST_EVENTS, 3));
        assert_eq!(kept[0], at(3));
        let text = documents("Event", kept, older).unwrap();
        assert!(text.ends_with("# 3 more were left out\n"));
    }
}
