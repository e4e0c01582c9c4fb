//! What one workload's state is, as the hub is told.

use switchyard_proto::DELETED_ON_WORKER;
use switchyard_proto::v1::{self, Observation, Phase, Reason, State};

use super::entry::Entry;
use super::model::{JobEnd, Origin, RemoteJob, RemoteWorkload};
use super::verdict::{REPLACED, verdict};
use super::want::Want;

/// A state, why, and whether this attempt can never leave it.
struct Verdict {
    attempt: u64,
    state: State,
    reasons: Vec<Reason>,
    is_final: bool,
}

impl Entry {
    /// The state now; none while there is nothing (new) to say. Remembers a final one.
    pub(super) fn observe(&mut self, want: Option<&Want>) -> Option<Observation> {
        let outlived = self.has_outlived_its_removal();
        if let Some(end) = self.unsettled().filter(|_| !outlived) {
            let origin = if want.is_none() { self.origin() } else { None };
            return Some(Observation { origin, ..end.observation.clone() });
        }
        let verdict = self.verdict(want)?;
        let observation = self.observation(&verdict, want);
        let known = self.ended(verdict.attempt);
        if verdict.is_final && (!known || outlived) {
            self.end =
                Some(super::entry::Final { observation: observation.clone(), settled: false });
        }
        Some(observation)
    }

    /// Whether a job that is to be said to have been removed was made once more, by a creation that came late, and has ended: the
    /// hub has not persisted the one, and must not have the job run again.
    fn has_outlived_its_removal(&self) -> bool {
        let removed =
            self.unsettled().map(|end| &end.observation).filter(|it| it.state() == State::Evicted);
        let job = self.job.as_ref().filter(|job| job.end.is_some());
        removed.zip(job).is_some_and(|(removed, job)| removed.attempt == job.meta.attempt)
    }

    /// The state for an inventory. It names what is being torn down, too, and what may yet come to be: for a hub that has
    /// just begun, what an inventory lacks is not there. It always says what the objects were made of: that hub may not know
    /// what an earlier one asked for.
    pub(super) fn stock(&mut self, want: Option<&Want>) -> Option<Observation> {
        let observation = self.observe(want).or_else(|| self.unfinished(want))?;
        Some(Observation { origin: self.origin(), ..observation })
    }

    /// The state of what is being torn down or made, of which there is nothing to say otherwise.
    fn unfinished(&self, want: Option<&Want>) -> Option<Observation> {
        let creating = self.workload_slot.creating().max(self.job_slot.creating());
        let attempt = self.attempt_there().or(creating)?;
        let is = |state| Verdict { attempt, state, reasons: Vec::new(), is_final: false };
        let verdict = match &self.job {
            // Whoever persisted it may have forgotten it since.
            Some(RemoteJob { end: Some(end), meta, .. }) if meta.attempt == attempt => {
                ended(attempt, end)
            }
            // Until it is gone it may run.
            Some(_) => is(State::Running),
            None => is(State::Waiting),
        };
        Some(self.observation(&verdict, want))
    }

    fn verdict(&self, want: Option<&Want>) -> Option<Verdict> {
        let there = self.attempt_there();
        if let Some(job) = &self.job
            && let Some(end) = &job.end
            && !self.settled(job.meta.attempt)
        {
            return Some(ended(job.meta.attempt, end));
        }
        if self
            .job
            .as_ref()
            .map(|job| job.meta.attempt)
            .is_some_and(|attempt| Some(attempt) < there)
        {
            // Left of an earlier attempt, or the late news of it. To speak of the later one says that it is gone.
            return None;
        }
        let Some(want) = want else {
            return there
                .map(|attempt| self.unasked(attempt))
                .or_else(|| self.gone_unasked().map(gone));
        };
        if self.lost == Some(want.attempt)
            && want.phase != Phase::Absent
            && !self.ended(want.attempt)
        {
            let deleted =
                deleted(want.attempt, "the job was removed on the worker before it had ended");
            // A creation of it that was not answered may make it once more, and that one may end.
            return Some(Verdict { is_final: self.job_slot.creating().is_none(), ..deleted });
        }
        match there {
            Some(attempt) if attempt > want.attempt => Some(self.unasked(attempt)),
            // Being torn down; the next to say is that it is gone.
            Some(attempt) if attempt <= want.teardown() => None,
            None if want.phase == Phase::Absent => {
                let certain = self.workload_slot.certain() && self.job_slot.certain();
                certain.then(|| gone(want.attempt))
            }
            _ if self.ended(want.attempt) => {
                let end = self.end.as_ref()?;
                let Observation { attempt, reasons, .. } = end.observation.clone();
                Some(Verdict { attempt, state: end.observation.state(), reasons, is_final: true })
            }
            _ => match self.trouble.as_ref().filter(|(attempt, ..)| *attempt == want.attempt) {
                Some((attempt, _, trouble)) => Some(Verdict {
                    attempt: *attempt,
                    state: trouble.state,
                    reasons: vec![trouble.reason()],
                    is_final: false,
                }),
                None => there.map(|attempt| self.derive(attempt, want.phase)),
            },
        }
    }

    /// Of what nobody asks for. Nothing is done to it, so that a job whose Workload is gone runs until its controller stops it:
    /// a hub that has forgotten it must not take it for one that is over.
    fn unasked(&self, attempt: u64) -> Verdict {
        match (&self.workload, &self.job) {
            (None, Some(job))
                if job.end.is_none() && !job.meta.deleting && !job.broken && !quiet(job) =>
            {
                let deleted = deleted(
                    attempt,
                    "the job's Workload was deleted on the worker, and its pods are not gone yet",
                );
                Verdict { state: State::Running, is_final: false, ..deleted }
            }
            _ => self.derive(attempt, Phase::Run),
        }
    }

    /// By the objects that are there.
    fn derive(&self, attempt: u64, phase: Phase) -> Verdict {
        let lasting = |state, reasons| Verdict { attempt, state, reasons, is_final: false };
        match (&self.workload, &self.job) {
            (_, Some(RemoteJob { end: Some(end), .. })) => ended(attempt, end),
            (_, Some(job)) if job.meta.deleting => {
                deleted(attempt, "the job was deleted on the worker")
            }
            (_, Some(job)) if job.broken => {
                deleted(attempt, "a part of the job was deleted on the worker")
            }
            (None, Some(_)) => deleted(attempt, "the job's Workload was deleted on the worker"),
            (None, None) => lasting(State::Waiting, Vec::new()),
            // No job can start on its quota any more. Another Workload is made once it is gone.
            (Some(_), None) if self.is_doomed() => lasting(State::Waiting, Vec::new()),
            (Some(workload), None) => {
                let (state, reasons) = verdict(workload);
                match state {
                    State::Succeeded | State::Failed => {
                        Verdict { attempt, state, reasons, is_final: true }
                    }
                    _ if stopped_by_us(workload, phase) => lasting(State::Suspended, Vec::new()),
                    State::Reserved if workload.follows && phase == Phase::Run => {
                        lasting(State::Running, Vec::new())
                    }
                    _ => lasting(state, reasons),
                }
            }
            (Some(workload), Some(job)) => {
                let (state, reasons) = verdict(workload);
                match state {
                    // The worker gave up before the job ran.
                    State::Failed
                        if reasons.iter().any(|reason| reason.code == "FailedToStart") =>
                    {
                        Verdict { attempt, state, reasons, is_final: true }
                    }
                    State::Succeeded | State::Failed if !job.tells_its_end => {
                        Verdict { attempt, state, reasons, is_final: true }
                    }
                    // The job's own end is on its way.
                    State::Succeeded | State::Failed | State::Reserved => {
                        lasting(State::Running, Vec::new())
                    }
                    _ if stopped_by_us(workload, phase) && quiet(job) => {
                        lasting(State::Suspended, Vec::new())
                    }
                    _ if stopped_by_us(workload, phase) => lasting(State::Running, Vec::new()),
                    // The one that replaced it is about to be seen.
                    State::Evicted
                        if !quiet(job) && reasons.iter().any(|reason| reason.code == REPLACED) =>
                    {
                        lasting(State::Running, Vec::new())
                    }
                    State::Waiting | State::Unfit if !quiet(job) => {
                        lasting(State::Running, Vec::new())
                    }
                    _ => lasting(state, reasons),
                }
            }
        }
    }

    fn observation(&self, verdict: &Verdict, want: Option<&Want>) -> Observation {
        let target = self.workload.as_ref().map(|workload| &workload.meta.target);
        let (namespace, name) = match (want, target, &self.job) {
            (Some(want), ..) => (want.namespace.clone(), want.name.clone()),
            (None, Some(target), _) => (target.namespace.clone(), target.name.clone()),
            (None, None, Some(job)) => (job.meta.target.namespace.clone(), String::new()),
            (None, None, None) => Default::default(),
        };
        Observation {
            workload_uid: self.uid.clone(),
            namespace,
            name,
            attempt: verdict.attempt,
            state: verdict.state.into(),
            reasons: verdict.reasons.clone(),
            job_status: self.job_status(),
            workload_status: self
                .workload
                .as_ref()
                .map(|workload| workload.status.clone())
                .unwrap_or_default(),
            preemption: None,
            origin: if want.is_none() { self.origin() } else { None },
            preemption_gate: self.gate_of(verdict.attempt),
            troubles: match verdict.state {
                State::Reserved | State::Running | State::Waiting => {
                    self.troubles_of(verdict.attempt)
                }
                _ => Vec::new(),
            },
        }
    }

    /// How the preemption gate of that attempt's Workload stands.
    fn gate_of(&self, attempt: u64) -> Option<v1::PreemptionGate> {
        let at = |seconds| prost_types::Timestamp { seconds, nanos: 0 };
        let gate = self
            .gate()
            .filter(|_| self.workload.as_ref().is_some_and(|it| it.meta.attempt == attempt))?;
        Some(v1::PreemptionGate { opened: gate.opened.map(at), blocked: gate.blocked.map(at) })
    }

    /// What its Workload was made of.
    fn origin(&self) -> Option<v1::Origin> {
        let Origin { kind, job_name, pod_sets, created } = self.made_of()?.clone();
        let created = Some(prost_types::Timestamp { seconds: created, nanos: 0 });
        // One that is being made, or whose creation was not answered, may be there by now; whether it is will be said.
        let follows = self.workload.as_ref().is_some_and(|workload| workload.follows);
        let has_job = self.job.is_some() || self.job_slot.creating().is_some() || follows;
        Some(v1::Origin { kind, job_name, pod_sets, has_job, created })
    }
}

fn ended(attempt: u64, end: &JobEnd) -> Verdict {
    let state = if end.success { State::Succeeded } else { State::Failed };
    let reasons = vec![Reason { code: end.reason.clone(), message: end.message.clone() }];
    Verdict { attempt, state, reasons, is_final: true }
}

fn deleted(attempt: u64, message: &str) -> Verdict {
    let reasons = vec![Reason { code: DELETED_ON_WORKER.to_owned(), message: message.to_owned() }];
    Verdict { attempt, state: State::Evicted, reasons, is_final: true }
}

fn gone(attempt: u64) -> Verdict {
    Verdict { attempt, state: State::Gone, reasons: Vec::new(), is_final: false }
}

fn stopped_by_us(workload: &RemoteWorkload, phase: Phase) -> bool {
    !workload.active && (workload.suspended_by_us || phase == Phase::Suspend)
}

/// Whether it has no pods, and is not about to have any.
pub(super) fn quiet(job: &RemoteJob) -> bool {
    job.suspended && !job.active
}
