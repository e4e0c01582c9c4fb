//! Derives the observation of one workload from its objects.

use switchyard_proto::v1::{self, Observation, Phase, Reason, State};
use switchyard_proto::{DELETED_ON_WORKER, STOPPING};

use super::{EndedAttempt, Entry, Persisted};
use crate::admission::{REPLACED, admission_state};
use crate::desired::DesiredWorkload;
use crate::objects::{JobEnd, RemoteJob, RemoteWorkload};

/// A state, its reasons, and whether the attempt can never leave it.
struct ObservedState {
    attempt: u64,
    state: State,
    reasons: Vec<Reason>,
    is_final: bool,
}

impl Entry {
    /// The current observation; none if there is nothing to report. Records a final one.
    pub(crate) fn observe(&mut self, desired: Option<&DesiredWorkload>) -> Option<Observation> {
        let outlived = self.has_ended_after_removal();
        if let Some(end) = self.unpersisted_end().filter(|_| !outlived) {
            let origin = if desired.is_none() { self.origin() } else { None };
            return Some(Observation { origin, ..end.observation.clone() });
        }
        let verdict = self.assess(desired)?;
        let observation = self.observation(&verdict, desired);
        let known = self.has_ended(verdict.attempt);
        if verdict.is_final && (!known || outlived) {
            self.end = Some(EndedAttempt {
                observation: observation.clone(),
                persisted: Persisted::No,
                job: self.job.as_ref().map(|job| job.meta.target.uid.clone()),
            });
        }
        Some(observation)
    }

    /// The observation for an inventory.
    ///
    /// It also covers objects that are being deleted, or that may still appear: a restarted hub
    /// takes what an inventory lacks as nonexistent. It always has an origin: the hub may have lost
    /// its assignments.
    pub(crate) fn inventory_observation(
        &mut self,
        desired: Option<&DesiredWorkload>,
    ) -> Option<Observation> {
        let observation = self.observe(desired).or_else(|| self.transient_observation(desired))?;
        Some(Observation { origin: self.origin(), ..observation })
    }

    /// The observation of objects that are being created or deleted, for inventories.
    fn transient_observation(&self, desired: Option<&DesiredWorkload>) -> Option<Observation> {
        let creating =
            self.workload_slot.uncertain_attempt().max(self.job_slot.uncertain_attempt());
        let attempt = self.observed_attempt().or(creating)?;
        let is = |state| ObservedState { attempt, state, reasons: Vec::new(), is_final: false };
        let verdict = match &self.job {
            // A hub that persisted the end may have lost it since.
            Some(RemoteJob { end: Some(end), meta, .. }) if meta.attempt == attempt => {
                ended(attempt, end)
            }
            // The job may run until it is deleted.
            Some(_) => is(State::Running),
            None => is(State::Waiting),
        };
        Some(self.observation(&verdict, desired))
    }

    fn assess(&self, desired: Option<&DesiredWorkload>) -> Option<ObservedState> {
        let there = self.observed_attempt();
        if let Some(job) = &self.job
            && let Some(end) = &job.end
            && !self.is_end_persisted(job.meta.attempt)
        {
            return Some(ended(job.meta.attempt, end));
        }
        if self
            .job
            .as_ref()
            .map(|job| job.meta.attempt)
            .is_some_and(|attempt| Some(attempt) < there)
        {
            // A job of an earlier attempt, or a late event of it. An observation of the later
            // attempt tells the hub that the earlier one is gone.
            return None;
        }
        let Some(desired) = desired else {
            return there
                .map(|attempt| self.derive_unassigned(attempt))
                .or_else(|| self.vanished_attempt().map(gone));
        };
        if self.lost_attempt == Some(desired.attempt)
            && desired.phase != Phase::Absent
            && !self.has_ended(desired.attempt)
        {
            let deleted =
                deleted(desired.attempt, "the job was removed on the worker before it had ended");
            // An unanswered creation may create the job again, and that job may end.
            return Some(ObservedState {
                is_final: self.job_slot.uncertain_attempt().is_none(),
                ..deleted
            });
        }
        match there {
            Some(attempt) if attempt > desired.attempt => Some(self.derive_unassigned(attempt)),
            // It is being deleted. The next observation is GONE.
            Some(attempt) if attempt <= desired.max_deleted_attempt() => None,
            None if desired.phase == Phase::Absent => {
                let certain = self.workload_slot.is_certain() && self.job_slot.is_certain();
                certain.then(|| gone(desired.attempt))
            }
            _ if self.has_ended(desired.attempt) => {
                let end = self.end.as_ref()?;
                let Observation { attempt, reasons, .. } = end.observation.clone();
                Some(ObservedState {
                    attempt,
                    state: end.observation.state(),
                    reasons,
                    is_final: true,
                })
            }
            _ => {
                match self.rejection.as_ref().filter(|(attempt, ..)| *attempt == desired.attempt) {
                    Some((attempt, _, rejection)) => Some(ObservedState {
                        attempt: *attempt,
                        state: rejection.state,
                        reasons: vec![rejection.reason()],
                        is_final: false,
                    }),
                    None => there.map(|attempt| self.derive_state(attempt, desired.phase)),
                }
            }
        }
    }

    /// The state of a workload without an assignment.
    ///
    /// The agent does nothing to it. A job without its Workload runs until its controller stops it,
    /// and a hub that lost its store must not take it for ended.
    fn derive_unassigned(&self, attempt: u64) -> ObservedState {
        match (&self.workload, &self.job) {
            (None, Some(job))
                if !self.is_about_to_end(attempt, job)
                    && job.end.is_none()
                    && !job.meta.deleting
                    && !job.has_lost_member
                    && !has_no_pods(job) =>
            {
                let deleted = deleted(
                    attempt,
                    "the job's Workload was deleted on the worker, and its pods are not gone yet",
                );
                ObservedState { state: State::Running, is_final: false, ..deleted }
            }
            _ => self.derive_state(attempt, Phase::Run),
        }
    }

    /// The state by the existing objects.
    fn derive_state(&self, attempt: u64, phase: Phase) -> ObservedState {
        let lasting = |state, reasons| ObservedState { attempt, state, reasons, is_final: false };
        match (&self.workload, &self.job) {
            (_, Some(RemoteJob { end: Some(end), .. })) => ended(attempt, end),
            (_, Some(job)) if job.meta.deleting => {
                deleted(attempt, "the job was deleted on the worker")
            }
            (_, Some(job)) if job.has_lost_member => {
                deleted(attempt, "a part of the job was deleted on the worker")
            }
            (None, Some(job)) if self.is_about_to_end(attempt, job) => {
                lasting(State::Running, Vec::new())
            }
            (None, Some(_)) => deleted(attempt, "the job's Workload was deleted on the worker"),
            (None, None) => lasting(State::Waiting, Vec::new()),
            // No job can start on its quota any more. After its deletion the agent creates another
            // Workload.
            (Some(_), None) if self.is_being_deleted() => lasting(State::Waiting, Vec::new()),
            (Some(workload), None) => {
                let (state, reasons) = admission_state(workload);
                match state {
                    State::Succeeded | State::Failed => {
                        ObservedState { attempt, state, reasons, is_final: true }
                    }
                    _ if is_stopped_by_agent(workload, phase) => {
                        lasting(State::Suspended, Vec::new())
                    }
                    State::Reserved if workload.is_follower && phase == Phase::Run => {
                        lasting(State::Running, Vec::new())
                    }
                    _ => lasting(state, reasons),
                }
            }
            (Some(workload), Some(job)) => {
                let (state, reasons) = admission_state(workload);
                match state {
                    // The worker gave up before the job ran.
                    State::Failed
                        if reasons.iter().any(|reason| reason.code == "FailedToStart") =>
                    {
                        ObservedState { attempt, state, reasons, is_final: true }
                    }
                    State::Succeeded | State::Failed if !job.reports_completion => {
                        ObservedState { attempt, state, reasons, is_final: true }
                    }
                    // Its eviction is about to be observed.
                    State::Reserved if is_stopped_by_agent(workload, phase) => {
                        lasting(State::Running, stopping(phase))
                    }
                    // The job will report its own end.
                    State::Succeeded | State::Failed | State::Reserved => {
                        lasting(State::Running, Vec::new())
                    }
                    _ if is_stopped_by_agent(workload, phase) && has_no_pods(job) => {
                        lasting(State::Suspended, Vec::new())
                    }
                    _ if is_stopped_by_agent(workload, phase) => {
                        lasting(State::Running, stopping(phase))
                    }
                    // The Workload that replaced it is about to be observed.
                    State::Evicted
                        if !has_no_pods(job)
                            && reasons.iter().any(|reason| reason.code == REPLACED) =>
                    {
                        lasting(State::Running, Vec::new())
                    }
                    State::Waiting | State::Unfit if !has_no_pods(job) => {
                        lasting(State::Running, Vec::new())
                    }
                    _ => lasting(state, reasons),
                }
            }
        }
    }

    /// Whether the deleted Workload showed the job's end, and the job is about to show it.
    fn is_about_to_end(&self, attempt: u64, job: &RemoteJob) -> bool {
        self.finished_before_job == Some(attempt) && job.reports_completion && !has_no_pods(job)
    }

    fn observation(
        &self,
        verdict: &ObservedState,
        desired: Option<&DesiredWorkload>,
    ) -> Observation {
        let target = self.workload.as_ref().map(|workload| &workload.meta.target);
        let (namespace, name) = match (desired, target, &self.job) {
            (Some(desired), ..) => (desired.namespace.clone(), desired.name.clone()),
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
            origin: if desired.is_none() { self.origin() } else { None },
            preemption_gate: self.gate_of(verdict.attempt),
            troubles: match verdict.state {
                State::Reserved | State::Running | State::Waiting => {
                    self.job_troubles_of(verdict.attempt)
                }
                _ => Vec::new(),
            },
            no_ready_pod: verdict.state == State::Running
                && self.no_ready_pod == Some(verdict.attempt),
        }
    }

    /// The state of the preemption gate of that attempt's Workload.
    fn gate_of(&self, attempt: u64) -> Option<v1::PreemptionGate> {
        self.gate().filter(|_| self.workload.as_ref().is_some_and(|it| it.meta.attempt == attempt))
    }

    /// The origin of its Workload, for the wire.
    fn origin(&self) -> Option<v1::Origin> {
        let origin = self.known_origin()?.clone();
        // A job whose creation is unanswered may exist. A later report says whether it does.
        let follows = self.workload.as_ref().is_some_and(|workload| workload.is_follower);
        let has_job = self.job.is_some() || self.job_slot.uncertain_attempt().is_some() || follows;
        Some(v1::Origin { has_job, ..origin })
    }
}

fn ended(attempt: u64, end: &JobEnd) -> ObservedState {
    let state = if end.success { State::Succeeded } else { State::Failed };
    let reasons = vec![Reason { code: end.reason.clone(), message: end.message.clone() }];
    ObservedState { attempt, state, reasons, is_final: true }
}

fn deleted(attempt: u64, message: &str) -> ObservedState {
    let reasons = vec![Reason { code: DELETED_ON_WORKER.to_owned(), message: message.to_owned() }];
    ObservedState { attempt, state: State::Evicted, reasons, is_final: true }
}

/// Reasons of a job that the agent has stopped. A hub that ordered it needs none.
fn stopping(phase: Phase) -> Vec<Reason> {
    if phase == Phase::Suspend {
        return Vec::new();
    }
    let message = "the fence has stopped the job, and its pods are not gone yet";
    vec![Reason { code: STOPPING.to_owned(), message: message.to_owned() }]
}

fn gone(attempt: u64) -> ObservedState {
    ObservedState { attempt, state: State::Gone, reasons: Vec::new(), is_final: false }
}

fn is_stopped_by_agent(workload: &RemoteWorkload, phase: Phase) -> bool {
    !workload.active && (workload.suspended_by_agent || phase == Phase::Suspend)
}

/// Whether the job has no pods and is not about to get any.
pub(crate) fn has_no_pods(job: &RemoteJob) -> bool {
    job.suspended && !job.active
}
