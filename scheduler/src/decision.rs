//! Decisions of the engine.

use std::collections::BTreeMap;

use crate::{Admission, Amount, Name, Reason, Time, WorkloadKey};

/// The outcome of one scheduling cycle.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cycle {
    /// Counts the cycles of this engine, from 1.
    pub number: u64,
    /// In the order of the engine's choices.
    pub decisions: Vec<Decision>,
    /// By ClusterQueue: workloads that would have preempted others, and were skipped because other
    /// workloads of the cycle needed the same quota. Kueue's metric
    /// `admission_cycle_preemption_skips`.
    pub preemption_skips: BTreeMap<Name, usize>,
    /// The cycle admitted and preempted nothing: the caller may slow down.
    pub idle: bool,
}

/// A pod set of a pending workload, with the total that it requests by resource.
pub type PodSetRequests = (Name, BTreeMap<Name, Amount>);

#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "record", derive(serde::Serialize))]
pub enum Decision {
    /// Reserve quota. The quota stays charged until a Workload event confirms it,
    /// `AdmissionRefused` returns it, or the workload is deleted.
    Reserve {
        key: WorkloadKey,
        uid: Name,
        /// [`Cycle::number`], which tells the workload's reservations apart.
        #[cfg_attr(feature = "record", serde(skip))]
        cycle: u64,
        admission: Admission,
        /// The admission checks of the admission.
        checks: Vec<Name>,
        /// Start of the wait in the queue.
        waited_since: Time,
        /// For the event: the flavors that the engine considered and rejected. May be empty.
        note: String,
        /// The workload slice that this one replaces, and its uid. The slice is finished once this
        /// reservation is written. Its quota is already part of this reservation.
        replaces: Option<(WorkloadKey, Name)>,
    },
    /// The workload stays pending.
    Pending {
        key: WorkloadKey,
        uid: Name,
        reason: Reason,
        /// `status.resourceRequests`.
        requests: Vec<PodSetRequests>,
    },
    /// Change the topology assignment of a workload that has quota. The quota does not change. Its
    /// failed nodes count as replaced.
    Reassign {
        key: WorkloadKey,
        uid: Name,
        /// The whole admission, with the new topology assignment.
        admission: Admission,
    },
    /// The second scheduling pass found no topology assignment. The workload keeps its quota, and
    /// the engine tries again later.
    SecondPassFailed { key: WorkloadKey, uid: Name, reason: Reason },
    /// Evict the workload: pods of a failed node have no replacement.
    Evict {
        key: WorkloadKey,
        uid: Name,
        /// The failed nodes.
        nodes: Vec<Name>,
    },
    /// Evict this variant, because a variant of the same workload fits on a better flavor. Kueue
    /// KEP-8691.
    Migrate {
        /// The variant on the worse flavor.
        key: WorkloadKey,
        uid: Name,
        /// The variant on the better flavor.
        to_uid: Name,
    },
    /// Evict the victim. Only an engine made by
    /// [`Engine::with_preemption`](crate::Engine::with_preemption) decides this.
    Preempt {
        /// The victim.
        key: WorkloadKey,
        uid: Name,
        /// The reason of the victim's `Preempted` condition.
        reason: &'static str,
        preemptor: WorkloadKey,
        preemptor_uid: Name,
        /// The path of the preemptor's ClusterQueue: `/root/cohort/queue`.
        preemptor_path: String,
        /// The path of the victim's ClusterQueue.
        preemptee_path: String,
    },
}
