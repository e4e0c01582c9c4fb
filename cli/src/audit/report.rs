use serde::Serialize;
use switchyard_audit::{Cluster, Finding};

use crate::output::counted;
use crate::table;

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// Findings of both lists.
    pub findings: Vec<Finding>,
    /// Counts of the compared objects, the hub's first.
    pub listed: Vec<Listed>,
    /// The namespace, if only one was audited.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
}

/// Numbers of objects listed on one cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Listed {
    pub cluster: String,
    /// Pods, running or not.
    pub pods: usize,
    pub workloads: usize,
    pub cluster_queues: usize,
}

impl Listed {
    pub(super) fn of(cluster: &Cluster) -> Self {
        let (pods, workloads) = (cluster.pods.len(), cluster.workloads.len());
        Self {
            cluster: cluster.name.clone(),
            pods,
            workloads,
            cluster_queues: cluster.cluster_queues.len(),
        }
    }

    fn text(&self) -> String {
        let Self { cluster, pods, workloads, cluster_queues } = self;
        let [pods, workloads, cluster_queues] =
            [(*pods, "pod"), (*workloads, "Workload"), (*cluster_queues, "ClusterQueue")]
                .map(|(count, thing)| counted(count, thing));
        format!("{pods}, {workloads}, {cluster_queues} on {cluster}")
    }
}

impl Report {
    /// The findings as a table, with the counts.
    #[must_use]
    pub fn text(&self) -> String {
        let listed: Vec<String> = self.listed.iter().map(Listed::text).collect();
        let left_out = self.namespace.as_ref().map(|namespace| {
            format!("Only namespace {namespace} was looked at: sums over queues and cohorts were not compared.\n")
        });
        let (listed, left_out) = (listed.join("; "), left_out.unwrap_or_default());
        if self.findings.is_empty() {
            return format!("No findings: {listed}.\n{left_out}");
        }
        let row =
            |it: &Finding| [it.kind.name().to_owned(), it.cluster.clone(), it.message.clone()];
        let rows: Vec<[String; 3]> = self.findings.iter().map(row).collect();
        let table = table::render(["FINDING", "CLUSTER", "WHAT"], &rows);
        let found = counted(rows.len(), "finding");
        format!("{table}\n{found}: {listed}.\n{left_out}")
    }
}
