//! Owned snapshots of queues for status, metrics and the command line.

use std::borrow::Cow;
use std::collections::BTreeSet;

use crate::{Amount, LocalQueueKey, Name, Reason, WorkloadKey};

/// One cause of `Active=False`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InactiveCause {
    /// The condition's reason.
    pub reason: &'static str,
    pub message: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceUsage {
    pub flavor: Name,
    pub resource: Name,
    pub total: Amount,
    /// The part above nominal quota.
    pub borrowed: Amount,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceQuota {
    pub flavor: Name,
    pub resource: Name,
    /// The queue's nominal quota.
    pub nominal: Amount,
    /// `None` is unlimited.
    pub borrowing_limit: Option<Amount>,
    /// `None` lends everything.
    pub lending_limit: Option<Amount>,
    pub reserved: Amount,
    /// Free now, borrowing included. Negative after a quota cut.
    pub available: Amount,
    /// Free if no workload used quota.
    pub potential: Amount,
}

#[derive(Clone, Debug)]
pub struct ClusterQueueView<'a> {
    pub name: &'a Name,
    /// All causes if inactive. The first one gives the condition's reason.
    pub active: Result<(), Vec<InactiveCause>>,
    /// `status.flavorsReservation`, in the order of the spec.
    pub reservation: Vec<ResourceUsage>,
    /// `status.flavorsUsage`: admitted workloads only.
    pub usage: Vec<ResourceUsage>,
    /// In the order of the spec.
    pub quota: Vec<ResourceQuota>,
    pub pending_active: usize,
    /// Parked workloads.
    pub pending_inadmissible: usize,
    /// Workloads that reserve quota.
    pub reserving: usize,
    pub admitted: usize,
    /// `status.fairSharing.weightedShare`; `i64::MAX` if infinite.
    pub weighted_share: i64,
    /// The share before rounding.
    pub precise_share: f64,
}

#[derive(Clone, Debug, PartialEq)]
pub struct CohortView {
    pub name: Name,
    pub parent: Option<Name>,
    /// The Cohort at the top, or this one if it has no parent. `None` on or below a cycle.
    pub root: Option<Name>,
    /// `status.fairSharing.weightedShare`; `i64::MAX` if infinite.
    pub weighted_share: i64,
    /// The share before rounding.
    pub precise_share: f64,
    /// Pairs with quota or usage, by flavor and resource. Empty on a cycle.
    pub subtree: Vec<SubtreeQuota>,
    /// In all ClusterQueues below.
    pub admitted: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubtreeQuota {
    pub flavor: Name,
    pub resource: Name,
    /// Its own quota and the quota that its children lend.
    pub quota: Amount,
    /// Reserved by the ClusterQueues below.
    pub reserved: Amount,
}

impl ClusterQueueView<'_> {
    /// The `Active` condition: status, reason, message.
    pub fn active_condition(&self) -> (bool, &'static str, String) {
        match &self.active {
            Ok(()) => (true, "Ready", "Can admit new workloads".to_owned()),
            Err(causes) => {
                let (reason, message) = InactiveCause::summary(causes);
                (false, reason, message)
            }
        }
    }
}

impl InactiveCause {
    /// Reason and message of `Active=False` for these causes.
    pub fn summary(causes: &[Self]) -> (&'static str, String) {
        match causes {
            [] => ("Unknown", "Can't admit new workloads.".to_owned()),
            [only] if only.reason == "Terminating" => (only.reason, only.message.clone()),
            [first, ..] => {
                let messages: Vec<_> = causes.iter().map(|cause| cause.message.as_str()).collect();
                (first.reason, format!("Can't admit new workloads: {}.", messages.join(", ")))
            }
        }
    }
}

impl LocalQueueView<'_> {
    /// The `Active` condition: status, reason, message.
    pub fn active_condition(&self) -> (bool, &'static str, String) {
        match &self.active {
            Ok(()) => (true, "Ready", "Can submit new workloads to localQueue".to_owned()),
            Err(cause) => (false, cause.reason, cause.message.clone()),
        }
    }
}

#[derive(Clone, Debug)]
pub struct LocalQueueView<'a> {
    pub key: &'a LocalQueueKey,
    pub cluster_queue: &'a Name,
    pub active: Result<(), InactiveCause>,
    /// `status.flavorsReservation`.
    pub reservation: Vec<ResourceUsage>,
    /// `status.flavorsUsage`: admitted workloads only.
    pub usage: Vec<ResourceUsage>,
    pub pending: usize,
    /// Workloads that reserve quota.
    pub reserving: usize,
    pub admitted: usize,
    /// `status.fairSharing.admissionFairSharingStatus`; `None` without admission fair sharing.
    pub past_usage: Option<crate::PastUsage>,
}

/// A pending workload of a ClusterQueue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingEntry<'a> {
    pub key: &'a WorkloadKey,
    pub local_queue: &'a str,
    pub priority: i32,
    /// From 0.
    pub position_in_cluster_queue: usize,
    /// Among the workloads of its LocalQueue, from 0.
    pub position_in_local_queue: usize,
    /// Parked until a trigger, in Kueue's terms inadmissible.
    pub inadmissible: bool,
    /// The outcome of the last attempt; `None` before the first one.
    pub reason: Option<&'a Reason>,
}

/// Borrowed if the engine stores it, owned if it follows from the queue's order.
pub type PendingReason<'a> = Cow<'a, Reason>;

/// Queues whose view changed since the last call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "record", derive(serde::Serialize, serde::Deserialize))]
pub struct ChangedQueues {
    pub cluster_queues: BTreeSet<Name>,
    pub local_queues: BTreeSet<LocalQueueKey>,
    /// With or without an object.
    pub cohorts: BTreeSet<Name>,
}
