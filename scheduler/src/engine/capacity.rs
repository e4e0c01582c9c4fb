//! Events of capacity leaves and of pods outside topology-aware scheduling; topology usage of
//! workloads.

use std::collections::BTreeSet;

use super::Engine;
use crate::cluster_queue::ClusterQueueEntry;
use crate::workloads::{QuotaReservation, WorkloadEntry};
use crate::{
    CapacityLeaf, LargestFreeDomain, Name, NonTasPod, PodSet, ResourceFlavor, Time, TopologyView,
};

impl Engine {
    pub(super) fn put_leaf(&mut self, leaf: CapacityLeaf, now: Time) {
        if self.forest.put_leaf(leaf) {
            self.trigger_active(now);
        }
    }

    pub(super) fn delete_leaf(&mut self, name: &Name, now: Time) {
        if self.forest.delete_leaf(name) {
            self.trigger_active(now);
        }
    }

    pub(super) fn put_non_tas_pod(&mut self, pod: &NonTasPod, now: Time) {
        let flavors = self.forest.put_non_tas_pod(pod);
        self.trigger_queues_with(&flavors, now);
    }

    pub(super) fn delete_non_tas_pod(&mut self, key: &Name, now: Time) {
        let flavors = self.forest.delete_non_tas_pod(key);
        self.trigger_queues_with(&flavors, now);
    }

    /// Retries the parked workloads of all active queues.
    pub(super) fn trigger_active(&mut self, now: Time) {
        let active: Vec<_> =
            self.cluster_queues.values().filter(|cq| cq.is_active()).map(|cq| cq.node).collect();
        for id in active {
            self.trigger(id, now);
        }
    }

    fn trigger_queues_with(&mut self, flavors: &BTreeSet<Name>, now: Time) {
        if flavors.is_empty() {
            return;
        }
        let users = self.cluster_queues.values().filter(|cq| {
            let mut own = cq.groups.iter().flat_map(|group| &group.flavors);
            own.any(|flavor| flavors.contains(&flavor.name))
        });
        let users: Vec<_> = users.map(|cq| cq.node).collect();
        for id in users {
            self.trigger(id, now);
        }
    }

    /// Whether a flavor change may admit workloads of any queue: it gets a topology, or its taints
    /// change.
    pub(super) fn may_admit_by_topology(
        &self,
        known: Option<&ResourceFlavor>,
        flavor: Option<&ResourceFlavor>,
    ) -> bool {
        let Some(flavor) = flavor
            .filter(|flavor| self.settings.topology.is_some() && flavor.topology_name.is_some())
        else {
            return false;
        };
        known.is_none_or(|known| {
            (&known.topology_name, &known.node_taints)
                != (&flavor.topology_name, &flavor.node_taints)
        })
    }

    /// Whether the topology of one of the queue's flavors is unknown. Kueue then admits nothing,
    /// even for a queue that dispatches to worker clusters.
    pub(super) fn lacks_topology(&self, cq: &ClusterQueueEntry) -> bool {
        let lacks = |flavor: &Name| {
            let known = self.referenced.flavors.get(flavor);
            known.is_some_and(|known| known.topology_name.is_some())
                && self.forest.tree(flavor).is_none()
        };
        self.settings.topology.is_some()
            && self.forest.is_used()
            && cq.groups.iter().flat_map(|group| &group.flavors).any(|flavor| lacks(&flavor.name))
    }

    /// The domains of a flavor with their amounts of the resources that queues cover. `None` if the
    /// flavor has no topology.
    pub fn topology(&self, flavor: &str) -> Option<TopologyView> {
        let tree = self.forest.tree(flavor)?;
        Some(tree.view(&self.covered_resources(flavor), &self.forest.resources))
    }

    /// The largest free domain of each level, for each flavor with a topology and each resource
    /// that queues cover. Visits all levels above each leaf, once for each resource.
    pub fn largest_free_domains(&self) -> Vec<LargestFreeDomain> {
        if !self.forest.is_used() {
            return Vec::new();
        }
        let of_flavor = |flavor: &Name| {
            let tree = self.forest.tree(flavor)?;
            let covered = self.covered_resources(flavor);
            Some(tree.largest_free(flavor, &covered, &self.forest.resources))
        };
        self.referenced.flavors.keys().filter_map(of_flavor).flatten().collect()
    }

    /// The resources for which any queue has quota of a flavor.
    fn covered_resources(&self, flavor: &str) -> BTreeSet<Name> {
        let groups = self.cluster_queues.values().flat_map(|cq| &cq.groups);
        let own = groups.filter(|group| group.flavors.iter().any(|it| &*it.name == flavor));
        own.flat_map(|group| &group.resources).cloned().collect()
    }

    /// Computes the topology usage of a reservation. Reclaimable pods still count, as in Kueue.
    pub(super) fn charge_domains(
        &mut self,
        wl: &WorkloadEntry,
        reservation: &mut QuotaReservation,
    ) {
        reservation.places.clear();
        if self.settings.topology.is_none() {
            return;
        }
        for assigned in &reservation.admission.pod_sets {
            let Some(topology) = &assigned.topology else { continue };
            let of_name = |pod_set: &&PodSet| pod_set.name == assigned.name;
            let Some(pod_set) = wl.class.pod_sets.iter().find(of_name) else { continue };
            let flavors = assigned.flavors.values().collect();
            reservation.places.extend(self.forest.uses(
                &flavors,
                topology,
                pod_set.requests_of_pod(),
            ));
        }
    }
}
