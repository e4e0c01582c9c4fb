//! Namespaces, ResourceFlavors, AdmissionChecks and Topologies.

use std::collections::{BTreeMap, BTreeSet};

use super::Engine;
use crate::cluster_queue::Cq;
use crate::tree::NodeId;
use crate::{AdmissionCheck, ClusterQueue, Name, ResourceFlavor, Time, Topology};

impl Engine {
    pub(super) fn put_namespace(
        &mut self,
        name: &Name,
        labels: Option<BTreeMap<String, String>>,
        now: Time,
    ) {
        if self.world.namespaces.get(name) == labels.as_ref() {
            return;
        }
        let matches = |engine: &Self| -> Vec<NodeId> {
            let world = &engine.world;
            let all = engine.cqs.values();
            all.filter(|cq| world.namespace_matches(&cq.object, name) == Some(true))
                .map(|cq| cq.node)
                .collect()
        };
        let before = matches(self);
        match labels {
            Some(labels) => self.world.namespaces.insert(name.clone(), labels),
            None => self.world.namespaces.remove(name),
        };
        for id in matches(self).into_iter().filter(|id| !before.contains(id)) {
            self.trigger(id, now);
        }
    }

    pub(super) fn put_flavor(&mut self, name: &Name, flavor: Option<ResourceFlavor>, now: Time) {
        let known = self.world.flavors.get(name);
        if known == flavor.as_ref() {
            return;
        }
        // Whom it takes. Its coming or going lets nobody in who was tried already, unless its queue admitted nobody so
        // far.
        let takes = |flavor: &ResourceFlavor| {
            let ResourceFlavor { node_labels, node_taints, tolerations, .. } = flavor.clone();
            (node_labels, node_taints, tolerations)
        };
        let changed = known.zip(flavor.as_ref()).is_some_and(|(old, new)| takes(old) != takes(new));
        let was_active = self.active();
        let retries = self.opens_topology(known, flavor.as_ref());
        match &flavor {
            Some(flavor) => self.forest.put_flavor(flavor),
            None => self.forest.delete_flavor(name),
        }
        match flavor {
            Some(flavor) => self.world.flavors.insert(name.clone(), flavor),
            None => self.world.flavors.remove(name),
        };
        let concerns = |queue: &ClusterQueue| {
            queue.resource_groups.iter().flat_map(|g| &g.flavors).any(|f| f.name == *name)
        };
        for id in self.reconsider(concerns) {
            if changed || self.became_active(id, &was_active) {
                self.trigger(id, now);
            }
        }
        if retries {
            self.trigger_active(now);
        }
    }

    pub(super) fn put_check(&mut self, name: &Name, check: Option<AdmissionCheck>, now: Time) {
        if self.world.checks.get(name) == check.as_ref() {
            return;
        }
        let was_active = self.active();
        match check {
            Some(check) => self.world.checks.insert(name.clone(), check),
            None => self.world.checks.remove(name),
        };
        let concerned =
            self.reconsider(|queue| queue.admission_checks.iter().any(|rule| rule.name == *name));
        // A check lets nobody in who was tried already, unless its queue admitted nobody so far.
        for id in concerned {
            if self.became_active(id, &was_active) {
                self.trigger(id, now);
            }
        }
    }

    pub(super) fn put_topology(&mut self, name: &Name, levels: Option<Vec<Name>>, now: Time) {
        let changed = match levels {
            Some(levels) => {
                let grew = !levels.is_empty()
                    && self.forest.put_topology(Topology { name: name.clone(), levels });
                self.world.topologies.insert(name.clone()) || grew
            }
            None => {
                self.forest.delete_topology(name);
                self.world.topologies.remove(name)
            }
        };
        if !changed {
            return;
        }
        let flavors: Vec<_> = (self.world.flavors.values())
            .filter(|flavor| flavor.topology_name.as_ref() == Some(name))
            .map(|flavor| flavor.name.clone())
            .collect();
        let concerns = |queue: &ClusterQueue| {
            queue.resource_groups.iter().flat_map(|g| &g.flavors).any(|f| flavors.contains(&f.name))
        };
        for id in self.reconsider(concerns) {
            self.trigger(id, now);
        }
    }

    /// The ClusterQueues that may admit.
    fn active(&self) -> BTreeSet<NodeId> {
        self.cqs.values().filter(|cq| cq.is_active()).map(|cq| cq.node).collect()
    }

    fn became_active(&self, id: NodeId, before: &BTreeSet<NodeId>) -> bool {
        !before.contains(&id) && self.cqs.get(&id).is_some_and(Cq::is_active)
    }

    /// Something changed that these ClusterQueues refer to: works out anew whether they may admit, and tells which.
    fn reconsider(&mut self, concerns: impl Fn(&ClusterQueue) -> bool) -> Vec<NodeId> {
        let ids: Vec<_> =
            self.cqs.values().filter(|cq| concerns(&cq.object)).map(|cq| cq.node).collect();
        for id in &ids {
            self.update_activity(*id);
        }
        ids
    }
}
