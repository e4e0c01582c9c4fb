//! Names and help texts of the metrics that are kept in memory.

use prometheus_client::{
    metrics::{family::Family, gauge::Gauge},
    registry::Registry,
};
use switchyard_api::build;

use super::{Metrics, labels::BuildLabels};

impl Metrics {
    pub(super) fn register_all(&self, registry: &mut Registry) {
        let kueue = registry.sub_registry_with_prefix("kueue");
        kueue.register("build_info", "Version of this program", build_info());
        kueue.register(
            "admission_attempts",
            "Scheduling cycles by result",
            self.admission_attempts.clone(),
        );
        kueue.register(
            "admission_attempt_duration_seconds",
            "Time of a scheduling cycle",
            self.attempt_duration.clone(),
        );
        self.cluster.register(kueue);
        self.jobs.register(kueue);
        kueue.register(
            "cohort_subtree_admitted_workloads",
            "Admissions below a Cohort",
            self.cohort_admitted.family(),
        );
        kueue.register(
            "evicted_workloads",
            "Evictions per ClusterQueue and reason",
            self.evicted.family(),
        );
        kueue.register(
            "evicted_workloads_once",
            "Workloads evicted at least once per reason",
            self.evicted_once.family(),
        );
        kueue.register(
            "admission_cycle_preemption_skips",
            "Workloads that would have preempted others in the last such cycle, had others not needed the same room",
            self.preemption_skips.family(),
        );
        kueue.register(
            "preempted_workloads",
            "Preemptions per preempting ClusterQueue",
            self.preempted.family(),
        );
        kueue.register(
            "replaced_workload_slices",
            "Workloads that were replaced by what their jobs grew to, per ClusterQueue",
            self.slices_replaced.family(),
        );
        kueue.register(
            "workload_eviction_latency_seconds",
            "Time from eviction to the release of quota",
            self.eviction_latency.family(),
        );
        kueue.register(
            "pods_ready_to_evicted_time_seconds",
            "Time from all pods being ready to the eviction",
            self.ready_to_evicted.family(),
        );
        let local = kueue.sub_registry_with_prefix("local_queue");
        self.local.register(local);
        local.register(
            "evicted_workloads",
            "Evictions per LocalQueue and reason",
            self.local_evicted.family(),
        );
        registry.sub_registry_with_prefix("switchyard").register(
            "api_writes",
            "Writes to the API server by purpose and result: ok, or failed, conflicts included",
            self.writes.clone(),
        );
    }
}

/// Kueue's labels; those specific to Go are empty.
fn build_info() -> Family<BuildLabels, Gauge> {
    let arch = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    let family = Family::<BuildLabels, Gauge>::default();
    let labels = BuildLabels {
        git_version: build::VERSION,
        git_commit: build::COMMIT,
        build_date: build::DATE,
        go_version: "",
        compiler: "rustc",
        platform: format!("{}/{arch}", std::env::consts::OS),
    };
    family.get_or_create(&labels).set(1);
    family
}
