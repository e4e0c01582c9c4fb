//! Plans the next actions for one workload.
//!
//! The rules, in this order:
//! 1. While the hub has not persisted a final state, the agent touches nothing.
//! 2. The agent deletes attempts lower than the desired one, and a tombstone's attempt.
//! 3. The agent never touches attempts higher than the desired one, or objects without an
//!    assignment.
//! 4. Only then the agent creates what is missing: first the Workload, and after its admission the
//!    job.
//!
//! If another client deletes a running job, the agent turns that into a foreground deletion,
//! whatever is desired.
//!
//! The agent stops a job whose fence is due, whatever is desired, and starts nothing that it would
//! have to stop at once. It records the fence on the Workload before it creates the job, for an
//! agent that restarts without a hub.

use std::sync::Arc;

use switchyard_proto::v1::{Payload, Phase, State};

use super::Entry;
use super::observe::has_no_pods;
use crate::actions::{Action, Rejection, Verb};
use crate::admission::admission_state;
use crate::desired::DesiredWorkload;
use crate::objects::{ObjectKind, Priority, RemoteJob, RemoteWorkload, Time};

/// How long the garbage collector may take to delete a Workload after its owner. Then the agent
/// does.
const OWNER_GRACE: Time = Time::from_secs(5);

/// The inputs of a plan, beside the entry itself.
pub(crate) struct PlanContext<'a> {
    pub(crate) desired: Option<&'a DesiredWorkload>,
    pub(crate) payload: Option<Arc<Payload>>,
    /// When the agent must stop the job unless the lease is renewed before.
    pub(crate) fence: Option<Time>,
    /// The fence became due, and the hub has not sent its complete desired state since.
    pub(crate) awaits_desired: bool,
    pub(crate) namespace_allowed: bool,
    pub(crate) now: Time,
}

impl PlanContext<'_> {
    fn is_fence_due(&self) -> bool {
        self.fence.is_some_and(|at| at <= self.now)
    }

    /// Whether another workload's job brings the pods, so that none is created.
    fn is_follower(&self) -> bool {
        self.payload.as_ref().is_some_and(|payload| payload.job.is_empty())
    }

    /// Whether no object of the workload may start.
    fn may_not_start(&self) -> bool {
        self.awaits_desired || self.is_fence_due()
    }
}

impl Entry {
    /// Returns the actions to start now, and marks their objects as busy.
    pub(crate) fn plan(&mut self, context: &PlanContext<'_>) -> Vec<Action> {
        let mut actions = Vec::new();
        for kind in [ObjectKind::Workload, ObjectKind::Job] {
            if self.target(kind).is_some() {
                self.slot(kind).expire_late_creation(context.now);
            }
        }
        self.plan_foreground_deletion(context.now, &mut actions);
        self.plan_fence(context, &mut actions);
        self.plan_reread(context.now, &mut actions);
        self.plan_finalizer_removal(context, &mut actions);
        match context.desired {
            Some(desired) if self.unpersisted_end().is_none() => {
                self.plan_teardown(desired, context.now, &mut actions);
                self.plan_creation(desired, context, &mut actions);
            }
            Some(_) => {}
            // A hub that lost its desired state decides by what exists.
            None => {
                self.plan_find(ObjectKind::Workload, u64::MAX, context.now, &mut actions);
                self.plan_find(ObjectKind::Job, u64::MAX, context.now, &mut actions);
            }
        }
        actions
    }

    /// When to plan again if nothing happens before.
    pub(crate) fn wakeup(&self, now: Time) -> Option<Time> {
        let grace = self
            .workload
            .as_ref()
            .and(self.job_gone)
            .map(|gone| gone + OWNER_GRACE)
            .filter(|at| *at > now);
        [self.workload_slot.next_wakeup(now), self.job_slot.next_wakeup(now), grace]
            .into_iter()
            .flatten()
            .min()
    }

    /// Removes the finalizer when the desired hub has persisted the end, or when the agent deletes
    /// an unfinished job.
    fn plan_finalizer_removal(&mut self, context: &PlanContext<'_>, actions: &mut Vec<Action>) {
        let Some((job, index)) =
            self.job.as_ref().and_then(|job| Some((job, job.meta.finalizer_index?)))
        else {
            return;
        };
        let ours = context
            .desired
            .is_some_and(|desired| job.meta.attempt <= desired.max_deleted_attempt());
        let release = match (&job.end, job.meta.deleting) {
            _ if self.unpersisted_end().is_some() => false,
            // Without an assignment, a hub that lost its store may still need the end: it learns it
            // when the job is applied again.
            (Some(_), _) => {
                context.desired.is_some()
                    && self.is_end_persisted(job.meta.attempt)
                    && !self.must_keep_name(context.now)
            }
            (None, true) => ours || self.is_end_persisted(job.meta.attempt),
            (None, false) => false,
        };
        if release && self.job_slot.is_free(context.now) {
            let verb = Verb::RemoveFinalizer { target: job.meta.target.clone(), index };
            self.start(ObjectKind::Job, verb, context.now, actions);
        }
    }

    /// Whether an ended job must keep its name for now: an unanswered creation would create another
    /// job, which would run, once the name is free.
    fn must_keep_name(&self, now: Time) -> bool {
        self.job.as_ref().is_some_and(|job| job.end.is_some())
            && self.job_slot.may_be_created_again(now)
    }

    /// Reads an object again that a list did not contain.
    fn plan_reread(&mut self, now: Time, actions: &mut Vec<Action>) {
        for kind in [ObjectKind::Workload, ObjectKind::Job] {
            let Some(target) = self.target(kind).cloned() else { continue };
            if self.slot(kind).must_reread(&target.uid, now) {
                self.start(kind, Verb::Reread { target }, now, actions);
            }
        }
    }

    /// Turns another client's deletion of a running job into a foreground deletion.
    ///
    /// A background deletion removes the job before its pods. Then it is unknown when the pods are
    /// gone, and no fence stops them: the job's controller ignores a job that is being deleted.
    fn plan_foreground_deletion(&mut self, now: Time, actions: &mut Vec<Action>) {
        let outlives_pods =
            |job: &&RemoteJob| job.meta.deleting && job.end.is_none() && !has_no_pods(job);
        let Some(target) =
            self.job.as_ref().filter(outlives_pods).map(|job| job.meta.target.clone())
        else {
            return;
        };
        if self.job_slot.is_free(now) && !self.job_slot.was_deleted_recently(&target.uid, now) {
            self.start(ObjectKind::Job, Verb::Delete { target, foreground: true }, now, actions);
        }
    }

    /// Deactivates a Workload whose fence is due, if its job may run, or an unanswered creation may
    /// have created it.
    fn plan_fence(&mut self, context: &PlanContext<'_>, actions: &mut Vec<Action>) {
        let may_run =
            self.job.as_ref().map_or(!self.job_slot.is_certain(), |job| job.end.is_none());
        let Some(workload) = self.workload.as_ref().filter(|it| it.active && !it.meta.deleting)
        else {
            return;
        };
        if context.is_fence_due()
            && (may_run || workload.is_follower)
            && self.workload_slot.is_free(context.now)
        {
            let verb = Verb::SetActive { target: workload.meta.target.clone(), active: false };
            self.start(ObjectKind::Workload, verb, context.now, actions);
        }
    }

    fn plan_teardown(&mut self, desired: &DesiredWorkload, now: Time, actions: &mut Vec<Action>) {
        let limit = desired.max_deleted_attempt();
        self.plan_find(ObjectKind::Workload, limit, now, actions);
        self.plan_find(ObjectKind::Job, limit, now, actions);
        let must_keep_name = self.must_keep_name(now);
        if let Some(job) =
            self.job.as_ref().filter(|job| job.meta.attempt <= limit && !job.meta.deleting)
            && !must_keep_name
            && self.job_slot.is_free(now)
            && !self.job_slot.was_deleted_recently(&job.meta.target.uid, now)
        {
            // A job that may run stays until its pods are gone, because GONE means that nothing
            // runs.
            let verb =
                Verb::Delete { target: job.meta.target.clone(), foreground: job.end.is_none() };
            self.start(ObjectKind::Job, verb, now, actions);
        }
        let goes = |it: &&RemoteWorkload| {
            (it.meta.attempt <= limit || self.is_being_deleted()) && !it.meta.deleting
        };
        let Some(workload) = self.workload.as_ref().filter(goes) else { return };
        let follows = match &self.job {
            // The garbage collector deletes a Workload with the job that owns it. The quota of a
            // job that may run stays until the job is gone.
            Some(job) => {
                let runs = job.end.is_none() && job.meta.attempt <= limit;
                runs || (workload.meta.owners.contains(&job.meta.target.uid) && !must_keep_name)
            }
            None => {
                !workload.meta.owners.is_empty()
                    && self.job_gone.is_some_and(|gone| now < gone + OWNER_GRACE)
            }
        };
        let sent = self.workload_slot.was_deleted_recently(&workload.meta.target.uid, now);
        if !follows && !sent && self.workload_slot.is_free(now) {
            let verb = Verb::Delete { target: workload.meta.target.clone(), foreground: false };
            self.start(ObjectKind::Workload, verb, now, actions);
        }
    }

    /// Looks for the object of an unanswered creation, for attempts up to `limit`.
    fn plan_find(&mut self, kind: ObjectKind, limit: u64, now: Time, actions: &mut Vec<Action>) {
        let (slot, there) = match kind {
            ObjectKind::Workload => (&self.workload_slot, self.workload.is_some()),
            ObjectKind::Job => (&self.job_slot, self.job.is_some()),
        };
        let lost = |verb: &Verb| matches!(verb, Verb::Find { attempt, .. } if *attempt <= limit);
        if let Some(search) = slot.find_verb().filter(lost).filter(|_| !there && slot.is_free(now))
        {
            self.start(kind, search, now, actions);
        }
    }

    fn plan_creation(
        &mut self,
        desired: &DesiredWorkload,
        context: &PlanContext<'_>,
        actions: &mut Vec<Action>,
    ) {
        let others = self.observed_attempt().is_some_and(|attempt| attempt > desired.attempt)
            || self
                .workload
                .as_ref()
                .is_some_and(|workload| workload.meta.attempt != desired.attempt)
            || self.job.as_ref().is_some_and(|job| job.meta.attempt != desired.attempt);
        let over = self.has_ended(desired.attempt) || self.lost_attempt == Some(desired.attempt);
        if desired.phase == Phase::Absent || others || over {
            return;
        }
        if let Some(rejection) = standing_rejection(desired, context) {
            self.rejection = Some((desired.attempt, ObjectKind::Workload, rejection));
            return;
        }
        let Some(workload) = &self.workload else {
            // If there is a job, another client deleted its Workload. The observation reports that, or
            // the job's end. A follower starts pods by itself, so it must not be created after its fence.
            if self.job.is_none() && !(context.is_follower() && context.may_not_start()) {
                self.plan_create(ObjectKind::Workload, desired, context, actions);
            }
            return;
        };
        if self.is_being_deleted() {
            return;
        }
        let target = || workload.meta.target.clone();
        let active = match desired.phase {
            Phase::Suspend => workload.active.then_some(false),
            Phase::Run => {
                (!workload.active && workload.suspended_by_agent && !context.may_not_start())
                    .then_some(true)
            }
            Phase::Unspecified | Phase::Reserve | Phase::Absent => None,
        };
        let verb = if workload.fence_after != desired.fence_after {
            Some(Verb::SetFence { target: target(), after: desired.fence_after })
        } else {
            active.map(|active| Verb::SetActive { target: target(), active })
        };
        let runs = desired.phase == Phase::Run && workload.active && !context.may_not_start();
        // The priority comes last, so that it does not delay the job.
        let priority = priority_change(workload, desired)
            .filter(|it| self.refused_priority.as_ref() != Some(it));
        let priority = priority.map(|priority| Verb::SetPriority { target: target(), priority });
        let waits = verb.is_some();
        let gate = self.gate_to_open(desired).map(|at| Verb::OpenGate { target: target(), at });
        if let Some(verb) = verb.or(gate).or(priority)
            && self.workload_slot.is_free(context.now)
        {
            let deadline =
                context.fence.filter(|_| matches!(verb, Verb::SetActive { active: true, .. }));
            self.start_before(ObjectKind::Workload, verb, deadline, context.now, actions);
        }
        let Some(workload) = self.workload.as_ref().filter(|_| !waits) else { return };
        let follows = workload.is_follower || context.is_follower();
        let reserved = runs && !follows && admission_state(workload).0 == State::Reserved;
        if reserved && self.must_create_job(desired.attempt, context.payload.as_ref()) {
            self.plan_create(ObjectKind::Job, desired, context, actions);
        }
    }

    fn plan_create(
        &mut self,
        kind: ObjectKind,
        desired: &DesiredWorkload,
        context: &PlanContext<'_>,
        actions: &mut Vec<Action>,
    ) {
        let slot = match kind {
            ObjectKind::Workload => &self.workload_slot,
            ObjectKind::Job => &self.job_slot,
        };
        let Some(payload) = context.payload.clone().filter(|_| slot.is_free(context.now)) else {
            return;
        };
        // The hub may have replaced its Workload since this one was created. The job refers to this
        // one.
        let there = self
            .workload
            .as_ref()
            .filter(|_| kind == ObjectKind::Job)
            .map(|it| it.meta.target.name.clone());
        let name = there.unwrap_or_else(|| desired.name.clone());
        let (namespace, attempt) = (desired.namespace.clone(), desired.attempt);
        let fence_after = desired.fence_after;
        let gated = desired.gate.is_some();
        let pins = desired.pins.clone();
        let verb = Verb::Create { namespace, name, attempt, payload, fence_after, gated, pins };
        let deadline = context.fence.filter(|_| kind == ObjectKind::Job || context.is_follower());
        self.start_before(kind, verb, deadline, context.now, actions);
    }

    fn start(&mut self, kind: ObjectKind, verb: Verb, now: Time, actions: &mut Vec<Action>) {
        self.start_before(kind, verb, None, now, actions);
    }

    fn start_before(
        &mut self,
        kind: ObjectKind,
        verb: Verb,
        deadline: Option<Time>,
        now: Time,
        actions: &mut Vec<Action>,
    ) {
        match (kind, &verb) {
            (_, Verb::OpenGate { target, at }) => self.note_gate_requested(target, *at),
            (ObjectKind::Workload, Verb::Delete { target, .. }) => self.mark_deleted(target),
            _ => {}
        }
        match kind {
            ObjectKind::Workload => self.workload_slot.begin(&verb, now),
            ObjectKind::Job => self.job_slot.begin(&verb, now),
        }
        actions.push(Action { workload_uid: self.uid.clone(), kind, verb, deadline });
    }
}

/// The priority to set, if the Workload has another. As in Kueue, a Workload keeps its priority if
/// it has no WorkloadPriorityClass, or if it has finished.
fn priority_change(workload: &RemoteWorkload, desired: &DesiredWorkload) -> Option<Priority> {
    let (has, wanted) = (workload.priority.as_ref()?, desired.priority.as_ref()?);
    (has != wanted && workload.finished.is_none()).then(|| wanted.clone())
}

/// Why the assignment cannot be carried out, whatever the cluster's state.
fn standing_rejection(desired: &DesiredWorkload, context: &PlanContext<'_>) -> Option<Rejection> {
    if !context.namespace_allowed {
        let text = format!(
            "this cluster's agent does not let the hub use namespace {}; its administrator can add it to --allow-namespaces",
            desired.namespace
        );
        return Some(Rejection::refused("NamespaceNotAllowed", text));
    }
    let payload = context.payload.as_ref()?;
    (payload.workload.is_empty() && payload.job.is_empty()).then(|| {
        let limit = switchyard_proto::MAX_PAYLOAD;
        Rejection::refused(
            "PayloadTooLarge",
            format!("Workload and job together are larger than {limit} bytes"),
        )
    })
}
