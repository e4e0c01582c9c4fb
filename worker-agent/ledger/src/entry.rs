//! One workload: its objects, what is being done to them, and what has become of it.

use std::collections::VecDeque;
use std::sync::Arc;

use switchyard_proto::v1::{JobTrouble, Observation, Phase, State};

use super::failing::Failing;
use super::model::{
    Action, Gate, Kind, Object, Origin, Outcome, Payload, Priority, RemoteJob, RemoteWorkload,
    Target, Time, Trouble, Verb,
};
use super::slot::Slot;
use super::verdict::REPLACED;
use super::want::Want;

/// A state from which an attempt does not come back, and whether the hub has persisted it.
#[derive(Clone, Debug)]
pub(super) struct Final {
    pub(super) observation: Observation,
    pub(super) settled: bool,
}

/// The statuses of the pods that a job's own controller has made.
#[derive(Clone, Debug)]
pub(super) struct Parts {
    /// For which attempt they were made.
    pub(super) attempt: u64,
    /// Their statuses.
    pub(super) status: Arc<[u8]>,
}

/// What is to be reported of a workload.
#[derive(Debug, Default)]
pub(super) struct Report {
    /// Not sent yet, oldest first. Neighbours differ in attempt or state.
    pub(super) queue: VecDeque<Observation>,
    /// The newest, queued or sent: attempt, state, and a hash over the rest.
    pub(super) latest: Option<(u64, State, u64)>,
    /// What was last said, in this session, of whether its job is there.
    pub(super) has_job: Option<bool>,
    /// When the newest of the queue came into it.
    pub(super) queued_at: Time,
    /// What the hub was last told in this session.
    pub(super) sent: Option<(u64, State)>,
    /// Whether it was told that more than once.
    pub(super) repeated: bool,
    /// Hashes of the statuses last sent in this session: job, Workload.
    pub(super) sent_status: (u64, u64),
    /// When that was.
    pub(super) sent_at: Time,
    /// Under which time the ledger has it listed as due.
    pub(super) due: Option<Time>,
}

/// One workload.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) uid: String,
    pub(super) workload: Option<RemoteWorkload>,
    pub(super) job: Option<RemoteJob>,
    /// What its last Workload was made of, once that is gone.
    origin: Option<Origin>,
    /// Where its copies are, or were last.
    pub(super) namespace: Option<String>,
    /// The statuses of its job's pods.
    pub(super) parts: Option<Parts>,
    pub(super) workload_slot: Slot,
    pub(super) job_slot: Slot,
    /// Why the assignment of this attempt cannot be followed, and of which object.
    pub(super) trouble: Option<(u64, Kind, Trouble)>,
    /// Creations that fail one after the other.
    pub(super) failing: Option<Failing>,
    /// Troubles that keep the job of this attempt from starting.
    pub(super) troubles: Option<(u64, Vec<JobTrouble>)>,
    /// The priority that this cluster has refused to give its Workload.
    pub(super) refused_priority: Option<Priority>,
    /// The Workload whose preemption gate was last opened, and when, as the hub had it. Closed since, it is not opened for that
    /// again; nor where this cluster has refused it.
    gate_opened: Option<(String, i64)>,
    /// The same, of what was asked for and may yet happen.
    gate_asked: Option<(String, i64)>,
    pub(super) end: Option<Final>,
    /// When the job was last seen to be gone.
    pub(super) job_gone: Option<Time>,
    /// The last Workload, and the last job, that were seen to be gone: a late answer does not bring them back.
    removed: [Option<String>; 2],
    /// The Workload, by uid, whose deletion was asked for. That may yet happen although it was not answered, and a watch that is
    /// behind shows the Workload as it was: its quota counts for nothing, and it is deleted whatever is wanted now.
    doomed: Option<String>,
    /// The attempt whose job went before it had ended.
    pub(super) lost: Option<u64>,
    /// Of a job of several objects: the payload that is known to have been made whole, and for which attempt.
    made: Option<(u64, Arc<Payload>)>,
    pub(super) report: Report,
    /// The ledger keeps it only for an end that the hub has not persisted.
    pub(super) is_kept: bool,
    /// Under which time the ledger has it listed to be looked at again.
    pub(super) wake: Option<Time>,
}

impl Entry {
    pub(super) fn new(uid: &str) -> Self {
        Self {
            uid: uid.to_owned(),
            workload: None,
            job: None,
            origin: None,
            namespace: None,
            parts: None,
            workload_slot: Slot::default(),
            job_slot: Slot::default(),
            trouble: None,
            failing: None,
            troubles: None,
            refused_priority: None,
            gate_opened: None,
            gate_asked: None,
            end: None,
            job_gone: None,
            removed: [None, None],
            doomed: None,
            lost: None,
            made: None,
            report: Report::default(),
            is_kept: false,
            wake: None,
        }
    }

    /// The greatest attempt of what is there.
    pub(super) fn attempt_there(&self) -> Option<u64> {
        let workload = self.workload.as_ref().map(|workload| workload.meta.attempt);
        let job = self.job.as_ref().map(|job| job.meta.attempt);
        workload.max(job)
    }

    /// For how long after the lease lapsed the job may run on: by the assignment, or, where there is none for what is
    /// there, by what an earlier one left on it.
    pub(super) fn fence_after(&self, want: Option<&Want>) -> Option<Time> {
        match want.filter(|want| self.attempt_there().is_none_or(|attempt| attempt <= want.attempt))
        {
            Some(want) => want.fence_after,
            None => self.workload.as_ref().and_then(|workload| workload.fence_after),
        }
    }

    /// The final state that the hub has not persisted yet. It goes before everything else.
    pub(super) fn unsettled(&self) -> Option<&Final> {
        self.end.as_ref().filter(|end| !end.settled)
    }

    /// The attempt of which nothing is left though the hub was told otherwise, or is about to be.
    pub(super) fn gone_unasked(&self) -> Option<u64> {
        let queued = self.report.queue.back().map(|last| (last.attempt, last.state()));
        let said = queued.or(self.report.sent).filter(|(_, state)| *state != State::Gone);
        said.filter(|_| self.is_gone()).map(|(attempt, _)| attempt)
    }

    /// Whether nothing is there, and nothing may yet come to be.
    pub(super) fn is_gone(&self) -> bool {
        let certain = self.workload_slot.certain() && self.job_slot.certain();
        self.attempt_there().is_none() && self.parts.is_none() && certain
    }

    /// Whether this attempt has ended for good.
    pub(super) fn ended(&self, attempt: u64) -> bool {
        self.end.as_ref().is_some_and(|end| end.observation.attempt >= attempt)
    }

    /// Whether the hub has persisted the end of this attempt.
    pub(super) fn settled(&self, attempt: u64) -> bool {
        self.end.as_ref().is_some_and(|end| end.settled && end.observation.attempt >= attempt)
    }

    /// Takes the state of an object over, unless a newer one is known. Whether it did.
    pub(super) fn apply(&mut self, object: Object) -> bool {
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
                    self.cure(Kind::Workload);
                    if self.workload.is_none() {
                        // It was looked for ever more slowly.
                        self.workload_slot.reset();
                    }
                    self.origin = None;
                    if let Some(at) = new.gate.and_then(|gate| gate.opened) {
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
                    // That some of its objects are there does not mean that the others could be made.
                    if !new.several {
                        self.cure(Kind::Job);
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

    /// The object of this uid is gone. Whether it was known.
    pub(super) fn remove(&mut self, kind: Kind, target: &Target, now: Time) -> bool {
        self.removed[slot(kind)] = Some(target.uid.clone());
        match kind {
            Kind::Workload => {
                let gone = self.workload.take_if(|workload| workload.meta.target.uid == target.uid);
                let Some(gone) = gone else { return false };
                self.origin = Some(gone.origin);
                true
            }
            Kind::Job => {
                let Some(job) = self.job.take_if(|job| job.meta.target.uid == target.uid) else {
                    return false;
                };
                self.job_gone = Some(now);
                if job.end.is_none() {
                    self.lost = Some(job.meta.attempt);
                }
                true
            }
        }
    }

    /// Since when its Workload's preemption gate is to be open, if the hub has opened it, it is closed, and that has not been done.
    pub(super) fn gate_to_open(&self, want: &Want) -> Option<i64> {
        let workload = self.workload.as_ref()?;
        let at = want.gate?.opened.filter(|_| want.phase == Phase::Reserve)?;
        let has_quota = workload.quota_reserved.as_ref().is_some_and(|reserved| reserved.is_true);
        let closed = workload.gate.is_some_and(|gate| gate.opened.is_none()) && !has_quota;
        let done = self
            .gate_opened
            .as_ref()
            .is_some_and(|(uid, done)| *uid == workload.meta.target.uid && *done == at);
        (closed && !done).then_some(at)
    }

    /// Its Workload's preemption gate is about to be opened.
    pub(super) fn opens_gate(&mut self, target: &Target, at: i64) {
        self.gate_asked = Some((target.uid.clone(), at));
    }

    /// How its Workload's preemption gate stands. One that may be open by now counts as open.
    pub(super) fn gate(&self) -> Option<Gate> {
        let workload = self.workload.as_ref()?;
        let asked = self.gate_asked.as_ref().filter(|_| self.gate_asked != self.gate_opened);
        let asked = asked.filter(|(uid, _)| *uid == workload.meta.target.uid).map(|(_, at)| *at);
        workload.gate.map(|gate| Gate { opened: gate.opened.or(asked), ..gate })
    }

    /// What its Workload was made of, also once that is gone.
    pub(super) fn made_of(&self) -> Option<&Origin> {
        self.workload.as_ref().map(|workload| &workload.origin).or(self.origin.as_ref())
    }

    /// What is to be shown of the job: what its pods say, where they are others' to make.
    pub(super) fn job_status(&self) -> Vec<u8> {
        let Some(job) = &self.job else { return Vec::new() };
        let parts = self.parts.as_ref().filter(|parts| parts.attempt == job.meta.attempt);
        parts.map_or_else(|| job.status.clone(), |parts| parts.status.to_vec())
    }

    /// A Workload is about to be deleted.
    pub(super) fn doom(&mut self, target: &Target) {
        self.doomed = Some(target.uid.clone());
    }

    /// Whether its Workload is being deleted, or may be.
    pub(super) fn is_doomed(&self) -> bool {
        let is = |workload: &RemoteWorkload| {
            workload.meta.deleting || self.doomed.as_ref() == Some(&workload.meta.target.uid)
        };
        self.workload.as_ref().is_some_and(is)
    }

    /// How an action went.
    pub(super) fn done(&mut self, action: &Action, outcome: Outcome, attempt: u64, now: Time) {
        if let (Verb::OpenGate { target, at }, Outcome::Object(_) | Outcome::Refused(_)) =
            (&action.verb, &outcome)
        {
            self.gate_opened = Some((target.uid.clone(), *at));
        }
        let answered =
            !matches!(outcome, Outcome::Failed(_) | Outcome::Rejected(_) | Outcome::Refused(_));
        let creates = matches!(action.verb, Verb::Create { .. });
        if let Verb::Reread { target } = &action.verb
            && answered
        {
            self.slot(action.kind).reread(&target.uid);
        }
        match outcome {
            Outcome::Object(object) => {
                match action.verb {
                    Verb::Find { .. } => self.slot(action.kind).found(),
                    _ => self.slot(action.kind).succeeded(),
                }
                if let (Kind::Job, Verb::Create { attempt, payload, .. }) =
                    (action.kind, &action.verb)
                {
                    self.cure(Kind::Job);
                    self.made = is_several(&object).then(|| (*attempt, payload.clone()));
                }
                self.apply(*object);
            }
            Outcome::Accepted => self.slot(action.kind).succeeded(),
            Outcome::Gone if matches!(action.verb, Verb::Find { .. }) => {
                self.slot(action.kind).not_found(now)
            }
            Outcome::Gone => {
                self.slot(action.kind).succeeded();
                if let Some(target) = action.verb.target() {
                    self.remove(action.kind, target, now);
                }
            }
            Outcome::Occupied { by } => {
                self.slot(action.kind).refused(now);
                let text = format!(
                    "the name is still taken by what was made for workload {by}; waiting for it to go"
                );
                self.trouble = Some((attempt, action.kind, Trouble::waiting("NameInUse", text)));
            }
            // What a class is worth here is no reason to run the job elsewhere, nor to keep its Workload busy.
            Outcome::Refused(trouble) => match &action.verb {
                Verb::SetPriority { priority, .. } => {
                    self.slot(action.kind).succeeded();
                    self.refused_priority = Some(priority.clone());
                }
                Verb::OpenGate { .. } => self.slot(action.kind).succeeded(),
                _ => {
                    // That nobody may look for it says nothing of whether it was made.
                    if creates {
                        self.slot(action.kind).refused(now);
                    } else {
                        self.slot(action.kind).failed(now);
                    }
                    self.trouble = Some((attempt, action.kind, trouble));
                }
            },
            Outcome::Rejected(why) if creates => {
                self.slot(action.kind).refused(now);
                self.creation_failed(action.kind, attempt, &why);
            }
            Outcome::Failed(why) if creates => {
                self.slot(action.kind).unanswered(now);
                self.creation_failed(action.kind, attempt, &why);
            }
            Outcome::Rejected(_) | Outcome::Failed(_) => self.slot(action.kind).failed(now),
        }
    }

    /// The object of this kind, if it is there.
    pub(super) fn target(&self, kind: Kind) -> Option<&Target> {
        match kind {
            Kind::Workload => self.workload.as_ref().map(|workload| &workload.meta.target),
            Kind::Job => self.job.as_ref().map(|job| &job.meta.target),
        }
    }

    pub(super) fn slot(&mut self, kind: Kind) -> &mut Slot {
        match kind {
            Kind::Workload => &mut self.workload_slot,
            Kind::Job => &mut self.job_slot,
        }
    }

    /// Whether the job is to be made of this payload: it is not there, or, of several objects, perhaps not all of them.
    pub(super) fn is_unmade(&self, attempt: u64, payload: Option<&Arc<Payload>>) -> bool {
        let Some(job) = &self.job else { return true };
        let whole =
            self.made.as_ref().is_some_and(|(of, made)| *of == attempt && Some(made) == payload);
        job.several && !job.broken && !job.meta.deleting && !whole
    }

    /// The object that could not be made is there.
    fn cure(&mut self, kind: Kind) {
        self.failing.take_if(|failing| failing.kind == kind);
        self.trouble.take_if(|(_, of, _)| *of == kind);
    }
}

fn is_several(object: &Object) -> bool {
    matches!(object, Object::Job(job) if job.several)
}

/// Where an object of this kind is among two.
fn slot(kind: Kind) -> usize {
    match kind {
        Kind::Workload => 0,
        Kind::Job => 1,
    }
}

/// Whether `new` is a later state than `old`: of the same object, or of another one that took its name, since versions
/// grow over all objects of a kind. A copy that somebody made under another name is not ours.
fn supersedes(old: &super::model::Meta, new: &super::model::Meta) -> bool {
    let same_name =
        old.target.name == new.target.name && old.target.namespace == new.target.namespace;
    same_name && (new.version == 0 || old.version == 0 || new.version > old.version)
}

/// Whether, of two slices of an elastic job, the job goes by `new`: that one has quota and the other has not, or had it before;
/// or the other is over because it was replaced.
fn takes_over(old: &RemoteWorkload, new: &RemoteWorkload) -> bool {
    let (Some(was), Some(is)) = (&old.slice, &new.slice) else { return false };
    let same = was.chain == is.chain
        && old.meta.attempt == new.meta.attempt
        && old.meta.target.namespace == new.meta.target.namespace
        && old.meta.target.name != new.meta.target.name;
    let follows = is.replaces.as_ref() == Some(&old.meta.target.name);
    same && (weight(new) > weight(old)
        || (follows && weight(new) == weight(old) && holds_quota(new)))
}

/// What speaks for a slice.
fn weight(workload: &RemoteWorkload) -> u8 {
    match &workload.finished {
        Some(finished) if finished.is_true && finished.reason == REPLACED => 0,
        _ => 1 + u8::from(holds_quota(workload)),
    }
}

fn holds_quota(workload: &RemoteWorkload) -> bool {
    workload.quota_reserved.as_ref().is_some_and(|reserved| reserved.is_true)
}

impl Verb {
    /// For the log.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Create { .. } => "create",
            Self::Find { .. } => "find",
            Self::Delete { .. } => "delete",
            Self::Release { .. } => "release",
            Self::SetActive { active: true, .. } => "activate",
            Self::SetActive { active: false, .. } => "deactivate",
            Self::SetFence { .. } => "record the fence of",
            Self::SetPriority { .. } => "set the priority of",
            Self::OpenGate { .. } => "open the preemption gate of",
            Self::Reread { .. } => "reread",
        }
    }

    /// The object it is about, if that is there already.
    pub fn target(&self) -> Option<&Target> {
        match self {
            Self::Create { .. } | Self::Find { .. } => None,
            Self::Delete { target, .. }
            | Self::Release { target, .. }
            | Self::SetActive { target, .. }
            | Self::SetFence { target, .. }
            | Self::SetPriority { target, .. }
            | Self::OpenGate { target, .. }
            | Self::Reread { target } => Some(target),
        }
    }
}
