//! Writes of Workloads, as the hub performs them: from its cache, with a resourceVersion, and
//! retried until the result is known.

use std::time::Duration;

use super::term::CHECK;
use crate::event::Event;
use crate::laws::number;
use crate::plan::Ms;
use crate::world::World;
use switchyard_dispatcher::standing::{Intent, Standing, Verdict, judge};
use switchyard_dispatcher::{Action, Check, Facts, Outcome, Tries, Uid, Written};
use switchyard_flags::simulate::Mutation;

/// How late a request may be performed after its sender's timeout, on the hub or on a worker.
pub(crate) const LATE: Ms = 30_000;

/// A write on its way.
#[derive(Debug, Clone)]
pub(crate) struct WriteJob {
    pub(crate) hub: usize,
    boot: u32,
    epoch: u64,
    uid: Uid,
    action: Action,
    base: Facts,
    /// The reservation was in memory at the request.
    memory: bool,
    tries: Tries,
    /// When the dispatcher requested it.
    asked: Ms,
}

/// The reply to a write.
#[derive(Debug, Clone)]
pub(crate) enum WriteReply {
    Done(Box<Facts>),
    Conflict,
    Gone,
    /// No answer: the write may have happened.
    Unknown,
}

fn subject(action: &Action) -> Option<&Uid> {
    match action {
        Action::Commit { uid, .. }
        | Action::Rename { uid, .. }
        | Action::Record { uid, .. }
        | Action::Retry { uid, .. }
        | Action::Release { uid }
        | Action::Finish { uid, .. } => Some(uid),
        _ => None,
    }
}

/// Whether the object's state allows the write.
fn look(action: &Action, facts: &Facts, memory: bool) -> Verdict {
    Intent::of(action)
        .map_or(Verdict::Void("no write"), |intent| judge(intent, &Standing::of(facts, memory)))
}

/// Applies a write to the status.
fn apply(action: &Action, facts: &mut Facts) {
    match action {
        // The name is immutable, but may be removed.
        Action::Commit { .. } | Action::Rename { .. } if facts.cluster.is_some() => {
            facts.cluster = None
        }
        Action::Rename { cluster, .. } => facts.cluster = Some(cluster.clone()),
        Action::Commit { cluster, attempt, adopts, .. } => {
            if let Some(theirs) = adopts.as_ref().filter(|theirs| **theirs != facts.uid) {
                facts.known_as = Some(theirs.clone());
            }
            facts.reserved = true;
            facts.evicted = false;
            facts.cluster = Some(cluster.clone());
            facts.attempt = *attempt;
            facts.nominated.clear();
            facts.check = Some((CHECK.into(), Check::Ready));
        }
        Action::Record { nominated, .. } => {
            facts.reserved = true;
            facts.evicted = false;
            if let Some(nominated) = nominated {
                facts.nominated.clone_from(nominated);
            }
        }
        Action::Retry { .. } => facts.check = Some((CHECK.into(), Check::Retry)),
        Action::Release { .. } => facts.reserved = false,
        Action::Finish { .. } => facts.finished = true,
        _ => {}
    }
}

impl World {
    /// The dispatcher requests a write.
    pub(super) fn write(&mut self, hub: usize, action: Action) {
        let Some(uid) = subject(&action).cloned() else { return };
        // Attempts that were given up at the decision stay so, however late the write.
        for cluster in 0..self.clusters.len() {
            self.update_excuses(cluster);
        }
        let it = &self.hubs[hub];
        let (boot, Some(term)) = (it.boot, it.term.as_ref()) else { return };
        let (epoch, memory) = (term.epoch, term.memory.contains_key(&uid));
        let Some(base) = it.store.get(&uid).cloned() else {
            return self.answer(hub, boot, epoch, Self::superseded(uid, None));
        };
        let job = WriteJob {
            hub,
            boot,
            epoch,
            uid,
            action,
            base,
            memory,
            tries: Tries::default(),
            asked: self.now,
        };
        self.try_write(job);
    }

    fn try_write(&mut self, job: WriteJob) {
        let (hub, boot, epoch) = (job.hub, job.boot, job.epoch);
        let outcome = match look(&job.action, &job.base, job.memory) {
            Verdict::There => Outcome::Done,
            Verdict::Void(_) => Outcome::Superseded,
            Verdict::Write | Verdict::TakeAway if !self.leads(hub, boot, epoch) => {
                Outcome::Superseded
            }
            Verdict::Write | Verdict::TakeAway => {
                let longest = self.plan.noise.delay;
                let delay = self.dice(0).between(1, longest);
                return self.after(delay, Event::WriteArrives(Box::new(job)));
            }
        };
        self.answer(hub, boot, epoch, Written { uid: job.uid, outcome, facts: Some(job.base) });
    }

    /// Whether the process believes that it leads in this term.
    fn leads(&self, hub: usize, boot: u32, epoch: u64) -> bool {
        let term = self.hubs[hub].term.as_ref();
        self.hub_is(hub, boot) && term.is_some_and(|term| term.epoch == epoch)
    }

    fn answer(&mut self, hub: usize, boot: u32, epoch: u64, written: Written) {
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
            let wait = if lost { delay } else { milliseconds(Tries::CALL) };
            return self.after(wait, Event::WriteAnswered(Box::new(job), WriteReply::Unknown));
        }
        if self.dice(0).chance(noise.late) {
            let (call, more) = (milliseconds(Tries::CALL), self.dice(0).between(1, LATE));
            self.after(call, Event::WriteAnswered(Box::new(job.clone()), WriteReply::Unknown));
            return self.after(call + more, Event::WriteLate(Box::new(job)));
        }
        let reply = self.perform_write(&job);
        let reply = if unanswered { WriteReply::Unknown } else { reply };
        self.after(delay, Event::WriteAnswered(Box::new(job), reply));
    }

    /// A write is performed after its sender's timeout or crash.
    pub(crate) fn write_late(&mut self, job: &WriteJob) {
        self.note(|| format!("api: late, {:?}", job.action));
        self.perform_write(job);
    }

    fn perform_write(&mut self, job: &WriteJob) -> WriteReply {
        let (forget, blind) =
            (self.mutated(Mutation::ForgetAttempt), self.mutated(Mutation::WriteBlind));
        let Some(object) = self.api.objects.get_mut(&job.uid).filter(|object| !object.deleted)
        else {
            return WriteReply::Gone;
        };
        if object.facts.version != job.base.version && !blind {
            return WriteReply::Conflict;
        }
        if let Action::Retry { uid, left: Some(left), .. } = &job.action {
            self.check_left((job.hub, job.epoch), job.asked, uid, left);
        }
        let Some(object) = self.api.objects.get_mut(&job.uid) else { return WriteReply::Gone };
        let before = object.facts.attempt;
        apply(&job.action, &mut object.facts);
        match &job.action {
            Action::Commit { cluster, attempt, .. } | Action::Rename { cluster, attempt, .. }
                if object.facts.cluster.as_ref() == Some(cluster) =>
            {
                object.committed.insert((number(cluster), *attempt));
                if forget {
                    object.facts.attempt = before;
                }
            }
            Action::Finish { .. } => object.ends += 1,
            _ => {}
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
                if matches!(job.action, Action::Commit { .. } | Action::Rename { .. })
                    && facts.cluster.is_none()
                {
                    job.base = *facts;
                    return self.try_write(job);
                }
                self.answer(
                    hub,
                    boot,
                    epoch,
                    Written { uid, outcome: Outcome::Done, facts: Some(*facts) },
                );
            }
            WriteReply::Gone => self.answer(hub, boot, epoch, Self::superseded(uid, None)),
            WriteReply::Conflict if !job.tries.conflict() => {
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
            job.tries.unseen();
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
