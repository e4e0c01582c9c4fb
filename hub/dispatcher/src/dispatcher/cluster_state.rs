//! State of one worker cluster: configuration, session, readiness, inventory and capacity.

use std::collections::BTreeMap;

use super::scan_budget::ScanBudget;
use crate::capacity::{CapacityReport, ClusterCapacity, LocalQueueKey};
use crate::{ClusterConfig, Name, UnixMillis};

/// Milliseconds after which an open session has delivered an assignment: pings follow it in order,
/// and an unanswered ping ends the session sooner.
const DELIVERED_AFTER: i64 = 30_000;

/// Milliseconds after which a session counts as one that lasts.
const LASTING: i64 = 10_000;

/// Whether a session that is open since `since` has delivered an assignment sent at `at`.
pub(super) fn has_delivered_since(since: UnixMillis, at: UnixMillis, now: UnixMillis) -> bool {
    now >= since.max(at) + DELIVERED_AFTER
}

/// State of one cluster.
#[derive(Debug, Clone, Default)]
pub(crate) struct ClusterState {
    /// False after the deletion of the MultiKueueCluster.
    pub(super) exists: bool,
    /// Uid of its namespace `kube-system`, reported by its sessions. Kept after a deletion.
    pub(super) uid: Option<Name>,
    /// The current or, after a deletion, the last configuration.
    pub(super) config: ClusterConfig,
    /// Its policy changed in this process. The agent follows the earlier policy for workloads that
    /// were not assigned since.
    pub(super) has_new_policy: bool,
    /// In this process, it was connected or a workload was committed to it.
    pub(super) has_been_used: bool,
    /// It was connected in this process.
    pub(super) has_connected: bool,
    /// A session is open.
    pub(super) is_connected: bool,
    /// Its inventory of this session is complete.
    pub(super) has_synced: bool,
    /// Since when its agent cannot reach its API server. Survives the session, and restarts of the
    /// hub.
    pub(super) not_ready_since: Option<UnixMillis>,
    /// It reported its inventory in this process.
    pub(super) has_listed_all: bool,
    /// It has more orphans than the hub remembers, so its inventory does not count as complete.
    pub(super) is_truncated: bool,
    /// When `is_connected` last changed.
    pub(super) since: UnixMillis,
    /// When it was lost: the first time, or after a connection that had lasted. A cluster that comes
    /// and goes gets no new grace.
    pub(super) lost_at: Option<UnixMillis>,
    /// It reported its capacity in this session.
    pub(super) has_reported: bool,
    /// Number of the event after which refusals no longer count: it reconnected, was uncordoned, or
    /// its agent became ready.
    pub(super) opened_at_event: u64,
    /// Per LocalQueue, number of the event in this session at which the queue was created, opened
    /// or got other quota.
    pub(super) queue_changes: BTreeMap<LocalQueueKey, u64>,
    /// When it last reserved quota for, ran or ended a workload. While it does, offers wait for
    /// their turn.
    pub(super) progressed_at: UnixMillis,
    pub(super) capacity: ClusterCapacity,
    pub(super) scan: ScanBudget,
}

impl ClusterState {
    pub(super) fn new(now: UnixMillis) -> Self {
        Self { since: now, ..Self::default() }
    }

    /// Whether workloads can be offered to it now.
    pub(super) fn is_usable(&self) -> bool {
        self.takes_new_work()
            && self.is_connected
            && self.has_synced
            && self.not_ready_since.is_none()
    }

    /// Whether it accepts new workloads when it is connected.
    pub(super) fn takes_new_work(&self) -> bool {
        self.exists && !self.config.cordoned
    }

    /// Number of the event after which refusals of workloads in this LocalQueue no longer count.
    pub(super) fn changed_for(&self, namespace: &Name, queue: &Name) -> u64 {
        let queue = self.queue_changes.get(&(namespace.clone(), queue.clone()));
        self.opened_at_event.max(queue.copied().unwrap_or_default())
    }

    /// Replaces its capacity, during this event.
    pub(super) fn report(&mut self, report: CapacityReport, event: u64, now: UnixMillis) {
        let changed = self.capacity.report(report, now);
        // After a reconnect, the first report is no change.
        if self.has_reported {
            self.queue_changes.extend(changed.into_iter().map(|place| (place, event)));
            self.queue_changes.retain(|place, _| self.capacity.queues().contains_key(place));
        }
        self.has_reported = true;
    }

    /// Whether the open session has delivered an assignment sent at `at`.
    pub(super) fn has_delivered(&self, at: UnixMillis, now: UnixMillis) -> bool {
        self.is_connected && has_delivered_since(self.since, at, now)
    }

    /// Starts or ends a session. All state of the last session is void.
    pub(super) fn set_connected(&mut self, is_connected: bool, now: UnixMillis) {
        let before = std::mem::take(self);
        let not_ready_since = before.not_ready_since.filter(|_| !is_connected);
        let has_lasted = now >= before.since.saturating_add(LASTING);
        let is_lost = !is_connected && (before.lost_at.is_none() || has_lasted);
        let lost_at = if is_lost { Some(now) } else { before.lost_at };
        *self = Self {
            is_connected,
            not_ready_since,
            lost_at,
            since: now,
            has_been_used: before.has_been_used || is_connected,
            has_connected: before.has_connected || is_connected,
            ..before
        };
        (self.has_synced, self.has_reported, self.progressed_at, self.capacity) =
            (false, false, 0, ClusterCapacity::default());
        self.queue_changes = BTreeMap::new();
        self.is_truncated = false;
    }
}
