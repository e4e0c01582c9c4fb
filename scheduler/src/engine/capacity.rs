//! Leaves of capacity, pods outside of topology-aware scheduling, and what workloads use of places.

use std::collections::BTreeSet;

use super::Engine;
use crate::cluster_queue::Cq;
use crate::workloads::{Hold, Wl};
use crate::{CapacityLeaf, Name, OutsidePod, PodSet, ResourceFlavor, Time};

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

    pub(super) fn put_outside(&mut self, pod: &OutsidePod, now: Time) {
        let flavors = self.forest.put_outside(pod);
        self.trigger_users(&flavors, now);
    }

    pub(super) fn delete_outside(&mut self, key: &Name, now: Time) {
        let flavors = self.forest.delete_outside(key);
        self.trigger_users(&flavors, now);
    }

    /// Parked workloads of all queues may fit now.
    pub(super) fn trigger_active(&mut self, now: Time) {
        let active: Vec<_> =
            self.cqs.values().filter(|cq| cq.is_active()).map(|cq| cq.node).collect();
        for id in active {
            self.trigger(id, now);
        }
    }

    fn trigger_users(&mut self, flavors: &BTreeSet<Name>, now: Time) {
        if flavors.is_empty() {
            return;
        }
        let users = self.cqs.values().filter(|cq| {
            let mut own = cq.groups.iter().flat_map(|group| &group.flavors);
            own.any(|flavor| flavors.contains(&flavor.name))
        });
        let users: Vec<_> = users.map(|cq| cq.node).collect();
        for id in users {
            self.trigger(id, now);
        }
    }

    /// Whether a change of a flavor may let workloads of any queue in: it gets a topology, or its taints change.
    pub(super) fn opens_topology(
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

    /// Whether the places of a queue's flavor are not known. Kueue admits nothing then, also where its workloads run on
    /// other clusters.
    pub(super) fn lacks_topology(&self, cq: &Cq) -> bool {
        let lacks = |flavor: &Name| {
            let known = self.world.flavors.get(flavor);
            known.is_some_and(|known| known.topology_name.is_some())
                && self.forest.tree(flavor).is_none()
        };
        self.settings.topology.is_some()
            && self.forest.is_used()
            && cq.groups.iter().flat_map(|group| &group.flavors).any(|flavor| lacks(&flavor.name))
    }

    /// Works out what a reservation uses of places. Pods that will not run any more keep theirs, as in Kueue.
    pub(super) fn charge_places(&mut self, wl: &Wl, hold: &mut Hold) {
        hold.places.clear();
        if self.settings.topology.is_none() {
            return;
        }
        for assigned in &hold.admission.pod_sets {
            let Some(topology) = &assigned.topology else { continue };
            let of_name = |pod_set: &&PodSet| pod_set.name == assigned.name;
            let Some(pod_set) = wl.class.pod_sets.iter().find(of_name) else { continue };
            let flavors = assigned.flavors.values().collect();
            hold.places.extend(self.forest.uses(&flavors, topology, pod_set.requests_of_pod()));
        }
    }
}
