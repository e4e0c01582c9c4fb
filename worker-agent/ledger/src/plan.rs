//! What to do next for one workload: desired against observed.
//!
//! The rules, in order:
//! 1. A final state that the hub has not persisted goes before everything: nothing is touched until it has.
//! 2. Attempts lower than the desired one, and up to a tombstone's, are deleted.
//! 3. Of higher attempts than desired, and of what is not desired at all, nothing is ever touched.
//! 4. Only then is made what is missing: first the Workload, then, once the worker's admission has said yes, the job.
//!
//! A job that somebody else deletes is deleted in the foreground as well, whoever wants it.
//!
//! A job whose fence has come is stopped whatever the hub wanted, and nothing is started that would have to be stopped at
//! once. The fence is recorded on the Workload before its job is made, for an agent that begins anew and finds no hub.
//!

use std::sync::Arc;

use switchyard_proto::v1::{Phase, State};

use super::entry::Entry;
use super::model::{
    Action, Kind, Payload, Priority, RemoteJob, RemoteWorkload, Time, Trouble, Verb,
};
use super::state::quiet;
use super::verdict::verdict;
use super::want::Want;

/// How long the garbage collector may take to delete a Workload after its owner, before we do it.
const OWNER_GRACE: Time = Time::from_secs(5);

/// What a plan depends on beside the workload itself.
pub(super) struct Context<'a> {
    pub(super) want: Option<&'a Want>,
    pub(super) payload: Option<Arc<Payload>>,
    /// When the job has to be stopped, if the lease is not renewed before.
    pub(super) fence: Option<Time>,
    /// Its fence has come since, and the hub has not yet said what it wants now.
    pub(super) behind: bool,
    pub(super) namespace_allowed: bool,
    pub(super) now: Time,
}

impl Context<'_> {
    fn fenced(&self) -> bool {
        self.fence.is_some_and(|at| at <= self.now)
    }

    /// Whether there is no job to be made: the pods come with that of another workload.
    fn follows(&self) -> bool {
        self.payload.as_ref().is_some_and(|payload| payload.job.is_empty())
    }

    /// Whether nothing of it may be started.
    fn held(&self) -> bool {
        self.behind || self.fenced()
    }
}

impl Entry {
    /// The actions to start now. Marks their objects busy.
    pub(super) fn plan(&mut self, context: &Context<'_>) -> Vec<Action> {
        let mut actions = Vec::new();
        for kind in [Kind::Workload, Kind::Job] {
            if self.target(kind).is_some() {
                self.slot(kind).lapse(context.now);
            }
        }
        self.plan_foreground(context.now, &mut actions);
        self.plan_fence(context, &mut actions);
        self.plan_reread(context.now, &mut actions);
        self.plan_release(context, &mut actions);
        match context.want {
            Some(want) if self.unsettled().is_none() => {
                self.plan_teardown(want, context.now, &mut actions);
                self.plan_making(want, context, &mut actions);
            }
            Some(_) => {}
            // A hub that has forgotten what it wanted goes by what is there.
            None => {
                self.plan_search(Kind::Workload, u64::MAX, context.now, &mut actions);
                self.plan_search(Kind::Job, u64::MAX, context.now, &mut actions);
            }
        }
        actions
    }

    /// When to plan again although nothing happened.
    pub(super) fn wakeup(&self, now: Time) -> Option<Time> {
        let grace = self
            .workload
            .as_ref()
            .and(self.job_gone)
            .map(|gone| gone + OWNER_GRACE)
            .filter(|at| *at > now);
        [self.workload_slot.wake(now), self.job_slot.wake(now), grace].into_iter().flatten().min()
    }

    /// The finalizer comes off once the end is persisted on the hub that wants the job, or when an unfinished job goes by
    /// our own hand.
    fn plan_release(&mut self, context: &Context<'_>, actions: &mut Vec<Action>) {
        let Some((job, index)) = self.job.as_ref().and_then(|job| Some((job, job.meta.held?)))
        else {
            return;
        };
        let ours = context.want.is_some_and(|want| job.meta.attempt <= want.teardown());
        let release = match (&job.end, job.meta.deleting) {
            _ if self.unsettled().is_some() => false,
            // What is not desired may be of a hub that has forgotten it: whoever applies its job again wants its end.
            (Some(_), _) => {
                context.want.is_some()
                    && self.settled(job.meta.attempt)
                    && !self.keeps_name(context.now)
            }
            (None, true) => ours || self.settled(job.meta.attempt),
            (None, false) => false,
        };
        if release && self.job_slot.free(context.now) {
            let verb = Verb::Release { target: job.meta.target.clone(), index };
            self.start(Kind::Job, verb, context.now, actions);
        }
    }

    /// Whether a job that has ended keeps its name for now: where an earlier creation of it had no answer, another one would
    /// come once the name is free, and run.
    fn keeps_name(&self, now: Time) -> bool {
        self.job.as_ref().is_some_and(|job| job.end.is_some()) && self.job_slot.may_come_again(now)
    }

    /// Looks at what a list lacked.
    fn plan_reread(&mut self, now: Time, actions: &mut Vec<Action>) {
        for kind in [Kind::Workload, Kind::Job] {
            let Some(target) = self.target(kind).cloned() else { continue };
            if self.slot(kind).is_missed(&target.uid, now) {
                self.start(kind, Verb::Reread { target }, now, actions);
            }
        }
    }

    /// What somebody else deletes goes after its pods as well: in the background it would go before them, nobody could tell when they
    /// are gone, and no fence would stop them, as its controller leaves alone what is being deleted.
    fn plan_foreground(&mut self, now: Time, actions: &mut Vec<Action>) {
        let outlived = |job: &&RemoteJob| job.meta.deleting && job.end.is_none() && !quiet(job);
        let Some(target) = self.job.as_ref().filter(outlived).map(|job| job.meta.target.clone())
        else {
            return;
        };
        if self.job_slot.free(now) && !self.job_slot.deletion_sent(&target.uid, now) {
            self.start(Kind::Job, Verb::Delete { target, foreground: true }, now, actions);
        }
    }

    /// Stops what may run beyond its fence, and what a creation without an answer may have made.
    fn plan_fence(&mut self, context: &Context<'_>, actions: &mut Vec<Action>) {
        let may_run = self.job.as_ref().map_or(!self.job_slot.certain(), |job| job.end.is_none());
        let Some(workload) = self.workload.as_ref().filter(|it| it.active && !it.meta.deleting)
        else {
            return;
        };
        if context.fenced() && (may_run || workload.follows) && self.workload_slot.free(context.now)
        {
            let verb = Verb::SetActive { target: workload.meta.target.clone(), active: false };
            self.start(Kind::Workload, verb, context.now, actions);
        }
    }

    fn plan_teardown(&mut self, want: &Want, now: Time, actions: &mut Vec<Action>) {
        let limit = want.teardown();
        self.plan_search(Kind::Workload, limit, now, actions);
        self.plan_search(Kind::Job, limit, now, actions);
        let keeps_name = self.keeps_name(now);
        if let Some(job) =
            self.job.as_ref().filter(|job| job.meta.attempt <= limit && !job.meta.deleting)
            && !keeps_name
            && self.job_slot.free(now)
            && !self.job_slot.deletion_sent(&job.meta.target.uid, now)
        {
            // A job that may run stays until its pods are gone: GONE must mean that nothing runs.
            let verb =
                Verb::Delete { target: job.meta.target.clone(), foreground: job.end.is_none() };
            self.start(Kind::Job, verb, now, actions);
        }
        let goes = |it: &&RemoteWorkload| {
            (it.meta.attempt <= limit || self.is_doomed()) && !it.meta.deleting
        };
        let Some(workload) = self.workload.as_ref().filter(goes) else { return };
        let follows = match &self.job {
            // It goes by itself with the job that owns it; and the quota of one that may run is kept until it is gone.
            Some(job) => {
                let runs = job.end.is_none() && job.meta.attempt <= limit;
                runs || (workload.meta.owners.contains(&job.meta.target.uid) && !keeps_name)
            }
            None => {
                !workload.meta.owners.is_empty()
                    && self.job_gone.is_some_and(|gone| now < gone + OWNER_GRACE)
            }
        };
        let sent = self.workload_slot.deletion_sent(&workload.meta.target.uid, now);
        if !follows && !sent && self.workload_slot.free(now) {
            let verb = Verb::Delete { target: workload.meta.target.clone(), foreground: false };
            self.start(Kind::Workload, verb, now, actions);
        }
    }

    /// Looks for what creations without an answer may have made, of attempts up to `limit`.
    fn plan_search(&mut self, kind: Kind, limit: u64, now: Time, actions: &mut Vec<Action>) {
        let (slot, there) = match kind {
            Kind::Workload => (&self.workload_slot, self.workload.is_some()),
            Kind::Job => (&self.job_slot, self.job.is_some()),
        };
        let lost = |verb: &Verb| matches!(verb, Verb::Find { attempt, .. } if *attempt <= limit);
        if let Some(search) = slot.search().filter(lost).filter(|_| !there && slot.free(now)) {
            self.start(kind, search, now, actions);
        }
    }

    fn plan_making(&mut self, want: &Want, context: &Context<'_>, actions: &mut Vec<Action>) {
        let others = self.attempt_there().is_some_and(|attempt| attempt > want.attempt)
            || self.workload.as_ref().is_some_and(|workload| workload.meta.attempt != want.attempt)
            || self.job.as_ref().is_some_and(|job| job.meta.attempt != want.attempt);
        let over = self.ended(want.attempt) || self.lost == Some(want.attempt);
        if want.phase == Phase::Absent || others || over {
            return;
        }
        if let Some(trouble) = unfollowable(want, context) {
            self.trouble = Some((want.attempt, Kind::Workload, trouble));
            return;
        }
        let Some(workload) = &self.workload else {
            // A job without its Workload: somebody deleted that, and the observation says so. One that follows another starts
            // pods by itself.
            if self.job.is_none() && !(context.follows() && context.held()) {
                self.plan_create(Kind::Workload, want, context, actions);
            }
            return;
        };
        if self.is_doomed() {
            return;
        }
        let target = || workload.meta.target.clone();
        let active = match want.phase {
            Phase::Suspend => workload.active.then_some(false),
            Phase::Run => {
                (!workload.active && workload.suspended_by_us && !context.held()).then_some(true)
            }
            Phase::Unspecified | Phase::Reserve | Phase::Absent => None,
        };
        let verb = if workload.fence_after != want.fence_after {
            Some(Verb::SetFence { target: target(), after: want.fence_after })
        } else {
            active.map(|active| Verb::SetActive { target: target(), active })
        };
        let runs = want.phase == Phase::Run && workload.active && !context.held();
        // It goes last, and nothing waits for it: what a class is worth is no reason to hold a job.
        let priority =
            priority_change(workload, want).filter(|it| self.refused_priority.as_ref() != Some(it));
        let priority = priority.map(|priority| Verb::SetPriority { target: target(), priority });
        let waits = verb.is_some();
        let gate = self.gate_to_open(want).map(|at| Verb::OpenGate { target: target(), at });
        if let Some(verb) = verb.or(gate).or(priority)
            && self.workload_slot.free(context.now)
        {
            let until =
                context.fence.filter(|_| matches!(verb, Verb::SetActive { active: true, .. }));
            self.start_until(Kind::Workload, verb, until, context.now, actions);
        }
        let Some(workload) = self.workload.as_ref().filter(|_| !waits) else { return };
        let follows = workload.follows || context.follows();
        let reserved = runs && !follows && verdict(workload).0 == State::Reserved;
        if reserved && self.is_unmade(want.attempt, context.payload.as_ref()) {
            self.plan_create(Kind::Job, want, context, actions);
        }
    }

    fn plan_create(
        &mut self,
        kind: Kind,
        want: &Want,
        context: &Context<'_>,
        actions: &mut Vec<Action>,
    ) {
        let slot = match kind {
            Kind::Workload => &self.workload_slot,
            Kind::Job => &self.job_slot,
        };
        let Some(payload) = context.payload.clone().filter(|_| slot.free(context.now)) else {
            return;
        };
        // The hub's Workload may be another by now than the one that ours was made for: the job goes by what is here.
        let there = self
            .workload
            .as_ref()
            .filter(|_| kind == Kind::Job)
            .map(|it| it.meta.target.name.clone());
        let name = there.unwrap_or_else(|| want.name.clone());
        let (namespace, attempt) = (want.namespace.clone(), want.attempt);
        let fence_after = want.fence_after;
        let gated = want.gate.is_some();
        let verb = Verb::Create { namespace, name, attempt, payload, fence_after, gated };
        let until = context.fence.filter(|_| kind == Kind::Job || context.follows());
        self.start_until(kind, verb, until, context.now, actions);
    }

    fn start(&mut self, kind: Kind, verb: Verb, now: Time, actions: &mut Vec<Action>) {
        self.start_until(kind, verb, None, now, actions);
    }

    fn start_until(
        &mut self,
        kind: Kind,
        verb: Verb,
        until: Option<Time>,
        now: Time,
        actions: &mut Vec<Action>,
    ) {
        match (kind, &verb) {
            (_, Verb::OpenGate { target, at }) => self.opens_gate(target, *at),
            (Kind::Workload, Verb::Delete { target, .. }) => self.doom(target),
            _ => {}
        }
        match kind {
            Kind::Workload => self.workload_slot.begin(&verb, now),
            Kind::Job => self.job_slot.begin(&verb, now),
        }
        actions.push(Action { workload_uid: self.uid.clone(), kind, verb, until });
    }
}

/// The priority that a Workload is to have, if it has another. As in Kueue, one that has no WorkloadPriorityClass keeps its
/// priority, and so does one that has ended.
fn priority_change(workload: &RemoteWorkload, want: &Want) -> Option<Priority> {
    let (has, wanted) = (workload.priority.as_ref()?, want.priority.as_ref()?);
    (has != wanted && workload.finished.is_none()).then(|| wanted.clone())
}

/// Why the assignment cannot be followed whatever the cluster looks like.
fn unfollowable(want: &Want, context: &Context<'_>) -> Option<Trouble> {
    if !context.namespace_allowed {
        let text = format!(
            "this cluster's agent does not let the hub use namespace {}; its administrator can add it to --allow-namespaces",
            want.namespace
        );
        return Some(Trouble::refused("NamespaceNotAllowed", text));
    }
    let payload = context.payload.as_ref()?;
    (payload.workload.is_empty() && payload.job.is_empty()).then(|| {
        let limit = switchyard_proto::MAX_PAYLOAD;
        Trouble::refused(
            "PayloadTooLarge",
            format!("Workload and job together are larger than {limit} bytes"),
        )
    })
}
