//! Classes of equivalent workloads. Workloads of one shape and priority get one scheduling
//! decision. Kueue compares hashes of the shape (gate `SchedulingEquivalenceHashing`).
//!
//! Here each shape is stored once. This also keeps a million equal workloads small.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;

use crate::ids::ClassId;
use crate::{Name, PodSet, WorkloadKey};

/// The properties that all workloads of a class share.
#[derive(Debug)]
#[cfg_attr(feature = "record", derive(serde::Serialize, serde::Deserialize))]
pub(crate) struct EquivalenceClass {
    pub(crate) id: ClassId,
    pub(crate) priority: i32,
    /// Pods without reclaimable ones, by pod set.
    pub(crate) counts: Vec<i32>,
    pub(crate) pod_sets: Vec<PodSet>,
    /// The workload slice that it replaces. The slice's admission decides the new one, so that such
    /// a workload is in a class of its own.
    #[cfg_attr(feature = "record", serde(default))]
    pub(crate) replaces: Option<WorkloadKey>,
    /// Allowed flavors; `None` allows all.
    #[cfg_attr(feature = "record", serde(default))]
    pub(crate) flavors: Option<Vec<Name>>,
}

impl EquivalenceClass {
    /// Whether partial admission may reduce the pods.
    pub(crate) fn can_shrink(&self) -> bool {
        self.pod_sets.iter().any(|pod_set| pod_set.min_count.is_some_and(|min| min < pod_set.count))
    }
}

/// Compares classes by content.
#[derive(Debug)]
struct ByShape(Arc<EquivalenceClass>);

impl ByShape {
    fn parts(&self) -> (i32, &[i32], &[PodSet], Option<&WorkloadKey>) {
        (self.0.priority, &self.0.counts, &self.0.pod_sets, self.0.replaces.as_ref())
    }
}

impl PartialEq for ByShape {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}
impl Eq for ByShape {}
impl PartialOrd for ByShape {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for ByShape {
    fn cmp(&self, other: &Self) -> Ordering {
        self.parts().cmp(&other.parts()).then_with(|| self.0.flavors.cmp(&other.0.flavors))
    }
}

/// All classes in use, with the number of their workloads.
#[derive(Debug, Default)]
#[cfg_attr(feature = "record", derive(serde::Serialize, serde::Deserialize))]
pub(crate) struct EquivalenceClasses {
    #[cfg_attr(feature = "record", serde(with = "known"))]
    known: BTreeMap<ByShape, usize>,
    next: u64,
}

impl EquivalenceClasses {
    /// The class of a new workload.
    pub(crate) fn intern(
        &mut self,
        priority: i32,
        counts: Vec<i32>,
        pod_sets: Vec<PodSet>,
        replaces: Option<WorkloadKey>,
        flavors: Option<Vec<Name>>,
    ) -> Arc<EquivalenceClass> {
        let id = ClassId(self.next);
        let class = ByShape(Arc::new(EquivalenceClass {
            id,
            priority,
            counts,
            pod_sets,
            replaces,
            flavors,
        }));
        if let Some(users) = self.known.get_mut(&class) {
            *users += 1;
            return self.known.get_key_value(&class).map_or(class.0, |(known, _)| known.0.clone());
        }
        self.next += 1;
        let shared = class.0.clone();
        self.known.insert(class, 1);
        shared
    }

    /// One workload left this class.
    pub(crate) fn release(&mut self, class: Arc<EquivalenceClass>) {
        let class = ByShape(class);
        if let Some(users) = self.known.get_mut(&class) {
            *users -= 1;
            if *users == 0 {
                self.known.remove(&class);
            }
        }
    }
}

#[cfg(feature = "record")]
impl EquivalenceClass {
    /// A placeholder, until the engine restores its derived state.
    pub(crate) fn placeholder(id: ClassId) -> Self {
        Self {
            id,
            priority: 0,
            counts: Vec::new(),
            pod_sets: Vec::new(),
            replaces: None,
            flavors: None,
        }
    }
}

#[cfg(feature = "record")]
impl EquivalenceClasses {
    pub(crate) fn all_by_id(&self) -> BTreeMap<ClassId, Arc<EquivalenceClass>> {
        self.known.keys().map(|class| (class.0.id, class.0.clone())).collect()
    }
}

/// Recorded as a list, because JSON keys are strings.
#[cfg(feature = "record")]
mod known {
    use super::{Arc, BTreeMap, ByShape, EquivalenceClass};
    use serde::{Deserialize as _, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(
        known: &BTreeMap<ByShape, usize>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        to.collect_seq(known.iter().map(|(class, users)| (&*class.0, users)))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<BTreeMap<ByShape, usize>, D::Error> {
        let known = Vec::<(EquivalenceClass, usize)>::deserialize(from)?;
        Ok(known.into_iter().map(|(class, users)| (ByShape(Arc::new(class)), users)).collect())
    }
}

/// A recorded workload names its class by id; [`EquivalenceClasses`] holds each class once.
#[cfg(feature = "record")]
pub(crate) mod by_id {
    use super::{Arc, ClassId, EquivalenceClass};
    use serde::{Deserialize as _, Deserializer, Serialize as _, Serializer};

    pub(crate) fn serialize<S: Serializer>(
        class: &Arc<EquivalenceClass>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        class.id.serialize(to)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Arc<EquivalenceClass>, D::Error> {
        ClassId::deserialize(from).map(|id| Arc::new(EquivalenceClass::placeholder(id)))
    }
}
