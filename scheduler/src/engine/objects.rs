//! Namespaces, ResourceFlavors, AdmissionChecks and Topologies.

use std::collections::BTreeMap;

use super::Engine;
use crate::tree::NodeId;
use crate::{AdmissionCheck, ClusterQueue, Name, ResourceFlavor, Time};

impl Engine {
    pub(super) fn put_namespace(&mut self, name: &Name, labels: Option<BTreeMap<String, String>>, now: Time) {
        if self.world.namespaces.get(name) == labels.as_ref() {
            return;
        }
        let matches = |engine: &Self| -> Vec<NodeId> {
            let world = &engine.world;
            let all = engine.cqs.values();
            all.filter(|cq| world.namespace_matches(&cq.object, name) == Some(true)).map(|cq| cq.node).collect()
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
        if self.world.flavors.get(name) == flavor.as_ref() {
            return;
        }
        match flavor {
            Some(flavor) => self.world.flavors.insert(name.clone(), flavor),
            None => self.world.flavors.remove(name),
        };
        self.reconsider(now, |queue| queue.resource_groups.iter().flat_map(|g| &g.flavors).any(|f| f.name == *name));
    }

    pub(super) fn put_check(&mut self, name: &Name, check: Option<AdmissionCheck>, now: Time) {
        if self.world.checks.get(name) == check.as_ref() {
            return;
        }
        match check {
            Some(check) => self.world.checks.insert(name.clone(), check),
            None => self.world.checks.remove(name),
        };
        self.reconsider(now, |queue| queue.admission_checks.iter().any(|rule| rule.name == *name));
    }

    pub(super) fn put_topology(&mut self, name: &Name, exists: bool, now: Time) {
        let changed =
            if exists { self.world.topologies.insert(name.clone()) } else { self.world.topologies.remove(name) };
        if !changed {
            return;
        }
        let flavors: Vec<_> = (self.world.flavors.values())
            .filter(|flavor| flavor.topology_name.as_ref() == Some(name))
            .map(|flavor| flavor.name.clone())
            .collect();
        self.reconsider(now, |queue| {
            queue.resource_groups.iter().flat_map(|g| &g.flavors).any(|f| flavors.contains(&f.name))
        });
    }

    /// Something that these ClusterQueues refer to changed.
    fn reconsider(&mut self, now: Time, concerns: impl Fn(&ClusterQueue) -> bool) {
        let ids: Vec<_> = self.cqs.values().filter(|cq| concerns(&cq.object)).map(|cq| cq.node).collect();
        for id in ids {
            self.update_activity(id);
            self.trigger(id, now);
        }
    }
}
