//! A ClusterQueue inside the engine: the object, its pending workloads and its quota reservations.

use std::collections::{BTreeMap, BTreeSet};

use crate::flavor_resource::{FlavorResource, FlavorResources};
use crate::ids::{LocalQueueId, NodeId, WorkloadId};
use crate::preemption_order::PreemptionOrder;
use crate::queue::PendingQueue;
use crate::{Admission, ClusterQueue, InactiveCause, Name, Quota, ResourceGroup};

#[derive(Debug)]
#[cfg_attr(feature = "record", derive(serde::Serialize, serde::Deserialize))]
pub(crate) struct ClusterQueueEntry {
    pub(crate) object: ClusterQueue,
    pub(crate) node: NodeId,
    pub(crate) groups: Vec<FlavorGroup>,
    pub(crate) queue: PendingQueue,
    /// Empty if the queue may admit.
    #[cfg_attr(feature = "record", serde(skip))]
    pub(crate) inactive: Vec<InactiveCause>,
    /// The queue is active and has a head, so that the next cycle takes it.
    #[cfg_attr(feature = "record", serde(skip))]
    pub(crate) ready: bool,
    /// Grows when quota is freed or changes. A [`FlavorScan`](crate::flavor_scan::FlavorScan) of an
    /// older generation is outdated.
    pub(crate) generation: u64,
    /// LocalQueues whose `spec.clusterQueue` names this queue.
    pub(crate) local_queues: BTreeSet<LocalQueueId>,
    /// Workloads that reserve its quota.
    pub(crate) workloads: BTreeSet<WorkloadId>,
    /// `workloads` in preemption order, without the victims of the running cycle.
    #[cfg_attr(feature = "record", serde(skip))]
    pub(crate) preemption_order: PreemptionOrder,
    pub(crate) admitted: usize,
    #[cfg_attr(feature = "record", serde(with = "crate::serde_forms::pairs"))]
    pub(crate) admitted_usage: BTreeMap<FlavorResource, i128>,
}

/// A resource group with interned pairs.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "record", derive(serde::Serialize, serde::Deserialize))]
pub(crate) struct FlavorGroup {
    pub(crate) resources: Vec<Name>,
    pub(crate) flavors: Vec<GroupFlavor>,
}

/// One flavor of a group. `flavor_resources` is parallel to the group's `resources`.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "record", derive(serde::Serialize, serde::Deserialize))]
pub(crate) struct GroupFlavor {
    pub(crate) name: Name,
    #[cfg_attr(feature = "record", serde(rename = "frs"))]
    pub(crate) flavor_resources: Vec<FlavorResource>,
}

impl ClusterQueueEntry {
    pub(crate) fn new(object: ClusterQueue, node: NodeId) -> Self {
        Self {
            object,
            node,
            groups: Vec::new(),
            queue: PendingQueue::default(),
            inactive: Vec::new(),
            ready: false,
            generation: 0,
            local_queues: BTreeSet::new(),
            workloads: BTreeSet::new(),
            preemption_order: PreemptionOrder::default(),
            admitted: 0,
            admitted_usage: BTreeMap::new(),
        }
    }

    pub(crate) fn is_active(&self) -> bool {
        self.inactive.is_empty()
    }

    pub(crate) fn group_of(&self, resource: &str) -> Option<&FlavorGroup> {
        self.groups.iter().find(|group| group.resources.iter().any(|name| &**name == resource))
    }

    /// The admission checks of an admission: those that apply to one of its flavors, in order of
    /// names.
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

pub(crate) fn compile(groups: &[ResourceGroup], pairs: &mut FlavorResources) -> Vec<FlavorGroup> {
    groups
        .iter()
        .map(|group| FlavorGroup {
            resources: group.covered_resources.clone(),
            flavors: (group.flavors.iter())
                .map(|flavor| GroupFlavor {
                    name: flavor.name.clone(),
                    flavor_resources: (group.covered_resources.iter())
                        .map(|resource| pairs.intern(&flavor.name, resource))
                        .collect(),
                })
                .collect(),
        })
        .collect()
}

/// The quotas of resource groups. If a pair occurs twice, the last one counts.
pub(crate) fn quotas(
    groups: &[ResourceGroup],
    pairs: &mut FlavorResources,
) -> Vec<(FlavorResource, Quota)> {
    let flavors = groups.iter().flat_map(|group| &group.flavors);
    flavors
        .flat_map(|flavor| {
            flavor.resources.iter().map(move |(resource, quota)| (&flavor.name, resource, quota))
        })
        .map(|(flavor, resource, quota)| (pairs.intern(flavor, resource), *quota))
        .collect()
}
