//! Scheduling equivalence: workloads of one shape and priority get one answer.
//!
//! Kueue compares a hash of the shape; here the shapes themselves are kept once each, which also makes a million
//! alike workloads small.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;

use crate::{Name, PodSet, WorkloadKey};

/// A class of equivalent workloads. Never reused, so a remembered class cannot come to mean another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(feature = "record", derive(serde::Serialize, serde::Deserialize))]
pub(crate) struct ClassId(u64);

/// What all workloads of a class have in common.
#[derive(Debug)]
#[cfg_attr(feature = "record", derive(serde::Serialize, serde::Deserialize))]
pub(crate) struct Class {
    pub(crate) id: ClassId,
    pub(crate) priority: i32,
    /// Pods still wanted, by pod set: the count without reclaimable pods.
    pub(crate) counts: Vec<i32>,
    pub(crate) pod_sets: Vec<PodSet>,
    /// The workload in whose place it comes. What that holds decides what it gets, so it is like no other.
    #[cfg_attr(feature = "record", serde(default))]
    pub(crate) replaces: Option<WorkloadKey>,
    /// The only flavors that do.
    #[cfg_attr(feature = "record", serde(default))]
    pub(crate) flavors: Option<Vec<Name>>,
}

impl Class {
    /// Whether fewer pods than asked for would do.
    pub(crate) fn can_shrink(&self) -> bool {
        self.pod_sets.iter().any(|pod_set| pod_set.min_count.is_some_and(|min| min < pod_set.count))
    }
}

/// A class compared by what is in it.
#[derive(Debug)]
struct ByShape(Arc<Class>);

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

/// All classes in use, with how many workloads are of each.
#[derive(Debug, Default)]
#[cfg_attr(feature = "record", derive(serde::Serialize, serde::Deserialize))]
pub(crate) struct Classes {
    #[cfg_attr(feature = "record", serde(with = "known"))]
    known: BTreeMap<ByShape, usize>,
    next: u64,
}

impl Classes {
    /// The class of one more workload.
    pub(crate) fn intern(
        &mut self,
        priority: i32,
        counts: Vec<i32>,
        pod_sets: Vec<PodSet>,
        replaces: Option<WorkloadKey>,
        flavors: Option<Vec<Name>>,
    ) -> Arc<Class> {
        let id = ClassId(self.next);
        let class = ByShape(Arc::new(Class { id, priority, counts, pod_sets, replaces, flavors }));
        if let Some(users) = self.known.get_mut(&class) {
            *users += 1;
            return self.known.get_key_value(&class).map_or(class.0, |(known, _)| known.0.clone());
        }
        self.next += 1;
        let shared = class.0.clone();
        self.known.insert(class, 1);
        shared
    }

    /// One workload no longer is of this class.
    pub(crate) fn release(&mut self, class: Arc<Class>) {
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
impl Class {
    /// One that only says which it is, until [`Classes::whole`] gives the whole one.
    pub(crate) fn named(id: ClassId) -> Self {
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
impl Classes {
    /// The classes by id.
    pub(crate) fn whole(&self) -> BTreeMap<ClassId, Arc<Class>> {
        self.known.keys().map(|class| (class.0.id, class.0.clone())).collect()
    }
}

/// The classes with their users, as a list.
#[cfg(feature = "record")]
mod known {
    use super::{Arc, BTreeMap, ByShape, Class};
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
        let known = Vec::<(Class, usize)>::deserialize(from)?;
        Ok(known.into_iter().map(|(class, users)| (ByShape(Arc::new(class)), users)).collect())
    }
}
