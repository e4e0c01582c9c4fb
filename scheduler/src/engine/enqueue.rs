//! Which queue a pending workload is in, and its ways into and out of it.

use super::Engine;
use crate::queue::Spot;
use crate::tree::NodeId;
use crate::workloads::{LqId, Wl, WlId};
use crate::{Name, Time};

impl Engine {
    /// The ClusterQueue in whose queue a workload belongs now.
    fn wanted_queue(&self, wl: &Wl) -> Option<NodeId> {
        let lq = self.lqs.get(wl.queue).filter(|lq| lq.takes_workloads())?;
        let name = &lq.object.as_ref()?.cluster_queue;
        self.cq_ids.get(name).copied().filter(|_| wl.is_pending())
    }

    /// Puts a workload where it belongs. `changed`: it may be admissible now although it was not before, so a parked
    /// one is tried again. `was_in_heap`: it was taken out of the heap only to change.
    pub(super) fn place(&mut self, id: WlId, changed: bool, was_in_heap: bool, now: Time) {
        let Some(wl) = self.workloads.get(id) else { return };
        let wanted = self.wanted_queue(wl);
        if wl.queued_in.is_some() && wl.queued_in != wanted {
            self.leave(id);
        }
        let Some(wl) = self.workloads.get_mut(id) else { return };
        if wl.queued_in == wanted && !changed {
            return;
        }
        wl.queued_in = wanted;
        let (bucket, item, backing_off) = (wl.bucket(), wl.item(id), wl.is_backing_off(now));
        let Some(cq) = wanted.and_then(|cq| self.cqs.get_mut(&cq)) else { return };
        let spot = cq.queue.remove(bucket, &item);
        cq.queue.push(bucket, item, backing_off, was_in_heap || spot == Some(Spot::Heap));
        self.ready.note(cq);
        self.changed.cluster_queues.insert(cq.object.name.clone());
        self.schedule_wakeup(id, now);
    }

    /// Takes a workload out of its queue, to change its class, time or LocalQueue and put it back.
    pub(super) fn take_out(&mut self, id: WlId) -> Option<Spot> {
        let wl = self.workloads.get_mut(id)?;
        let cq = self.cqs.get_mut(&wl.queued_in?)?;
        let spot = cq.queue.remove(wl.bucket(), &wl.item(id));
        self.ready.note(cq);
        spot
    }

    /// Takes a workload out of its queue for good.
    pub(super) fn leave(&mut self, id: WlId) {
        self.take_out(id);
        let Some(wl) = self.workloads.get_mut(id) else { return };
        // Its place among the flavors of one queue says nothing in another.
        wl.scan = None;
        let Some(cq) = wl.queued_in.take().and_then(|cq| self.cqs.get_mut(&cq)) else { return };
        cq.queue.forget(id);
        self.changed.cluster_queues.insert(cq.object.name.clone());
    }

    /// Remembers when a back-off ends that ends by itself.
    pub(super) fn schedule_wakeup(&mut self, id: WlId, now: Time) {
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

    /// Remembers until when the pods of a workload are waited for.
    pub(super) fn note_patience(&mut self, id: WlId, until: Option<Time>) {
        let unready =
            self.workloads.get(id).is_some_and(|wl| !wl.flags.pods_ready && wl.hold.is_some());
        match until.filter(|_| self.settings.block_admission && unready) {
            Some(until) => self.patience.insert(id, until),
            None => self.patience.remove(&id),
        };
    }

    /// Those whose pods have been waited for long enough keep nobody waiting any more.
    pub(super) fn flush_patience(&mut self, now: Time) {
        let due: Vec<WlId> =
            self.patience.iter().filter(|(_, until)| **until <= now).map(|(id, _)| *id).collect();
        for id in due {
            self.patience.remove(&id);
            self.edit(id, |wl| wl.flags.pods_ready = true);
        }
    }

    /// Moves a workload from wherever it waits to the heap.
    pub(super) fn wake(&mut self, id: WlId) {
        let Some(wl) = self.workloads.get(id) else { return };
        let Some(cq) = wl.queued_in.and_then(|cq| self.cqs.get_mut(&cq)) else { return };
        cq.queue.retry(wl.bucket(), wl.item(id));
        self.ready.note(cq);
    }

    /// Moves parked workloads of the trees with a due trigger to their heaps, as far as their namespace may use the
    /// queue.
    pub(super) fn flush_triggers(&mut self, now: Time) {
        for root in self.triggers.take_due(now) {
            for id in self.tree.queues_of_tree(root) {
                let (world, lqs) = (&self.world, &self.lqs);
                let Some(cq) = self.cqs.get_mut(&id) else { continue };
                let object = &cq.object;
                let eligible = |lq: LqId| {
                    lqs.get(lq).is_some_and(|lq| {
                        world.namespace_matches(object, &lq.key.namespace) == Some(true)
                    })
                };
                if cq.queue.unpark(eligible) {
                    self.ready.note(cq);
                    self.changed.cluster_queues.insert(cq.object.name.clone());
                }
            }
        }
    }

    /// Puts the pending workloads of a LocalQueue where they belong.
    pub(super) fn place_all(&mut self, lq: LqId, now: Time) {
        let ids: Vec<_> =
            self.lqs.get(lq).into_iter().flat_map(|lq| lq.workloads.iter().copied()).collect();
        for id in ids {
            self.place(id, false, false, now);
        }
    }

    /// The LocalQueues that name a ClusterQueue, existing or not.
    pub(super) fn local_queues_of(&self, cluster_queue: &Name) -> Vec<LqId> {
        let names = |lq: &crate::LocalQueue| lq.cluster_queue == *cluster_queue;
        self.lqs
            .iter()
            .filter(|(_, lq)| lq.object.as_ref().is_some_and(names))
            .map(|(id, _)| id)
            .collect()
    }
}
