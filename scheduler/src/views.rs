//! What the engine shows: owned, cheap answers for status, metrics and the command line.

use std::borrow::Cow;
use std::collections::BTreeSet;

use crate::{Amount, LocalQueueKey, Name, Reason, WorkloadKey};

/// One cause of a queue not being active.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inactive {
    /// The reason of the `Active=False` condition.
    pub reason: &'static str,
    /// The message.
    pub message: String,
}

/// What is used of one resource on one flavor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceUsage {
    /// The flavor.
    pub flavor: Name,
    /// The resource.
    pub resource: Name,
    /// All that is used.
    pub total: Amount,
    /// How much of it is above the own quota.
    pub borrowed: Amount,
}

/// Quota and what is left of it, of one resource on one flavor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceQuota {
    /// The flavor.
    pub flavor: Name,
    /// The resource.
    pub resource: Name,
    /// The queue's own.
    pub nominal: Amount,
    /// How much it may borrow; `None` is unlimited.
    pub borrowing_limit: Option<Amount>,
    /// How much it lends; `None` is all.
    pub lending_limit: Option<Amount>,
    /// What is reserved.
    pub reserved: Amount,
    /// What could still be reserved now, borrowing included. Negative after a cut.
    pub available: Amount,
    /// What could be reserved if nobody used anything.
    pub potential: Amount,
}

/// A ClusterQueue as it is now.
#[derive(Clone, Debug)]
pub struct ClusterQueueView<'a> {
    /// Its name.
    pub name: &'a Name,
    /// Whether it may admit, or all causes why not; the first gives the condition's reason.
    pub active: Result<(), Vec<Inactive>>,
    /// `status.flavorsReservation`, in the order of the spec.
    pub reservation: Vec<ResourceUsage>,
    /// `status.flavorsUsage`: of admitted workloads only.
    pub usage: Vec<ResourceUsage>,
    /// Quota and free capacity, in the order of the spec.
    pub quota: Vec<ResourceQuota>,
    /// Pending workloads that will be tried.
    pub pending_active: usize,
    /// Pending workloads that are parked.
    pub pending_inadmissible: usize,
    /// Workloads that hold quota.
    pub reserving: usize,
    /// Workloads that are admitted.
    pub admitted: usize,
    /// `status.fairSharing.weightedShare`: the largest number if it is infinite.
    pub weighted_share: i64,
    /// The same before rounding.
    pub precise_share: f64,
}

/// A Cohort as it is now.
#[derive(Clone, Debug, PartialEq)]
pub struct CohortView {
    /// Its name.
    pub name: Name,
    /// The Cohort above.
    pub parent: Option<Name>,
    /// The Cohort at the top, itself where nothing is above; `None` on or below a cycle.
    pub root: Option<Name>,
    /// `status.fairSharing.weightedShare`: the largest number if it is infinite.
    pub weighted_share: i64,
    /// The same before rounding.
    pub precise_share: f64,
    /// Quota of the subtree and what is reserved of it, where there is any; by flavor and resource. Empty on a cycle.
    pub subtree: Vec<SubtreeQuota>,
    /// Admitted workloads of all ClusterQueues below.
    pub admitted: usize,
}

/// What a Cohort and those below have of one resource on one flavor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubtreeQuota {
    /// The flavor.
    pub flavor: Name,
    /// The resource.
    pub resource: Name,
    /// Its own quota and what its children lend.
    pub quota: Amount,
    /// What the ClusterQueues below have reserved.
    pub reserved: Amount,
}

impl ClusterQueueView<'_> {
    /// The `Active` condition: whether it is True, its reason and its message.
    pub fn active_condition(&self) -> (bool, &'static str, String) {
        match &self.active {
            Ok(()) => (true, "Ready", "Can admit new workloads".to_owned()),
            Err(causes) => {
                let (reason, message) = Inactive::summary(causes);
                (false, reason, message)
            }
        }
    }
}

impl Inactive {
    /// The reason and the message of an `Active=False` condition with these causes.
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
    /// The `Active` condition: whether it is True, its reason and its message.
    pub fn active_condition(&self) -> (bool, &'static str, String) {
        match &self.active {
            Ok(()) => (true, "Ready", "Can submit new workloads to localQueue".to_owned()),
            Err(cause) => (false, cause.reason, cause.message.clone()),
        }
    }
}

/// A LocalQueue as it is now.
#[derive(Clone, Debug)]
pub struct LocalQueueView<'a> {
    /// Its place.
    pub key: &'a LocalQueueKey,
    /// The ClusterQueue behind it.
    pub cluster_queue: &'a Name,
    /// Whether it takes workloads, or why not.
    pub active: Result<(), Inactive>,
    /// `status.flavorsReservation`.
    pub reservation: Vec<ResourceUsage>,
    /// `status.flavorsUsage`: of admitted workloads only.
    pub usage: Vec<ResourceUsage>,
    /// Pending workloads.
    pub pending: usize,
    /// Workloads that hold quota.
    pub reserving: usize,
    /// Workloads that are admitted.
    pub admitted: usize,
    /// `status.fairSharing.admissionFairSharingStatus`, if past use counts.
    pub past_use: Option<crate::PastUse>,
}

/// A workload in its ClusterQueue's order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingEntry<'a> {
    /// Its place.
    pub key: &'a WorkloadKey,
    /// Its LocalQueue's name.
    pub local_queue: &'a str,
    /// Its priority.
    pub priority: i32,
    /// Its position in the ClusterQueue, from 0.
    pub position_in_cluster_queue: usize,
    /// Its position among those of its LocalQueue, from 0.
    pub position_in_local_queue: usize,
    /// It is parked until something changes.
    pub inadmissible: bool,
    /// Why it was not admitted when last tried; `None` if it was not tried yet.
    pub reason: Option<&'a Reason>,
}

/// A reason, borrowed where the engine keeps it and made up where it follows from the order.
pub type Why<'a> = Cow<'a, Reason>;

/// The queues that look different since the last question.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "record", derive(serde::Serialize, serde::Deserialize))]
pub struct Changed {
    /// ClusterQueues.
    pub cluster_queues: BTreeSet<Name>,
    /// LocalQueues.
    pub local_queues: BTreeSet<LocalQueueKey>,
    /// Cohorts, with or without an object.
    pub cohorts: BTreeSet<Name>,
}
