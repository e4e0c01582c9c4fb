//! The families of metrics, each with its type, its labels and its buckets. A cluster test compares
//! them with live programs.

/// The type of a family, with the buckets of a histogram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Type {
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

impl Type {
    /// As in the text format of OpenMetrics.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Waits(_) | Self::Creation | Self::Default | Self::Finer => "histogram",
        }
    }
}

/// Programs that show a family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShownBy {
    /// Hub, agents and single mode.
    All,
    Hub,
    Agent,
    /// Every program that creates jobs on a worker cluster.
    HubAndAgent,
}

impl ShownBy {
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::Hub => "hub",
            Self::Agent => "agent",
            Self::HubAndAgent => "hub, agent",
        }
    }
}

/// A family of metrics.
#[derive(Clone, Copy, Debug)]
pub struct Family {
    /// As in a query.
    pub name: &'static str,
    pub kind: Type,
    /// Besides `replica_role`, which Kueue's families have except for the version.
    pub labels: &'static [&'static str],
}

impl Family {
    /// Whether it is one of Kueue's.
    #[must_use]
    pub fn is_of_kueue(&self) -> bool {
        self.name.starts_with("kueue_") || self.name.starts_with("multikueue_")
    }

    /// The unit of its values.
    #[must_use]
    pub fn unit(&self) -> &'static str {
        if self.name.ends_with("_seconds") {
            "seconds"
        } else if self.kind == Gauge && self.labels.contains(&"resource") {
            "cores for `cpu`, else base units"
        } else {
            ""
        }
    }

    /// The programs that show it.
    #[must_use]
    pub fn shown_by(&self) -> ShownBy {
        let own = OWN.iter().find(|(family, _)| family.name == self.name);
        match own {
            Some((_, shown_by)) => *shown_by,
            None if self.name.starts_with("multikueue_") => ShownBy::Hub,
            None => ShownBy::All,
        }
    }

    /// Whether its series are about ClusterQueues, and get the labels that come from those.
    #[must_use]
    pub fn is_of_cluster_queue(&self) -> bool {
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

/// The families of Kueue v0.19.2 (`pkg/metrics/metrics.go`).
pub const FAMILIES: &[Family] = &[
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
pub const BUILD: &str = "kueue_build_info";

/// Families that Kueue has after v0.19 and that are shown here already.
pub const LATER: &[Family] = &[
    family("kueue_execution_time_seconds", Waits(14), BY_CLASS),
    family("kueue_local_queue_execution_time_seconds", Waits(14), LOCAL_BY_CLASS),
    family("multikueue_cluster_status", Gauge, &["cluster_queue", "cluster", "active"]),
    family("multikueue_workloads_evicted_total", Counter, &["cluster_queue", "cluster", "reason"]),
];

/// Switchyard's own families.
pub const OWN: &[(Family, ShownBy)] = &[
    (family("switchyard_api_writes_total", Counter, &["what", "result"]), ShownBy::All),
    (
        family("switchyard_topology_free", Gauge, &["flavor", "level", "resource", "replica_role"]),
        ShownBy::All,
    ),
    (
        family(
            "switchyard_topology_largest_free_domain",
            Gauge,
            &["flavor", "level", "resource", "replica_role"],
        ),
        ShownBy::All,
    ),
    (family("switchyard_events_dropped_total", Counter, &[]), ShownBy::All),
    (family("switchyard_objects_skipped_total", Counter, &[]), ShownBy::All),
    (family("switchyard_audit_findings", Gauge, &["kind"]), ShownBy::All),
    (family("switchyard_audit_looks_total", Counter, &["result"]), ShownBy::All),
    (family("switchyard_cluster_connected", Gauge, &["cluster"]), ShownBy::Hub),
    (family("switchyard_cluster_able", Gauge, &["cluster"]), ShownBy::Hub),
    (family("switchyard_cluster_sessions", Gauge, &[]), ShownBy::Hub),
    (family("switchyard_cluster_orphans", Gauge, &["cluster"]), ShownBy::Hub),
    (family("switchyard_node_room_out_of_bounds_total", Counter, &["cluster"]), ShownBy::Hub),
    (family("switchyard_observations_dropped_total", Counter, &["cluster"]), ShownBy::Hub),
    (
        family("switchyard_workloads_taken_back_total", Counter, &["cluster", "reason"]),
        ShownBy::Hub,
    ),
    (family("switchyard_workloads_in_trouble", Gauge, &["cluster", "reason"]), ShownBy::Hub),
    (family("switchyard_breaker_open", Gauge, &[]), ShownBy::Hub),
    (family("switchyard_foreign_marks_total", Counter, &["cluster"]), ShownBy::HubAndAgent),
    (family("switchyard_dry_runs_total", Counter, &["result"]), ShownBy::HubAndAgent),
    (family("switchyard_agent_session_up", Gauge, &[]), ShownBy::Agent),
];
