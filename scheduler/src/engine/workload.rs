//! Events of workloads, refused reservations and retries.

use std::sync::Arc;

use super::Engine;
use crate::ids::{NodeId, WorkloadId};
use crate::queue::PendingState;
use crate::workloads::{Flags, PlacementInputs, QuotaReservation, WorkloadEntry};
use crate::{
    Admission, CheckPhase, LocalQueueKey, Name, Reason, RefusedReason, Time, Workload, WorkloadKey,
};

impl Engine {
    pub(super) fn put_workload(&mut self, object: Workload, now: Time) {
        let known = self.workloads.id(&object.key);
        if let Some(id) = known {
            if self.workloads.get(id).is_some_and(|wl| wl.uid != object.uid) {
                self.delete_workload(&object.key, now);
            } else {
                self.update_workload(id, object, now);
                return;
            }
        }
        self.add_workload(object, now);
    }

    fn add_workload(&mut self, mut object: Workload, now: Time) {
        let queue = self
            .local_queues
            .intern(&LocalQueueKey::new(object.key.namespace.clone(), object.queue_name.as_str()));
        let (class, flags) = self.class_of(&mut object, now);
        let placement_inputs = placement_inputs_of(&mut object);
        let mut key = object.key;
        if let Some(lq) = self.local_queues.get(queue) {
            // All workloads of a namespace share one text of its name.
            key.namespace = lq.key.namespace.clone();
        }
        let mut wl = WorkloadEntry {
            key,
            uid: object.uid,
            queue,
            class,
            created: object.created,
            queue_time: object.queue_time,
            requeue_at: object.requeue_at,
            requeued: object.requeued,
            not_before: None,
            flags,
            preemption_issued: false,
            reservation: None,
            scan: None,
            reason: None,
            queued_in: None,
            parent: object.parent.map(Box::new),
            placement_inputs,
        };
        if let Some(admission) = object.reservation.filter(|_| !wl.flags.finished) {
            wl.reservation =
                Some(self.confirmed_reservation(&wl, admission, object.reserved_at.unwrap_or(now)));
        }
        let (class, parent) = (wl.class.clone(), wl.parent.clone());
        let id = self.workloads.insert(wl);
        self.note_replacement(id, class.replaces.as_ref());
        self.note_variant(id, parent.as_deref());
        if let Some(lq) = self.local_queues.get_mut(queue) {
            lq.workloads.insert(id);
        }
        self.count(id, 1);
        self.note_pods_ready_deadline(id, object.ready_by);
        self.recharge_replaced(class.replaces.as_ref(), now);
        self.note_unattached(id);
        self.enqueue(id, true, false, now);
        self.note_second_pass(id, now);
    }

    fn class_of(
        &mut self,
        object: &mut Workload,
        now: Time,
    ) -> (Arc<crate::queue::equivalence::EquivalenceClass>, Flags) {
        let wanted = |pod_set: &crate::PodSet| {
            let gone = object.reclaimable.get(&pod_set.name).copied().unwrap_or(0);
            (pod_set.count - gone.clamp(0, pod_set.count.max(0))).max(0)
        };
        let counts = object.pod_sets.iter().map(wanted).collect();
        let (pod_sets, replaces) = (std::mem::take(&mut object.pod_sets), object.replaces.take());
        let class =
            self.classes.intern(object.priority, counts, pod_sets, replaces, object.flavors.take());
        let failed = |check: &crate::CheckState| {
            matches!(check.state, CheckPhase::Retry | CheckPhase::Rejected)
        };
        let flags = Flags {
            active: object.active,
            finished: object.finished,
            admitted: object.admitted,
            evicted: object.evicted,
            pods_ready: object.pods_ready || object.ready_by.is_some_and(|at| at <= now),
            on_hold: object.on_hold,
            deleting: object.deleting,
            gates_closed: object.gates_closed,
            checks_failed: object.checks.iter().any(failed),
            checks_ready: !object.checks.is_empty()
                && object.checks.iter().all(|check| check.state == CheckPhase::Ready),
        };
        (class, flags)
    }

    fn confirmed_reservation(
        &mut self,
        wl: &WorkloadEntry,
        admission: Admission,
        since: Time,
    ) -> Box<QuotaReservation> {
        let mut reservation = QuotaReservation {
            admission,
            charged: None,
            charge: Vec::new(),
            places: Vec::new(),
            confirmed: true,
            cycle: None,
            since,
        };
        self.charge(wl, &mut reservation);
        Box::new(reservation)
    }

    fn update_workload(&mut self, id: WorkloadId, mut object: Workload, now: Time) {
        let Some(old) = self.workloads.get(id).cloned() else { return };
        let queue = self
            .local_queues
            .intern(&LocalQueueKey::new(object.key.namespace.clone(), object.queue_name.as_str()));
        let (class, flags) = self.class_of(&mut object, now);
        let placement_inputs = placement_inputs_of(&mut object);
        let reclassed = !Arc::ptr_eq(&class, &old.class);
        // Changes that may make a parked workload admissible. Other status changes leave it parked.
        let changed = reclassed
            || queue != old.queue
            || object.queue_time != old.queue_time
            || (object.requeued, object.requeue_at) != (old.requeued, old.requeue_at)
            || without_status_flags(flags) != without_status_flags(old.flags)
            || (old.flags.checks_failed && !flags.checks_failed);
        let mut new = WorkloadEntry {
            queue,
            class,
            flags,
            preemption_issued: false,
            created: object.created,
            queue_time: object.queue_time,
            requeue_at: object.requeue_at,
            requeued: object.requeued,
            not_before: old.not_before.filter(|_| !changed),
            scan: old
                .scan
                .clone()
                .filter(|_| !reclassed && self.settings.gates.preserve_scan_progress),
            reason: old.reason.clone().filter(|_| !reclassed),
            reservation: None,
            parent: object.parent.map(Box::new),
            placement_inputs,
            ..old.clone()
        };
        new.reservation = self.next_reservation(
            &old,
            &new,
            object.reservation,
            object.reserved_at.unwrap_or(now),
        );
        self.note_update_with_quota(&old, &new);
        let stays = old.preemption_issued && new.reservation.is_some() && !new.flags.evicted;
        self.replace(id, &old, new, changed, now);
        self.note_pods_ready_deadline(id, object.ready_by);
        if stays {
            self.wake_replacements(&old.key);
        }
        self.note_second_pass(id, now);
    }

    /// Restarts the flavor searches of the queue after an update of a workload with quota. Kueue
    /// does so because it removes the workload from its cache and adds it again. Otherwise, pod
    /// sets that search in turns, each at another flavor, would keep the head for ever.
    fn note_update_with_quota(&mut self, old: &WorkloadEntry, new: &WorkloadEntry) {
        let Some((before, after)) = old.reservation.as_ref().zip(new.reservation.as_ref()) else {
            return;
        };
        let is_new = before.confirmed != after.confirmed
            || before.admission != after.admission
            || old.flags != new.flags
            || old.placement_inputs != new.placement_inputs
            || !Arc::ptr_eq(&old.class, &new.class);
        if let Some(cq) = after.charged.and_then(|id| self.cluster_queues.get_mut(&id))
            && is_new
        {
            cq.generation += 1;
        }
    }

    /// The reservation after an event of the workload.
    fn next_reservation(
        &mut self,
        old: &WorkloadEntry,
        new: &WorkloadEntry,
        shown: Option<Admission>,
        since: Time,
    ) -> Option<Box<QuotaReservation>> {
        if new.flags.finished {
            return None;
        }
        match (shown, &old.reservation) {
            (Some(admission), _) => Some(self.confirmed_reservation(new, admission, since)),
            // The event may be older than the decision.
            (None, Some(reservation))
                if !reservation.confirmed && !new.flags.deleting && new.flags.active =>
            {
                let mut reservation = reservation.clone();
                self.charge(new, &mut reservation);
                Some(reservation)
            }
            (None, _) => None,
        }
    }

    /// Replaces the state of a workload in all sums and queues.
    fn replace(
        &mut self,
        id: WorkloadId,
        old: &WorkloadEntry,
        new: WorkloadEntry,
        changed: bool,
        now: Time,
    ) {
        let spot = self.dequeue_to_change(id);
        let recharged = !have_equal_charge(old, &new);
        let (queue, held, may_request_quota) =
            (new.queue, new.reservation.is_some(), new.may_request_quota());
        let reprioritised = old.reservation.is_some() && old.class.priority != new.class.priority;
        let (class, parent) = (new.class.clone(), new.parent.clone());
        self.edit(id, |wl| *wl = new);
        if parent != old.parent {
            self.forget_variant(id, old.parent.as_deref());
            self.note_variant(id, parent.as_deref());
        }
        self.forget_replacement(id, old.class.replaces.as_ref());
        self.note_replacement(id, class.replaces.as_ref());
        if old.class.replaces != class.replaces {
            self.recharge_replaced(old.class.replaces.as_ref(), now);
        }
        self.recharge_replaced(class.replaces.as_ref(), now);
        self.classes.release(old.class.clone());
        if queue != old.queue {
            if let Some(lq) = self.local_queues.get_mut(old.queue) {
                lq.workloads.remove(&id);
            }
            if let Some(lq) = self.local_queues.get_mut(queue) {
                lq.workloads.insert(id);
            }
            self.local_queues.drop_if_unused(old.queue);
        }
        self.forget_unattached(id, old);
        self.note_unattached(id);
        let confirmed = |wl: &WorkloadEntry| {
            wl.reservation.as_ref().is_some_and(|reservation| reservation.confirmed)
        };
        if self.workloads.get(id).is_some_and(confirmed) || !may_request_quota {
            self.forget_preemptor(id, old);
        }
        if held {
            self.dequeue(id);
        } else if spot.is_some() && !changed {
            self.put_back(id, spot);
        } else {
            self.enqueue(id, true, spot == Some(PendingState::Heap), now);
        }
        if (recharged && old.reservation.is_some()) || reprioritised {
            self.notify_freed(old, now);
        }
        self.settle_entry_penalty(id, old, now);
    }

    /// A workload with confirmed quota, or without a claim to any, stops being a preemptor.
    fn forget_preemptor(&mut self, id: WorkloadId, wl: &WorkloadEntry) {
        let charged = wl.reservation.as_ref().and_then(|reservation| reservation.charged);
        for cq in charged.into_iter().chain(wl.queued_in) {
            if let Some(cq) = self.cluster_queues.get_mut(&cq) {
                cq.queue.forget(id);
            }
        }
    }

    /// Puts a workload back into its old position, after a change that does not concern its queue.
    fn put_back(&mut self, id: WorkloadId, spot: Option<PendingState>) {
        let Some((wl, spot)) = self.workloads.get(id).zip(spot) else { return };
        if let Some(cq) = wl.queued_in.and_then(|cq| self.cluster_queues.get_mut(&cq)) {
            cq.queue.put_back(wl.bucket(), wl.item(id), spot);
            self.ready.note(cq);
        }
    }

    /// Records a reservation whose ClusterQueue does not exist.
    fn note_unattached(&mut self, id: WorkloadId) {
        let Some(reservation) = self.workloads.get(id).and_then(|wl| wl.reservation.as_ref())
        else {
            return;
        };
        if reservation.charged.is_none() {
            self.unattached_reservations
                .entry(reservation.admission.cluster_queue.clone())
                .or_default()
                .insert(id);
        }
    }

    fn forget_unattached(&mut self, id: WorkloadId, wl: &WorkloadEntry) {
        let Some(reservation) =
            wl.reservation.as_ref().filter(|reservation| reservation.charged.is_none())
        else {
            return;
        };
        let Some(ids) = self.unattached_reservations.get_mut(&reservation.admission.cluster_queue)
        else {
            return;
        };
        ids.remove(&id);
        if ids.is_empty() {
            self.unattached_reservations.remove(&reservation.admission.cluster_queue);
        }
    }

    /// Quota of `old` is free, wholly or in part.
    pub(super) fn notify_freed(&mut self, old: &WorkloadEntry, now: Time) {
        if let Some(cq) = old.reservation.as_ref().and_then(|reservation| reservation.charged) {
            self.quota_freed(cq, now);
        }
        self.trigger_queue_of(old, now);
    }

    fn trigger_queue_of(&mut self, wl: &WorkloadEntry, now: Time) {
        let name = self
            .local_queues
            .get(wl.queue)
            .and_then(|lq| lq.object.as_ref())
            .map(|queue| &queue.cluster_queue);
        if let Some(cq) = name.and_then(|name| self.cluster_queue_ids.get(name).copied()) {
            self.trigger(cq, now);
        }
    }

    pub(super) fn delete_workload(&mut self, key: &WorkloadKey, now: Time) {
        let Some(id) = self.workloads.id(key) else { return };
        self.dequeue(id);
        self.count(id, -1);
        let Some(wl) = self.workloads.remove(id) else { return };
        self.pods_ready_deadlines.remove(&id);
        self.second_pass.forget(id);
        self.remove_entry_penalty(id, wl.queue);
        self.forget_preemptor(id, &wl);
        if let Some(lq) = self.local_queues.get_mut(wl.queue) {
            lq.workloads.remove(&id);
        }
        self.forget_unattached(id, &wl);
        self.forget_variant(id, wl.parent.as_deref());
        self.forget_replacement(id, wl.class.replaces.as_ref());
        self.recharge_replaced(wl.class.replaces.as_ref(), now);
        self.notify_freed(&wl, now);
        self.local_queues.drop_if_unused(wl.queue);
        self.classes.release(wl.class);
    }

    pub(super) fn refuse(
        &mut self,
        key: &WorkloadKey,
        cycle: Option<u64>,
        reason: RefusedReason,
        now: Time,
    ) {
        let Some(id) = self.workloads.id(key) else { return };
        let Some(old) = self.workloads.get(id).cloned() else { return };
        let is_concerned = |reservation: &QuotaReservation| {
            !reservation.confirmed && (cycle.is_none() || cycle == reservation.cycle)
        };
        if !old.reservation.as_deref().is_some_and(is_concerned) {
            return;
        }
        let (reason, not_before) = match reason {
            RefusedReason::WriteFailed { message } => (Reason::WriteFailed { message }, None),
            RefusedReason::DispatchFailed { message, retry_at } => {
                (Reason::DispatchFailed { message }, Some(retry_at.unwrap_or(Time::NEVER)))
            }
        };
        self.edit(id, |wl| {
            wl.reservation = None;
            wl.scan = None;
            wl.reason = Some(Arc::new(reason));
            wl.not_before = not_before;
        });
        self.second_pass.forget(id);
        self.recharge_replaced(old.class.replaces.as_ref(), now);
        self.remove_entry_penalty(id, old.queue);
        self.notify_freed(&old, now);
        // A failed write returns the workload to the heap at once, even if equivalent workloads are
        // parked.
        self.enqueue(id, true, not_before.is_none(), now);
    }

    pub(super) fn preemption_failed(&mut self, key: &WorkloadKey) {
        let Some(id) = self.workloads.id(key) else { return };
        if self.workloads.get(id).is_some_and(|wl| wl.preemption_issued) {
            self.edit(id, |wl| wl.preemption_issued = false);
            self.wake_replacements(key);
            if self.settings.gates.release_failed_preemptors {
                self.pass_over_preemptors(id);
            }
        }
    }

    /// A preemptor whose victims could not be evicted gives up the head of its queue.
    fn pass_over_preemptors(&mut self, victim: WorkloadId) {
        let charged = self.workloads.get(victim).and_then(|wl| wl.reservation.as_ref()?.charged);
        let queues = charged.map(|cq| self.tree.queues_of_tree(cq)).unwrap_or_default();
        let has_evicting = |id: &NodeId| {
            self.cluster_queues.get(id).is_some_and(|cq| cq.preemption_order.has_evicting())
        };
        if queues.iter().any(has_evicting) {
            return;
        }
        for id in queues {
            if let Some(cq) = self.cluster_queues.get_mut(&id) {
                cq.queue.pass_over_preemptor();
                self.ready.note(cq);
            }
        }
    }

    pub(super) fn retry(&mut self, key: &WorkloadKey, now: Time) {
        let Some(id) = self.workloads.id(key) else { return };
        if let Some(wl) = self.workloads.get_mut(id) {
            wl.not_before = None;
            if !wl.is_backing_off(now) {
                self.wake(id);
            }
        }
    }

    pub(super) fn retry_all(&mut self, cluster_queue: &Name, now: Time) {
        let Some(id) = self.cluster_queue_ids.get(cluster_queue).copied() else { return };
        let given_back =
            self.cluster_queues.get(&id).map(|cq| cq.queue.backing_off()).unwrap_or_default();
        for wl in given_back {
            let Some(wl_mut) = self.workloads.get_mut(wl) else { continue };
            if wl_mut.not_before.take().is_some() && !wl_mut.is_backing_off(now) {
                self.wake(wl);
            }
        }
        self.trigger(id, now);
    }
}

/// Whether both charge the same quota and topology domains.
fn have_equal_charge(one: &WorkloadEntry, other: &WorkloadEntry) -> bool {
    match (&one.reservation, &other.reservation) {
        (Some(one), Some(other)) => {
            (one.charged, &one.charge, &one.places) == (other.charged, &other.charge, &other.places)
        }
        (one, other) => one.is_none() && other.is_none(),
    }
}

/// The flags without those that never admit a parked workload.
fn without_status_flags(flags: Flags) -> Flags {
    Flags { admitted: false, checks_failed: false, checks_ready: false, pods_ready: false, ..flags }
}

fn placement_inputs_of(object: &mut Workload) -> Option<Box<PlacementInputs>> {
    let placement_inputs = PlacementInputs {
        unhealthy_nodes: std::mem::take(&mut object.unhealthy_nodes),
        owned_by_pod: object.owned_by_pod,
        pod_set_updates: std::mem::take(&mut object.pod_set_updates),
    };
    (placement_inputs != PlacementInputs::default()).then(|| Box::new(placement_inputs))
}
