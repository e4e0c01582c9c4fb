//! Writes of Workloads, as the hub performs them: from its cache, with a resourceVersion, and
//! retried until the result is known.

use std::sync::Arc;
use std::time::Duration;

use switchyard_api::flavor_pins::FlavorPins;
use switchyard_dispatcher::write_guard::{WriteDecision, check, is_outdated};
use switchyard_dispatcher::{
    CheckStatus, STUCK, Uid, WorkloadFacts, WorkloadWrite, WriteOutcome, WriteResult, WriteRetries,
};
use switchyard_flags::simulate::Mutation;

use crate::names::{CHECK, number};
use crate::state::{Event, World, WriteJob, WriteReply};
use crate::time::{LATE, Ms};

/// Whether the object's state allows the write.
fn look(job: &WriteJob) -> WriteDecision {
    let WorkloadFacts { uid, state, charged, .. } = &job.base;
    let charged = if state.reserved { charged } else { &job.charged };
    check(&job.write, uid, state, charged, job.memory)
}

/// Applies a write to the status.
fn apply(write: &WorkloadWrite, facts: &mut WorkloadFacts, charged: &Arc<FlavorPins>) {
    let reserved = facts.state.reserved && !facts.state.evicted;
    apply_state(write, facts);
    if !facts.state.reserved {
        facts.charged = Arc::default();
    } else if !reserved && !facts.state.evicted {
        facts.charged = charged.clone();
    }
}

fn apply_state(write: &WorkloadWrite, facts: &mut WorkloadFacts) {
    match write {
        // The name is immutable, but may be removed.
        WorkloadWrite::Commit { .. } | WorkloadWrite::Rename { .. }
            if facts.state.cluster.is_some() =>
        {
            facts.state.cluster = None
        }
        WorkloadWrite::Rename { cluster, .. } => facts.state.cluster = Some(cluster.clone()),
        WorkloadWrite::Commit { cluster, attempt, adopts, .. } => {
            if let Some(theirs) = adopts.as_ref().filter(|theirs| **theirs != facts.uid) {
                facts.state.cluster_uid = Some(theirs.clone());
            }
            facts.state.reserved = true;
            facts.state.evicted = false;
            facts.state.cluster = Some(cluster.clone());
            facts.state.attempt = *attempt;
            facts.nominated.clear();
            facts.state.check = Some((CHECK.into(), CheckStatus::Ready));
        }
        WorkloadWrite::Record { nominated, .. } => {
            facts.state.reserved = true;
            facts.state.evicted = false;
            if let Some(nominated) = nominated {
                facts.nominated.clone_from(nominated);
            }
        }
        WorkloadWrite::Retry { retried, .. } => {
            facts.state.check = Some((CHECK.into(), CheckStatus::Retry));
            if let Some(left) = retried.as_ref().filter(|left| left.reason == STUCK) {
                facts.stuck.moves += 1;
                facts.stuck.clusters.push(left.cluster.clone());
            }
        }
        WorkloadWrite::Release => facts.state.reserved = false,
        WorkloadWrite::Finish { .. } => facts.state.finished = true,
    }
}

impl World {
    /// The dispatcher requests a write.
    pub(super) fn write(&mut self, hub: usize, uid: Uid, write: Arc<WorkloadWrite>) {
        // Attempts that were given up at the decision stay so, however late the write.
        for cluster in 0..self.clusters.len() {
            self.update_excuses(cluster);
        }
        let it = &self.hubs[hub];
        let (boot, Some(term)) = (it.boot, it.term.as_ref()) else { return };
        let (epoch, memory) = (term.epoch, term.memory.contains_key(&uid));
        let charged = term.charges.get(&uid).cloned().unwrap_or_default();
        let Some(base) = it.store.get(&uid).cloned() else {
            return self.answer(hub, boot, epoch, Self::superseded(uid, None));
        };
        let job = WriteJob {
            hub,
            boot,
            epoch,
            uid,
            write,
            base,
            memory,
            charged,
            tries: WriteRetries::default(),
            asked: self.now,
        };
        self.try_write(job);
    }

    fn try_write(&mut self, job: WriteJob) {
        let (hub, boot, epoch) = (job.hub, job.boot, job.epoch);
        let outcome = match look(&job) {
            WriteDecision::AlreadyApplied => WriteOutcome::Done,
            WriteDecision::Obsolete(_) => WriteOutcome::Superseded,
            WriteDecision::Write | WriteDecision::ClearClusterFirst
                if !self.leads(hub, boot, epoch) || self.is_outdated(&job) =>
            {
                WriteOutcome::Superseded
            }
            WriteDecision::Write | WriteDecision::ClearClusterFirst => {
                let longest = self.plan.noise.delay;
                let delay = self.dice(0).between(1, longest);
                return self.after(delay, Event::WriteArrives(Box::new(job)));
            }
        };
        self.answer(hub, boot, epoch, WriteResult { uid: job.uid, outcome, facts: Some(job.base) });
    }

    fn is_outdated(&self, job: &WriteJob) -> bool {
        is_outdated(&job.write, Duration::from_millis(self.now - job.asked))
    }

    /// Whether the process believes that it leads in this term.
    fn leads(&self, hub: usize, boot: u32, epoch: u64) -> bool {
        let term = self.hubs[hub].term.as_ref();
        self.hub_is(hub, boot) && term.is_some_and(|term| term.epoch == epoch)
    }

    fn answer(&mut self, hub: usize, boot: u32, epoch: u64, written: WriteResult) {
        if !self.hub_is(hub, boot) {
            return;
        }
        self.note(|| format!("hub {hub}: write of {} {:?}", written.uid, written.outcome));
        self.slot_written(hub, epoch, &written);
        self.written(hub, epoch, written);
    }

    /// A write reaches the API server, even after a crash of its sender.
    pub(crate) fn write_arrives(&mut self, job: WriteJob) {
        let noise = self.plan.noise.clone();
        let hub = job.hub;
        let lost = self.dice(0).chance(noise.lost_requests);
        let unanswered = self.dice(0).chance(noise.lost_answers);
        let delay = self.dice(0).between(1, noise.delay);
        let dead = !self.hub_is(hub, job.boot) && self.dice(0).chance(500);
        if dead {
            return;
        }
        if self.hubs[hub].cut > 0 || lost {
            let wait = if lost { delay } else { milliseconds(WriteRetries::CALL_TIMEOUT) };
            return self.after(wait, Event::WriteAnswered(Box::new(job), WriteReply::Unknown));
        }
        if self.dice(0).chance(noise.late) {
            let (call, more) =
                (milliseconds(WriteRetries::CALL_TIMEOUT), self.dice(0).between(1, LATE));
            self.after(call, Event::WriteAnswered(Box::new(job.clone()), WriteReply::Unknown));
            return self.after(call + more, Event::WriteLate(Box::new(job)));
        }
        let reply = self.perform_write(&job);
        let reply = if unanswered { WriteReply::Unknown } else { reply };
        self.after(delay, Event::WriteAnswered(Box::new(job), reply));
    }

    /// A write is performed after its sender's timeout or crash.
    pub(crate) fn write_late(&mut self, job: &WriteJob) {
        self.note(|| format!("api: late, {:?}", job.write));
        self.perform_write(job);
    }

    fn perform_write(&mut self, job: &WriteJob) -> WriteReply {
        let (forget, blind) =
            (self.mutated(Mutation::ForgetAttempt), self.mutated(Mutation::WriteBlind));
        let forget_moves = self.mutated(Mutation::ForgetMoves);
        let Some(object) = self.api.objects.get_mut(&job.uid).filter(|object| !object.deleted)
        else {
            return WriteReply::Gone;
        };
        if object.facts.version != job.base.version && !blind {
            return WriteReply::Conflict;
        }
        if let WorkloadWrite::Retry { retried: Some(it), .. } = &*job.write {
            self.check_left((job.hub, job.epoch), job.asked, &job.uid, it);
        }
        let Some(object) = self.api.objects.get_mut(&job.uid) else { return WriteReply::Gone };
        let (before, moves) = (object.facts.state.attempt, object.facts.stuck.moves);
        let state = &object.facts.state;
        let last = state.cluster.as_ref().map(|cluster| (number(cluster), state.attempt));
        apply(&job.write, &mut object.facts, &job.charged);
        if forget_moves {
            object.facts.stuck.moves = moves;
        }
        match &*job.write {
            WorkloadWrite::Commit { cluster, attempt, .. }
            | WorkloadWrite::Rename { cluster, attempt, .. }
                if object.facts.state.cluster.as_ref() == Some(cluster) =>
            {
                object.note_commit(number(cluster), *attempt);
                object.commit_decided = job.asked;
                if forget {
                    object.facts.state.attempt = before;
                }
            }
            WorkloadWrite::Finish { .. } => object.ends += 1,
            _ => {}
        }
        if let (WorkloadWrite::Commit { cluster, attempt, adopts: Some(_), .. }, Some(last)) =
            (&*job.write, last)
        {
            self.excuse_replaced_duplicate(number(&job.uid), last, (number(cluster), *attempt));
        }
        self.api_changed(&job.uid);
        match self.api.objects.get(&job.uid) {
            Some(object) => WriteReply::Done(Box::new(object.facts.clone())),
            None => WriteReply::Gone,
        }
    }

    pub(crate) fn write_answered(&mut self, mut job: WriteJob, reply: WriteReply) {
        let (hub, boot, epoch, uid) = (job.hub, job.boot, job.epoch, job.uid.clone());
        if !self.hub_is(hub, boot) {
            return;
        }
        match reply {
            WriteReply::Done(facts) => {
                self.observe(hub, &facts);
                if job.write.committed().is_some() && facts.state.cluster.is_none() {
                    job.base = *facts;
                    return self.try_write(job);
                }
                self.answer(
                    hub,
                    boot,
                    epoch,
                    WriteResult { uid, outcome: WriteOutcome::Done, facts: Some(*facts) },
                );
            }
            WriteReply::Gone => self.answer(hub, boot, epoch, Self::superseded(uid, None)),
            WriteReply::Conflict if !job.tries.may_retry_conflict() => {
                self.answer(hub, boot, epoch, Self::superseded(uid, Some(job.base)));
            }
            WriteReply::Conflict | WriteReply::Unknown => {
                let pause = milliseconds(job.tries.pause());
                self.after(pause, Event::WriteReads(Box::new(job)));
            }
        }
    }

    /// Reads the object again after a write of unknown result.
    pub(crate) fn write_reads(&mut self, mut job: WriteJob) {
        let (hub, boot, epoch) = (job.hub, job.boot, job.epoch);
        if !self.hub_is(hub, boot) {
            return;
        }
        if !self.leads(hub, boot, epoch) {
            return self.answer(hub, boot, epoch, Self::superseded(job.uid, Some(job.base)));
        }
        if self.hubs[hub].cut > 0 || self.hubs[hub].frozen.is_some() {
            job.tries.lengthen_pause();
            let pause = milliseconds(job.tries.pause());
            return self.after(pause, Event::WriteReads(Box::new(job)));
        }
        match self
            .api
            .objects
            .get(&job.uid)
            .filter(|object| !object.deleted)
            .map(|object| object.facts.clone())
        {
            None => self.answer(hub, boot, epoch, Self::superseded(job.uid, None)),
            Some(fresh) => {
                self.observe(hub, &fresh);
                job.base = fresh;
                self.try_write(job);
            }
        }
    }
}

fn milliseconds(duration: Duration) -> Ms {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
