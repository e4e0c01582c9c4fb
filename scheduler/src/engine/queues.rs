//! ClusterQueues, Cohorts and LocalQueues.

use std::collections::BTreeSet;

use super::Engine;
use crate::cluster_queue::{Cq, compile, quotas};
use crate::tree::NodeId;
use crate::workloads::WlId;
use crate::{ClusterQueue, Cohort, LocalQueue, LocalQueueKey, Name, Time};

impl Engine {
    pub(super) fn put_cluster_queue(&mut self, object: ClusterQueue, now: Time) {
        let known = self.cq_ids.get(&object.name).copied();
        if known.and_then(|id| self.cqs.get(&id)).is_some_and(|cq| cq.object == object) {
            return;
        }
        let id = known.unwrap_or_else(|| self.add_cluster_queue(&object));
        if known.is_some() {
            // The tree that it may leave.
            self.trigger(id, now);
        }
        let groups = compile(&object.resource_groups, &mut self.pairs);
        let quotas = quotas(&object.resource_groups, &mut self.pairs);
        let (name, weight) = (object.name.clone(), object.fair_weight_milli);
        let cohort = object.cohort.clone().filter(|name| !name.is_empty());
        let mut moved = true;
        if let Some(cq) = self.cqs.get_mut(&id) {
            moved = known.is_none()
                || cq.object.cohort != object.cohort
                || cq.object.resource_groups != object.resource_groups
                // As in Kueue, which takes such a queue out of its Cohort and puts it into a new one.
                || self.tree.is_alone(id);
            cq.queue.strategy = object.strategy;
            cq.object = object;
            cq.groups = groups;
        }
        if moved {
            self.reshape(id, |tree| tree.place_queue(id, cohort.as_ref(), &quotas));
        }
        self.tree.set_weight(id, weight);
        self.update_activity(id);
        if known.is_none() {
            self.adopt(id, &name, now);
        }
        self.trigger(id, now);
        self.mark_with_local_queues(id);
    }

    fn add_cluster_queue(&mut self, object: &ClusterQueue) -> NodeId {
        let id = self.tree.add_queue(object.name.clone());
        self.cq_ids.insert(object.name.clone(), id);
        self.cqs.insert(id, Cq::new(object.clone(), id));
        id
    }

    /// A new ClusterQueue takes over what was waiting for it: reservations, LocalQueues and their workloads.
    fn adopt(&mut self, id: NodeId, name: &Name, now: Time) {
        for wl in self.orphans.remove(name).unwrap_or_default() {
            self.edit(wl, |wl| {
                if let Some(hold) =
                    wl.hold.as_mut().filter(|hold| hold.admission.cluster_queue == *name)
                {
                    hold.charged = Some(id);
                }
            });
        }
        let local_queues = self.local_queues_of(name);
        if let Some(cq) = self.cqs.get_mut(&id) {
            cq.local_queues = local_queues.iter().copied().collect();
        }
        for lq in local_queues {
            self.place_all(lq, now);
        }
    }

    pub(super) fn delete_cluster_queue(&mut self, name: &Name, now: Time) {
        let Some(id) = self.cq_ids.get(name).copied() else { return };
        self.mark_with_local_queues(id);
        self.trigger(id, now);
        let holders: Vec<WlId> =
            self.cqs.get(&id).into_iter().flat_map(|cq| cq.workloads.iter().copied()).collect();
        for wl in holders {
            self.edit(wl, |wl| {
                if let Some(hold) = &mut wl.hold {
                    hold.charged = None;
                }
            });
            self.orphans.entry(name.clone()).or_default().insert(wl);
        }
        self.cq_ids.remove(name);
        let local_queues: BTreeSet<_> =
            self.cqs.get(&id).map(|cq| cq.local_queues.clone()).unwrap_or_default();
        for lq in local_queues {
            self.place_all(lq, now);
        }
        self.cqs.remove(&id);
        self.ready.forget(name);
        self.reshape(id, |tree| tree.remove_queue(id));
    }

    pub(super) fn put_cohort(&mut self, cohort: &Cohort, now: Time) {
        let quotas = quotas(&cohort.resource_groups, &mut self.pairs);
        let parent = cohort.parent.as_ref().filter(|name| !name.is_empty());
        if let Some(id) = self.tree.cohort(&cohort.name) {
            self.trigger(id, now);
        }
        let before = self
            .tree
            .cohort(&cohort.name)
            .map(|id| self.tree.queues_of_tree(id))
            .unwrap_or_default();
        if let Some(id) = self.tree.cohort(&cohort.name) {
            self.mark_tree(id);
        }
        self.tree.put_cohort(&cohort.name, parent, &quotas);
        self.reshaped(before, self.tree.cohort(&cohort.name));
        if let Some(id) = self.tree.cohort(&cohort.name) {
            self.tree.set_weight(id, cohort.fair_weight_milli);
            self.trigger(id, now);
            self.mark_tree(id);
        }
    }

    pub(super) fn delete_cohort(&mut self, name: &Name, now: Time) {
        let Some(id) = self.tree.cohort_object(name) else { return };
        self.trigger(id, now);
        self.mark_tree(id);
        let before = self.tree.queues_of_tree(id);
        self.tree.delete_cohort(name);
        self.reshaped(before, self.tree.cohort(name));
        if let Some(id) = self.tree.cohort(name) {
            self.trigger(id, now);
            self.mark_tree(id);
        }
    }

    /// Changes the tree around a ClusterQueue: those that shared a tree with it before or do now have other quota.
    fn reshape(&mut self, id: NodeId, change: impl FnOnce(&mut crate::tree::Tree)) {
        let before = self.tree.queues_of_tree(id);
        self.mark_tree(id);
        change(&mut self.tree);
        self.mark_tree(id);
        self.outdate(before.into_iter().chain(self.tree.queues_of_tree(id)).collect());
    }

    /// Outdates the progress of flavor searches.
    fn outdate(&mut self, ids: BTreeSet<NodeId>) {
        for id in ids {
            if let Some(cq) = self.cqs.get_mut(&id) {
                cq.generation += 1;
            }
        }
    }

    /// A Cohort changed: the ClusterQueues that shared a tree with it before or do now have other quota, and may be on
    /// a cycle now or off it.
    fn reshaped(&mut self, before: Vec<NodeId>, around: Option<NodeId>) {
        let after = around.map(|id| self.tree.queues_of_tree(id)).unwrap_or_default();
        let all: BTreeSet<_> = before.into_iter().chain(after).collect();
        for id in &all {
            self.update_activity(*id);
        }
        self.outdate(all);
    }

    /// Works out anew whether a ClusterQueue may admit.
    pub(super) fn update_activity(&mut self, id: NodeId) {
        let cyclic = self.tree.is_cyclic(id);
        let Some(cq) = self.cqs.get_mut(&id) else { return };
        let inactive = self.world.inactive(&cq.object, cyclic);
        let changed = cq.inactive != inactive;
        cq.inactive = inactive;
        self.ready.note(cq);
        if self.tree.set_active(id, cq.is_active()) || changed {
            self.mark_with_local_queues(id);
        }
    }

    fn mark_with_local_queues(&mut self, id: NodeId) {
        self.mark(id);
        let local_queues = self.cqs.get(&id).into_iter().flat_map(|cq| &cq.local_queues);
        self.changed
            .local_queues
            .extend(local_queues.filter_map(|lq| Some(self.lqs.get(*lq)?.key.clone())));
    }

    pub(super) fn put_local_queue(
        &mut self,
        key: LocalQueueKey,
        object: Option<LocalQueue>,
        now: Time,
    ) {
        if object.is_none() && self.lqs.id(&key).is_none() {
            return;
        }
        let id = self.lqs.intern(&key);
        let Some(lq) = self.lqs.get_mut(id) else { return };
        if lq.object == object {
            return;
        }
        let queue_of =
            |object: &Option<LocalQueue>| object.as_ref().map(|queue| queue.cluster_queue.clone());
        let (before, after) = (queue_of(&lq.object), queue_of(&object));
        let after_is_none = object.is_none();
        lq.object = object;
        for (name, added) in [(before, false), (after, true)] {
            let node = name.and_then(|name| self.cq_ids.get(&name).copied());
            let Some(cq) = node.and_then(|node| self.cqs.get_mut(&node)) else { continue };
            if added {
                cq.local_queues.insert(id);
            } else {
                cq.local_queues.remove(&id);
            }
            self.changed.cluster_queues.insert(cq.object.name.clone());
        }
        if after_is_none {
            self.forget_use(id);
        }
        self.place_all(id, now);
        self.changed.local_queues.insert(key);
        self.lqs.drop_if_unused(id);
    }
}
