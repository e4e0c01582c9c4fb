//! The mirrored status of the hub's job. One write at a time per workload: the newest wins, and an
//! end follows its status.

use std::sync::Arc;

use switchyard_dispatcher::{Uid, WorkloadWrite, WriteOutcome, WriteResult};

use super::change_of;
use crate::state::{Event, Show, Slot, Status, World};
use crate::time::Ms;

/// How long an intermediate status waits for the next one.
const SETTLE: Ms = 800;
const RETRY: Ms = 1_000;

impl World {
    pub(super) fn show(&mut self, hub: usize, uid: &Uid, show: Show) {
        self.slot(hub, uid, |slot| slot.show = Some(show), SETTLE);
    }

    /// Mirrors first that nothing runs, then releases the quota.
    pub(super) fn release(&mut self, hub: usize, uid: &Uid, write: Arc<WorkloadWrite>) {
        let put = |slot: &mut Slot| {
            slot.show = Some(Show::Nothing);
            slot.finish = Some(write);
        };
        self.slot(hub, uid, put, 1);
    }

    /// Mirrors the final status first, then writes Finished to the Workload.
    pub(super) fn finish(&mut self, hub: usize, uid: &Uid, write: Arc<WorkloadWrite>) {
        let put = |slot: &mut Slot| {
            slot.show = Some(Show::Status(Status::Ended));
            slot.finish = Some(write);
        };
        self.slot(hub, uid, put, 1);
    }

    fn slot(&mut self, hub: usize, uid: &Uid, put: impl FnOnce(&mut Slot), wait: Ms) {
        let boot = self.hubs[hub].boot;
        let Some(term) = &mut self.hubs[hub].term else { return };
        let epoch = term.epoch;
        put(term.slots.entry(uid.clone()).or_default());
        self.after(wait, Event::ShowDue { hub, boot, epoch, uid: uid.clone() });
    }

    pub(crate) fn show_due(&mut self, hub: usize, boot: u32, epoch: u64, uid: &Uid) {
        let Some(term) = self.term(hub, boot, epoch) else { return };
        let Some(slot) = term.slots.get_mut(uid).filter(|slot| !slot.busy) else { return };
        if let Some(show) = slot.show.take() {
            slot.busy = true;
            slot.finishing = slot.finish.is_some();
            let longest = self.plan.noise.delay;
            let delay = self.dice(0).between(1, longest);
            let losses = self.lost_store.times;
            let uid = uid.clone();
            self.after(delay, Event::ShowArrives { hub, boot, epoch, losses, uid, show });
        } else if let Some(write) = slot.finish.take() {
            slot.busy = true;
            slot.finishing = false;
            self.write(hub, uid.clone(), write);
        } else {
            term.slots.remove(uid);
        }
    }

    /// Writes the job's status, whatever process sent it, unless its store is lost.
    pub(crate) fn show_arrives(
        &mut self,
        (hub, boot, epoch): (usize, u32, u64),
        losses: u32,
        uid: Uid,
        show: Show,
    ) {
        if losses != self.lost_store.times {
            return;
        }
        let noise = self.plan.noise.clone();
        let lost = self.dice(0).chance(noise.lost_requests) || self.hubs[hub].cut > 0;
        let unanswered = self.dice(0).chance(noise.lost_answers);
        let now = self.now;
        if !lost
            && let Some(object) = self.api.objects.get_mut(&uid).filter(|object| !object.deleted)
        {
            let mut end = None;
            if show == Show::Status(Status::Ended) {
                object.job_ended.get_or_insert(now);
                object.facts.job_ended = Some(true);
                end = Some(change_of(object));
            }
            self.note(|| format!("api: job of {uid} shows {show:?}"));
            if let Some(change) = end {
                self.notify_hubs(&change);
            }
            let delay = self.dice(0).between(1, 300);
            self.after(delay, Event::Lifecycle { uid: uid.clone() });
        }
        let failed = (lost || unanswered).then_some(show);
        let delay = self.dice(0).between(1, noise.delay);
        self.after(delay, Event::ShowAnswered { hub, boot, epoch, uid, failed });
    }

    pub(crate) fn show_answered(
        &mut self,
        hub: usize,
        boot: u32,
        epoch: u64,
        uid: &Uid,
        failed: Option<Show>,
    ) {
        let Some(term) = self.term(hub, boot, epoch) else { return };
        let Some(slot) = term.slots.get_mut(uid) else { return };
        slot.busy = false;
        let finishing = std::mem::take(&mut slot.finishing);
        match failed {
            Some(_) if finishing => {
                // The dispatcher requests the end again.
                slot.finish = None;
                let written =
                    WriteResult { uid: uid.clone(), outcome: WriteOutcome::Failed, facts: None };
                self.written(hub, epoch, written);
                self.after(1, Event::ShowDue { hub, boot, epoch, uid: uid.clone() });
            }
            Some(show) => {
                slot.show.get_or_insert(show);
                self.after(RETRY, Event::ShowDue { hub, boot, epoch, uid: uid.clone() });
            }
            None if finishing => {
                let Some(write) = slot.finish.take() else { return };
                slot.busy = true;
                self.write(hub, uid.clone(), write);
            }
            None => self.after(1, Event::ShowDue { hub, boot, epoch, uid: uid.clone() }),
        }
    }

    /// After the write of an end, frees the job's slot.
    pub(super) fn slot_written(&mut self, hub: usize, epoch: u64, written: &WriteResult) {
        let boot = self.hubs[hub].boot;
        let Some(term) = self.term(hub, boot, epoch) else { return };
        if let Some(slot) = term.slots.get_mut(&written.uid) {
            slot.busy = false;
            self.after(1, Event::ShowDue { hub, boot, epoch, uid: written.uid.clone() });
        }
    }
}
