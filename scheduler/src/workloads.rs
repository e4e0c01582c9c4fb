//! The engine's workloads and LocalQueues.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;

use crate::flavor_resource::FlavorResource;
use crate::flavor_scan::FlavorScan;
use crate::ids::{LocalQueueId, NodeId, WorkloadId};
use crate::queue::equivalence::EquivalenceClass;
use crate::queue::{Bucket, Item};
use crate::topology::DomainUsage;
use crate::{Admission, LocalQueue, LocalQueueKey, Name, Reason, Time, WorkloadKey};

/// One workload, reduced to the engine's needs. Kept small, because there may be a million.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "record", derive(serde::Serialize, serde::Deserialize))]
pub(crate) struct WorkloadEntry {
    pub(crate) key: WorkloadKey,
    pub(crate) uid: Name,
    pub(crate) queue: LocalQueueId,
    #[cfg_attr(feature = "record", serde(with = "crate::queue::equivalence::by_id"))]
    pub(crate) class: Arc<EquivalenceClass>,
    pub(crate) created: Time,
    pub(crate) queue_time: Time,
    pub(crate) requeue_at: Option<Time>,
    pub(crate) requeued: Option<bool>,
    /// No worker cluster took it: not retried before this time, except on request.
    pub(crate) not_before: Option<Time>,
    pub(crate) flags: Flags,
    /// A preemption was decided, and no event of the workload arrived since.
    #[cfg_attr(feature = "record", serde(rename = "told_to_go"))]
    pub(crate) preemption_issued: bool,
    #[cfg_attr(feature = "record", serde(rename = "hold"))]
    pub(crate) reservation: Option<Box<QuotaReservation>>,
    /// The position of its flavor search.
    pub(crate) scan: Option<Box<FlavorScan>>,
    /// The outcome of the last attempt.
    pub(crate) reason: Option<Arc<Reason>>,
    /// The ClusterQueue whose pending queue holds it.
    pub(crate) queued_in: Option<NodeId>,
    /// The uid of the workload of which it is a variant.
    #[cfg_attr(feature = "record", serde(default))]
    pub(crate) parent: Option<Box<Name>>,
    /// `None` for most workloads.
    #[cfg_attr(feature = "record", serde(default))]
    #[cfg_attr(feature = "record", serde(rename = "facts"))]
    pub(crate) placement_inputs: Option<Box<PlacementInputs>>,
}

/// Inputs of placement that few workloads have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "record", derive(serde::Serialize, serde::Deserialize))]
pub(crate) struct PlacementInputs {
    pub(crate) unhealthy_nodes: Vec<Name>,
    pub(crate) owned_by_pod: bool,
    pub(crate) pod_set_updates: Vec<crate::PodSetUpdate>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "record", derive(serde::Serialize, serde::Deserialize))]
pub(crate) struct Flags {
    pub(crate) active: bool,
    pub(crate) finished: bool,
    pub(crate) admitted: bool,
    pub(crate) evicted: bool,
    pub(crate) pods_ready: bool,
    #[cfg_attr(feature = "record", serde(rename = "held"))]
    pub(crate) on_hold: bool,
    pub(crate) deleting: bool,
    pub(crate) gates_closed: bool,
    pub(crate) checks_failed: bool,
    /// There is at least one check, and all are Ready.
    #[cfg_attr(feature = "record", serde(default))]
    pub(crate) checks_ready: bool,
}

#[derive(Clone, Debug)]
#[cfg_attr(feature = "record", derive(serde::Serialize, serde::Deserialize))]
pub(crate) struct QuotaReservation {
    pub(crate) admission: Admission,
    /// `None` if the ClusterQueue does not exist.
    pub(crate) charged: Option<NodeId>,
    /// Exact.
    pub(crate) charge: Vec<(FlavorResource, i64)>,
    /// Capacity that it uses by topology domain.
    #[cfg_attr(feature = "record", serde(default))]
    pub(crate) places: Vec<DomainUsage>,
    /// An event of the workload shows the reservation.
    pub(crate) confirmed: bool,
    /// The cycle that decided it. `None` once confirmed, and in recordings of earlier releases.
    #[cfg_attr(feature = "record", serde(default, skip_serializing_if = "Option::is_none"))]
    pub(crate) cycle: Option<u64>,
    pub(crate) since: Time,
}

impl WorkloadEntry {
    /// Requests quota and has none.
    pub(crate) fn is_pending(&self) -> bool {
        self.reservation.is_none()
            && self.may_request_quota()
            && !self.flags.on_hold
            && !self.flags.deleting
    }

    /// May request quota, now or later.
    pub(crate) fn may_request_quota(&self) -> bool {
        self.flags.active && !self.flags.finished
    }

    /// An eviction was decided, here or elsewhere. A deactivated workload keeps its quota until an
    /// event shows that the quota is returned, because its pods run until then.
    pub(crate) fn is_being_evicted(&self) -> bool {
        self.flags.evicted || self.preemption_issued || !self.flags.active
    }

    pub(crate) fn is_backing_off(&self, now: Time) -> bool {
        self.requeued == Some(false) || self.wakes_at().is_some_and(|at| at > now)
    }

    /// The end of its back-off by time.
    pub(crate) fn wakes_at(&self) -> Option<Time> {
        self.requeue_at.max(self.not_before)
    }

    /// The age that counts when it is a candidate. A decided reservation ends the eviction that
    /// moved the workload to the back of the queue, even before an event shows it.
    pub(crate) fn age(&self) -> Time {
        let decided = self.reservation.as_ref().is_some_and(|reservation| !reservation.confirmed);
        if decided { self.created } else { self.queue_time }
    }

    pub(crate) fn bucket(&self) -> Bucket {
        Bucket { class: self.class.id, queue: self.queue, priority: self.class.priority }
    }

    pub(crate) fn item(&self, id: WorkloadId) -> Item {
        Item { time: self.queue_time, uid: self.uid.clone(), id }
    }
}

#[derive(Debug, Default)]
#[cfg_attr(feature = "record", derive(serde::Serialize, serde::Deserialize))]
pub(crate) struct Workloads {
    places: Vec<Option<WorkloadEntry>>,
    free: Vec<WorkloadId>,
    /// By hash of the key: integers compare in place, while key texts are spread over the memory of
    /// a million workloads. The order of hashes never reaches a decision.
    #[cfg_attr(feature = "record", serde(skip))]
    ids: BTreeSet<(u64, WorkloadId)>,
}

/// Equal in every run.
fn hash(key: &WorkloadKey) -> u64 {
    let mut hasher = DefaultHasher::new();
    key.hash(&mut hasher);
    hasher.finish()
}

impl Workloads {
    pub(crate) fn id(&self, key: &WorkloadKey) -> Option<WorkloadId> {
        let hash = hash(key);
        let alike =
            self.ids.range((hash, WorkloadId(0))..=(hash, WorkloadId(u32::MAX))).map(|(_, id)| *id);
        alike.into_iter().find(|id| self.get(*id).is_some_and(|wl| wl.key == *key))
    }

    pub(crate) fn get(&self, id: WorkloadId) -> Option<&WorkloadEntry> {
        self.places.get(id.0 as usize)?.as_ref()
    }

    pub(crate) fn get_mut(&mut self, id: WorkloadId) -> Option<&mut WorkloadEntry> {
        self.places.get_mut(id.0 as usize)?.as_mut()
    }

    pub(crate) fn insert(&mut self, wl: WorkloadEntry) -> WorkloadId {
        let id = self.free.pop().unwrap_or_else(|| {
            self.places.push(None);
            WorkloadId(u32::try_from(self.places.len() - 1).unwrap_or(u32::MAX))
        });
        self.ids.insert((hash(&wl.key), id));
        if let Some(place) = self.places.get_mut(id.0 as usize) {
            *place = Some(wl);
        }
        id
    }

    pub(crate) fn remove(&mut self, id: WorkloadId) -> Option<WorkloadEntry> {
        let wl = self.places.get_mut(id.0 as usize)?.take()?;
        self.ids.remove(&(hash(&wl.key), id));
        self.free.push(id);
        Some(wl)
    }
}

/// A LocalQueue and the counts of its workloads. `object` is `None` if only workloads name it.
#[derive(Debug)]
#[cfg_attr(feature = "record", derive(serde::Serialize, serde::Deserialize))]
pub(crate) struct LocalQueueEntry {
    pub(crate) key: LocalQueueKey,
    pub(crate) object: Option<LocalQueue>,
    pub(crate) workloads: BTreeSet<WorkloadId>,
    pub(crate) pending: usize,
    pub(crate) reserving: usize,
    pub(crate) admitted: usize,
    #[cfg_attr(feature = "record", serde(with = "crate::serde_forms::pairs"))]
    pub(crate) reserved_usage: BTreeMap<FlavorResource, i128>,
    #[cfg_attr(feature = "record", serde(with = "crate::serde_forms::pairs"))]
    pub(crate) admitted_usage: BTreeMap<FlavorResource, i128>,
}

impl LocalQueueEntry {
    /// Exists, is not stopped and is not being deleted.
    pub(crate) fn takes_workloads(&self) -> bool {
        self.object
            .as_ref()
            .is_some_and(|queue| queue.stop_policy == crate::StopPolicy::None && !queue.deleting)
    }
}

/// All LocalQueues that exist or that a workload names.
#[derive(Debug, Default)]
#[cfg_attr(feature = "record", derive(serde::Serialize, serde::Deserialize))]
pub(crate) struct LocalQueues {
    places: Vec<Option<LocalQueueEntry>>,
    free: Vec<LocalQueueId>,
    #[cfg_attr(feature = "record", serde(skip))]
    ids: BTreeMap<LocalQueueKey, LocalQueueId>,
}

impl LocalQueues {
    pub(crate) fn id(&self, key: &LocalQueueKey) -> Option<LocalQueueId> {
        self.ids.get(key).copied()
    }

    pub(crate) fn get(&self, id: LocalQueueId) -> Option<&LocalQueueEntry> {
        self.places.get(id.0 as usize)?.as_ref()
    }

    pub(crate) fn get_mut(&mut self, id: LocalQueueId) -> Option<&mut LocalQueueEntry> {
        self.places.get_mut(id.0 as usize)?.as_mut()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (LocalQueueId, &LocalQueueEntry)> {
        self.ids.values().filter_map(|id| Some((*id, self.get(*id)?)))
    }

    /// The id of `key`; a new one on first mention.
    pub(crate) fn intern(&mut self, key: &LocalQueueKey) -> LocalQueueId {
        if let Some(id) = self.id(key) {
            return id;
        }
        let id = self.free.pop().unwrap_or_else(|| {
            self.places.push(None);
            LocalQueueId(u32::try_from(self.places.len() - 1).unwrap_or(u32::MAX))
        });
        if let Some(place) = self.places.get_mut(id.0 as usize) {
            *place = Some(LocalQueueEntry {
                key: key.clone(),
                object: None,
                workloads: BTreeSet::new(),
                pending: 0,
                reserving: 0,
                admitted: 0,
                reserved_usage: BTreeMap::new(),
                admitted_usage: BTreeMap::new(),
            });
        }
        self.ids.insert(key.clone(), id);
        id
    }

    /// Removes an entry without object and workloads.
    pub(crate) fn drop_if_unused(&mut self, id: LocalQueueId) {
        let Some(place) = self.places.get_mut(id.0 as usize) else { return };
        if let Some(queue) =
            place.take_if(|queue| queue.object.is_none() && queue.workloads.is_empty())
        {
            self.ids.remove(&queue.key);
            self.free.push(id);
        }
    }
}

#[cfg(feature = "record")]
impl Workloads {
    /// Restores parts that a recording leaves out: shared classes and the key index.
    pub(crate) fn restore_derived_state(
        &mut self,
        classes: &BTreeMap<crate::ids::ClassId, Arc<EquivalenceClass>>,
    ) {
        for (number, wl) in self.places.iter_mut().enumerate() {
            let Some(wl) = wl else { continue };
            if let Some(class) = classes.get(&wl.class.id) {
                wl.class = class.clone();
            }
            self.ids.insert((hash(&wl.key), WorkloadId(u32::try_from(number).unwrap_or(u32::MAX))));
        }
    }
}

#[cfg(feature = "record")]
impl LocalQueues {
    /// Restores parts that a recording leaves out.
    pub(crate) fn restore_derived_state(&mut self) {
        for (number, lq) in self.places.iter().enumerate() {
            if let Some(lq) = lq {
                self.ids.insert(
                    lq.key.clone(),
                    LocalQueueId(u32::try_from(number).unwrap_or(u32::MAX)),
                );
            }
        }
    }
}
