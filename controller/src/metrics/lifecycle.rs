//! Counts the stages of workloads, per ClusterQueue and per LocalQueue.

use std::{hash::Hash, time::Duration};

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{
        counter::Counter,
        histogram::{Histogram, exponential_buckets},
    },
    registry::Registry,
};

use super::series::{BelongsToQueue, Series};
use switchyard_platform::store::Key;

/// Kueue's buckets: 1 s, then 2.5 s doubling up to 10,240 s.
pub(super) fn waits() -> Histogram {
    Histogram::new(std::iter::once(1.0).chain(exponential_buckets(2.5, 2.0, 13)))
}

/// Kueue's buckets for a ClusterQueue's admission waits: up to 40,960 s.
pub(super) fn long_waits() -> Histogram {
    Histogram::new(std::iter::once(1.0).chain(exponential_buckets(2.5, 2.0, 15)))
}

/// How long it took until the pods of a workload were ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Readiness {
    /// Since queueing.
    pub queued: Duration,
    /// Since admission.
    pub admitted: Duration,
}

/// The families of one kind of queue.
pub(super) struct LifecycleMetrics<L> {
    quota_reserved: Series<L, Counter>,
    quota_reserved_wait: Series<L, Histogram>,
    admitted: Series<L, Counter>,
    admission_wait: Series<L, Histogram>,
    checks_wait: Series<L, Histogram>,
    ready_wait: Series<L, Histogram>,
    admitted_until_ready: Series<L, Histogram>,
    finished: Series<L, Counter>,
    execution_time: Series<L, Histogram>,
}

impl<L> LifecycleMetrics<L>
where
    L: BelongsToQueue + Clone + Hash + Eq,
{
    /// `admission`: buckets for admission waits.
    pub(super) fn new(admission: fn() -> Histogram) -> Self {
        Self {
            quota_reserved: Series::new(Counter::default),
            quota_reserved_wait: Series::new(waits),
            admitted: Series::new(Counter::default),
            admission_wait: Series::new(admission),
            checks_wait: Series::new(waits),
            ready_wait: Series::new(waits),
            admitted_until_ready: Series::new(waits),
            finished: Series::new(Counter::default),
            execution_time: Series::new(waits),
        }
    }

    pub(super) fn quota_reserved(&self, labels: &L, waited: Duration) {
        self.quota_reserved.inc(labels);
        self.quota_reserved_wait.observe(labels, waited);
    }

    pub(super) fn admitted(&self, labels: &L, waited: Duration, checks: Option<Duration>) {
        self.admitted.inc(labels);
        self.admission_wait.observe(labels, waited);
        if let Some(checks) = checks {
            self.checks_wait.observe(labels, checks);
        }
    }

    pub(super) fn ready(&self, labels: &L, after: Readiness) {
        self.ready_wait.observe(labels, after.queued);
        self.admitted_until_ready.observe(labels, after.admitted);
    }

    pub(super) fn finished(&self, labels: &L, ran: Option<Duration>) {
        self.finished.inc(labels);
        if let Some(ran) = ran {
            self.execution_time.observe(labels, ran);
        }
    }

    /// Removes the series of a queue.
    pub(super) fn remove(&self, queue: &Key) {
        let Self {
            quota_reserved,
            quota_reserved_wait,
            admitted,
            admission_wait,
            checks_wait,
            ready_wait,
            admitted_until_ready,
            finished,
            execution_time,
        } = self;
        for counter in [quota_reserved, admitted, finished] {
            counter.remove(queue);
        }
        let waits = [
            quota_reserved_wait,
            admission_wait,
            checks_wait,
            ready_wait,
            admitted_until_ready,
            execution_time,
        ];
        for wait in waits {
            wait.remove(queue);
        }
    }
}

impl<L> LifecycleMetrics<L>
where
    L: BelongsToQueue
        + EncodeLabelSet
        + std::fmt::Debug
        + Clone
        + Hash
        + Eq
        + Send
        + Sync
        + 'static,
{
    pub(super) fn register(&self, registry: &mut Registry) {
        let counters = [
            ("quota_reserved_workloads", "Quota reservations", &self.quota_reserved),
            ("admitted_workloads", "Admissions", &self.admitted),
            ("finished_workloads", "Finished workloads", &self.finished),
        ];
        for (name, help, series) in counters {
            registry.register(name, help, series.family());
        }
        let waits = [
            (
                "quota_reserved_wait_time_seconds",
                "Time from queued to reserved",
                &self.quota_reserved_wait,
            ),
            ("admission_wait_time_seconds", "Time from queued to admitted", &self.admission_wait),
            (
                "admission_checks_wait_time_seconds",
                "Time from reserved to admitted",
                &self.checks_wait,
            ),
            (
                "ready_wait_time_seconds",
                "Time from queued until all pods were ready",
                &self.ready_wait,
            ),
            (
                "admitted_until_ready_wait_time_seconds",
                "Time from admitted until all pods were ready",
                &self.admitted_until_ready,
            ),
            ("execution_time_seconds", "Time from admitted to finished", &self.execution_time),
        ];
        for (name, help, series) in waits {
            registry.register(name, help, series.family());
        }
    }
}
