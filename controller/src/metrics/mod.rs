//! `/metrics`: Kueue's metrics under Kueue's names, and Switchyard's own under `switchyard_`.
//!
//! Counters and histograms are kept here and removed with the queue that they are about. Gauges are
//! read from the published views at each scrape.

pub(crate) mod custom;
mod jobs;
mod labels;
mod lifecycle;
mod local_queue_filter;
mod registration;
mod series;

use std::{
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU8, Ordering},
    },
    time::Duration,
};

pub(crate) use custom::CustomLabels;
use jobs::JobMetrics;
use labels::{
    ClusterQueueLabels, CohortLabels, EvictedLabels, EvictionLatencyLabels,
    LocalQueueEvictedLabels, LocalQueueLabels, PreemptedLabels, QueueLabels, ReadyToEvictedLabels,
    ResultLabels, WriteLabels,
};
pub use lifecycle::Readiness;
use lifecycle::{LifecycleMetrics, long_waits, waits};
pub(crate) use local_queue_filter::LocalQueueFilter;
use parking_lot::Mutex;
use prometheus_client::{
    encoding::text,
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
    registry::Registry,
};
use series::Series;
use switchyard_api::v1beta2::Workload;

use switchyard_platform::store::Key;

/// Role of a replica, a label on all of Kueue's metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplicaRole {
    /// Leader election is off.
    Standalone,
    Leader,
    Follower,
}

impl ReplicaRole {
    const ALL: [Self; 3] = [Self::Standalone, Self::Leader, Self::Follower];

    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Standalone => "standalone",
            Self::Leader => "leader",
            Self::Follower => "follower",
        }
    }
}

// Kueue uses Prometheus' default buckets. Switchyard's cycles take well under a millisecond, so
// there are finer ones below.
fn attempts() -> Histogram {
    Histogram::new([
        0.0001, 0.0005, 0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
    ])
}

/// All metrics of one controller, with the registry that renders them.
pub struct Metrics {
    registry: Mutex<Registry>,
    role: AtomicU8,
    local_queue_filter: OnceLock<LocalQueueFilter>,
    custom: OnceLock<Arc<CustomLabels>>,
    admission_attempts: Family<ResultLabels, Counter>,
    attempt_duration: Family<ResultLabels, Histogram, fn() -> Histogram>,
    cluster: LifecycleMetrics<QueueLabels>,
    local: LifecycleMetrics<LocalQueueLabels>,
    jobs: JobMetrics,
    cohort_admitted: Series<CohortLabels, Counter>,
    evicted: Series<EvictedLabels, Counter>,
    evicted_once: Series<EvictedLabels, Counter>,
    local_evicted: Series<LocalQueueEvictedLabels, Counter>,
    eviction_latency: Series<EvictionLatencyLabels, Histogram>,
    ready_to_evicted: Series<ReadyToEvictedLabels, Histogram>,
    preempted: Series<PreemptedLabels, Counter>,
    slices_replaced: Series<ClusterQueueLabels, Counter>,
    preemption_skips: Series<ClusterQueueLabels, Gauge>,
    writes: Family<WriteLabels, Counter>,
}

impl std::fmt::Debug for Metrics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

impl Default for Metrics {
    fn default() -> Self {
        let metrics = Self {
            registry: Mutex::default(),
            role: AtomicU8::new(0),
            local_queue_filter: OnceLock::new(),
            custom: OnceLock::new(),
            admission_attempts: Family::default(),
            attempt_duration: Family::new_with_constructor(attempts as fn() -> Histogram),
            cluster: LifecycleMetrics::new(long_waits),
            local: LifecycleMetrics::new(waits),
            jobs: JobMetrics::default(),
            cohort_admitted: Series::new(Counter::default),
            evicted: Series::new(Counter::default),
            evicted_once: Series::new(Counter::default),
            local_evicted: Series::new(Counter::default),
            eviction_latency: Series::new(waits),
            ready_to_evicted: Series::new(waits),
            preempted: Series::new(Counter::default),
            slices_replaced: Series::new(Counter::default),
            preemption_skips: Series::new(Gauge::default),
            writes: Family::default(),
        };
        metrics.register(|registry| metrics.register_all(registry));
        metrics
    }
}

impl Metrics {
    /// Registers further metrics in the same `/metrics`.
    pub fn register(&self, register: impl FnOnce(&mut Registry)) {
        register(&mut self.registry.lock());
    }

    #[must_use]
    pub fn render(&self) -> String {
        let mut page = String::new();
        // Writing into a String cannot fail.
        let _ = text::encode(&mut page, &self.registry.lock());
        match self.custom.get() {
            Some(custom) => custom.add_to(&page),
            None => page,
        }
    }

    /// Sets the `replica_role` of later observations.
    pub fn set_role(&self, role: ReplicaRole) {
        self.role.store(role as u8, Ordering::Relaxed);
    }

    #[must_use]
    pub fn role(&self) -> ReplicaRole {
        ReplicaRole::ALL[usize::from(self.role.load(Ordering::Relaxed)).min(2)]
    }

    /// Sets which LocalQueues have metrics; works once. Until then all have.
    pub(crate) fn set_local_queue_filter(&self, local_queues: LocalQueueFilter) {
        let _ = self.local_queue_filter.set(local_queues);
    }

    /// Sets the labels taken from objects; works once.
    pub(crate) fn set_custom_labels(&self, custom: Arc<CustomLabels>) {
        let _ = self.custom.set(custom);
    }

    #[must_use]
    pub fn shows_local_queue(&self, local_queue: &Key) -> bool {
        self.local_queue_filter
            .get()
            .is_none_or(|local_queue_filter| local_queue_filter.has(local_queue))
    }

    fn shows_labels(&self, local: &LocalQueueLabels) -> bool {
        self.shows_local_queue(&Key::new(&local.namespace, &local.name))
    }

    /// Counts a scheduling cycle; `success` if it admitted a workload.
    pub fn attempt(&self, success: bool, took: Duration) {
        let labels = ResultLabels {
            result: if success { "success" } else { "inadmissible" },
            replica_role: self.role().as_str(),
        };
        self.admission_attempts.get_or_create(&labels).inc();
        self.attempt_duration.get_or_create(&labels).observe(took.as_secs_f64());
    }

    /// Counts a quota reservation, `waited` after queueing.
    pub fn quota_reserved(&self, workload: &Workload, cluster_queue: &str, waited: Duration) {
        let (queue, local) = self.labels(workload, cluster_queue);
        self.cluster.quota_reserved(&queue, waited);
        if self.shows_labels(&local) {
            self.local.quota_reserved(&local, waited);
        }
    }

    /// Counts an admission. `waited`: since queueing; `checks`: since the reservation, if the
    /// workload has admission checks; `cohorts`: all above its ClusterQueue.
    pub fn admitted(
        &self,
        workload: &Workload,
        cluster_queue: &str,
        cohorts: &[String],
        waited: Duration,
        checks: Option<Duration>,
    ) {
        let (queue, local) = self.labels(workload, cluster_queue);
        self.cluster.admitted(&queue, waited, checks);
        if self.shows_labels(&local) {
            self.local.admitted(&local, waited, checks);
        }
        for cohort in cohorts {
            let (cohort, priority_class) = (cohort.clone(), queue.priority_class.clone());
            self.cohort_admitted.inc(&CohortLabels {
                cohort,
                priority_class,
                replica_role: queue.replica_role,
            });
        }
    }

    /// Records that all pods of a workload are ready for the first time.
    pub fn ready(&self, workload: &Workload, cluster_queue: &str, after: Readiness) {
        let (queue, local) = self.labels(workload, cluster_queue);
        self.cluster.ready(&queue, after);
        if self.shows_labels(&local) {
            self.local.ready(&local, after);
        }
    }

    /// Counts a finished workload. `ran`: since its admission.
    pub fn finished(&self, workload: &Workload, cluster_queue: &str, ran: Option<Duration>) {
        let (queue, local) = self.labels(workload, cluster_queue);
        self.cluster.finished(&queue, ran);
        if self.shows_labels(&local) {
            self.local.finished(&local, ran);
        }
    }

    /// Records the creation of a job's Workload, `after` the job's creation.
    pub fn workload_created(&self, job_kind: &'static str, after: Duration) {
        self.jobs.created(job_kind, after, self.role().as_str());
    }

    /// Records the removal of a pod's gate, `after` the admission of its workload.
    pub fn ungated(&self, gate: &'static str, cluster_queue: &str, group: bool, after: Duration) {
        self.jobs.ungated(gate, (cluster_queue, group), after, self.role().as_str());
    }

    pub fn evicted(
        &self,
        workload: &Workload,
        cluster_queue: &str,
        eviction: &CountedEviction<'_>,
    ) {
        let CountedEviction { reason, cause, first, ready } = *eviction;
        let (queue, local) = self.labels(workload, cluster_queue);
        let labels = EvictedLabels::new(queue, reason, cause);
        self.evicted.inc(&labels);
        if first {
            self.evicted_once.inc(&labels);
        }
        if self.shows_labels(&local) {
            self.local_evicted.inc(&LocalQueueEvictedLabels::new(local, reason, cause));
        }
        if let Some(ready) = ready {
            let labels = ReadyToEvictedLabels {
                cluster_queue: cluster_queue.into(),
                reason: reason.into(),
                underlying_cause: cause.into(),
                replica_role: self.role().as_str(),
            };
            self.ready_to_evicted.observe(&labels, ready);
        }
    }

    /// Records that an evicted workload released its quota, `after` the eviction.
    pub fn eviction_completed(&self, cluster_queue: &str, reason: &str, after: Duration) {
        let labels = EvictionLatencyLabels {
            cluster_queue: cluster_queue.into(),
            reason: reason.into(),
            replica_role: self.role().as_str(),
        };
        self.eviction_latency.observe(&labels, after);
    }

    /// Counts a preemption in favour of the ClusterQueue `by`.
    pub fn preempted(&self, by: &str, reason: &'static str) {
        let labels = PreemptedLabels {
            preempting_cluster_queue: by.into(),
            reason,
            replica_role: self.role().as_str(),
        };
        self.preempted.inc(&labels);
    }

    /// Counts a workload slice that was replaced by a larger one of its job.
    pub fn slice_replaced(&self, cluster_queue: &str) {
        let labels = ClusterQueueLabels {
            cluster_queue: cluster_queue.into(),
            replica_role: self.role().as_str(),
        };
        self.slices_replaced.inc(&labels);
    }

    /// Sets how many workloads of a ClusterQueue the last cycle skipped that would have preempted
    /// others.
    pub fn preemptions_skipped(&self, cluster_queue: &str, count: usize) {
        let labels = ClusterQueueLabels {
            cluster_queue: cluster_queue.into(),
            replica_role: self.role().as_str(),
        };
        self.preemption_skips.set(&labels, count);
    }

    /// Counts a write to the API server.
    pub fn wrote(&self, what: &'static str, ok: bool) {
        self.writes
            .get_or_create(&WriteLabels { what, result: if ok { "ok" } else { "failed" } })
            .inc();
    }

    /// Removes the series of a deleted ClusterQueue.
    pub fn forget_cluster_queue(&self, name: &str) {
        let queue = Key::new("", name);
        self.cluster.remove(&queue);
        self.evicted.remove(&queue);
        self.evicted_once.remove(&queue);
        self.eviction_latency.remove(&queue);
        self.ready_to_evicted.remove(&queue);
        self.jobs.remove(&queue);
        self.preempted.remove(&queue);
        self.slices_replaced.remove(&queue);
        self.preemption_skips.remove(&queue);
    }

    /// Removes the series of a deleted LocalQueue.
    pub fn forget_local_queue(&self, queue: &Key) {
        self.local.remove(queue);
        self.local_evicted.remove(queue);
    }

    /// Removes the series of a Cohort that nothing names any more.
    pub fn forget_cohort(&self, name: &str) {
        self.cohort_admitted.remove(&Key::new("", name));
    }

    fn labels(&self, workload: &Workload, cluster_queue: &str) -> (QueueLabels, LocalQueueLabels) {
        let priority_class = workload
            .spec
            .priority_class_ref
            .as_ref()
            .map(|class| class.name.clone())
            .unwrap_or_default();
        let replica_role = self.role().as_str();
        let queue = QueueLabels {
            cluster_queue: cluster_queue.into(),
            priority_class: priority_class.clone(),
            replica_role,
        };
        let local = LocalQueueLabels {
            name: workload.spec.queue_name.clone().unwrap_or_default(),
            namespace: workload.metadata.namespace.clone().unwrap_or_default(),
            priority_class,
            replica_role,
        };
        (queue, local)
    }
}

/// An eviction to count.
#[derive(Debug, Clone, Copy)]
pub struct CountedEviction<'a> {
    /// Kueue's eviction reason.
    pub reason: &'a str,
    /// The cause of a deactivation, else empty.
    pub cause: &'a str,
    /// Whether it is the workload's first for this reason and cause.
    pub first: bool,
    /// How long all pods had been ready, if they were.
    pub ready: Option<Duration>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures;

    #[test]
    fn deleted_queue_takes_only_its_series() {
        let metrics = Metrics::default();
        let (workload, second) = (fixtures::workload("a"), Duration::from_secs(1));
        for queue in ["kept", "gone"] {
            metrics.quota_reserved(&workload, queue, second);
            metrics.admitted(&workload, queue, &[format!("above-{queue}")], second, Some(second));
            metrics.ready(&workload, queue, Readiness { queued: second, admitted: second });
            let eviction = CountedEviction {
                reason: "Preempted",
                cause: "",
                first: true,
                ready: Some(second),
            };
            metrics.evicted(&workload, queue, &eviction);
            metrics.ungated("gate", queue, true, second);
            metrics.preempted(queue, "InClusterQueue");
            metrics.slice_replaced(queue);
            metrics.preemptions_skipped(queue, 1);
            metrics.eviction_completed(queue, "Preempted", second);
            metrics.finished(&workload, queue, Some(second));
        }
        let series =
            |with: &str| metrics.render().lines().filter(|line| line.contains(with)).count();
        let (kept, of_gone) = (series("=\"kept\""), series("=\"gone\""));
        assert!(kept > 0 && kept == of_gone);
        metrics.forget_cluster_queue("gone");
        assert_eq!((series("=\"kept\""), series("=\"gone\"")), (kept, 0));
        assert!(series("namespace=\"ns\"") > 0);
        metrics.forget_local_queue(&Key::new("ns", "lq"));
        assert_eq!(series("namespace=\"ns\""), 0);
        metrics.forget_cohort("above-gone");
        assert_eq!((series("above-gone"), series("above-kept")), (0, 1));
        metrics.quota_reserved(&workload, "gone", second);
        assert!(series("=\"gone\"") > 0, "a queue of that name may come again");
    }
}
