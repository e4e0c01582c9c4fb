//! Latencies between a job and its pods.

use std::time::Duration;

use prometheus_client::{
    metrics::{
        family::Family,
        histogram::{Histogram, exponential_buckets},
    },
    registry::Registry,
};

use super::{
    labels::{CreationLabels, UngatedLabels},
    series::Series,
};
use switchyard_platform::store::Key;

/// Kueue's buckets: 10 ms, doubling up to about 10 s.
fn creations() -> Histogram {
    Histogram::new(exponential_buckets(0.01, 2.0, 11))
}

/// Prometheus' default buckets.
fn prompt() -> Histogram {
    Histogram::new([0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0])
}

pub(super) struct JobMetrics {
    created: Family<CreationLabels, Histogram, fn() -> Histogram>,
    ungated: Series<UngatedLabels, Histogram>,
}

impl Default for JobMetrics {
    fn default() -> Self {
        let created = Family::new_with_constructor(creations as fn() -> Histogram);
        Self { created, ungated: Series::new(prompt) }
    }
}

impl JobMetrics {
    pub(super) fn created(
        &self,
        job_kind: &'static str,
        after: Duration,
        replica_role: &'static str,
    ) {
        self.created
            .get_or_create(&CreationLabels { job_kind, replica_role })
            .observe(after.as_secs_f64());
    }

    pub(super) fn ungated(
        &self,
        gate: &'static str,
        (cluster_queue, group): (&str, bool),
        after: Duration,
        replica_role: &'static str,
    ) {
        let (cluster_queue, is_group) =
            (cluster_queue.to_owned(), if group { "true" } else { "false" });
        let labels = UngatedLabels { name: gate, cluster_queue, is_group, replica_role };
        self.ungated.observe(&labels, after);
    }

    pub(super) fn remove(&self, cluster_queue: &Key) {
        self.ungated.remove(cluster_queue);
    }

    pub(super) fn register(&self, kueue: &mut Registry) {
        kueue.register(
            "workload_creation_latency_seconds",
            "Time from the creation of a job, in its first generation, to that of its workload",
            self.created.clone(),
        );
        kueue.register(
            "pod_scheduling_gate_removal_seconds",
            "Time from the admission of a workload to the removal of a pod's gate",
            self.ungated.family(),
        );
    }
}
