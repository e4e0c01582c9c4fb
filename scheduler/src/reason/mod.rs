//! Why a workload is pending, as data.

mod render;
#[cfg(test)]
mod tests;

use std::sync::Arc;

pub use render::NO_QUEUE;

use crate::{Amount, Failure, LocalQueueKey, Name, Taint, Time, WorkloadKey};

/// Why a workload has no quota. One value from which the condition, events, `explain` and metrics are rendered.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[cfg_attr(feature = "record", derive(serde::Serialize, serde::Deserialize))]
pub enum Reason {
    /// Some pod sets fit on no flavor as things are.
    NoFit {
        /// The mildest obstacle that has to go, over all pod sets and resource groups the hardest of those.
        kind: NoFitKind,
        /// The pod sets in the way.
        pod_sets: Vec<PodSetReason>,
    },
    /// It would fit if others gave way, but none may be preempted for it.
    NoCandidates {
        /// The pod sets in the way.
        pod_sets: Vec<PodSetReason>,
    },
    /// Others are being preempted for it.
    Preempting {
        /// The pod sets in the way.
        pod_sets: Vec<PodSetReason>,
        /// How many workloads have to go.
        victims: usize,
    },
    /// It would have to preempt, which a closed gate forbids.
    PreemptionGated,
    /// Another variant of the same workload runs on a better flavor.
    BetterVariant,
    /// It would be given quota, but its flavor is not worth moving the workload there from the one that it runs on.
    NotWorthMigrating,
    /// The variant on a worse flavor is being evicted for it.
    Migrating,
    /// Its victims are being preempted for another workload; it will fit when they are gone.
    VictimsShared,
    /// Its victims are being preempted for another workload.
    VictimsTaken,
    /// Another workload of the same cycle took what it would have needed.
    Overtaken,
    /// One workload is admitted at a time, and the pods of another are not ready yet.
    WaitingForPodsReady,
    /// An admission check answered Retry or Rejected, and the caller has not dealt with it yet.
    ChecksFailed,
    /// The ClusterQueue does not admit.
    ClusterQueueInactive {
        /// Its name.
        name: Name,
    },
    /// The LocalQueue names a ClusterQueue that does not exist.
    ClusterQueueMissing {
        /// Its name.
        name: Name,
    },
    /// The LocalQueue is stopped or being deleted.
    LocalQueueInactive {
        /// Its place.
        queue: LocalQueueKey,
    },
    /// There is no LocalQueue of that name.
    LocalQueueMissing {
        /// Its place.
        queue: LocalQueueKey,
    },
    /// The ClusterQueue's namespace selector does not match the workload's namespace.
    NamespaceMismatch,
    /// The workload's namespace is not known.
    NamespaceMissing {
        /// Its name.
        name: Name,
    },
    /// The pod sets are invalid (requests above limits and such).
    Invalid {
        /// What is wrong, in Kueue's words.
        message: String,
    },
    /// A workload of the same shape could not be admitted, and nothing has changed since.
    EquivalentFailed {
        /// Why that one could not.
        cause: Arc<Self>,
    },
    /// It waits its turn.
    Waiting {
        /// The queue.
        cluster_queue: Name,
        /// Who is first in it.
        head: WorkloadKey,
        /// How many are before it.
        ahead: usize,
    },
    /// It was evicted and may not come back before this.
    BackingOff {
        /// When, if that is known.
        until: Option<Time>,
    },
    /// Its admission could not be written.
    WriteFailed {
        /// The error.
        message: String,
    },
    /// Quota was there, but no worker cluster took it.
    GivenBack {
        /// Why.
        message: String,
    },
    /// `spec.active` is false.
    Deactivated,
    /// It is on hold, gated, or waits for replacement pods.
    Held,
}

/// How hard an obstacle is: from one that others' completion removes to one that only an administrator can.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "record", derive(serde::Serialize, serde::Deserialize))]
pub enum NoFitKind {
    /// Quota is there but no topology domain takes the pods.
    TopologyPlacementFailed,
    /// The quota is in use.
    WaitingForQuota,
    /// More is asked for than the queue can ever have.
    ExceedsMaxQuota,
    /// No flavor takes these pods.
    NoMatchingFlavor,
}

/// Why one pod set has no flavor.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "record", derive(serde::Serialize, serde::Deserialize))]
pub struct PodSetReason {
    /// The pod set.
    pub name: Name,
    /// By flavor and resource, in the order they were tried.
    pub causes: Vec<Cause>,
}

/// Why one flavor, or one resource on one flavor, does not do.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[cfg_attr(feature = "record", derive(serde::Serialize, serde::Deserialize))]
pub enum Cause {
    /// Too little is free.
    Insufficient {
        /// The flavor.
        flavor: Name,
        /// The resource.
        resource: Name,
        /// What this and the pod sets before it ask for.
        asked: Amount,
        /// What is free, borrowing included.
        free: Amount,
        /// The most that the queue could have.
        most: Amount,
    },
    /// More is asked for than the queue can ever have.
    TooMuch {
        /// The flavor.
        flavor: Name,
        /// The resource.
        resource: Name,
        /// What the pod sets before this one take.
        earlier: Amount,
        /// What this pod set asks for.
        asked: Amount,
        /// The most that the queue could have.
        most: Amount,
    },
    /// The pods do not tolerate the flavor's taint.
    Untolerated {
        /// The flavor.
        flavor: Name,
        /// The taint.
        taint: Taint,
    },
    /// The pods' node selector or affinity excludes the flavor.
    AffinityMismatch {
        /// The flavor.
        flavor: Name,
    },
    /// There is no such ResourceFlavor.
    FlavorMissing {
        /// The flavor.
        flavor: Name,
    },
    /// No resource group of the queue covers the resource.
    ResourceUnavailable {
        /// The resource.
        resource: Name,
    },
    /// The queue has no flavors at all. Kueue takes such a queue for one of topologies only, of which it knows none.
    NoFlavors,
    /// The workload is for other flavors only.
    NotAllowed {
        /// The flavor.
        flavor: Name,
    },
    /// A nominated flavor is kept when an assignment is made anew within a cycle; this is another.
    NotNominated {
        /// The flavor.
        flavor: Name,
        /// The resource.
        resource: Name,
    },
    /// The pods ask for a topology, and the flavor has none.
    TopologyUnsupported {
        /// The flavor.
        flavor: Name,
    },
    /// The Topology of the flavor is not known.
    TopologyUnknown {
        /// The flavor.
        flavor: Name,
    },
    /// The Topology of the flavor lacks a level that the pods ask for.
    LevelMissing {
        /// The flavor.
        flavor: Name,
    },
    /// The flavor is for pods that ask for a topology.
    TopologyOnly {
        /// The flavor.
        flavor: Name,
    },
    /// No flavor with a topology was given.
    NoTopologyFlavor,
    /// Flavors of different topologies were given.
    SeveralTopologyFlavors {
        /// The flavors.
        flavors: Vec<Name>,
    },
    /// An elastic job asks for a level.
    ElasticLevel {
        /// It is required, not preferred.
        required: bool,
    },
    /// The topology has no place for the pods.
    Misplaced {
        /// The flavor.
        flavor: Name,
        /// Why.
        failure: Box<Failure>,
    },
    /// The workload that this one replaces has its quota on another flavor, and a job's pods run on one.
    OtherThanReplaced {
        /// The flavor.
        flavor: Name,
        /// The one that is kept.
        kept: Name,
    },
}
