//! What `/metrics` shows: Kueue's metrics under Kueue's names, and a few of our own under `switchyard_`.
//!
//! Counters and histograms are kept here. Gauges are read from the published views when somebody asks, so a queue that is
//! gone leaves no series behind.

mod gauges;

use std::{
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU8, Ordering},
    },
    time::Duration,
};

pub(crate) use gauges::Gauges;
use prometheus_client::{
    encoding::{EncodeLabelSet, text},
    metrics::{
        counter::Counter,
        family::Family,
        histogram::{Histogram, exponential_buckets},
        info::Info,
    },
    registry::Registry,
};
use switchyard_api::v1beta2::Workload;

/// Who we are among replicas: a label on every metric of Kueue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplicaRole {
    /// Without leader election.
    Standalone,
    /// The leader.
    Leader,
    /// Not the leader.
    Follower,
}

impl ReplicaRole {
    const ALL: [Self; 3] = [Self::Standalone, Self::Leader, Self::Follower];

    /// The label's value.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Standalone => "standalone",
            Self::Leader => "leader",
            Self::Follower => "follower",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResultLabels {
    result: &'static str,
    replica_role: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct QueueLabels {
    cluster_queue: String,
    priority_class: String,
    replica_role: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct LocalQueueLabels {
    name: String,
    namespace: String,
    priority_class: String,
    replica_role: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct EvictedLabels {
    cluster_queue: String,
    reason: String,
    underlying_cause: String,
    priority_class: String,
    replica_role: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct LocalQueueEvictedLabels {
    name: String,
    namespace: String,
    reason: String,
    underlying_cause: String,
    priority_class: String,
    replica_role: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct EvictionLatencyLabels {
    cluster_queue: String,
    reason: String,
    replica_role: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PreemptedLabels {
    preempting_cluster_queue: String,
    reason: &'static str,
    replica_role: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct WriteLabels {
    what: &'static str,
    result: &'static str,
}

type Waits<L> = Family<L, Histogram, fn() -> Histogram>;

// Kueue's buckets: 1 s, then 2.5 s doubling up to about 20,480 s.
fn waits() -> Histogram {
    Histogram::new(std::iter::once(1.0).chain(exponential_buckets(2.5, 2.0, 14)))
}

// Kueue keeps the Prometheus defaults for the attempt's duration; ours take well under a millisecond, so finer below.
fn attempts() -> Histogram {
    Histogram::new([0.0001, 0.0005, 0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0])
}

/// All metrics of one controller, and the registry that renders them.
pub struct Metrics {
    registry: Mutex<Registry>,
    role: AtomicU8,
    admission_attempts: Family<ResultLabels, Counter>,
    attempt_duration: Waits<ResultLabels>,
    quota_reserved: Family<QueueLabels, Counter>,
    quota_reserved_wait: Waits<QueueLabels>,
    admitted: Family<QueueLabels, Counter>,
    admission_wait: Waits<QueueLabels>,
    checks_wait: Waits<QueueLabels>,
    finished: Family<QueueLabels, Counter>,
    execution_time: Waits<QueueLabels>,
    evicted: Family<EvictedLabels, Counter>,
    evicted_once: Family<EvictedLabels, Counter>,
    eviction_latency: Waits<EvictionLatencyLabels>,
    preempted: Family<PreemptedLabels, Counter>,
    lq_quota_reserved: Family<LocalQueueLabels, Counter>,
    lq_quota_reserved_wait: Waits<LocalQueueLabels>,
    lq_admitted: Family<LocalQueueLabels, Counter>,
    lq_admission_wait: Waits<LocalQueueLabels>,
    lq_checks_wait: Waits<LocalQueueLabels>,
    lq_finished: Family<LocalQueueLabels, Counter>,
    lq_execution_time: Waits<LocalQueueLabels>,
    lq_evicted: Family<LocalQueueEvictedLabels, Counter>,
    writes: Family<WriteLabels, Counter>,
}

impl std::fmt::Debug for Metrics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

impl Default for Metrics {
    fn default() -> Self {
        let wait = waits as fn() -> Histogram;
        let metrics = Self {
            registry: Mutex::default(),
            role: AtomicU8::new(0),
            admission_attempts: Family::default(),
            attempt_duration: Family::new_with_constructor(attempts as fn() -> Histogram),
            quota_reserved: Family::default(),
            quota_reserved_wait: Family::new_with_constructor(wait),
            admitted: Family::default(),
            admission_wait: Family::new_with_constructor(wait),
            checks_wait: Family::new_with_constructor(wait),
            finished: Family::default(),
            execution_time: Family::new_with_constructor(wait),
            evicted: Family::default(),
            evicted_once: Family::default(),
            eviction_latency: Family::new_with_constructor(wait),
            preempted: Family::default(),
            lq_quota_reserved: Family::default(),
            lq_quota_reserved_wait: Family::new_with_constructor(wait),
            lq_admitted: Family::default(),
            lq_admission_wait: Family::new_with_constructor(wait),
            lq_checks_wait: Family::new_with_constructor(wait),
            lq_finished: Family::default(),
            lq_execution_time: Family::new_with_constructor(wait),
            lq_evicted: Family::default(),
            writes: Family::default(),
        };
        metrics.register(|registry| metrics.register_all(registry));
        metrics
    }
}

impl Metrics {
    /// Lets others put their own metrics into the same `/metrics`.
    pub fn register(&self, register: impl FnOnce(&mut Registry)) {
        register(&mut self.registry.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// The metrics as OpenMetrics text.
    #[must_use]
    pub fn render(&self) -> String {
        let mut page = String::new();
        // Writing into a String cannot fail.
        let _ = text::encode(&mut page, &self.registry.lock().unwrap_or_else(PoisonError::into_inner));
        page
    }

    /// Sets the `replica_role` that from now on labels what is counted.
    pub fn set_role(&self, role: ReplicaRole) {
        self.role.store(role as u8, Ordering::Relaxed);
    }

    /// The current `replica_role`.
    #[must_use]
    pub fn role(&self) -> ReplicaRole {
        ReplicaRole::ALL[usize::from(self.role.load(Ordering::Relaxed)).min(2)]
    }

    /// A scheduling cycle ended, having admitted something or not.
    pub fn attempt(&self, success: bool, took: Duration) {
        let labels = ResultLabels {
            result: if success { "success" } else { "inadmissible" },
            replica_role: self.role().as_str(),
        };
        self.admission_attempts.get_or_create(&labels).inc();
        self.attempt_duration.get_or_create(&labels).observe(took.as_secs_f64());
    }

    /// Quota was reserved after a wait.
    pub fn quota_reserved(&self, workload: &Workload, cluster_queue: &str, waited: Duration) {
        let (queue, local) = self.labels(workload, cluster_queue);
        self.quota_reserved.get_or_create(&queue).inc();
        self.quota_reserved_wait.get_or_create(&queue).observe(waited.as_secs_f64());
        self.lq_quota_reserved.get_or_create(&local).inc();
        self.lq_quota_reserved_wait.get_or_create(&local).observe(waited.as_secs_f64());
    }

    /// A workload was admitted: how long since it queued, and since its quota was reserved (if it had checks).
    pub fn admitted(&self, workload: &Workload, cluster_queue: &str, waited: Duration, checks: Option<Duration>) {
        let (queue, local) = self.labels(workload, cluster_queue);
        self.admitted.get_or_create(&queue).inc();
        self.admission_wait.get_or_create(&queue).observe(waited.as_secs_f64());
        self.lq_admitted.get_or_create(&local).inc();
        self.lq_admission_wait.get_or_create(&local).observe(waited.as_secs_f64());
        if let Some(checks) = checks {
            self.checks_wait.get_or_create(&queue).observe(checks.as_secs_f64());
            self.lq_checks_wait.get_or_create(&local).observe(checks.as_secs_f64());
        }
    }

    /// A workload finished, after this long since its admission.
    pub fn finished(&self, workload: &Workload, cluster_queue: &str, ran: Option<Duration>) {
        let (queue, local) = self.labels(workload, cluster_queue);
        self.finished.get_or_create(&queue).inc();
        self.lq_finished.get_or_create(&local).inc();
        if let Some(ran) = ran {
            self.execution_time.get_or_create(&queue).observe(ran.as_secs_f64());
            self.lq_execution_time.get_or_create(&local).observe(ran.as_secs_f64());
        }
    }

    /// A workload was evicted; `first` when it is the first time for this reason and cause.
    pub fn evicted(&self, workload: &Workload, cluster_queue: &str, reason: &str, cause: &str, first: bool) {
        let (queue, local) = self.labels(workload, cluster_queue);
        let labels = EvictedLabels {
            cluster_queue: queue.cluster_queue,
            reason: reason.into(),
            underlying_cause: cause.into(),
            priority_class: queue.priority_class,
            replica_role: queue.replica_role,
        };
        self.evicted.get_or_create(&labels).inc();
        if first {
            self.evicted_once.get_or_create(&labels).inc();
        }
        let local = LocalQueueEvictedLabels {
            name: local.name,
            namespace: local.namespace,
            reason: labels.reason,
            underlying_cause: labels.underlying_cause,
            priority_class: local.priority_class,
            replica_role: local.replica_role,
        };
        self.lq_evicted.get_or_create(&local).inc();
    }

    /// An evicted workload gave its quota back this long after the eviction.
    pub fn eviction_completed(&self, cluster_queue: &str, reason: &str, after: Duration) {
        let labels = EvictionLatencyLabels {
            cluster_queue: cluster_queue.into(),
            reason: reason.into(),
            replica_role: self.role().as_str(),
        };
        self.eviction_latency.get_or_create(&labels).observe(after.as_secs_f64());
    }

    /// A workload was preempted for one of this ClusterQueue.
    pub fn preempted(&self, by: &str, reason: &'static str) {
        let labels =
            PreemptedLabels { preempting_cluster_queue: by.into(), reason, replica_role: self.role().as_str() };
        self.preempted.get_or_create(&labels).inc();
    }

    /// We wrote something to the API server.
    pub fn wrote(&self, what: &'static str, ok: bool) {
        self.writes.get_or_create(&WriteLabels { what, result: if ok { "ok" } else { "failed" } }).inc();
    }

    fn labels(&self, workload: &Workload, cluster_queue: &str) -> (QueueLabels, LocalQueueLabels) {
        let priority_class =
            workload.spec.priority_class_ref.as_ref().map(|class| class.name.clone()).unwrap_or_default();
        let replica_role = self.role().as_str();
        let queue =
            QueueLabels { cluster_queue: cluster_queue.into(), priority_class: priority_class.clone(), replica_role };
        let local = LocalQueueLabels {
            name: workload.spec.queue_name.clone().unwrap_or_default(),
            namespace: workload.metadata.namespace.clone().unwrap_or_default(),
            priority_class,
            replica_role,
        };
        (queue, local)
    }

    fn register_all(&self, registry: &mut Registry) {
        let kueue = registry.sub_registry_with_prefix("kueue");
        let build = Info::new(vec![("git_version", env!("CARGO_PKG_VERSION"))]);
        kueue.register("build", "Version of this program", build);
        kueue.register("admission_attempts", "Scheduling cycles by result", self.admission_attempts.clone());
        kueue.register(
            "admission_attempt_duration_seconds",
            "Time of a scheduling cycle",
            self.attempt_duration.clone(),
        );
        kueue.register("quota_reserved_workloads", "Quota reservations per ClusterQueue", self.quota_reserved.clone());
        kueue.register(
            "quota_reserved_wait_time_seconds",
            "Time from queued to reserved",
            self.quota_reserved_wait.clone(),
        );
        kueue.register("admitted_workloads", "Admissions per ClusterQueue", self.admitted.clone());
        kueue.register("admission_wait_time_seconds", "Time from queued to admitted", self.admission_wait.clone());
        kueue.register(
            "admission_checks_wait_time_seconds",
            "Time from reserved to admitted",
            self.checks_wait.clone(),
        );
        kueue.register("finished_workloads", "Finished workloads per ClusterQueue", self.finished.clone());
        kueue.register("execution_time_seconds", "Time from admitted to finished", self.execution_time.clone());
        kueue.register("evicted_workloads", "Evictions per ClusterQueue and reason", self.evicted.clone());
        kueue.register(
            "evicted_workloads_once",
            "Workloads evicted at least once per reason",
            self.evicted_once.clone(),
        );
        kueue.register("preempted_workloads", "Preemptions per preempting ClusterQueue", self.preempted.clone());
        kueue.register(
            "workload_eviction_latency_seconds",
            "Time from eviction to the release of quota",
            self.eviction_latency.clone(),
        );
        let local = kueue.sub_registry_with_prefix("local_queue");
        local.register("quota_reserved_workloads", "Quota reservations per LocalQueue", self.lq_quota_reserved.clone());
        local.register(
            "quota_reserved_wait_time_seconds",
            "Time from queued to reserved",
            self.lq_quota_reserved_wait.clone(),
        );
        local.register("admitted_workloads", "Admissions per LocalQueue", self.lq_admitted.clone());
        local.register("admission_wait_time_seconds", "Time from queued to admitted", self.lq_admission_wait.clone());
        local.register(
            "admission_checks_wait_time_seconds",
            "Time from reserved to admitted",
            self.lq_checks_wait.clone(),
        );
        local.register("finished_workloads", "Finished workloads per LocalQueue", self.lq_finished.clone());
        local.register("execution_time_seconds", "Time from admitted to finished", self.lq_execution_time.clone());
        local.register("evicted_workloads", "Evictions per LocalQueue and reason", self.lq_evicted.clone());
        registry.sub_registry_with_prefix("switchyard").register(
            "api_writes",
            "Writes to the API server by what they were for",
            self.writes.clone(),
        );
    }
}
