//! The state of one workload: its objects, the running actions, and what became of its attempts.

mod failing;
mod observe;
mod outcome;
mod plan;
mod report;

use std::sync::Arc;

use switchyard_proto::v1::{
    JobTrouble, Observation, Origin, Payload, Phase, PreemptionGate, State,
};

use self::failing::Failing;
pub(crate) use self::plan::PlanContext;
use self::report::Report;
pub(crate) use self::report::{content, has_job};
use crate::action_slot::ActionSlot;
use crate::actions::Rejection;
use crate::admission::{REPLACED, admission_state};
use crate::desired::DesiredWorkload;
use crate::objects::{Meta, Object, ObjectKind, Priority, RemoteJob, RemoteWorkload, Target, Time};

/// A final observation of an attempt, and whether the hub has persisted it.
#[derive(Clone, Debug)]
pub(crate) struct EndedAttempt {
    pub(crate) observation: Observation,
    pub(crate) persisted: Persisted,
    /// Uid of the job that there was.
    pub(crate) job: Option<String>,
}

/// Whether the hub has persisted an end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Persisted {
    No,
    /// The hub may have lost it since, with its store.
    InEarlierSession,
    InThisSession,
}

impl EndedAttempt {
    pub(crate) fn is_persisted(&self) -> bool {
        self.persisted != Persisted::No
    }

    /// Records a report of the end. Returns whether the hub has to persist it.
    ///
    /// The hub may have lost the end since. So it has to persist the first report of a session
    /// again, and an order that crosses that report does not run the attempt again.
    pub(crate) fn note_reported(&mut self) -> bool {
        if self.persisted == Persisted::InEarlierSession {
            self.persisted = Persisted::No;
        }
        !self.is_persisted()
    }

    pub(crate) fn forget_session(&mut self) {
        if self.persisted == Persisted::InThisSession {
            self.persisted = Persisted::InEarlierSession;
        }
    }
}

/// The statuses of the pods that a job's own controller created.
#[derive(Clone, Debug)]
pub(crate) struct PodStatuses {
    /// The attempt in the pods' marks.
    pub(crate) attempt: u64,
    /// JSON.
    pub(crate) status: Arc<[u8]>,
}

/// Reported when the last pod is gone, so that the hub clears its pods.
const NO_PODS: &[u8] = br#"{"pods":{}}"#;

/// One workload.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) uid: String,
    pub(crate) workload: Option<RemoteWorkload>,
    pub(crate) job: Option<RemoteJob>,
    /// The origin of its last Workload, after that was deleted.
    origin: Option<Origin>,
    /// The namespace of its objects, or of its last ones.
    pub(crate) namespace: Option<String>,
    /// The pod statuses in that namespace.
    pod_statuses: Option<PodStatuses>,
    /// The last attempt with pods, as far as this process has seen.
    last_with_pods: Option<u64>,
    pub(crate) workload_slot: ActionSlot,
    pub(crate) job_slot: ActionSlot,
    /// Why this attempt's assignment cannot be carried out, and for which object.
    pub(crate) rejection: Option<(u64, ObjectKind, Rejection)>,
    /// Failures in a row to create an object.
    pub(crate) failing: Option<Failing>,
    /// The causes that keep the job of this attempt from starting.
    pub(crate) job_troubles: Option<(u64, Vec<JobTrouble>)>,
    /// The attempt whose pods were examined, and none of which is ready.
    pub(crate) no_ready_pod: Option<u64>,
    /// The priority that this cluster refused to set on its Workload.
    pub(crate) refused_priority: Option<Priority>,
    /// The Workload whose preemption gate was last opened, and the hub's time of that. The agent
    /// opens the gate once for each time, even if it was refused or the gate was closed again.
    gate_opened: Option<(String, i64)>,
    /// As `gate_opened`, for a request whose outcome is not known.
    gate_requested: Option<(String, i64)>,
    pub(crate) end: Option<EndedAttempt>,
    /// When the job was last observed to be deleted.
    pub(crate) job_gone: Option<Time>,
    /// The attempt whose Workload was deleted after it had shown the job's end.
    finished_before_job: Option<u64>,
    /// The last deleted Workload and job. A late answer does not bring them back.
    removed: [Option<String>; 2],
    /// The uid of the Workload for which a deletion was sent.
    ///
    /// The deletion may take effect even if unanswered, and the watch may lag behind it. So no job
    /// starts on this Workload's quota, and the agent deletes it whatever the desired state
    /// becomes.
    deleted_workload: Option<String>,
    /// The attempt whose job was deleted before it had ended.
    pub(crate) lost_attempt: Option<u64>,
    /// For a job of several objects: the attempt and payload whose objects all exist.
    complete_group: Option<(u64, Arc<Payload>)>,
    pub(crate) report: Report,
    /// Whether the ledger keeps this entry only because the hub has not persisted its end.
    pub(crate) is_kept_for_end: bool,
    /// The time of this entry in the ledger's `wakeups`.
    pub(crate) wake: Option<Time>,
}

impl Entry {
    pub(crate) fn new(uid: &str) -> Self {
        Self {
            uid: uid.to_owned(),
            workload: None,
            job: None,
            origin: None,
            namespace: None,
            pod_statuses: None,
            last_with_pods: None,
            workload_slot: ActionSlot::default(),
            job_slot: ActionSlot::default(),
            rejection: None,
            failing: None,
            job_troubles: None,
            no_ready_pod: None,
            refused_priority: None,
            gate_opened: None,
            gate_requested: None,
            end: None,
            job_gone: None,
            finished_before_job: None,
            removed: [None, None],
            deleted_workload: None,
            lost_attempt: None,
            complete_group: None,
            report: Report::default(),
            is_kept_for_end: false,
            wake: None,
        }
    }

    /// The highest attempt among its objects.
    pub(crate) fn observed_attempt(&self) -> Option<u64> {
        let workload = self.workload.as_ref().map(|workload| workload.meta.attempt);
        let job = self.job.as_ref().map(|job| job.meta.attempt);
        workload.max(job)
    }

    /// The fence of its job: how long it may run after the lease expires. The assignment sets it,
    /// and in its absence the record on the Workload.
    pub(crate) fn fence_after(&self, desired: Option<&DesiredWorkload>) -> Option<Time> {
        match desired.filter(|desired| {
            self.observed_attempt().is_none_or(|attempt| attempt <= desired.attempt)
        }) {
            Some(desired) => desired.fence_after,
            None => self.workload.as_ref().and_then(|workload| workload.fence_after),
        }
    }

    /// The final state that the hub has not persisted yet. It takes precedence over everything
    /// else.
    pub(crate) fn unpersisted_end(&self) -> Option<&EndedAttempt> {
        self.end.as_ref().filter(|end| !end.is_persisted())
    }

    /// The attempt whose objects are all gone, although the last report, sent or queued, says
    /// otherwise.
    pub(crate) fn vanished_attempt(&self) -> Option<u64> {
        let queued = self.report.queue.back().map(|last| (last.attempt, last.state()));
        let said = queued.or(self.report.sent).filter(|(_, state)| *state != State::Gone);
        said.filter(|_| self.is_gone()).map(|(attempt, _)| attempt)
    }

    /// Whether no object exists, and none may still appear.
    pub(crate) fn is_gone(&self) -> bool {
        let certain = self.workload_slot.is_certain() && self.job_slot.is_certain();
        self.observed_attempt().is_none() && self.pod_statuses.is_none() && certain
    }

    pub(crate) fn has_ended(&self, attempt: u64) -> bool {
        self.end.as_ref().is_some_and(|end| end.observation.attempt >= attempt)
    }

    /// Whether the hub has persisted the end of this attempt.
    pub(crate) fn is_end_persisted(&self, attempt: u64) -> bool {
        self.end
            .as_ref()
            .is_some_and(|end| end.is_persisted() && end.observation.attempt >= attempt)
            && !self.has_ended_after_removal()
    }

    /// Whether a job was reported as removed, was created again by a late creation, and has ended.
    ///
    /// The hub must learn of the end, or it would run the job again. If it has the report of the
    /// removal, the end of the removed job itself no longer counts. The agent cannot tell
    /// a pod group that was created again from the removed one.
    pub(crate) fn has_ended_after_removal(&self) -> bool {
        let removed = self.end.as_ref().filter(|it| it.observation.state() == State::Evicted);
        let job = self.job.as_ref().filter(|job| job.end.is_some());
        removed.zip(job).is_some_and(|(removed, job)| {
            let is_other = removed.job.as_deref() != Some(&*job.meta.target.uid);
            removed.observation.attempt == job.meta.attempt && (!removed.is_persisted() || is_other)
        })
    }

    /// Applies the state of an object unless a newer one is known. Returns whether it did.
    pub(crate) fn apply(&mut self, object: Object) -> bool {
        if self.removed[slot(object.kind())].as_ref() == Some(&object.meta().target.uid) {
            return false;
        }
        let namespace = object.meta().target.namespace.clone();
        let newer = self.apply_newer(object);
        if newer {
            self.namespace = Some(namespace);
        }
        newer
    }

    fn apply_newer(&mut self, object: Object) -> bool {
        match object {
            Object::Workload(new) => {
                let newer = match &self.workload {
                    Some(old) => supersedes(&old.meta, &new.meta) || takes_over(old, &new),
                    None => true,
                };
                if newer {
                    self.clear_failure(ObjectKind::Workload);
                    if self.workload.is_none() {
                        // Searches for it had become slow.
                        self.workload_slot.reset();
                    }
                    (self.origin, self.finished_before_job) = (None, None);
                    if let Some(at) = new.gate.and_then(|gate| gate.opened_at()) {
                        self.gate_opened = Some((new.meta.target.uid.clone(), at));
                    }
                    self.workload = Some(new);
                }
                newer
            }
            Object::Job(new) => {
                let newer = match &self.job {
                    Some(old) => supersedes(&old.meta, &new.meta),
                    None => true,
                };
                if newer {
                    // Other objects of the job may still be missing.
                    if !new.may_change {
                        self.clear_failure(ObjectKind::Job);
                    }
                    if self.job.is_none() {
                        self.job_slot.reset();
                    }
                    self.job = Some(new);
                }
                newer
            }
        }
    }

    /// Removes the object of this uid. Returns whether it was known.
    pub(crate) fn remove(&mut self, kind: ObjectKind, target: &Target, now: Time) -> bool {
        self.removed[slot(kind)] = Some(target.uid.clone());
        match kind {
            ObjectKind::Workload => {
                let gone = self.workload.take_if(|workload| workload.meta.target.uid == target.uid);
                let Some(gone) = gone else { return false };
                let has_ended =
                    matches!(admission_state(&gone).0, State::Succeeded | State::Failed);
                self.finished_before_job = has_ended.then_some(gone.meta.attempt);
                self.origin = Some(gone.origin);
                true
            }
            ObjectKind::Job => {
                let Some(job) = self.job.take_if(|job| job.meta.target.uid == target.uid) else {
                    return false;
                };
                self.job_gone = Some(now);
                if job.end.is_none() {
                    self.lost_attempt = Some(job.meta.attempt);
                }
                true
            }
        }
    }

    /// The hub's time of opening, if the hub opened the preemption gate and the agent still has to
    /// open it on the Workload.
    pub(crate) fn gate_to_open(&self, desired: &DesiredWorkload) -> Option<i64> {
        let workload = self.workload.as_ref()?;
        let at = desired.gate?.opened_at().filter(|_| desired.phase == Phase::Reserve)?;
        let has_quota = workload.quota_reserved.as_ref().is_some_and(|reserved| reserved.is_true);
        let closed = workload.gate.is_some_and(|gate| gate.opened.is_none()) && !has_quota;
        let done = self
            .gate_opened
            .as_ref()
            .is_some_and(|(uid, done)| *uid == workload.meta.target.uid && *done == at);
        (closed && !done).then_some(at)
    }

    pub(crate) fn note_gate_requested(&mut self, target: &Target, at: i64) {
        self.gate_requested = Some((target.uid.clone(), at));
    }

    /// The state of its Workload's preemption gate. A gate that may be open by now counts as open.
    pub(crate) fn gate(&self) -> Option<PreemptionGate> {
        let workload = self.workload.as_ref()?;
        let asked =
            self.gate_requested.as_ref().filter(|_| self.gate_requested != self.gate_opened);
        let asked = asked.filter(|(uid, _)| *uid == workload.meta.target.uid).map(|(_, at)| *at);
        workload
            .gate
            .map(|gate| PreemptionGate::new(gate.opened_at().or(asked), gate.blocked_since()))
    }

    /// The origin of its Workload, even after that was deleted.
    pub(crate) fn known_origin(&self) -> Option<&Origin> {
        self.workload.as_ref().map(|workload| &workload.origin).or(self.origin.as_ref())
    }

    pub(crate) fn set_pod_statuses(&mut self, statuses: Option<PodStatuses>) {
        self.last_with_pods = self.last_with_pods.max(statuses.as_ref().map(|it| it.attempt));
        self.pod_statuses = statuses;
    }

    /// The job status to report: the pods' statuses where a controller of the cluster creates the
    /// pods, also when the last pod is gone.
    pub(crate) fn job_status(&self) -> Vec<u8> {
        let Some(job) = &self.job else { return Vec::new() };
        let statuses = self.pod_statuses.as_ref().filter(|it| it.attempt == job.meta.attempt);
        match statuses {
            Some(statuses) => statuses.status.to_vec(),
            None if self.last_with_pods == Some(job.meta.attempt) => NO_PODS.to_vec(),
            None => job.status.clone(),
        }
    }

    pub(crate) fn mark_deleted(&mut self, target: &Target) {
        self.deleted_workload = Some(target.uid.clone());
    }

    /// Whether its Workload is being deleted, or may be.
    pub(crate) fn is_being_deleted(&self) -> bool {
        let is = |workload: &RemoteWorkload| {
            workload.meta.deleting
                || self.deleted_workload.as_ref() == Some(&workload.meta.target.uid)
        };
        self.workload.as_ref().is_some_and(is)
    }

    pub(crate) fn target(&self, kind: ObjectKind) -> Option<&Target> {
        match kind {
            ObjectKind::Workload => self.workload.as_ref().map(|workload| &workload.meta.target),
            ObjectKind::Job => self.job.as_ref().map(|job| &job.meta.target),
        }
    }

    pub(crate) fn slot(&mut self, kind: ObjectKind) -> &mut ActionSlot {
        match kind {
            ObjectKind::Workload => &mut self.workload_slot,
            ObjectKind::Job => &mut self.job_slot,
        }
    }

    /// Whether the job has to be created from this payload: it does not exist, or some of its
    /// objects may be missing.
    pub(crate) fn must_create_job(&self, attempt: u64, payload: Option<&Arc<Payload>>) -> bool {
        let Some(job) = &self.job else { return true };
        let whole = self
            .complete_group
            .as_ref()
            .is_some_and(|(of, made)| *of == attempt && Some(made) == payload);
        job.may_change && !job.has_lost_member && !job.meta.deleting && !whole
    }

    /// Forgets earlier failures for an object that exists now.
    fn clear_failure(&mut self, kind: ObjectKind) {
        self.failing.take_if(|failing| failing.kind == kind);
        self.rejection.take_if(|(_, of, _)| *of == kind);
    }
}

/// The index of an object kind in [`Entry::removed`].
fn slot(kind: ObjectKind) -> usize {
    match kind {
        ObjectKind::Workload => 0,
        ObjectKind::Job => 1,
    }
}

/// Whether `new` is a later state than `old`: of the same object, or of a new object with its name.
/// Versions grow over all objects of a kind. An object with another name is a forgery.
fn supersedes(old: &Meta, new: &Meta) -> bool {
    let same_name =
        old.target.name == new.target.name && old.target.namespace == new.target.namespace;
    same_name && (new.version == 0 || old.version == 0 || new.version > old.version)
}

/// Whether `new` replaces `old` as the Workload of an elastic job: `new` has quota and `old` has
/// none, or `old` had it before, or `old` has finished because it was replaced.
fn takes_over(old: &RemoteWorkload, new: &RemoteWorkload) -> bool {
    let (Some(was), Some(is)) = (&old.slice, &new.slice) else { return false };
    let same = was.chain == is.chain
        && old.meta.attempt == new.meta.attempt
        && old.meta.target.namespace == new.meta.target.namespace
        && old.meta.target.name != new.meta.target.name;
    let follows = is.replaces.as_ref() == Some(&old.meta.target.name);
    same && (slice_rank(new) > slice_rank(old)
        || (follows && slice_rank(new) == slice_rank(old) && holds_quota(new)))
}

/// Orders the Workloads of an elastic job: replaced, then without quota, then with quota.
fn slice_rank(workload: &RemoteWorkload) -> u8 {
    match &workload.finished {
        Some(finished) if finished.is_true && finished.reason == REPLACED => 0,
        _ => 1 + u8::from(holds_quota(workload)),
    }
}

fn holds_quota(workload: &RemoteWorkload) -> bool {
    workload.quota_reserved.as_ref().is_some_and(|reserved| reserved.is_true)
}
