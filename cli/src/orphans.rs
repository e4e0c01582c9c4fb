//! `switchyard recover orphans`: copies on clusters with this hub's mark that the hub does not know.

use jiff::Timestamp;
use kube::{Api, ResourceExt as _};
use serde::Serialize;
use switchyard_api::v1beta2::MultiKueueCluster;

use crate::{Output, clusters, table};

/// Arguments of `switchyard recover orphans`.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Output format.
    #[arg(short, long, value_enum, default_value_t)]
    pub output: Output,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct OrphanRow {
    pub cluster: String,
    /// `namespace/name` of the Workload there.
    pub workload: String,
    /// Uid that the Workload had on the hub.
    pub workload_uid: String,
    pub attempt: i64,
    /// State as the cluster reports it.
    pub state: String,
    /// When the hub first saw it.
    pub since: Timestamp,
    /// Why it is kept, and what to do; `None` if it will be removed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// Lists the orphans.
///
/// # Errors
/// If the API cannot be read.
pub async fn run(client: kube::Client, args: &Args) -> anyhow::Result<String> {
    let api: Api<MultiKueueCluster> = Api::all(client);
    let found = clusters::list(&api).await?;
    args.output.render(&orphans(&found), |orphans| render_text(orphans, Timestamp::now()))
}

fn orphans(clusters: &[MultiKueueCluster]) -> Vec<OrphanRow> {
    let of = |cluster: &MultiKueueCluster| {
        let name = cluster.name_any();
        let listed =
            cluster.status.as_ref().map(|status| status.orphans.clone()).unwrap_or_default();
        listed.into_iter().map(move |orphan| OrphanRow {
            cluster: name.clone(),
            workload: format!("{}/{}", orphan.namespace, orphan.name),
            workload_uid: orphan.workload_uid,
            attempt: orphan.attempt,
            state: orphan.state,
            since: orphan.since.0,
            note: orphan.note,
        })
    };
    clusters.iter().flat_map(of).collect()
}

fn render_text(orphans: &[OrphanRow], now: Timestamp) -> String {
    if orphans.is_empty() {
        return "No orphans.\n".to_owned();
    }
    let rows: Vec<[String; 7]> = orphans
        .iter()
        .map(|it| {
            let age = table::age(now.as_second() - it.since.as_second());
            let attempt = it.attempt.to_string();
            let note = it.note.clone().unwrap_or_else(|| "will be removed".to_owned());
            [
                it.cluster.clone(),
                it.workload.clone(),
                attempt,
                it.state.clone(),
                age,
                it.workload_uid.clone(),
                note,
            ]
        })
        .collect();
    table::render(
        ["CLUSTER", "WORKLOAD", "ATTEMPT", "STATE", "KNOWN FOR", "UID", "WHAT NEXT"],
        &rows,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orphans_are_listed_by_cluster() {
        let east: MultiKueueCluster = serde_json::from_value(serde_json::json!({
            "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "MultiKueueCluster", "metadata": {"name": "east"},
            "spec": {"clusterSource": {"agent": {}}},
            "status": {"orphans": [{"workloadUid": "u1", "namespace": "team", "name": "job-a", "attempt": 2,
                "state": "Running", "since": "2026-11-21T10:00:00Z"},
                {"workloadUid": "u2", "namespace": "team", "name": "job-b", "attempt": 1, "state": "Running",
                "since": "2026-11-21T10:04:00Z", "note": "waits for its job"}]},
        }))
        .unwrap();
        let now = "2026-11-21T10:05:00Z".parse().unwrap();
        insta::assert_snapshot!(render_text(&orphans(&[east]), now), @r"
        CLUSTER   WORKLOAD     ATTEMPT   STATE     KNOWN FOR   UID   WHAT NEXT
        east      team/job-a   2         Running   5m0s        u1    will be removed
        east      team/job-b   1         Running   60s         u2    waits for its job
        ");
        assert_eq!(render_text(&[], now), "No orphans.\n");
    }
}
