//! A ClusterQueue as the engine keeps it: the object, its queue, and what holds its quota.

use std::collections::{BTreeMap, BTreeSet};

use crate::flavor_resource::{Fr, Pairs};
use crate::preemption_order::Holders;
use crate::queue::Queue;
use crate::tree::NodeId;
use crate::workloads::{LqId, WlId};
use crate::{Admission, ClusterQueue, Inactive, Name, Quota, ResourceGroup};

/// One ClusterQueue.
#[derive(Debug)]
#[cfg_attr(feature = "record", derive(serde::Serialize, serde::Deserialize))]
pub(crate) struct Cq {
    pub(crate) object: ClusterQueue,
    pub(crate) node: NodeId,
    pub(crate) groups: Vec<Group>,
    pub(crate) queue: Queue,
    /// Why it admits nothing; empty if it does.
    #[cfg_attr(feature = "record", serde(skip))]
    pub(crate) inactive: Vec<Inactive>,
    /// It is active and has a head, so the next cycle looks at it.
    #[cfg_attr(feature = "record", serde(skip))]
    pub(crate) ready: bool,
    /// Grows when quota becomes free or changes, so that the progress of flavor searches can be outdated.
    pub(crate) generation: u64,
    /// The LocalQueues that name it.
    pub(crate) local_queues: BTreeSet<LqId>,
    /// The workloads that hold its quota.
    pub(crate) workloads: BTreeSet<WlId>,
    /// The same in the order in which they would be preempted; without those that were told to go in this cycle.
    #[cfg_attr(feature = "record", serde(skip))]
    pub(crate) holders: Holders,
    pub(crate) admitted: usize,
    #[cfg_attr(feature = "record", serde(with = "crate::serde_forms::pairs"))]
    pub(crate) admitted_usage: BTreeMap<Fr, i128>,
}

/// A resource group, with its pairs interned.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "record", derive(serde::Serialize, serde::Deserialize))]
pub(crate) struct Group {
    pub(crate) resources: Vec<Name>,
    pub(crate) flavors: Vec<GroupFlavor>,
}

/// A flavor of a group: a pair for each of the group's resources, in their order.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "record", derive(serde::Serialize, serde::Deserialize))]
pub(crate) struct GroupFlavor {
    pub(crate) name: Name,
    pub(crate) frs: Vec<Fr>,
}

impl Cq {
    pub(crate) fn new(object: ClusterQueue, node: NodeId) -> Self {
        Self {
            object,
            node,
            groups: Vec::new(),
            queue: Queue::default(),
            inactive: Vec::new(),
            ready: false,
            generation: 0,
            local_queues: BTreeSet::new(),
            workloads: BTreeSet::new(),
            holders: Holders::default(),
            admitted: 0,
            admitted_usage: BTreeMap::new(),
        }
    }

    pub(crate) fn is_active(&self) -> bool {
        self.inactive.is_empty()
    }

    /// The group that covers a resource.
    pub(crate) fn group_of(&self, resource: &str) -> Option<&Group> {
        self.groups.iter().find(|group| group.resources.iter().any(|name| &**name == resource))
    }

    /// The admission checks that apply to an admission: those on any of its flavors. In order of names.
    pub(crate) fn checks_for(&self, admission: &Admission) -> Vec<Name> {
        let given = |flavor: &Name| {
            admission
                .pod_sets
                .iter()
                .any(|pod_set| pod_set.flavors.values().any(|name| name == flavor))
        };
        let own = |flavor: &Name| {
            self.groups.iter().any(|group| group.flavors.iter().any(|f| f.name == *flavor))
        };
        let applies = |flavors: &[Name]| {
            if flavors.is_empty() {
                admission.pod_sets.iter().flat_map(|pod_set| pod_set.flavors.values()).any(own)
            } else {
                flavors.iter().any(given)
            }
        };
        let names: BTreeSet<_> = (self.object.admission_checks.iter())
            .filter(|rule| applies(&rule.on_flavors))
            .map(|rule| rule.name.clone())
            .collect();
        names.into_iter().collect()
    }
}

/// Interns the pairs of resource groups.
pub(crate) fn compile(groups: &[ResourceGroup], pairs: &mut Pairs) -> Vec<Group> {
    groups
        .iter()
        .map(|group| Group {
            resources: group.covered_resources.clone(),
            flavors: (group.flavors.iter())
                .map(|flavor| GroupFlavor {
                    name: flavor.name.clone(),
                    frs: (group.covered_resources.iter())
                        .map(|resource| pairs.intern(&flavor.name, resource))
                        .collect(),
                })
                .collect(),
        })
        .collect()
}

/// The quotas of resource groups by pair. Of pairs given twice the last one counts.
pub(crate) fn quotas(groups: &[ResourceGroup], pairs: &mut Pairs) -> Vec<(Fr, Quota)> {
    let flavors = groups.iter().flat_map(|group| &group.flavors);
    flavors
        .flat_map(|flavor| {
            flavor.resources.iter().map(move |(resource, quota)| (&flavor.name, resource, quota))
        })
        .map(|(flavor, resource, quota)| (pairs.intern(flavor, resource), *quota))
        .collect()
}
