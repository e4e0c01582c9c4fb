//! Events of Namespaces, ResourceFlavors, AdmissionChecks and Topologies.

use std::collections::{BTreeMap, BTreeSet};

use super::Engine;
use crate::cluster_queue::ClusterQueueEntry;
use crate::ids::NodeId;
use crate::{AdmissionCheck, ClusterQueue, Name, ResourceFlavor, Time, Topology};

impl Engine {
    pub(super) fn put_namespace(
        &mut self,
        name: &Name,
        labels: Option<BTreeMap<String, String>>,
        now: Time,
    ) {
        if self.referenced.namespaces.get(name) == labels.as_ref() {
            return;
        }
        let matches = |engine: &Self| -> Vec<NodeId> {
            let referenced = &engine.referenced;
            let all = engine.cluster_queues.values();
            all.filter(|cq| referenced.namespace_matches(&cq.object, name) == Some(true))
                .map(|cq| cq.node)
                .collect()
        };
        let before = matches(self);
        match labels {
            Some(labels) => self.referenced.namespaces.insert(name.clone(), labels),
            None => self.referenced.namespaces.remove(name),
        };
        for id in matches(self).into_iter().filter(|id| !before.contains(id)) {
            self.trigger(id, now);
        }
    }

    pub(super) fn put_flavor(&mut self, name: &Name, flavor: Option<ResourceFlavor>, now: Time) {
        let known = self.referenced.flavors.get(name);
        if known == flavor.as_ref() {
            return;
        }
        // Only changes of labels, taints or tolerations can admit a workload that was already
        // tried. The creation or deletion of a flavor matters only if it activates the queue.
        let takes = |flavor: &ResourceFlavor| {
            let ResourceFlavor { node_labels, node_taints, tolerations, .. } = flavor.clone();
            (node_labels, node_taints, tolerations)
        };
        let changed = known.zip(flavor.as_ref()).is_some_and(|(old, new)| takes(old) != takes(new));
        let was_active = self.active();
        let retries = self.may_admit_by_topology(known, flavor.as_ref());
        match &flavor {
            Some(flavor) => self.forest.put_flavor(flavor),
            None => self.forest.delete_flavor(name),
        }
        match flavor {
            Some(flavor) => self.referenced.flavors.insert(name.clone(), flavor),
            None => self.referenced.flavors.remove(name),
        };
        let concerns = |queue: &ClusterQueue| {
            queue.resource_groups.iter().flat_map(|g| &g.flavors).any(|f| f.name == *name)
        };
        for id in self.update_activities(concerns) {
            if changed || self.became_active(id, &was_active) {
                self.trigger(id, now);
            }
        }
        if retries {
            self.trigger_active(now);
        }
    }

    pub(super) fn put_check(&mut self, name: &Name, check: Option<AdmissionCheck>, now: Time) {
        if self.referenced.checks.get(name) == check.as_ref() {
            return;
        }
        let was_active = self.active();
        match check {
            Some(check) => self.referenced.checks.insert(name.clone(), check),
            None => self.referenced.checks.remove(name),
        };
        let concerned = self.update_activities(|queue| {
            queue.admission_checks.iter().any(|rule| rule.name == *name)
        });
        // A check can admit a workload that was already tried only if it activates the queue.
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
                self.referenced.topologies.insert(name.clone()) || grew
            }
            None => {
                self.forest.delete_topology(name);
                self.referenced.topologies.remove(name)
            }
        };
        if !changed {
            return;
        }
        let flavors: Vec<_> = (self.referenced.flavors.values())
            .filter(|flavor| flavor.topology_name.as_ref() == Some(name))
            .map(|flavor| flavor.name.clone())
            .collect();
        let concerns = |queue: &ClusterQueue| {
            queue.resource_groups.iter().flat_map(|g| &g.flavors).any(|f| flavors.contains(&f.name))
        };
        for id in self.update_activities(concerns) {
            self.trigger(id, now);
        }
    }

    fn active(&self) -> BTreeSet<NodeId> {
        self.cluster_queues.values().filter(|cq| cq.is_active()).map(|cq| cq.node).collect()
    }

    fn became_active(&self, id: NodeId, before: &BTreeSet<NodeId>) -> bool {
        !before.contains(&id)
            && self.cluster_queues.get(&id).is_some_and(ClusterQueueEntry::is_active)
    }

    /// Updates which of the concerned ClusterQueues are active, and returns the concerned ones.
    fn update_activities(&mut self, concerns: impl Fn(&ClusterQueue) -> bool) -> Vec<NodeId> {
        let ids: Vec<_> = self
            .cluster_queues
            .values()
            .filter(|cq| concerns(&cq.object))
            .map(|cq| cq.node)
            .collect();
        for id in &ids {
            self.update_activity(*id);
        }
        ids
    }
}
