//! What the engine decides.

use std::collections::BTreeMap;

use crate::{Admission, Amount, Name, Reason, Time, WorkloadKey};

/// The outcome of one scheduling cycle.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cycle {
    /// Counts the cycles of this engine, from 1.
    pub number: u64,
    /// In the order they were made.
    pub decisions: Vec<Decision>,
    /// How many workloads would have preempted others and were skipped, because others of the same cycle needed the same
    /// room, by ClusterQueue.
    pub preemption_skips: BTreeMap<Name, usize>,
    /// Nothing was admitted and nobody preempted: slow down.
    pub idle: bool,
}

/// The quota that one pod set of a pending workload asks for: its name, and the total by resource.
pub type PodSetRequests = (Name, BTreeMap<Name, Amount>);

/// One decision about one workload.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "record", derive(serde::Serialize))]
pub enum Decision {
    /// Quota is reserved. It stays charged until a Workload event confirms it, `AdmissionRefused` takes it back, or
    /// the workload is deleted.
    Reserve {
        /// The workload's place.
        key: WorkloadKey,
        /// Its uid.
        uid: Name,
        /// The quota given.
        admission: Admission,
        /// The admission checks that apply to it.
        checks: Vec<Name>,
        /// Since when it waited.
        waited_since: Time,
        /// The flavors considered and why others were not taken, for the event; may be empty.
        note: String,
        /// The workload in whose place it comes, and its uid: once this reservation is written, that one is over. Its
        /// quota is this one's already.
        replaces: Option<(WorkloadKey, Name)>,
    },
    /// It stays pending.
    Pending {
        /// The workload's place.
        key: WorkloadKey,
        /// Its uid.
        uid: Name,
        /// Why.
        reason: Reason,
        /// What it asks for (`status.resourceRequests`).
        requests: Vec<PodSetRequests>,
    },
    /// The places of its pods change; its quota does not. The workload's failed nodes are dealt with by it.
    Reassign {
        /// The workload's place.
        key: WorkloadKey,
        /// Its uid.
        uid: Name,
        /// All that it has, with the new places.
        admission: Admission,
    },
    /// Its pods could not be placed after its reservation. It keeps that and is tried again later.
    SecondPassFailed {
        /// The workload's place.
        key: WorkloadKey,
        /// Its uid.
        uid: Name,
        /// Why.
        reason: Reason,
    },
    /// It must give its quota back, since there is no place for pods of a failed node.
    Evict {
        /// The workload's place.
        key: WorkloadKey,
        /// Its uid.
        uid: Name,
        /// The failed nodes.
        nodes: Vec<Name>,
    },
    /// It must give its quota back, as a variant of the same workload is given a better flavor once it has.
    Migrate {
        /// The place of the one on the worse flavor.
        key: WorkloadKey,
        /// Its uid.
        uid: Name,
        /// The uid of the one on the better flavor.
        to_uid: Name,
    },
    /// It must give its quota back. Only decided by an engine made by [`Engine::preempting`](crate::Engine::preempting).
    Preempt {
        /// The victim's place.
        key: WorkloadKey,
        /// Its uid.
        uid: Name,
        /// The reason of its `Preempted` condition.
        reason: &'static str,
        /// The workload it makes room for.
        preemptor: WorkloadKey,
        /// That workload's uid.
        preemptor_uid: Name,
        /// Where the preemptor's ClusterQueue stands: `/root/cohort/queue`.
        preemptor_path: String,
        /// Where the victim's ClusterQueue stands.
        preemptee_path: String,
    },
}
