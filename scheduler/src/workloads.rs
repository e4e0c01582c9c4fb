//! The workloads and LocalQueues that the engine keeps.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;

use crate::flavor_resource::Fr;
use crate::flavors::Scan;
use crate::queue::equivalence::Class;
use crate::queue::{Bucket, Item};
use crate::topology::PlaceUse;
use crate::tree::NodeId;
use crate::{Admission, LocalQueue, LocalQueueKey, Name, Reason, Time, WorkloadKey};

/// A workload's place in memory. Reused after the workload is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(feature = "record", derive(serde::Serialize, serde::Deserialize))]
pub(crate) struct WlId(u32);

/// A LocalQueue's place in memory, also of one that is only named.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(feature = "record", derive(serde::Serialize, serde::Deserialize))]
pub(crate) struct LqId(u32);

impl LqId {
    /// Not after any other.
    pub(crate) const FIRST: Self = Self(0);
}

/// One workload, reduced to what the engine needs. Kept small: there may be a million.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "record", derive(serde::Serialize, serde::Deserialize))]
pub(crate) struct Wl {
    pub(crate) key: WorkloadKey,
    pub(crate) uid: Name,
    pub(crate) queue: LqId,
    /// Priority, counts and pod sets.
    #[cfg_attr(feature = "record", serde(with = "crate::serde_forms::class"))]
    pub(crate) class: Arc<Class>,
    pub(crate) created: Time,
    pub(crate) queue_time: Time,
    pub(crate) requeue_at: Option<Time>,
    pub(crate) requeued: Option<bool>,
    /// It was given back and is not tried before this, unless somebody asks for it.
    pub(crate) not_before: Option<Time>,
    pub(crate) flags: Flags,
    /// A preemption of it was decided, and the API has said nothing about it since.
    pub(crate) told_to_go: bool,
    pub(crate) hold: Option<Box<Hold>>,
    /// Where the search for flavors goes on.
    pub(crate) scan: Option<Box<Scan>>,
    /// Why it was not admitted when last tried.
    pub(crate) reason: Option<Arc<Reason>>,
    /// The ClusterQueue in whose queue it is.
    pub(crate) queued_in: Option<NodeId>,
    /// The uid of the workload that it is a variant of.
    #[cfg_attr(feature = "record", serde(default))]
    pub(crate) parent: Option<Box<Name>>,
    /// What placement has to know of it, where that is anything.
    #[cfg_attr(feature = "record", serde(default))]
    pub(crate) facts: Option<Box<Facts>>,
}

/// What few workloads have, and only placement has to know.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "record", derive(serde::Serialize, serde::Deserialize))]
pub(crate) struct Facts {
    pub(crate) unhealthy_nodes: Vec<Name>,
    pub(crate) owned_by_pod: bool,
    pub(crate) pod_set_updates: Vec<crate::PodSetUpdate>,
}

/// The yes-or-no facts of a workload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "record", derive(serde::Serialize, serde::Deserialize))]
pub(crate) struct Flags {
    pub(crate) active: bool,
    pub(crate) finished: bool,
    pub(crate) admitted: bool,
    pub(crate) evicted: bool,
    pub(crate) pods_ready: bool,
    pub(crate) held: bool,
    pub(crate) deleting: bool,
    pub(crate) gates_closed: bool,
    pub(crate) checks_failed: bool,
    /// It has admission checks, and all are Ready.
    #[cfg_attr(feature = "record", serde(default))]
    pub(crate) checks_ready: bool,
}

/// A reservation of quota.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "record", derive(serde::Serialize, serde::Deserialize))]
pub(crate) struct Hold {
    pub(crate) admission: Admission,
    /// The ClusterQueue that is charged, if it exists.
    pub(crate) charged: Option<NodeId>,
    /// What it is charged, exactly.
    pub(crate) charge: Vec<(Fr, i64)>,
    /// What it uses of places.
    #[cfg_attr(feature = "record", serde(default))]
    pub(crate) places: Vec<PlaceUse>,
    /// The API shows it.
    pub(crate) confirmed: bool,
    /// Since when.
    pub(crate) since: Time,
}

impl Wl {
    /// It asks for quota that it does not have.
    pub(crate) fn is_pending(&self) -> bool {
        self.hold.is_none() && self.may_ask() && !self.flags.held && !self.flags.deleting
    }

    /// It may ask for quota, now or later.
    pub(crate) fn may_ask(&self) -> bool {
        self.flags.active && !self.flags.finished
    }

    /// It gives its quota back: that was decided here or elsewhere. What was deactivated holds its quota until the API shows that
    /// it is given back, since its pods run until then.
    pub(crate) fn is_leaving(&self) -> bool {
        self.flags.evicted || self.told_to_go || !self.flags.active
    }

    /// Its back-off has not ended.
    pub(crate) fn is_backing_off(&self, now: Time) -> bool {
        self.requeued == Some(false) || self.wakes_at().is_some_and(|at| at > now)
    }

    /// When its back-off ends by itself.
    pub(crate) fn wakes_at(&self) -> Option<Time> {
        self.requeue_at.max(self.not_before)
    }

    /// How old it is as a victim. A decided reservation ends the eviction that sent it to the back of the queue, even
    /// before the API shows so.
    pub(crate) fn age(&self) -> Time {
        let decided = self.hold.as_ref().is_some_and(|hold| !hold.confirmed);
        if decided { self.created } else { self.queue_time }
    }

    pub(crate) fn bucket(&self) -> Bucket {
        Bucket { class: self.class.id, queue: self.queue, priority: self.class.priority }
    }

    pub(crate) fn item(&self, id: WlId) -> Item {
        Item { time: self.queue_time, uid: self.uid.clone(), id }
    }
}

/// All workloads.
#[derive(Debug, Default)]
#[cfg_attr(feature = "record", derive(serde::Serialize, serde::Deserialize))]
pub(crate) struct Workloads {
    places: Vec<Option<Wl>>,
    free: Vec<WlId>,
    /// By a hash of the key: numbers are compared where they lie, while texts are all over a million workloads'
    /// memory. The order of hashes is never shown.
    #[cfg_attr(feature = "record", serde(skip))]
    ids: BTreeSet<(u64, WlId)>,
}

/// The same in every run.
fn hash(key: &WorkloadKey) -> u64 {
    let mut hasher = DefaultHasher::new();
    key.hash(&mut hasher);
    hasher.finish()
}

impl Workloads {
    pub(crate) fn id(&self, key: &WorkloadKey) -> Option<WlId> {
        let hash = hash(key);
        let alike = self.ids.range((hash, WlId(0))..=(hash, WlId(u32::MAX))).map(|(_, id)| *id);
        alike.into_iter().find(|id| self.get(*id).is_some_and(|wl| wl.key == *key))
    }

    pub(crate) fn get(&self, id: WlId) -> Option<&Wl> {
        self.places.get(id.0 as usize)?.as_ref()
    }

    pub(crate) fn get_mut(&mut self, id: WlId) -> Option<&mut Wl> {
        self.places.get_mut(id.0 as usize)?.as_mut()
    }

    pub(crate) fn insert(&mut self, wl: Wl) -> WlId {
        let id = self.free.pop().unwrap_or_else(|| {
            self.places.push(None);
            WlId(u32::try_from(self.places.len() - 1).unwrap_or(u32::MAX))
        });
        self.ids.insert((hash(&wl.key), id));
        if let Some(place) = self.places.get_mut(id.0 as usize) {
            *place = Some(wl);
        }
        id
    }

    pub(crate) fn remove(&mut self, id: WlId) -> Option<Wl> {
        let wl = self.places.get_mut(id.0 as usize)?.take()?;
        self.ids.remove(&(hash(&wl.key), id));
        self.free.push(id);
        Some(wl)
    }
}

/// A LocalQueue: the object, if it exists, and what goes through it.
#[derive(Debug)]
#[cfg_attr(feature = "record", derive(serde::Serialize, serde::Deserialize))]
pub(crate) struct Lq {
    pub(crate) key: LocalQueueKey,
    pub(crate) object: Option<LocalQueue>,
    pub(crate) workloads: BTreeSet<WlId>,
    pub(crate) pending: usize,
    pub(crate) reserving: usize,
    pub(crate) admitted: usize,
    #[cfg_attr(feature = "record", serde(with = "crate::serde_forms::pairs"))]
    pub(crate) reserved_usage: BTreeMap<Fr, i128>,
    #[cfg_attr(feature = "record", serde(with = "crate::serde_forms::pairs"))]
    pub(crate) admitted_usage: BTreeMap<Fr, i128>,
}

impl Lq {
    /// It exists and is neither stopped nor being deleted.
    pub(crate) fn takes_workloads(&self) -> bool {
        self.object
            .as_ref()
            .is_some_and(|queue| queue.stop_policy == crate::StopPolicy::None && !queue.deleting)
    }
}

/// All LocalQueues that exist or are named by a workload.
#[derive(Debug, Default)]
#[cfg_attr(feature = "record", derive(serde::Serialize, serde::Deserialize))]
pub(crate) struct LocalQueues {
    places: Vec<Option<Lq>>,
    free: Vec<LqId>,
    #[cfg_attr(feature = "record", serde(skip))]
    ids: BTreeMap<LocalQueueKey, LqId>,
}

impl LocalQueues {
    pub(crate) fn id(&self, key: &LocalQueueKey) -> Option<LqId> {
        self.ids.get(key).copied()
    }

    pub(crate) fn get(&self, id: LqId) -> Option<&Lq> {
        self.places.get(id.0 as usize)?.as_ref()
    }

    pub(crate) fn get_mut(&mut self, id: LqId) -> Option<&mut Lq> {
        self.places.get_mut(id.0 as usize)?.as_mut()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (LqId, &Lq)> {
        self.ids.values().filter_map(|id| Some((*id, self.get(*id)?)))
    }

    /// The place of `key`, new if nobody named it before.
    pub(crate) fn intern(&mut self, key: &LocalQueueKey) -> LqId {
        if let Some(id) = self.id(key) {
            return id;
        }
        let id = self.free.pop().unwrap_or_else(|| {
            self.places.push(None);
            LqId(u32::try_from(self.places.len() - 1).unwrap_or(u32::MAX))
        });
        if let Some(place) = self.places.get_mut(id.0 as usize) {
            *place = Some(Lq {
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

    /// Forgets a place that neither an object nor a workload names.
    pub(crate) fn drop_if_unused(&mut self, id: LqId) {
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
    /// Completes what was read from a recording: classes are shared again and keys found.
    pub(crate) fn complete(
        &mut self,
        classes: &BTreeMap<crate::queue::equivalence::ClassId, Arc<Class>>,
    ) {
        for (number, wl) in self.places.iter_mut().enumerate() {
            let Some(wl) = wl else { continue };
            if let Some(class) = classes.get(&wl.class.id) {
                wl.class = class.clone();
            }
            self.ids.insert((hash(&wl.key), WlId(u32::try_from(number).unwrap_or(u32::MAX))));
        }
    }
}

#[cfg(feature = "record")]
impl LocalQueues {
    /// Completes what was read from a recording.
    pub(crate) fn complete(&mut self) {
        for (number, lq) in self.places.iter().enumerate() {
            if let Some(lq) = lq {
                self.ids.insert(lq.key.clone(), LqId(u32::try_from(number).unwrap_or(u32::MAX)));
            }
        }
    }
}
