//! Ready pods of Jobs, StatefulSets and replicas of LeaderWorkerSets. A Workload only says whether
//! all its pods are ready.

use std::collections::BTreeMap;
use std::fmt::Debug;

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use kube::{Api, Client, Resource, ResourceExt as _};
use serde::de::DeserializeOwned;
use switchyard_api::names;
use switchyard_jobs::meta::LABEL_VALUE_MAX;

use super::PAGE;
use crate::job_row::{JobRow, JobState, ReadyPods};

/// Kinds whose pods are labelled with the name of their Workload. On a hub, its own gated pods of the
/// object carry the status of the worker's pods, so they are counted there too.
const GROUPED: [&str; 2] = ["StatefulSet", "LeaderWorkerSet"];

/// By namespace, and the name of a Job or a pod group.
type Counts = BTreeMap<(String, String), ReadyPods>;

/// Fills in ready pods from Jobs and pods. Without the right to list them, nothing is filled in.
pub(crate) async fn fill_in(client: &Client, namespace: Option<&str>, rows: &mut [JobRow]) {
    let runs = |row: &JobRow| matches!(row.state, JobState::Admitted | JobState::Running);
    let is_job = |row: &JobRow| row.kind == "Job" && runs(row) && !row.is_stale;
    let is_group = |row: &JobRow| {
        // The name is a label of the pods only if it is short enough.
        GROUPED.contains(&&*row.kind)
            && row.workload.len() <= LABEL_VALUE_MAX
            && runs(row)
            && !row.is_stale
    };
    if rows.iter().any(is_job) {
        let mut known = Counts::new();
        let count = |job: &Job| {
            known.insert((job.namespace().unwrap_or_default(), job.name_any()), ready(job));
        };
        if each(client, namespace, ListParams::default(), count).await {
            apply(rows.iter_mut().filter(|row| is_job(row)), &known, |row| &row.job);
        }
    }
    if rows.iter().any(is_group) {
        let mut known = Counts::new();
        let params = ListParams::default().labels(names::POD_GROUP_NAME);
        if each(client, namespace, params, |pod| count_member(pod, &mut known)).await {
            apply(rows.iter_mut().filter(|row| is_group(row)), &known, |row| &row.workload);
        }
    }
}

fn apply<'a>(
    rows: impl Iterator<Item = &'a mut JobRow>,
    known: &Counts,
    name: impl Fn(&JobRow) -> &String,
) {
    for row in rows {
        row.ready = known.get(&(row.namespace.clone(), name(row).clone())).copied().or(row.ready);
    }
}

/// Lists all objects of a kind. Returns false if that failed.
async fn each<K>(
    client: &Client,
    namespace: Option<&str>,
    params: ListParams,
    mut take: impl FnMut(&K),
) -> bool
where
    K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
    K: Clone + DeserializeOwned + Debug,
{
    let api: Api<K> = match namespace {
        Some(namespace) => Api::namespaced(client.clone(), namespace),
        None => Api::all(client.clone()),
    };
    let mut params = params.limit(PAGE);
    loop {
        let Ok(page) = api.list(&params).await else { return false };
        page.items.iter().for_each(&mut take);
        match page.metadata.continue_ {
            Some(token) if !token.is_empty() => params = params.continue_token(&token),
            _ => return true,
        }
    }
}

/// Counts a pod for its group. The group's pods say how many they should be.
fn count_member(pod: &Pod, groups: &mut Counts) {
    let Some(group) = pod.labels().get(names::POD_GROUP_NAME) else { return };
    let total = pod.annotations().get(names::POD_GROUP_TOTAL_COUNT);
    let Some(all) = total.and_then(|total| total.parse::<i64>().ok()) else { return };
    let status = pod.status.as_ref();
    let has_succeeded = status.and_then(|it| it.phase.as_deref()) == Some("Succeeded");
    let mut conditions = status.and_then(|it| it.conditions.as_ref()).into_iter().flatten();
    let is_ready = has_succeeded || conditions.any(|it| it.type_ == "Ready" && it.status == "True");
    let of = (pod.namespace().unwrap_or_default(), group.clone());
    let counted = groups.entry(of).or_insert(ReadyPods { ready: 0, all });
    counted.ready = (counted.ready + i64::from(is_ready)).min(all);
}

/// Counts against the pods that run at one time; succeeded pods count as ready.
fn ready(job: &Job) -> ReadyPods {
    let spec = job.spec.clone().unwrap_or_default();
    let status = job.status.clone().unwrap_or_default();
    let parallelism = spec.parallelism.unwrap_or(1);
    let all =
        i64::from(spec.completions.map_or(parallelism, |completions| completions.min(parallelism)));
    let done = i64::from(status.ready.unwrap_or(0)) + i64::from(status.succeeded.unwrap_or(0));
    ReadyPods { ready: done.min(all), all }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[rstest::rstest]
    #[case::that_is_new(json!({"parallelism": 8}), json!({}), "0/8")]
    #[case::with_some_pods(json!({"parallelism": 8, "completions": 16}), json!({"ready": 3, "active": 8}), "3/8")]
    #[case::that_is_nearly_done(json!({"parallelism": 8, "completions": 4}), json!({"ready": 1, "succeeded": 3}), "4/4")]
    #[case::of_one_pod(json!({}), json!({"succeeded": 7}), "1/1")]
    fn ready_pods_of_a_job(
        #[case] spec: serde_json::Value,
        #[case] status: serde_json::Value,
        #[case] expected: &str,
    ) {
        let mut spec = spec;
        spec["template"] = json!({});
        let job: Job =
            serde_json::from_value(json!({"metadata": {}, "spec": spec, "status": status}))
                .unwrap();
        assert_eq!(ready(&job).to_string(), expected);
    }

    #[test]
    fn ready_pods_of_a_group_count_against_its_total() {
        let mut groups = Counts::new();
        let (ready, waits) = (
            json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}),
            json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "False"}]}),
        );
        for (group, status) in [
            ("a", ready.clone()),
            ("a", waits),
            ("a", json!({"phase": "Succeeded"})),
            ("b", json!({})),
            ("c", ready.clone()),
            ("c", ready),
        ] {
            let total = if group == "c" { "1" } else { "4" };
            let pod = json!({
                "metadata": {
                    "namespace": "ns", "labels": {"kueue.x-k8s.io/pod-group-name": group},
                    "annotations": {"kueue.x-k8s.io/pod-group-total-count": total},
                },
                "status": status,
            });
            count_member(&serde_json::from_value(pod).unwrap(), &mut groups);
        }
        let shown: Vec<String> =
            groups.iter().map(|((_, group), ready)| format!("{group} {ready}")).collect();
        assert_eq!(shown, ["a 2/4", "b 0/4", "c 1/1"]);
    }
}
