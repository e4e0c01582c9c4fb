//! Why a workload is pending, as data.

mod pins;
mod render;
#[cfg(test)]
mod tests;

use std::sync::Arc;

pub use pins::{PinQueue, not_the_pinned_flavor};
pub use render::NO_QUEUE;

use crate::{Amount, LocalQueueKey, Name, PlacementFailure, Taint, Time, WorkloadKey};

/// Why a workload has no quota. Conditions, events, `explain` and metrics all render this value.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[cfg_attr(feature = "record", derive(serde::Serialize, serde::Deserialize))]
pub enum Reason {
    /// Some pod sets fit on no flavor.
    NoFit {
        /// The hardest obstacle over pod sets and resource groups, where each group counts its
        /// mildest one.
        kind: NoFitKind,
        pod_sets: Vec<PodSetReason>,
    },
    /// Needs preemption, and has no candidates.
    NoCandidates {
        pod_sets: Vec<PodSetReason>,
    },
    /// Its victims are being evicted.
    Preempting {
        pod_sets: Vec<PodSetReason>,
        victims: usize,
    },
    /// Needs preemption, and its preemption gate is closed.
    PreemptionGated,
    /// Another variant of the same workload runs on a better flavor.
    BetterVariant,
    /// It fits, but a migration to its flavor is not worth it (`lastAcceptableFlavorName`).
    NotWorthMigrating,
    /// The variant on a worse flavor is being evicted for it.
    Migrating,
    /// Its victims are evicted for another workload, and it fits once they are gone.
    VictimsShared,
    /// Its victims are evicted for another workload.
    VictimsTaken,
    /// Another workload of the cycle took the quota that it needed.
    Overtaken,
    /// `blockAdmission`: the pods of an admitted workload are not ready.
    WaitingForPodsReady,
    /// An admission check is Retry or Rejected, and the caller has not reacted yet.
    ChecksFailed,
    ClusterQueueInactive {
        name: Name,
    },
    ClusterQueueMissing {
        name: Name,
    },
    /// The LocalQueue is stopped or being deleted.
    LocalQueueInactive {
        queue: LocalQueueKey,
    },
    LocalQueueMissing {
        queue: LocalQueueKey,
    },
    /// The namespace selector of the ClusterQueue does not match.
    NamespaceMismatch,
    NamespaceMissing {
        name: Name,
    },
    /// The pod sets are invalid (for example requests above limits).
    Invalid {
        /// In Kueue's words.
        message: String,
    },
    /// An equivalent workload failed, and nothing changed since.
    EquivalentFailed {
        /// Why that workload failed.
        cause: Arc<Self>,
    },
    /// In the heap, without an attempt so far.
    Waiting {
        cluster_queue: Name,
        head: WorkloadKey,
        /// The number of workloads before it.
        ahead: usize,
    },
    BackingOff {
        /// `None` if unknown.
        until: Option<Time>,
    },
    WriteFailed {
        message: String,
    },
    /// No worker cluster took the workload.
    #[cfg_attr(feature = "record", serde(rename = "GivenBack"))]
    DispatchFailed {
        message: String,
    },
    /// `spec.active` is false.
    Deactivated,
    /// On hold, behind its admission gate, or waiting for replacement pods.
    #[cfg_attr(feature = "record", serde(rename = "Held"))]
    OnHold,
}

/// The hardness of an obstacle, from one that ends by itself to one that only an administrator can
/// remove.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "record", derive(serde::Serialize, serde::Deserialize))]
pub enum NoFitKind {
    /// Quota suffices, but no topology domain does.
    TopologyPlacementFailed,
    /// The quota is in use.
    WaitingForQuota,
    /// The request exceeds the queue's maximum capacity.
    ExceedsMaxQuota,
    /// No flavor accepts these pods.
    NoMatchingFlavor,
}

#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "record", derive(serde::Serialize, serde::Deserialize))]
pub struct PodSetReason {
    pub name: Name,
    /// By flavor and resource, in the order of attempts.
    pub causes: Vec<Cause>,
}

/// Why a flavor, or a resource on a flavor, is rejected.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[cfg_attr(feature = "record", derive(serde::Serialize, serde::Deserialize))]
pub enum Cause {
    Insufficient {
        flavor: Name,
        resource: Name,
        /// By this pod set and earlier ones.
        asked: Amount,
        /// Borrowing included.
        free: Amount,
        /// The queue's maximum capacity.
        most: Amount,
    },
    /// The request exceeds the queue's maximum capacity.
    #[cfg_attr(feature = "record", serde(rename = "TooMuch"))]
    ExceedsMaxCapacity {
        flavor: Name,
        resource: Name,
        /// By earlier pod sets.
        earlier: Amount,
        /// By this pod set.
        asked: Amount,
        /// The queue's maximum capacity.
        most: Amount,
    },
    #[cfg_attr(feature = "record", serde(rename = "Untolerated"))]
    UntoleratedTaint {
        flavor: Name,
        taint: Taint,
    },
    /// The pods' node selector or affinity excludes the flavor.
    AffinityMismatch {
        flavor: Name,
    },
    FlavorMissing {
        flavor: Name,
    },
    /// No resource group covers the resource.
    ResourceUnavailable {
        resource: Name,
    },
    /// The queue has no flavors. Kueue treats such a queue as one with topologies only, and knows
    /// none of them.
    NoFlavors,
    /// The workload's allowed flavors exclude it.
    NotAllowed {
        flavor: Name,
    },
    /// The hub charged another flavor for the resource.
    Pinned {
        flavor: Name,
        resource: Name,
        /// The flavor that the hub charged.
        pin: Name,
    },
    /// The queue does not list the flavor that the hub charged for the resource.
    PinNotListed {
        resource: Name,
        /// The flavor that the hub charged.
        pin: Name,
    },
    /// The queue lists the flavor that the hub charged, but not for the resource.
    PinLacksResource {
        resource: Name,
        /// The flavor that the hub charged.
        pin: Name,
    },
    /// A second nomination keeps the flavors of the first one; this is another flavor.
    NotNominated {
        flavor: Name,
        resource: Name,
    },
    /// The pods request a topology, and the flavor has none.
    TopologyUnsupported {
        flavor: Name,
    },
    TopologyUnknown {
        flavor: Name,
    },
    /// The flavor's Topology lacks a requested level.
    LevelMissing {
        flavor: Name,
    },
    /// The flavor requires a topology request.
    TopologyOnly {
        flavor: Name,
    },
    /// The pod set got no flavor with a topology.
    NoTopologyFlavor,
    /// The pod set got flavors with different topologies.
    SeveralTopologyFlavors {
        flavors: Vec<Name>,
    },
    /// An elastic job requests a level.
    ElasticLevel {
        /// Required, else preferred.
        required: bool,
    },
    /// No topology assignment fits.
    #[cfg_attr(feature = "record", serde(rename = "Misplaced"))]
    PlacementFailed {
        flavor: Name,
        failure: Box<PlacementFailure>,
    },
    /// The replaced slice has its quota on another flavor, and a job's pods run on one flavor.
    #[cfg_attr(feature = "record", serde(rename = "OtherThanReplaced"))]
    DiffersFromReplaced {
        flavor: Name,
        /// The slice's flavor.
        kept: Name,
    },
}
