//! Workloads: what the API says of them, refused reservations, and requests to try again.

use std::sync::Arc;

use super::Engine;
use crate::queue::Spot;
use crate::tree::NodeId;
use crate::workloads::{Facts, Flags, Hold, Wl, WlId};
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
            .lqs
            .intern(&LocalQueueKey::new(object.key.namespace.clone(), object.queue_name.as_str()));
        let (class, flags) = self.class_of(&mut object, now);
        let facts = facts_of(&mut object);
        let mut key = object.key;
        if let Some(lq) = self.lqs.get(queue) {
            // One text for a namespace's name, however many workloads are in it.
            key.namespace = lq.key.namespace.clone();
        }
        let mut wl = Wl {
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
            told_to_go: false,
            hold: None,
            scan: None,
            reason: None,
            queued_in: None,
            parent: object.parent.map(Box::new),
            facts,
        };
        if let Some(admission) = object.reservation.filter(|_| !wl.flags.finished) {
            wl.hold = Some(self.confirmed(&wl, admission, object.reserved_at.unwrap_or(now)));
        }
        let (class, parent) = (wl.class.clone(), wl.parent.clone());
        let id = self.workloads.insert(wl);
        self.note_replacement(id, class.replaces.as_ref());
        self.note_variant(id, parent.as_deref());
        if let Some(lq) = self.lqs.get_mut(queue) {
            lq.workloads.insert(id);
        }
        self.count(id, 1);
        self.note_patience(id, object.ready_by);
        self.recharge_replaced(class.replaces.as_ref(), now);
        self.note_orphan(id);
        self.place(id, true, false, now);
        self.note_second_pass(id, now);
    }

    /// The class and the flags of a workload as the API has it.
    fn class_of(
        &mut self,
        object: &mut Workload,
        now: Time,
    ) -> (Arc<crate::queue::equivalence::Class>, Flags) {
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
            held: object.held,
            deleting: object.deleting,
            gates_closed: object.gates_closed,
            checks_failed: object.checks.iter().any(failed),
            checks_ready: !object.checks.is_empty()
                && object.checks.iter().all(|check| check.state == CheckPhase::Ready),
        };
        (class, flags)
    }

    fn confirmed(&mut self, wl: &Wl, admission: Admission, since: Time) -> Box<Hold> {
        let mut hold = Hold {
            admission,
            charged: None,
            charge: Vec::new(),
            places: Vec::new(),
            confirmed: true,
            since,
        };
        self.charge(wl, &mut hold);
        Box::new(hold)
    }

    fn update_workload(&mut self, id: WlId, mut object: Workload, now: Time) {
        let Some(old) = self.workloads.get(id).cloned() else { return };
        let queue = self
            .lqs
            .intern(&LocalQueueKey::new(object.key.namespace.clone(), object.queue_name.as_str()));
        let (class, flags) = self.class_of(&mut object, now);
        let facts = facts_of(&mut object);
        let reclassed = !Arc::ptr_eq(&class, &old.class);
        // What may make a parked workload admissible. Other status changes leave it where it is.
        let changed = reclassed
            || queue != old.queue
            || object.queue_time != old.queue_time
            || (object.requeued, object.requeue_at) != (old.requeued, old.requeue_at)
            || status_aside(flags) != status_aside(old.flags)
            || (old.flags.checks_failed && !flags.checks_failed);
        let mut new = Wl {
            queue,
            class,
            flags,
            told_to_go: false,
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
            hold: None,
            parent: object.parent.map(Box::new),
            facts,
            ..old.clone()
        };
        new.hold =
            self.next_hold(&old, &new, object.reservation, object.reserved_at.unwrap_or(now));
        let stays = old.told_to_go && new.hold.is_some() && !new.flags.evicted;
        self.replace(id, &old, new, changed, now);
        self.note_patience(id, object.ready_by);
        if stays {
            self.wake_replacements(&old.key);
        }
        self.note_second_pass(id, now);
    }

    /// What a workload holds after the API told about it.
    fn next_hold(
        &mut self,
        old: &Wl,
        new: &Wl,
        shown: Option<Admission>,
        since: Time,
    ) -> Option<Box<Hold>> {
        if new.flags.finished {
            return None;
        }
        match (shown, &old.hold) {
            (Some(admission), _) => Some(self.confirmed(new, admission, since)),
            // The API does not show it yet: this may be older than the decision.
            (None, Some(hold)) if !hold.confirmed && !new.flags.deleting && new.flags.active => {
                let mut hold = hold.clone();
                self.charge(new, &mut hold);
                Some(hold)
            }
            (None, _) => None,
        }
    }

    /// Puts the new state in the place of the old one, in all sums and queues.
    fn replace(&mut self, id: WlId, old: &Wl, new: Wl, changed: bool, now: Time) {
        let spot = self.take_out(id);
        let recharged = !charged_alike(old, &new);
        let (queue, held, may_ask) = (new.queue, new.hold.is_some(), new.may_ask());
        let reprioritised = old.hold.is_some() && old.class.priority != new.class.priority;
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
            if let Some(lq) = self.lqs.get_mut(old.queue) {
                lq.workloads.remove(&id);
            }
            if let Some(lq) = self.lqs.get_mut(queue) {
                lq.workloads.insert(id);
            }
            self.lqs.drop_if_unused(old.queue);
        }
        self.forget_orphan(id, old);
        self.note_orphan(id);
        let confirmed = |wl: &Wl| wl.hold.as_ref().is_some_and(|hold| hold.confirmed);
        if self.workloads.get(id).is_some_and(confirmed) || !may_ask {
            self.forget_preemptor(id, old);
        }
        if held {
            self.leave(id);
        } else if spot.is_some() && !changed {
            self.put_back(id, spot);
        } else {
            self.place(id, true, spot == Some(Spot::Heap), now);
        }
        if (recharged && old.hold.is_some()) || reprioritised {
            self.announce_freed(old, now);
        }
        self.settle_entry(id, old, now);
    }

    /// A workload that has its quota for sure, or never will, is nobody's preemptor any more.
    fn forget_preemptor(&mut self, id: WlId, wl: &Wl) {
        let charged = wl.hold.as_ref().and_then(|hold| hold.charged);
        for cq in charged.into_iter().chain(wl.queued_in) {
            if let Some(cq) = self.cqs.get_mut(&cq) {
                cq.queue.forget(id);
            }
        }
    }

    /// Puts a workload back where it was, after a change that does not concern its queue.
    fn put_back(&mut self, id: WlId, spot: Option<Spot>) {
        let Some((wl, spot)) = self.workloads.get(id).zip(spot) else { return };
        if let Some(cq) = wl.queued_in.and_then(|cq| self.cqs.get_mut(&cq)) {
            cq.queue.put_back(wl.bucket(), wl.item(id), spot);
            self.ready.note(cq);
        }
    }

    /// Keeps track of reservations whose ClusterQueue is not there.
    fn note_orphan(&mut self, id: WlId) {
        let Some(hold) = self.workloads.get(id).and_then(|wl| wl.hold.as_ref()) else { return };
        if hold.charged.is_none() {
            self.orphans.entry(hold.admission.cluster_queue.clone()).or_default().insert(id);
        }
    }

    fn forget_orphan(&mut self, id: WlId, wl: &Wl) {
        let Some(hold) = wl.hold.as_ref().filter(|hold| hold.charged.is_none()) else { return };
        let Some(ids) = self.orphans.get_mut(&hold.admission.cluster_queue) else { return };
        ids.remove(&id);
        if ids.is_empty() {
            self.orphans.remove(&hold.admission.cluster_queue);
        }
    }

    /// What `old` held is free, wholly or in part.
    pub(super) fn announce_freed(&mut self, old: &Wl, now: Time) {
        if let Some(cq) = old.hold.as_ref().and_then(|hold| hold.charged) {
            self.freed(cq, now);
        }
        self.trigger_queue_of(old, now);
    }

    fn trigger_queue_of(&mut self, wl: &Wl, now: Time) {
        let name = self
            .lqs
            .get(wl.queue)
            .and_then(|lq| lq.object.as_ref())
            .map(|queue| &queue.cluster_queue);
        if let Some(cq) = name.and_then(|name| self.cq_ids.get(name).copied()) {
            self.trigger(cq, now);
        }
    }

    pub(super) fn delete_workload(&mut self, key: &WorkloadKey, now: Time) {
        let Some(id) = self.workloads.id(key) else { return };
        self.leave(id);
        self.count(id, -1);
        let Some(wl) = self.workloads.remove(id) else { return };
        self.patience.remove(&id);
        self.second_pass.forget(id);
        self.absolve_entry(id, wl.queue);
        self.forget_preemptor(id, &wl);
        if let Some(lq) = self.lqs.get_mut(wl.queue) {
            lq.workloads.remove(&id);
        }
        self.forget_orphan(id, &wl);
        self.forget_variant(id, wl.parent.as_deref());
        self.forget_replacement(id, wl.class.replaces.as_ref());
        self.recharge_replaced(wl.class.replaces.as_ref(), now);
        self.announce_freed(&wl, now);
        self.lqs.drop_if_unused(wl.queue);
        self.classes.release(wl.class);
    }

    pub(super) fn refuse(
        &mut self,
        key: &WorkloadKey,
        uid: &Name,
        reason: RefusedReason,
        now: Time,
    ) {
        let Some(id) = self.workloads.id(key) else { return };
        let Some(old) = self.workloads.get(id).filter(|wl| wl.uid == *uid).cloned() else { return };
        if old.hold.as_ref().is_none_or(|hold| hold.confirmed) {
            return;
        }
        let (reason, not_before) = match reason {
            RefusedReason::WriteFailed { message } => (Reason::WriteFailed { message }, None),
            RefusedReason::GivenBack { message, retry_at } => {
                (Reason::GivenBack { message }, Some(retry_at.unwrap_or(Time::NEVER)))
            }
        };
        self.edit(id, |wl| {
            wl.hold = None;
            wl.scan = None;
            wl.reason = Some(Arc::new(reason));
            wl.not_before = not_before;
        });
        self.second_pass.forget(id);
        self.recharge_replaced(old.class.replaces.as_ref(), now);
        self.absolve_entry(id, old.queue);
        self.announce_freed(&old, now);
        // Failed writes go to the heap at once, whatever became of equal workloads meanwhile.
        self.place(id, true, not_before.is_none(), now);
    }

    pub(super) fn preemption_failed(&mut self, key: &WorkloadKey) {
        let Some(id) = self.workloads.id(key) else { return };
        if self.workloads.get(id).is_some_and(|wl| wl.told_to_go) {
            self.edit(id, |wl| wl.told_to_go = false);
            self.wake_replacements(key);
            if self.settings.gates.release_failed_preemptors {
                self.pass_over_preemptors(id);
            }
        }
    }

    /// A preemptor whose victims could not be told to go waits for none: it goes on in the order of its queue.
    fn pass_over_preemptors(&mut self, victim: WlId) {
        let charged = self.workloads.get(victim).and_then(|wl| wl.hold.as_ref()?.charged);
        let queues = charged.map(|cq| self.tree.queues_of_tree(cq)).unwrap_or_default();
        let any_leaving = |id: &NodeId| self.cqs.get(id).is_some_and(|cq| cq.holders.any_leaving());
        if queues.iter().any(any_leaving) {
            return;
        }
        for id in queues {
            if let Some(cq) = self.cqs.get_mut(&id) {
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
        let Some(id) = self.cq_ids.get(cluster_queue).copied() else { return };
        let given_back = self.cqs.get(&id).map(|cq| cq.queue.backing_off()).unwrap_or_default();
        for wl in given_back {
            let Some(wl_mut) = self.workloads.get_mut(wl) else { continue };
            if wl_mut.not_before.take().is_some() && !wl_mut.is_backing_off(now) {
                self.wake(wl);
            }
        }
        self.trigger(id, now);
    }
}

/// Whether the same quota and places are charged for both.
fn charged_alike(one: &Wl, other: &Wl) -> bool {
    match (&one.hold, &other.hold) {
        (Some(one), Some(other)) => {
            (one.charged, &one.charge, &one.places) == (other.charged, &other.charge, &other.places)
        }
        (one, other) => one.is_none() && other.is_none(),
    }
}

/// Flags without those that let no parked workload in.
fn status_aside(flags: Flags) -> Flags {
    Flags { admitted: false, checks_failed: false, checks_ready: false, pods_ready: false, ..flags }
}

fn facts_of(object: &mut Workload) -> Option<Box<Facts>> {
    let facts = Facts {
        unhealthy_nodes: std::mem::take(&mut object.unhealthy_nodes),
        owned_by_pod: object.owned_by_pod,
        pod_set_updates: std::mem::take(&mut object.pod_set_updates),
    };
    (facts != Facts::default()).then(|| Box::new(facts))
}
