//! Ready pods of Jobs. A Workload only says whether all its pods are ready.

use std::collections::BTreeMap;

use k8s_openapi::api::batch::v1::Job;
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt as _};

use super::PAGE;
use crate::job_row::{JobRow, JobState, ReadyPods};

/// Fills in ready pods from Jobs. Without the right to list Jobs, nothing is filled in.
pub(crate) async fn fill_in(client: &Client, namespace: Option<&str>, rows: &mut [JobRow]) {
    let runs = |row: &JobRow| matches!(row.state, JobState::Admitted | JobState::Running);
    let wanted = |row: &JobRow| row.kind == "Job" && runs(row) && !row.is_stale;
    if !rows.iter().any(wanted) {
        return;
    }
    let jobs: Api<Job> = match namespace {
        Some(namespace) => Api::namespaced(client.clone(), namespace),
        None => Api::all(client.clone()),
    };
    let mut known = BTreeMap::new();
    let mut params = ListParams::default().limit(PAGE);
    loop {
        let Ok(page) = jobs.list(&params).await else { return };
        let of = |job: &Job| ((job.namespace().unwrap_or_default(), job.name_any()), ready(job));
        known.extend(page.items.iter().map(of));
        match page.metadata.continue_ {
            Some(token) if !token.is_empty() => params = params.continue_token(&token),
            _ => break,
        }
    }
    for row in rows.iter_mut().filter(|row| wanted(row)) {
        row.ready = known.get(&(row.namespace.clone(), row.job.clone())).copied().or(row.ready);
    }
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
}
