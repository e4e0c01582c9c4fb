//! Moves pending workloads into and out of the queues of ClusterQueues.

use super::Engine;
use crate::ids::{LocalQueueId, NodeId, WorkloadId};
use crate::queue::PendingState;
use crate::workloads::WorkloadEntry;
use crate::{Name, Time};

impl Engine {
    /// The ClusterQueue whose queue should hold a workload.
    fn wanted_queue(&self, wl: &WorkloadEntry) -> Option<NodeId> {
        let lq = self.local_queues.get(wl.queue).filter(|lq| lq.takes_workloads())?;
        let name = &lq.object.as_ref()?.cluster_queue;
        self.cluster_queue_ids.get(name).copied().filter(|_| wl.is_pending())
    }

    /// Puts a workload into its queue. `changed`: it may be admissible now, so that a parked one is
    /// retried. `was_in_heap`: it left the heap only for this change.
    pub(super) fn enqueue(&mut self, id: WorkloadId, changed: bool, was_in_heap: bool, now: Time) {
        let Some(wl) = self.workloads.get(id) else { return };
        let wanted = self.wanted_queue(wl);
        if wl.queued_in.is_some() && wl.queued_in != wanted {
            self.dequeue(id);
        }
        let Some(wl) = self.workloads.get_mut(id) else { return };
        if wl.queued_in == wanted && !changed {
            return;
        }
        wl.queued_in = wanted;
        let (bucket, item, backing_off) = (wl.bucket(), wl.item(id), wl.is_backing_off(now));
        let Some(cq) = wanted.and_then(|cq| self.cluster_queues.get_mut(&cq)) else { return };
        let state = cq.queue.remove(bucket, &item);
        cq.queue.push(bucket, item, backing_off, was_in_heap || state == Some(PendingState::Heap));
        self.ready.note(cq);
        self.changed.cluster_queues.insert(cq.object.name.clone());
        self.schedule_wakeup(id, now);
    }

    /// Takes a workload out of its queue for a change of class, time or LocalQueue.
    pub(super) fn dequeue_to_change(&mut self, id: WorkloadId) -> Option<PendingState> {
        let wl = self.workloads.get_mut(id)?;
        let cq = self.cluster_queues.get_mut(&wl.queued_in?)?;
        let state = cq.queue.remove(wl.bucket(), &wl.item(id));
        self.ready.note(cq);
        state
    }

    /// Takes a workload out of its queue for good.
    pub(super) fn dequeue(&mut self, id: WorkloadId) {
        self.dequeue_to_change(id);
        let Some(wl) = self.workloads.get_mut(id) else { return };
        // The position among one queue's flavors means nothing in another queue.
        wl.scan = None;
        let Some(cq) = wl.queued_in.take().and_then(|cq| self.cluster_queues.get_mut(&cq)) else {
            return;
        };
        cq.queue.forget(id);
        self.changed.cluster_queues.insert(cq.object.name.clone());
    }

    /// Schedules the end of a back-off that ends by time.
    pub(super) fn schedule_wakeup(&mut self, id: WorkloadId, now: Time) {
        let Some(wl) = self.workloads.get(id) else { return };
        if wl.queued_in.is_some()
            && wl.requeued != Some(false)
            && let Some(at) = wl.wakes_at().filter(|at| *at > now && *at < Time::NEVER)
        {
            self.wakeups.insert((at, id));
        }
    }

    pub(super) fn flush_wakeups(&mut self, now: Time) {
        while let Some((at, id)) = self.wakeups.first().copied()
            && at <= now
        {
            self.wakeups.remove(&(at, id));
            let waiting = self
                .workloads
                .get(id)
                .is_some_and(|wl| wl.queued_in.is_some() && !wl.is_backing_off(now));
            if waiting {
                self.wake(id);
            }
        }
    }

    /// Records until when `blockAdmission` waits for the workload's pods.
    pub(super) fn note_pods_ready_deadline(&mut self, id: WorkloadId, until: Option<Time>) {
        let unready = self
            .workloads
            .get(id)
            .is_some_and(|wl| !wl.flags.pods_ready && wl.reservation.is_some());
        match until.filter(|_| self.settings.block_admission && unready) {
            Some(until) => self.pods_ready_deadlines.insert(id, until),
            None => self.pods_ready_deadlines.remove(&id),
        };
    }

    /// Workloads past their deadline no longer block the admission of others.
    pub(super) fn flush_pods_ready_deadlines(&mut self, now: Time) {
        let due: Vec<WorkloadId> = self
            .pods_ready_deadlines
            .iter()
            .filter(|(_, until)| **until <= now)
            .map(|(id, _)| *id)
            .collect();
        for id in due {
            self.pods_ready_deadlines.remove(&id);
            self.edit(id, |wl| wl.flags.pods_ready = true);
        }
    }

    /// Moves a workload from the parked ones, or from its back-off, to the heap.
    pub(super) fn wake(&mut self, id: WorkloadId) {
        let Some(wl) = self.workloads.get(id) else { return };
        let Some(cq) = wl.queued_in.and_then(|cq| self.cluster_queues.get_mut(&cq)) else { return };
        cq.queue.retry(wl.bucket(), wl.item(id));
        self.ready.note(cq);
    }

    /// Moves parked workloads of trees with a due trigger to the heap, if their namespace matches
    /// the queue's selector.
    pub(super) fn flush_triggers(&mut self, now: Time) {
        for root in self.triggers.take_due(now) {
            for id in self.tree.queues_of_tree(root) {
                let (referenced, local_queues) = (&self.referenced, &self.local_queues);
                let Some(cq) = self.cluster_queues.get_mut(&id) else { continue };
                let object = &cq.object;
                let eligible = |lq: LocalQueueId| {
                    local_queues.get(lq).is_some_and(|lq| {
                        referenced.namespace_matches(object, &lq.key.namespace) == Some(true)
                    })
                };
                if cq.queue.unpark(eligible) {
                    self.ready.note(cq);
                    self.changed.cluster_queues.insert(cq.object.name.clone());
                }
            }
        }
    }

    pub(super) fn enqueue_all(&mut self, lq: LocalQueueId, now: Time) {
        let ids: Vec<_> = self
            .local_queues
            .get(lq)
            .into_iter()
            .flat_map(|lq| lq.workloads.iter().copied())
            .collect();
        for id in ids {
            self.enqueue(id, false, false, now);
        }
    }

    /// The LocalQueues that name a ClusterQueue, which need not exist.
    pub(super) fn local_queues_of(&self, cluster_queue: &Name) -> Vec<LocalQueueId> {
        let names = |lq: &crate::LocalQueue| lq.cluster_queue == *cluster_queue;
        self.local_queues
            .iter()
            .filter(|(_, lq)| lq.object.as_ref().is_some_and(names))
            .map(|(id, _)| id)
            .collect()
    }
}
