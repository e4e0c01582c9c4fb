//! The families that Kueue v0.19.2 shows (`pkg/metrics/metrics.go`), each with its type, its labels and its buckets.

/// A family, and where it is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Type {
    Counter,
    Gauge,
    /// 1 s, then 2.5 s doubling, this many in all.
    Waits(u32),
    /// 10 ms doubling, eleven in all.
    Creation,
    /// The defaults of Prometheus.
    Default,
    /// The defaults of Prometheus among others that are finer: a cycle here takes less than a millisecond.
    Finer,
}

use Type::{Counter, Creation, Default, Finer, Gauge, Waits};

/// A family of Kueue's.
pub(crate) struct Family {
    /// As in a query.
    pub(crate) name: &'static str,
    pub(crate) kind: Type,
    /// Besides `replica_role`, which all but the version have.
    pub(crate) labels: &'static [&'static str],
}

impl Family {
    /// Whether its series are about ClusterQueues, and get the labels that come from those.
    pub(crate) fn is_of_cluster_queue(&self) -> bool {
        let of = |label: &&str| ["cluster_queue", "preempting_cluster_queue"].contains(label);
        let kueues =
            self.name.strip_prefix("kueue_").is_some_and(|name| !name.starts_with("local_queue_"));
        kueues && self.labels.iter().any(of)
    }
}

const fn family(name: &'static str, kind: Type, labels: &'static [&'static str]) -> Family {
    Family { name, kind, labels }
}

const CLUSTER_QUEUE: &[&str] = &["cluster_queue"];
const BY_CLASS: &[&str] = &["cluster_queue", "priority_class"];
const LOCAL_QUEUE: &[&str] = &["name", "namespace"];
const LOCAL_BY_CLASS: &[&str] = &["name", "namespace", "priority_class"];
const QUOTA: &[&str] = &["cohort", "cluster_queue", "flavor", "resource"];
const LOCAL_QUOTA: &[&str] = &["name", "namespace", "flavor", "resource"];
const COHORT_QUOTA: &[&str] = &["cohort", "flavor", "resource"];
const EVICTED: &[&str] = &["cluster_queue", "reason", "underlying_cause", "priority_class"];

pub(crate) const FAMILIES: &[Family] = &[
    family("kueue_admission_attempts_total", Counter, &["result"]),
    family("kueue_admission_attempt_duration_seconds", Finer, &["result"]),
    family("multikueue_workloads_dispatched_total", Counter, &["cluster_queue", "cluster"]),
    family("multikueue_workloads_admitted_total", Counter, &["cluster_queue", "cluster"]),
    family("kueue_admission_cycle_preemption_skips", Gauge, CLUSTER_QUEUE),
    family(
        BUILD,
        Gauge,
        &["git_version", "git_commit", "build_date", "go_version", "compiler", "platform"],
    ),
    family("kueue_pending_workloads", Gauge, &["cluster_queue", "status"]),
    family("kueue_local_queue_pending_workloads", Gauge, &["name", "namespace", "status"]),
    family("kueue_finished_workloads", Gauge, CLUSTER_QUEUE),
    family("kueue_local_queue_finished_workloads", Gauge, LOCAL_QUEUE),
    family("kueue_quota_reserved_workloads_total", Counter, BY_CLASS),
    family("kueue_local_queue_quota_reserved_workloads_total", Counter, LOCAL_BY_CLASS),
    family("kueue_finished_workloads_total", Counter, BY_CLASS),
    family("kueue_local_queue_finished_workloads_total", Counter, LOCAL_BY_CLASS),
    family("kueue_quota_reserved_wait_time_seconds", Waits(14), BY_CLASS),
    family("kueue_local_queue_quota_reserved_wait_time_seconds", Waits(14), LOCAL_BY_CLASS),
    family(
        "kueue_pods_ready_to_evicted_time_seconds",
        Waits(14),
        &["cluster_queue", "reason", "underlying_cause"],
    ),
    family("kueue_admitted_workloads_total", Counter, BY_CLASS),
    family("kueue_local_queue_admitted_workloads_total", Counter, LOCAL_BY_CLASS),
    family("kueue_admission_wait_time_seconds", Waits(16), BY_CLASS),
    family("kueue_local_queue_admission_wait_time_seconds", Waits(14), LOCAL_BY_CLASS),
    family("kueue_ready_wait_time_seconds", Waits(14), BY_CLASS),
    family("kueue_local_queue_ready_wait_time_seconds", Waits(14), LOCAL_BY_CLASS),
    family("kueue_admitted_until_ready_wait_time_seconds", Waits(14), BY_CLASS),
    family("kueue_local_queue_admitted_until_ready_wait_time_seconds", Waits(14), LOCAL_BY_CLASS),
    family("kueue_admission_checks_wait_time_seconds", Waits(14), BY_CLASS),
    family("kueue_local_queue_admission_checks_wait_time_seconds", Waits(14), LOCAL_BY_CLASS),
    family("kueue_workload_creation_latency_seconds", Creation, &["job_kind"]),
    family(
        "kueue_pod_scheduling_gate_removal_seconds",
        Default,
        &["name", "cluster_queue", "is_group"],
    ),
    family("kueue_evicted_workloads_total", Counter, EVICTED),
    family("kueue_evicted_workloads_once_total", Counter, EVICTED),
    family(
        "kueue_local_queue_evicted_workloads_total",
        Counter,
        &["name", "namespace", "reason", "underlying_cause", "priority_class"],
    ),
    family("kueue_replaced_workload_slices_total", Counter, CLUSTER_QUEUE),
    family("kueue_preempted_workloads_total", Counter, &["preempting_cluster_queue", "reason"]),
    family("kueue_workload_eviction_latency_seconds", Waits(14), &["cluster_queue", "reason"]),
    family("kueue_reserving_active_workloads", Gauge, CLUSTER_QUEUE),
    family("kueue_local_queue_reserving_active_workloads", Gauge, LOCAL_QUEUE),
    family("kueue_admitted_active_workloads", Gauge, CLUSTER_QUEUE),
    family("kueue_local_queue_admitted_active_workloads", Gauge, LOCAL_QUEUE),
    family("kueue_cluster_queue_status", Gauge, &["cluster_queue", "status"]),
    family("kueue_local_queue_status", Gauge, &["name", "namespace", "active"]),
    family("kueue_unadmitted_workloads", Gauge, &["cluster_queue", "reason", "underlying_cause"]),
    family(
        "kueue_local_queue_unadmitted_workloads",
        Gauge,
        &["name", "namespace", "cluster_queue", "reason", "underlying_cause"],
    ),
    family("kueue_cluster_queue_resource_reservation", Gauge, QUOTA),
    family("kueue_cluster_queue_resource_pending", Gauge, &["cluster_queue", "resource"]),
    family("kueue_cluster_queue_resource_usage", Gauge, QUOTA),
    family("kueue_local_queue_resource_reservation", Gauge, LOCAL_QUOTA),
    family("kueue_local_queue_resource_usage", Gauge, LOCAL_QUOTA),
    family(
        "kueue_local_queue_admission_fair_sharing_usage",
        Gauge,
        &["name", "namespace", "cluster_queue"],
    ),
    family("kueue_cluster_queue_nominal_quota", Gauge, QUOTA),
    family("kueue_cluster_queue_borrowing_limit", Gauge, QUOTA),
    family("kueue_cluster_queue_lending_limit", Gauge, QUOTA),
    family("kueue_cluster_queue_weighted_share", Gauge, &["cluster_queue", "cohort"]),
    family("kueue_cohort_weighted_share", Gauge, &["cohort"]),
    family("kueue_cohort_subtree_quota", Gauge, COHORT_QUOTA),
    family("kueue_cohort_subtree_admitted_workloads_total", Counter, &["cohort", "priority_class"]),
    family("kueue_cohort_subtree_resource_reservations", Gauge, COHORT_QUOTA),
    family("kueue_cohort_subtree_admitted_active_workloads", Gauge, &["cohort"]),
    family("kueue_cohort_info", Gauge, &["cohort", "parent_cohort", "root_cohort"]),
    family("kueue_cluster_queue_info", Gauge, &["cluster_queue", "parent_cohort", "root_cohort"]),
];

/// The one family without `replica_role`.
pub(crate) const BUILD: &str = "kueue_build_info";

/// Families that Kueue has after v0.19 and that are shown here already.
pub(crate) const LATER: &[Family] = &[
    family("kueue_execution_time_seconds", Waits(14), BY_CLASS),
    family("kueue_local_queue_execution_time_seconds", Waits(14), LOCAL_BY_CLASS),
    family("multikueue_cluster_status", Gauge, &["cluster_queue", "cluster", "active"]),
    family("multikueue_workloads_evicted_total", Counter, &["cluster_queue", "cluster", "reason"]),
];

/// Families that need something that does not happen here, and what.
pub(crate) const UNSEEN: &[(&str, &str)] = &[
    ("kueue_replaced_workload_slices_total", "an elastic job that grows"),
    ("kueue_admission_cycle_preemption_skips", "two that would preempt in one cycle"),
];
