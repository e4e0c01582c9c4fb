//! Events of ClusterQueues, Cohorts and LocalQueues.

use std::collections::BTreeSet;

use super::Engine;
use crate::cluster_queue::{ClusterQueueEntry, compile, quotas};
use crate::ids::{NodeId, WorkloadId};
use crate::{ClusterQueue, Cohort, LocalQueue, LocalQueueKey, Name, Time};

impl Engine {
    pub(super) fn put_cluster_queue(&mut self, object: ClusterQueue, now: Time) {
        let known = self.cluster_queue_ids.get(&object.name).copied();
        if known.and_then(|id| self.cluster_queues.get(&id)).is_some_and(|cq| cq.object == object) {
            return;
        }
        let id = known.unwrap_or_else(|| self.add_cluster_queue(&object));
        if known.is_some() {
            // For the tree that the queue may leave.
            self.trigger(id, now);
        }
        let groups = compile(&object.resource_groups, &mut self.pairs);
        let quotas = quotas(&object.resource_groups, &mut self.pairs);
        let (name, weight) = (object.name.clone(), object.fair_weight_milli);
        let cohort = object.cohort.clone().filter(|name| !name.is_empty());
        let mut moved = true;
        if let Some(cq) = self.cluster_queues.get_mut(&id) {
            moved = known.is_none()
                || cq.object.cohort != object.cohort
                || cq.object.resource_groups != object.resource_groups
                // Kueue also takes such a queue out of its Cohort and puts it into a new one.
                || self.tree.is_only_child(id);
            cq.queue.strategy = object.strategy;
            cq.object = object;
            cq.groups = groups;
        }
        if moved {
            self.change_tree(id, |tree| tree.place_queue(id, cohort.as_ref(), &quotas));
        }
        self.tree.set_weight(id, weight);
        self.update_activity(id);
        if known.is_none() {
            self.attach_waiting(id, &name, now);
        }
        self.trigger(id, now);
        self.mark_with_local_queues(id);
    }

    fn add_cluster_queue(&mut self, object: &ClusterQueue) -> NodeId {
        let id = self.tree.add_queue(object.name.clone());
        self.cluster_queue_ids.insert(object.name.clone(), id);
        self.cluster_queues.insert(id, ClusterQueueEntry::new(object.clone(), id));
        id
    }

    /// Attaches to a new ClusterQueue the reservations, LocalQueues and workloads that already name
    /// it.
    fn attach_waiting(&mut self, id: NodeId, name: &Name, now: Time) {
        for wl in self.unattached_reservations.remove(name).unwrap_or_default() {
            self.edit(wl, |wl| {
                if let Some(reservation) = wl
                    .reservation
                    .as_mut()
                    .filter(|reservation| reservation.admission.cluster_queue == *name)
                {
                    reservation.charged = Some(id);
                }
            });
        }
        let local_queues = self.local_queues_of(name);
        if let Some(cq) = self.cluster_queues.get_mut(&id) {
            cq.local_queues = local_queues.iter().copied().collect();
        }
        for lq in local_queues {
            self.enqueue_all(lq, now);
        }
    }

    pub(super) fn delete_cluster_queue(&mut self, name: &Name, now: Time) {
        let Some(id) = self.cluster_queue_ids.get(name).copied() else { return };
        self.mark_with_local_queues(id);
        self.trigger(id, now);
        let preemption_order: Vec<WorkloadId> = self
            .cluster_queues
            .get(&id)
            .into_iter()
            .flat_map(|cq| cq.workloads.iter().copied())
            .collect();
        for wl in preemption_order {
            self.edit(wl, |wl| {
                if let Some(reservation) = &mut wl.reservation {
                    reservation.charged = None;
                }
            });
            self.unattached_reservations.entry(name.clone()).or_default().insert(wl);
        }
        self.cluster_queue_ids.remove(name);
        let local_queues: BTreeSet<_> =
            self.cluster_queues.get(&id).map(|cq| cq.local_queues.clone()).unwrap_or_default();
        for lq in local_queues {
            self.enqueue_all(lq, now);
        }
        self.cluster_queues.remove(&id);
        self.ready.forget(name);
        self.change_tree(id, |tree| tree.remove_queue(id));
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
        self.tree_changed(before, self.tree.cohort(&cohort.name));
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
        self.tree_changed(before, self.tree.cohort(name));
        if let Some(id) = self.tree.cohort(name) {
            self.trigger(id, now);
            self.mark_tree(id);
        }
    }

    /// Changes the tree around a ClusterQueue. The quota of every queue in the old and the new tree
    /// changes with it.
    fn change_tree(&mut self, id: NodeId, change: impl FnOnce(&mut crate::tree::QuotaTree)) {
        let before = self.tree.queues_of_tree(id);
        self.mark_tree(id);
        change(&mut self.tree);
        self.mark_tree(id);
        self.outdate_scans(before.into_iter().chain(self.tree.queues_of_tree(id)).collect());
    }

    /// Outdates flavor searches.
    fn outdate_scans(&mut self, ids: BTreeSet<NodeId>) {
        for id in ids {
            if let Some(cq) = self.cluster_queues.get_mut(&id) {
                cq.generation += 1;
            }
        }
    }

    /// A Cohort changed: the quota of the ClusterQueues in its old and new tree changes with it,
    /// and they may enter or leave a cycle.
    fn tree_changed(&mut self, before: Vec<NodeId>, around: Option<NodeId>) {
        let after = around.map(|id| self.tree.queues_of_tree(id)).unwrap_or_default();
        let all: BTreeSet<_> = before.into_iter().chain(after).collect();
        for id in &all {
            self.update_activity(*id);
        }
        self.outdate_scans(all);
    }

    /// Updates whether a ClusterQueue is active.
    pub(super) fn update_activity(&mut self, id: NodeId) {
        let cyclic = self.tree.is_cyclic(id);
        let Some(cq) = self.cluster_queues.get_mut(&id) else { return };
        let inactive = self.referenced.inactive(&cq.object, cyclic);
        let changed = cq.inactive != inactive;
        cq.inactive = inactive;
        self.ready.note(cq);
        if self.tree.set_active(id, cq.is_active()) || changed {
            self.mark_with_local_queues(id);
        }
    }

    fn mark_with_local_queues(&mut self, id: NodeId) {
        self.mark(id);
        let local_queues = self.cluster_queues.get(&id).into_iter().flat_map(|cq| &cq.local_queues);
        self.changed
            .local_queues
            .extend(local_queues.filter_map(|lq| Some(self.local_queues.get(*lq)?.key.clone())));
    }

    pub(super) fn put_local_queue(
        &mut self,
        key: LocalQueueKey,
        object: Option<LocalQueue>,
        now: Time,
    ) {
        if object.is_none() && self.local_queues.id(&key).is_none() {
            return;
        }
        let id = self.local_queues.intern(&key);
        let Some(lq) = self.local_queues.get_mut(id) else { return };
        if lq.object == object {
            return;
        }
        let queue_of =
            |object: &Option<LocalQueue>| object.as_ref().map(|queue| queue.cluster_queue.clone());
        let (before, after) = (queue_of(&lq.object), queue_of(&object));
        let after_is_none = object.is_none();
        lq.object = object;
        for (name, added) in [(before, false), (after, true)] {
            let node = name.and_then(|name| self.cluster_queue_ids.get(&name).copied());
            let Some(cq) = node.and_then(|node| self.cluster_queues.get_mut(&node)) else {
                continue;
            };
            if added {
                cq.local_queues.insert(id);
            } else {
                cq.local_queues.remove(&id);
            }
            self.changed.cluster_queues.insert(cq.object.name.clone());
        }
        if after_is_none {
            self.forget_usage(id);
        }
        self.enqueue_all(id, now);
        self.changed.local_queues.insert(key);
        self.local_queues.drop_if_unused(id);
    }
}
