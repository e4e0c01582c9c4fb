//! Workloads.

use std::collections::BTreeMap;

use crate::{
    Amount, DelayedTopology, Name, NodeSelectorTerm, Time, Toleration, TopologyAssignment,
    TopologyRequest, WorkloadKey,
};

/// A job's demand, as its Workload object states it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "record", derive(serde::Serialize, serde::Deserialize))]
pub struct Workload {
    /// Its place.
    pub key: WorkloadKey,
    /// The object's uid; another uid under the same key is another workload.
    pub uid: Name,
    /// `spec.queueName`: a LocalQueue in its namespace.
    pub queue_name: String,
    /// The effective priority.
    pub priority: i32,
    /// When it was created.
    pub created: Time,
    /// What it is ordered by among equal priorities (the creation, or an eviction that sends it to the back).
    pub queue_time: Time,
    /// `spec.active`.
    pub active: bool,
    /// It has the `Finished` condition.
    pub finished: bool,
    /// The pod sets, with effective requests.
    pub pod_sets: Vec<PodSet>,
    /// The reservation that the API shows (`QuotaReserved` is True).
    pub reservation: Option<Admission>,
    /// When `QuotaReserved` became True.
    pub reserved_at: Option<Time>,
    /// `Admitted` is True.
    pub admitted: bool,
    /// `Evicted` is True.
    pub evicted: bool,
    /// All its pods are ready.
    pub pods_ready: bool,
    /// From when on its pods are not waited for any more, ready or not.
    #[cfg_attr(feature = "record", serde(default))]
    pub ready_by: Option<Time>,
    /// `status.requeueState.requeueAt`.
    pub requeue_at: Option<Time>,
    /// The `Requeued` condition, if there is one.
    pub requeued: Option<bool>,
    /// Pods that will not run any more, by pod set.
    pub reclaimable: BTreeMap<Name, i32>,
    /// The states of its admission checks.
    pub checks: Vec<CheckState>,
    /// A preemption gate is closed: it must not preempt.
    pub gates_closed: bool,
    /// It must not be queued although it is active: on hold, gated by its admission gate, or waiting for replacement
    /// pods.
    pub held: bool,
    /// It is being deleted.
    pub deleting: bool,
    /// The older workload in whose place it comes: what an elastic job grew from. While that holds quota of the same
    /// ClusterQueue, this one gets the same flavors and needs only what it asks for beyond it.
    #[cfg_attr(feature = "record", serde(default))]
    pub replaces: Option<WorkloadKey>,
    /// The flavors that it may be given; `None` restricts nothing.
    #[cfg_attr(feature = "record", serde(default))]
    pub flavors: Option<Vec<Name>>,
    /// The uid of the workload that it is a variant of. Of the variants of one workload the one on the best flavor runs.
    #[cfg_attr(feature = "record", serde(default))]
    pub parent: Option<Name>,
    /// `status.unhealthyNodes`: failed nodes that some of its pods are assigned to.
    #[cfg_attr(feature = "record", serde(default))]
    pub unhealthy_nodes: Vec<Name>,
    /// Its only owner is one Pod, which cannot move.
    #[cfg_attr(feature = "record", serde(default))]
    pub owned_by_pod: bool,
    /// What admission checks that are Ready change of its pods.
    #[cfg_attr(feature = "record", serde(default))]
    pub pod_set_updates: Vec<PodSetUpdate>,
}

impl Workload {
    /// An active workload without pod sets. Complete it with struct update syntax.
    pub fn new(
        key: WorkloadKey,
        uid: impl Into<Name>,
        queue_name: impl Into<String>,
        created: Time,
    ) -> Self {
        Self {
            key,
            uid: uid.into(),
            queue_name: queue_name.into(),
            priority: 0,
            created,
            queue_time: created,
            active: true,
            finished: false,
            pod_sets: Vec::new(),
            reservation: None,
            reserved_at: None,
            admitted: false,
            evicted: false,
            pods_ready: false,
            ready_by: None,
            requeue_at: None,
            requeued: None,
            reclaimable: BTreeMap::new(),
            checks: Vec::new(),
            gates_closed: false,
            held: false,
            deleting: false,
            replaces: None,
            flavors: None,
            parent: None,
            unhealthy_nodes: Vec::new(),
            owned_by_pod: false,
            pod_set_updates: Vec::new(),
        }
    }
}

/// What an admission check changes of the pods of a pod set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "record", derive(serde::Serialize, serde::Deserialize))]
pub struct PodSetUpdate {
    /// The pod set.
    pub pod_set: Name,
    /// Added to the node selector.
    pub node_selector: BTreeMap<String, String>,
    /// Added to the tolerations.
    pub tolerations: Vec<Toleration>,
}

/// Pods of one shape.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "record", derive(serde::Serialize, serde::Deserialize))]
pub struct PodSet {
    /// Its name.
    pub name: Name,
    /// How many pods.
    pub count: i32,
    /// How many are enough (partial admission).
    pub min_count: Option<i32>,
    /// What one pod asks for, after limits, overhead and transformations.
    pub requests: BTreeMap<Name, Amount>,
    /// `nodeSelector` of the pods.
    pub node_selector: BTreeMap<String, String>,
    /// Required node affinity: one of the terms must match. Empty restricts nothing.
    pub affinity: Vec<NodeSelectorTerm>,
    /// Tolerations of the pods.
    pub tolerations: Vec<Toleration>,
    /// Why it can never be admitted as it stands (requests above limits and such), in Kueue's words.
    pub problem: Option<String>,
    /// The topology that it asks for.
    #[cfg_attr(feature = "record", serde(default))]
    pub topology: Option<Box<TopologyRequest>>,
    /// What one pod asks for as its template says, if `requests` say something else.
    #[cfg_attr(feature = "record", serde(default))]
    pub pod_requests: Option<Box<BTreeMap<Name, Amount>>>,
}

impl PodSet {
    /// `count` pods that ask for nothing. Complete it with struct update syntax.
    pub fn new(name: impl Into<Name>, count: i32) -> Self {
        Self {
            name: name.into(),
            count,
            min_count: None,
            requests: BTreeMap::new(),
            node_selector: BTreeMap::new(),
            affinity: Vec::new(),
            tolerations: Vec::new(),
            problem: None,
            topology: None,
            pod_requests: None,
        }
    }

    /// What one pod asks of the place where it runs.
    pub fn requests_of_pod(&self) -> &BTreeMap<Name, Amount> {
        self.pod_requests.as_deref().unwrap_or(&self.requests)
    }
}

/// Quota given to a workload.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "record", derive(serde::Serialize, serde::Deserialize))]
pub struct Admission {
    /// By which ClusterQueue.
    pub cluster_queue: Name,
    /// For each pod set.
    pub pod_sets: Vec<PodSetAssignment>,
}

/// Quota given to one pod set.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "record", derive(serde::Serialize, serde::Deserialize))]
pub struct PodSetAssignment {
    /// The pod set.
    pub name: Name,
    /// Flavor by resource.
    pub flavors: BTreeMap<Name, Name>,
    /// Usage by resource, of all `count` pods.
    pub usage: BTreeMap<Name, Amount>,
    /// How many pods.
    pub count: i32,
    /// Where they run.
    #[cfg_attr(feature = "record", serde(default))]
    pub topology: Option<TopologyAssignment>,
    /// Whether they are placed after the reservation.
    #[cfg_attr(feature = "record", serde(default))]
    pub delayed: Option<DelayedTopology>,
}

/// How far an admission check is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "record", derive(serde::Serialize, serde::Deserialize))]
pub enum CheckPhase {
    /// Not answered yet.
    #[default]
    Pending,
    /// Passed.
    Ready,
    /// To be tried again later.
    Retry,
    /// Never.
    Rejected,
}

/// The state of one admission check of a workload.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "record", derive(serde::Serialize, serde::Deserialize))]
pub struct CheckState {
    /// The AdmissionCheck.
    pub name: Name,
    /// Its state.
    pub state: CheckPhase,
}
