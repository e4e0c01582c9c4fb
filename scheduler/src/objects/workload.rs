use std::collections::BTreeMap;

use crate::{
    Amount, DelayedTopology, Name, NodeSelectorTerm, Time, Toleration, TopologyAssignment,
    TopologyRequest, WorkloadKey,
};

#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "record", derive(serde::Serialize, serde::Deserialize))]
pub struct Workload {
    pub key: WorkloadKey,
    /// Another uid under the same key is another workload.
    pub uid: Name,
    /// `spec.queueName`: a LocalQueue in its namespace.
    pub queue_name: String,
    /// The effective priority.
    pub priority: i32,
    pub created: Time,
    /// Orders workloads of equal priority: the creation, or the eviction that moved it to the back.
    pub queue_time: Time,
    /// `spec.active`.
    pub active: bool,
    pub finished: bool,
    /// With effective requests.
    pub pod_sets: Vec<PodSet>,
    /// Set if `QuotaReserved` is True.
    pub reservation: Option<Admission>,
    /// When `QuotaReserved` became True.
    pub reserved_at: Option<Time>,
    pub admitted: bool,
    pub evicted: bool,
    pub pods_ready: bool,
    /// After this time, `blockAdmission` stops waiting for its pods.
    #[cfg_attr(feature = "record", serde(default))]
    pub ready_by: Option<Time>,
    /// `status.requeueState.requeueAt`.
    pub requeue_at: Option<Time>,
    /// The `Requeued` condition, if present.
    pub requeued: Option<bool>,
    /// `status.reclaimablePods`: pods that will not run again, by pod set.
    pub reclaimable: BTreeMap<Name, i32>,
    pub checks: Vec<CheckState>,
    /// A closed preemption gate forbids preemption.
    pub gates_closed: bool,
    /// Active, but must stay out of the queue: on hold, behind its admission gate, or waiting for
    /// replacement pods.
    #[cfg_attr(feature = "record", serde(rename = "held"))]
    pub on_hold: bool,
    pub deleting: bool,
    /// The workload slice that this one replaces, when an elastic job grows. While the slice has
    /// quota in the same ClusterQueue, this workload gets the same flavors and needs only the
    /// difference. Kueue KEP-77.
    #[cfg_attr(feature = "record", serde(default))]
    pub replaces: Option<WorkloadKey>,
    /// Allowed flavors; `None` allows all.
    #[cfg_attr(feature = "record", serde(default))]
    pub flavors: Option<Vec<Name>>,
    /// The uid of the workload of which it is a variant. The variant on the best flavor runs. Kueue
    /// KEP-8691.
    #[cfg_attr(feature = "record", serde(default))]
    pub parent: Option<Name>,
    /// `status.unhealthyNodes`: failed nodes of its topology assignment.
    #[cfg_attr(feature = "record", serde(default))]
    pub unhealthy_nodes: Vec<Name>,
    /// Its only owner is one Pod, which cannot move.
    #[cfg_attr(feature = "record", serde(default))]
    pub owned_by_pod: bool,
    /// `podSetUpdates` of admission checks that are Ready.
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
            on_hold: false,
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

/// Changes of an admission check to the pods of a pod set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "record", derive(serde::Serialize, serde::Deserialize))]
pub struct PodSetUpdate {
    pub pod_set: Name,
    pub node_selector: BTreeMap<String, String>,
    pub tolerations: Vec<Toleration>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "record", derive(serde::Serialize, serde::Deserialize))]
pub struct PodSet {
    pub name: Name,
    pub count: i32,
    /// Enough pods for partial admission.
    pub min_count: Option<i32>,
    /// The requests of one pod, after limits, overhead and transformations.
    pub requests: BTreeMap<Name, Amount>,
    pub node_selector: BTreeMap<String, String>,
    /// Required node affinity: one of the terms must match. Empty matches everything.
    pub affinity: Vec<NodeSelectorTerm>,
    pub tolerations: Vec<Toleration>,
    /// Why the pod set can never be admitted (for example requests above limits), in Kueue's words.
    pub problem: Option<String>,
    #[cfg_attr(feature = "record", serde(default))]
    pub topology: Option<Box<TopologyRequest>>,
    /// The requests of one pod in its template, if `requests` differ.
    #[cfg_attr(feature = "record", serde(default))]
    pub pod_requests: Option<Box<BTreeMap<Name, Amount>>>,
    /// The only flavor allowed for a resource: the hub charged it. `None` allows all.
    #[cfg_attr(feature = "record", serde(default, skip_serializing_if = "Option::is_none"))]
    pub pins: Option<Box<BTreeMap<Name, Name>>>,
}

impl PodSet {
    /// `count` pods without requests. Complete it with struct update syntax.
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
            pins: None,
        }
    }

    /// The capacity that one pod needs in a topology domain.
    pub fn requests_of_pod(&self) -> &BTreeMap<Name, Amount> {
        self.pod_requests.as_deref().unwrap_or(&self.requests)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "record", derive(serde::Serialize, serde::Deserialize))]
pub struct Admission {
    pub cluster_queue: Name,
    pub pod_sets: Vec<PodSetAssignment>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "record", derive(serde::Serialize, serde::Deserialize))]
pub struct PodSetAssignment {
    pub name: Name,
    /// Flavor by resource.
    pub flavors: BTreeMap<Name, Name>,
    /// By resource, for all `count` pods.
    pub usage: BTreeMap<Name, Amount>,
    pub count: i32,
    #[cfg_attr(feature = "record", serde(default))]
    pub topology: Option<TopologyAssignment>,
    #[cfg_attr(feature = "record", serde(default))]
    pub delayed: Option<DelayedTopology>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "record", derive(serde::Serialize, serde::Deserialize))]
pub enum CheckPhase {
    #[default]
    Pending,
    Ready,
    Retry,
    Rejected,
}

#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "record", derive(serde::Serialize, serde::Deserialize))]
pub struct CheckState {
    pub name: Name,
    pub state: CheckPhase,
}
