//! Decides about one job. Pure. Steps are in the order of Kueue's job reconciler
//! (`pkg/controller/jobframework/reconciler.go`).

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use serde_json::Value;
use switchyard_api::{
    conditions::{
        self,
        reasons::{self, events, finished, termination_target},
    },
    names,
    v1beta2::{PodSet, Workload},
};
use switchyard_jobs::{JobKind, PodSetInfo, SuspendMode, elastic, meta, same_copy};

use super::{
    action::{Action, Decision, NOT_DISPATCHABLE},
    case::Case,
    create, edit,
    ensure::{Ensured, ensure},
    group,
    inputs::{Ancestor, JobInputs, Prebuilt},
    leaving::{owner_gone, release},
    slices,
};
use crate::{
    role::Role,
    workload::{
        admitted_by, condition, has_reservation, is_admitted, is_evicted, is_finished,
        is_group_workload, is_on_hold, is_sent,
    },
};
use switchyard_platform::clock::since;

/// How long the hub leaves it to the status mirror to finish the workload too.
const MIRROR_GRACE: Duration = Duration::from_secs(10);
/// How long a worker leaves it to the hub to collect its copies of an ended job, which also
/// releases quota. Times on jobs are whole seconds, so it is at least two seconds.
const COPY_GRACE: Duration = Duration::from_secs(3);

/// Why it cannot be decided whether a job gets a workload.
pub(super) const OWNER_UNREAD: &str = "an owner of the job cannot be read";

/// Decides about a job. `job` is `None` after its deletion.
///
/// # Guarantees
///
/// - Equal input gives equal actions, and performing them leads to input without actions.
/// - At most one write goes to each object.
#[must_use]
pub(crate) fn decide(
    kind: &dyn JobKind,
    job: Option<&Value>,
    inputs: &JobInputs<'_>,
    now: Timestamp,
) -> Decision {
    let Some(job) = job else { return owner_gone(inputs, now, false) };
    let case = Case { kind, job, inputs, now };
    if meta::is_deleting(job) && !kind.is_composed(job) {
        if case.is_cleaned_up() {
            return Decision::wait();
        }
        if let Some(left) = case.runs_while_deleted() {
            return Decision::wait_at_most(left);
        }
        let mut decision = owner_gone(inputs, now, true);
        decision.actions.extend(release(kind, job));
        return decision;
    }
    if kind.skips(job) || !inputs.managed && inputs.ancestor == Ancestor::None {
        return Decision::wait();
    }
    match inputs.ancestor {
        Ancestor::None => case.on_its_own(),
        Ancestor::Admitted | Ancestor::NotAdmitted => case.child(),
        Ancestor::TooDeep => too_deep(),
        Ancestor::Cyclic => Decision::retry([], "the job's owners own each other"),
        Ancestor::Unread => case.below_unread(),
    }
}

/// Whether [`decide`] needs the owners of a job. `queued`: whether it would be managed without an
/// owner.
pub(super) fn asks_for_owners(kind: &dyn JobKind, job: &Value, queued: bool) -> bool {
    let goes = meta::is_deleting(job) && !kind.is_composed(job);
    meta::controller_of(job).is_some() && !goes && !kind.skips(job) && (queued || runs(kind, job))
}

fn runs(kind: &dyn JobKind, job: &Value) -> bool {
    !kind.is_suspended(job) && kind.finished(job).is_none()
}

/// The managing job is unknown, so nothing is done.
fn too_deep() -> Decision {
    let note = format!(
        "Terminated search for Kueue-managed Job because ancestor depth exceeded limit of {}",
        super::ancestor::MAX_ANCESTORS
    );
    Decision::retry([Action::warning(events::JOB_NESTING_TOO_DEEP, note.clone())], note)
}

/// A job that waits for less is not shown as suspended, which would cost a write.
const SHOWN_WAITING: Duration = Duration::from_secs(5);

impl Case<'_> {
    fn on_its_own(&self) -> Decision {
        if self.kind.is_composed(self.job) {
            return group::decide(self);
        }
        match ensure(self) {
            Ensured::Act(decision) => decision,
            Ensured::Workload(workload) => self.reconcile(workload.as_ref()),
        }
    }

    /// While the owner cannot be read, a job with a workload is still reconciled, because its end,
    /// eviction and deletion release quota. No workload is created, and the job is not suspended
    /// for its owner.
    fn below_unread(&self) -> Decision {
        let is_copy = matches!(&self.inputs.prebuilt, Prebuilt::Found(it) if same_copy(self.kind.id(), self.job, it));
        if !self.inputs.managed || self.inputs.workloads.is_empty() && !is_copy {
            return Decision::retry([], OWNER_UNREAD);
        }
        let decision = self.on_its_own();
        let makes =
            decision.actions.iter().any(|action| matches!(action, Action::CreateWorkload(_)));
        if makes { Decision::retry([], OWNER_UNREAD) } else { decision }
    }

    /// A job below a managed job is suspended until its owner is admitted. Otherwise it follows its
    /// owner.
    fn child(&self) -> Decision {
        if self.inputs.ancestor == Ancestor::Admitted || !runs(self.kind, self.job) {
            return Decision::wait();
        }
        let mut wanted = self.job.clone();
        self.kind.suspend(&mut wanted);
        Decision::act([
            Action::UpdateJob(Box::new(wanted)),
            Action::normal(events::SUSPENDED, "Kueue managed child job suspended"),
        ])
    }

    pub(super) fn reconcile(&self, workload: Option<&Arc<Workload>>) -> Decision {
        if let Some(workload) = workload {
            if is_finished(workload) {
                return self.workload_finished(workload);
            }
            if workload.metadata.deletion_timestamp.is_some() {
                return self.workload_deleting(workload);
            }
        }
        // A job that runs elsewhere is on hold there, and its status shows that.
        if self.kind.on_hold(self.job) && !self.is_handed_over() {
            return workload.map_or_else(Decision::wait, |workload| self.on_hold(workload));
        }
        if let Some(end) = self
            .kind
            .finished(self.job)
            .filter(|_| !workload.is_some_and(|it| self.ends_elsewhere(it)))
        {
            return match workload {
                Some(workload) => self.job_finished(workload, end.success, &end.message),
                None => Decision::act(release(self.kind, self.job)),
            };
        }
        let Some(workload) = workload else { return self.no_workload() };
        if let Some(queued) = self.off_hold(workload) {
            return Decision::act([queued]);
        }
        let size = self.is_elastic().then(|| self.kind.pod_sets(self.job).unwrap_or_default());
        let mut reclaimable = self.reclaimable(workload);
        if let Some(pod_sets) = &size {
            reclaimable = slices::reclaimable(workload, pod_sets, reclaimable);
        }
        // On a hub, succeeded pods of a group run again wherever it is dispatched next.
        let told_here = !self.kind.is_composed(self.job) || self.inputs.multi_kueue_check.is_none();
        if let Some(action) = self.reclaim(workload, reclaimable).filter(|_| told_here) {
            return Decision::act([action]);
        }
        if is_evicted(workload) {
            return self.evicted(workload);
        }
        let later = match slices::pods_ready(self, workload, size.as_deref()) {
            edit::PodsReady::Say(action) => return Decision::act([action]),
            edit::PodsReady::Later(after) => Some(after),
            edit::PodsReady::UpToDate => None,
        };
        let decision = self.admission(workload);
        match later {
            Some(after) if decision == Decision::wait() => Decision::wait_at_most(after),
            _ => decision,
        }
    }

    fn admission(&self, workload: &Arc<Workload>) -> Decision {
        if let Some(decision) = self.not_dispatchable(workload) {
            return decision;
        }
        if self.kind.is_suspended(self.job) {
            self.suspended(workload)
        } else {
            self.running(workload)
        }
    }

    fn workload_finished(&self, workload: &Arc<Workload>) -> Decision {
        // The finalizer stays until the workload is deleted, which saves a write per job. A user
        // who created the workload may wait for the finalizer to go.
        let deleting = workload.metadata.deletion_timestamp.is_some();
        let made_by_others = !meta::prebuilt_workload_name(self.job).is_empty();
        let dropped =
            (deleting || made_by_others).then(|| edit::drop_finalizer(workload)).flatten();
        Decision::act(dropped.into_iter().chain(release(self.kind, self.job)))
    }

    fn workload_deleting(&self, workload: &Arc<Workload>) -> Decision {
        let ended = self.kind.suspend_mode() == SuspendMode::Field
            && self.kind.finished(self.job).is_some();
        if !ended && let Some(decision) = self.discard(workload) {
            return decision;
        }
        if self.is_held_elsewhere(workload) {
            return Decision::wait();
        }
        Decision::act(
            edit::drop_finalizer(workload).into_iter().chain(release(self.kind, self.job)),
        )
    }

    /// Releases the job's quota. A hub's copy says why, so that the hub takes it back. The
    /// dispatcher releases quota of dispatched jobs.
    fn on_hold(&self, workload: &Arc<Workload>) -> Decision {
        if !has_reservation(workload) || self.was_sent(workload) {
            return Decision::wait();
        }
        let told = meta::str_at(self.job, "/status/message");
        let is_copy = same_copy(self.kind.id(), self.job, workload);
        let message = match told {
            told if is_copy && !told.is_empty() => format!("{}: {told}", edit::ON_HOLD),
            _ => edit::ON_HOLD.to_owned(),
        };
        Decision::act([edit::put_on_hold(workload, &message, self.inputs.reasons, self.now)])
    }

    /// Requeues the workload once its job is not on hold. For a pod group, the component that put
    /// it on hold does that.
    fn off_hold(&self, workload: &Arc<Workload>) -> Option<Action> {
        let held_here = is_on_hold(workload) && !is_group_workload(workload);
        let held_here = held_here && !same_copy(self.kind.id(), self.job, workload);
        held_here.then(|| edit::take_off_hold(workload, self.inputs.reasons, self.now))
    }

    fn job_finished(&self, workload: &Arc<Workload>, success: bool, message: &str) -> Decision {
        if let Some(wait) = self.mirror_finishes(workload).or_else(|| self.hub_collects(workload)) {
            return Decision::wait_at_most(wait);
        }
        let reason = if success { finished::SUCCEEDED } else { finished::FAILED };
        self.declare_finished(workload, reason, message)
    }

    /// On a hub the status mirror writes a dispatched job's status and then finishes its workload.
    /// After a restart between both, the workload is finished here.
    fn mirror_finishes(&self, workload: &Workload) -> Option<Duration> {
        if self.inputs.role != Role::Hub || workload.status.as_ref()?.cluster_name.is_none() {
            return None;
        }
        self.left_since_end(MIRROR_GRACE)
    }

    /// On a worker, the hub collects its copies once it knows of their end. Quota must not wait
    /// while the hub is away.
    fn hub_collects(&self, workload: &Workload) -> Option<Duration> {
        same_copy(self.kind.id(), self.job, workload)
            .then(|| self.left_since_end(COPY_GRACE))
            .flatten()
    }

    /// The rest of `grace` since the job's end.
    fn left_since_end(&self, grace: Duration) -> Option<Duration> {
        let ended = self.kind.ended_at(self.job)?;
        grace.checked_sub(since(self.now, ended)).filter(|left| !left.is_zero())
    }

    fn no_workload(&self) -> Decision {
        if !matches!(self.inputs.prebuilt, Prebuilt::NotNamed) {
            if let Some(decision) =
                self.stop(None, termination_target::NO_MATCHING_WORKLOAD, "missing workload")
            {
                return decision;
            }
            // Its arrival triggers another reconcile.
            return Decision::wait();
        }
        if self.kind.is_active(self.job) {
            return self.reset_orphaned_status().unwrap_or_else(Decision::wait);
        }
        create::create(self)
    }

    /// Removes the status of a remote copy from a hub's job without a workload, because nothing
    /// updates it any more.
    fn reset_orphaned_status(&self) -> Option<Decision> {
        let stopped = self.is_handed_over() && self.kind.is_suspended(self.job);
        let status = self.kind.reset_status(self.job, self.now).filter(|_| stopped)?;
        let mut wanted = self.job.clone();
        wanted.as_object_mut()?.insert("status".to_owned(), status);
        Some(Decision::act([Action::UpdateJobStatus(Box::new(wanted))]))
    }

    fn evicted(&self, workload: &Arc<Workload>) -> Decision {
        if let Some(evicted) = condition(workload, conditions::EVICTED) {
            let reason = termination_target::evicted_due_to(&evicted.reason);
            if let Some(decision) = self.stop(Some(workload), &reason, &evicted.message) {
                return decision;
            }
        }
        if !has_reservation(workload) || self.was_sent(workload) {
            return self.retention(workload);
        }
        match self.active_for() {
            None => Decision::act([edit::release_quota(workload, self.inputs.reasons, self.now)]),
            Some(left) => Decision::wait_at_most(left),
        }
    }

    /// Deletes a job that was deactivated automatically, after the configured time and once its
    /// quota is released. The hub collects its copies.
    fn retention(&self, workload: &Workload) -> Decision {
        let by_us = reasons::evicted::deactivated_due_to("");
        let evicted =
            condition(workload, conditions::EVICTED).filter(|it| it.reason.starts_with(&by_us));
        let (Some(keep), Some(evicted)) = (self.inputs.keep_deactivated, evicted) else {
            return Decision::wait();
        };
        let copy = same_copy(self.kind.id(), self.job, workload);
        if workload.spec.is_active() || has_reservation(workload) || copy {
            return Decision::wait();
        }
        let kept = since(self.now, evicted.last_transition_time.0);
        match keep.checked_sub(kept).filter(|left| !left.is_zero()) {
            Some(left) => Decision::wait_at_most(left),
            None => {
                let delete = match self.kind.is_composed(self.job) {
                    true => Action::Terminate {
                        members: self.kind.members(self.job).to_vec(),
                        why: None,
                    },
                    false => Action::DeleteJob,
                };
                let told = Action::normal(
                    events::DELETED,
                    "Deleted job: deactivation retention period expired",
                );
                Decision::act(release(self.kind, self.job).into_iter().chain([delete, told]))
            }
        }
    }

    /// Whether a dispatched pod group ended on its worker. Local pods may show an earlier attempt,
    /// because an ended pod never changes again, while the group runs again there.
    fn ends_elsewhere(&self, workload: &Workload) -> bool {
        self.kind.is_composed(self.job) && self.was_sent(workload)
    }

    /// Rejects the check of a job in a dispatching queue that was created while no webhook could
    /// set `managedBy`, which is immutable. Otherwise the workload would hold quota for ever.
    fn not_dispatchable(&self, workload: &Arc<Workload>) -> Option<Decision> {
        let check = self.inputs.multi_kueue_check.as_deref()?;
        let manager = self.kind.managed_by(self.job).unwrap_or_default();
        if manager == names::MULTIKUEUE_CONTROLLER || self.kind.managed().is_none() {
            return None;
        }
        let message = format!(
            "The owner is not managed by Kueue: Expecting spec.managedBy to be {:?} not {manager:?}",
            names::MULTIKUEUE_CONTROLLER
        );
        let reject = edit::reject_check(workload, check, &message, self.now)?;
        let hint = format!(
            "{message}; the field cannot be changed: delete the {kind} and create it again while the webhook answers, or set the field yourself",
            kind = self.kind.id().kind
        );
        Some(Decision::act([reject, Action::warning(NOT_DISPATCHABLE, hint)]))
    }

    fn suspended(&self, workload: &Arc<Workload>) -> Decision {
        if is_admitted(workload) {
            return match (self.runs_elsewhere(workload), self.is_handed_over()) {
                (false, _) => {
                    let refused =
                        self.exceeds_charge(workload).or_else(|| group::overdrawn(self, workload));
                    refused.unwrap_or_else(|| self.start(workload))
                }
                (true, true) => self.show_started(),
                (true, false) => Decision::wait(),
            };
        }
        let moved = edit::queue_name(workload, meta::queue_name(self.job));
        // The hub sets the queue of its copies.
        moved
            .filter(|_| self.kind.syncs_queue(self.job) && !is_sent(workload))
            .map_or_else(|| self.show_waiting(workload), |action| Decision::act([action]))
    }

    /// On a hub no controller marks an externally managed job as suspended, so it is done here.
    fn show_waiting(&self, workload: &Workload) -> Decision {
        let created = workload.metadata.creation_timestamp.as_ref();
        let Some(created) =
            created.filter(|_| self.inputs.role == Role::Hub && self.is_handed_over())
        else {
            return Decision::wait();
        };
        let Some(shown) = self.kind.waiting_status(self.job, self.now) else {
            return Decision::wait();
        };
        let waited = since(self.now, created.0);
        match SHOWN_WAITING.checked_sub(waited).filter(|left| !left.is_zero()) {
            Some(left) => Decision::wait_at_most(left),
            None => {
                let mut wanted = self.job.clone();
                wanted["status"] = shown;
                Decision::act([Action::UpdateJobStatus(Box::new(wanted))])
            }
        }
    }

    /// Evicts a workload whose pods now request more than its charge, because a LimitRange or
    /// RuntimeClass changed.
    fn exceeds_charge(&self, workload: &Arc<Workload>) -> Option<Decision> {
        let (resource, pod_set) = (self.inputs.exceeded)(workload)?;
        let message = format!(
            "The pods of pod set {pod_set} ask for more {resource} by now than quota was reserved for"
        );
        Some(self.requeue(workload, message))
    }

    /// As in Kueue, a dispatched job is not suspended on the hub. Its templates stay as the user
    /// wrote them, because they are what is dispatched.
    fn show_started(&self) -> Decision {
        let mut wanted = self.job.clone();
        let unchanged =
            |set: PodSet| PodSetInfo { name: set.name, count: set.count, ..PodSetInfo::default() };
        let shown = self.kind.pod_sets(self.job).and_then(|sets| {
            self.kind.run(&mut wanted, &sets.into_iter().map(unchanged).collect::<Vec<_>>())
        });
        match shown {
            Ok(()) => Decision::act([Action::UpdateJob(Box::new(wanted))]),
            Err(error) => Decision::retry([], error.to_string()),
        }
    }

    /// The members of the job that differ from the desired ones.
    fn changed(&self, wanted: &Value) -> Vec<Value> {
        let wanted = self.kind.members(wanted);
        // `wanted` was derived from the job, so its members are in the same order.
        let both = self.kind.members(self.job).iter().zip(wanted);
        both.filter(|(now, wanted)| now != wanted).map(|(now, _)| now.clone()).collect()
    }

    fn start(&self, workload: &Arc<Workload>) -> Decision {
        if let Some(status) = self.kind.before_run(self.job) {
            return Decision::act([Action::UpdateJobStatus(Box::new(status))]);
        }
        let mut wanted = self.job.clone();
        if !self.is_elastic() {
            elastic::ungate_pods(self.kind, &mut wanted);
        }
        let run = self.infos(workload).and_then(|infos| self.kind.run(&mut wanted, &infos));
        match run {
            // The job has already started as desired.
            Ok(()) if wanted == *self.job => Decision::wait(),
            Ok(()) => {
                let note = format!(
                    "Admitted by clusterQueue {}",
                    admitted_by(workload).unwrap_or_default()
                );
                let told = match self.kind.is_composed(self.job) {
                    true => Action::MemberEvents {
                        members: self.changed(&wanted),
                        reason: events::STARTED,
                        note,
                    },
                    false => Action::normal(events::STARTED, note),
                };
                Decision::act([Action::UpdateJob(Box::new(wanted)), told])
            }
            Err(error) if error.is_permanent() => {
                self.declare_finished(workload, finished::FAILED_TO_START, &error.to_string())
            }
            Err(error) => Decision::retry([], error.to_string()),
        }
    }

    fn running(&self, workload: &Arc<Workload>) -> Decision {
        if is_admitted(workload) || slices::keeps_running(self, workload) {
            return Decision::wait();
        }
        let reason = termination_target::NOT_ADMITTED;
        self.stop(Some(workload), reason, "Not admitted by cluster queue").unwrap_or_default()
    }
}
