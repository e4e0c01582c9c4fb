//! The decision about one job, pure: in the order of Kueue's job reconciler (inventory 2.10).

use std::{borrow::Cow, collections::BTreeSet, sync::Arc, time::Duration};

use jiff::Timestamp;
use serde_json::Value;
use switchyard_api::{
    conditions::{
        self,
        reasons::{self, events, finished, termination_target},
    },
    jobs::{
        Held, JobError, JobKind, PodSetInfo, Stop, elastic, job_pod_sets, meta, pod_set_infos, same_copy,
        sized_pod_sets,
    },
    names,
    v1beta2::{PodSet, ReclaimablePod, ResourceFlavor, Workload},
};

use super::{
    action::{Action, Decision, NOT_DISPATCHABLE, Next},
    create, edit,
    ensure::{Ensured, ensure},
    facts::{Ancestor, Facts, Prebuilt},
    group, slices,
};
use crate::{
    clock::since,
    context::Role,
    workload::{
        Eviction, LOOK_AT_CLUSTER, admitted_by, condition, has_reservation, is_admitted, is_awaited_from_cluster,
        is_evicted, is_finished, is_group_workload, is_left_on_cluster, is_on_hold, is_sent, was_dispatched,
    },
};

/// How long the hub leaves it to the mirror of the job's status to finish the workload too.
const MIRROR_GRACE: Duration = Duration::from_secs(10);
/// How long a worker leaves it to the hub to collect its copies of a job that has ended, which gives the quota back, too.
/// Times on jobs are whole seconds, so it is two seconds at least.
const COPY_GRACE: Duration = Duration::from_secs(3);

/// Why it is not said whether a job gets a workload.
pub(super) const OWNER_UNREAD: &str = "an owner of the job cannot be read";

/// One job with all that is known about it.
pub(super) struct Case<'a> {
    pub(super) kind: &'a dyn JobKind,
    pub(super) job: &'a Value,
    pub(super) facts: &'a Facts<'a>,
    pub(super) now: Timestamp,
}

/// What to do about a job. `job` is `None` when it is gone.
///
/// # Guarantees
/// - The same input gives the same actions, and performing them leads to an input for which there are none.
/// - At most one write goes to each object.
#[must_use]
pub fn decide(kind: &dyn JobKind, job: Option<&Value>, facts: &Facts<'_>, now: Timestamp) -> Decision {
    let Some(job) = job else { return owner_gone(facts, now, false) };
    let case = Case { kind, job, facts, now };
    if meta::is_deleting(job) && !kind.is_composed(job) {
        if case.is_cleaned_up() {
            return Decision::wait();
        }
        if let Some(left) = case.runs_while_deleted() {
            return Decision::wait_at_most(left);
        }
        let mut decision = owner_gone(facts, now, true);
        decision.actions.extend(release(kind, job));
        return decision;
    }
    if kind.skips(job) || !facts.managed && facts.ancestor == Ancestor::None {
        return Decision::wait();
    }
    match facts.ancestor {
        Ancestor::None => case.on_its_own(),
        Ancestor::Admitted | Ancestor::NotAdmitted => case.child(),
        Ancestor::TooDeep => too_deep(),
        Ancestor::Cyclic => Decision::retry([], "the job's owners own each other"),
        Ancestor::Unread => case.below_unread(),
    }
}

/// Whether [`decide`] has to know what owns a job. `queued`: it would be ours without an owner; else it is held back at most.
pub(super) fn asks_for_owners(kind: &dyn JobKind, job: &Value, queued: bool) -> bool {
    let goes = meta::is_deleting(job) && !kind.is_composed(job);
    meta::controller_of(job).is_some() && !goes && !kind.skips(job) && (queued || runs(kind, job))
}

fn runs(kind: &dyn JobKind, job: &Value) -> bool {
    !kind.is_suspended(job) && kind.finished(job).is_none()
}

/// Nobody can tell who rules the job: nothing is done to it.
fn too_deep() -> Decision {
    let note = format!(
        "Terminated search for Kueue-managed Job because ancestor depth exceeded limit of {}",
        super::ancestor::MAX_ANCESTORS
    );
    Decision::retry([Action::warning(events::JOB_NESTING_TOO_DEEP, note.clone())], note)
}

/// Takes the finalizer off the job, and off its members, that keeps what has ended until that was noted.
pub(super) fn release(kind: &dyn JobKind, job: &Value) -> Option<Action> {
    let mut wanted = job.clone();
    kind.release(&mut wanted).then(|| Action::UpdateJob(Box::new(wanted)))
}

/// Finishes the workloads of a job that is gone, so that their quota is free at once, and lets them go. `goes`: it is there
/// still, and deleted in the foreground it waits for them. What runs on a cluster that is connected is charged until it has stopped
/// there.
fn owner_gone(facts: &Facts<'_>, now: Timestamp, goes: bool) -> Decision {
    let is_held = |it: &Workload| facts.role == Role::Hub && is_awaited_from_cluster(it, facts.awaited);
    let release = |workload: &Arc<Workload>| {
        if is_held(workload) {
            let live = workload.metadata.deletion_timestamp.is_none();
            return live.then(|| Action::DeleteWorkload(workload.clone()));
        }
        if workload.metadata.deletion_timestamp.is_some() {
            // The life cycle of workloads lets the others go, which have one owner that tells.
            let let_go = goes || is_group_workload(workload);
            return let_go.then(|| edit::drop_finalizer(workload)).flatten();
        }
        if group::outlives_its_pods(workload) {
            return group::stopped(workload, facts, now);
        }
        if !is_finished(workload) && !facts.gates.leaves_orphans {
            return Some(edit::finish(
                workload,
                finished::OWNER_NOT_FOUND,
                "The workload's owner no longer exists",
                now,
            ));
        }
        edit::drop_finalizer(workload)
    };
    let actions = facts.workloads.iter().filter_map(release).collect();
    let held = facts.workloads.iter().any(|workload| is_held(workload));
    // A cluster may be lost meanwhile.
    Decision { actions, next: if held { Next::After(LOOK_AT_CLUSTER) } else { Next::OnChange } }
}

/// `namespace/name`, as events name workloads.
pub(super) fn key(workload: &Workload) -> String {
    let part = |part: &Option<String>| part.clone().unwrap_or_default();
    format!("{}/{}", part(&workload.metadata.namespace), part(&workload.metadata.name))
}

/// What the event about the end of a workload says.
#[must_use]
pub fn finished_note(workload: &Workload) -> String {
    format!("Workload '{}' is declared finished", key(workload))
}

impl Case<'_> {
    /// Whether its own controller may still clean up after a job that is being deleted, by its quota. One that is sent is cleaned
    /// up after where it runs, from where it is taken only once its workload is over here.
    fn is_cleaned_up(&self) -> bool {
        let here = self.facts.defers_end && !self.is_sent() && !self.is_handed_over();
        here && meta::is_held_by_others(self.job) && self.kind.cleans_up(self.job)
    }

    /// How long pods of a job that is being deleted run here at most, as far as its status can say so; none when none do.
    fn runs_while_deleted(&self) -> Option<Duration> {
        if self.is_sent() || self.is_handed_over() {
            return None;
        }
        if self.kind.counts_while_deleted() {
            return self.active_for();
        }
        (self.facts.below_active)().then_some(Duration::MAX)
    }

    fn on_its_own(&self) -> Decision {
        if self.kind.is_composed(self.job) {
            return group::decide(self);
        }
        match ensure(self) {
            Ensured::Act(decision) => decision,
            Ensured::Workload(workload) => self.reconcile(workload.as_ref()),
        }
    }

    /// While nobody can tell who rules the job, one that has a workload goes on with it: its end, its eviction and its
    /// deletion give quota back. None is made, and nothing is held back for an owner.
    fn below_unread(&self) -> Decision {
        let is_copy = matches!(&self.facts.prebuilt, Prebuilt::Found(it) if same_copy(self.kind.id(), self.job, it));
        if !self.facts.managed || self.facts.workloads.is_empty() && !is_copy {
            return Decision::retry([], OWNER_UNREAD);
        }
        let decision = self.on_its_own();
        let makes = decision.actions.iter().any(|action| matches!(action, Action::CreateWorkload(_)));
        if makes { Decision::retry([], OWNER_UNREAD) } else { decision }
    }

    /// A job that a job of ours owns is suspended until its owner is admitted; otherwise its owner rules it.
    fn child(&self) -> Decision {
        if self.facts.ancestor == Ancestor::Admitted || !runs(self.kind, self.job) {
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
        // A job that runs elsewhere is on hold there, and shows it.
        if self.kind.on_hold(self.job) && !self.is_handed_over() {
            return workload.map_or_else(Decision::wait, |workload| self.on_hold(workload));
        }
        if let Some(end) = self.kind.finished(self.job).filter(|_| !workload.is_some_and(|it| self.ends_elsewhere(it)))
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
        // On a hub, a group's pods that have succeeded run again wherever it is sent next.
        let told_here = !self.kind.is_composed(self.job) || self.facts.multi_kueue_check.is_none();
        if let Some(action) = self.reclaim(workload, reclaimable).filter(|_| told_here) {
            return Decision::act([action]);
        }
        if is_evicted(workload) {
            return self.evicted(workload);
        }
        let later = match slices::pods_ready(self, workload, size.as_deref()) {
            edit::PodsReady::Say(action) => return Decision::act([action]),
            edit::PodsReady::Later(after) => Some(after),
            edit::PodsReady::Said => None,
        };
        let decision = self.admission(workload);
        match later {
            Some(after) if decision == Decision::wait() => Decision::wait_at_most(after),
            _ => decision,
        }
    }

    /// The pods of the job that will not run again, in this attempt to run it. The counters of a job that was sent to a cluster
    /// before are those of all attempts, and each begins with all pods.
    pub(super) fn reclaimable(&self, workload: &Workload) -> Vec<ReclaimablePod> {
        let status = workload.status.as_ref();
        let first = || {
            let attempt = status.and_then(|status| status.dispatch.as_ref()).map_or(0, |dispatch| dispatch.attempt);
            attempt <= 1 && status.is_some_and(|status| status.cluster_name.is_some())
        };
        if self.runs_elsewhere(workload) && !first() {
            return Vec::new();
        }
        let job = self.as_it_runs(workload);
        let mut reclaimable = self.kind.reclaimable(&job);
        if workload.spec.pod_sets.iter().any(|it| it.min_count.is_some()) && !self.is_elastic() {
            let sizes = self.kind.pod_sets(&job).unwrap_or_default();
            beside_those_not_admitted(workload, &sizes, &mut reclaimable);
        }
        reclaimable
    }

    /// The job, with as many pods as it runs with: one that runs elsewhere with fewer than it asks for does not say so here.
    fn as_it_runs(&self, workload: &Workload) -> Cow<'_, Value> {
        let admission = workload.status.as_ref().and_then(|status| status.admission.as_ref());
        let sized = admission.filter(|_| self.is_handed_over()).and_then(|it| sized_pod_sets(workload, it));
        let Some(pod_sets) = sized else { return Cow::Borrowed(self.job) };
        let mut job = self.job.clone();
        self.kind.shrink(&mut job, &pod_sets);
        Cow::Owned(job)
    }

    fn admission(&self, workload: &Arc<Workload>) -> Decision {
        if let Some(decision) = self.not_dispatchable(workload) {
            return decision;
        }
        if self.kind.is_suspended(self.job) { self.suspended(workload) } else { self.running(workload) }
    }

    fn workload_finished(&self, workload: &Arc<Workload>) -> Decision {
        // The finalizer stays until somebody deletes the workload: one write less for each job. Whoever made it themselves
        // may wait for the finalizer to go.
        let deleting = workload.metadata.deletion_timestamp.is_some();
        let made_by_others = !meta::prebuilt_workload_name(self.job).is_empty();
        let dropped = (deleting || made_by_others).then(|| edit::drop_finalizer(workload)).flatten();
        Decision::act(dropped.into_iter().chain(release(self.kind, self.job)))
    }

    fn workload_deleting(&self, workload: &Arc<Workload>) -> Decision {
        let ended = self.kind.held() == Held::Suspended && self.kind.finished(self.job).is_some();
        if !ended && let Some(decision) = self.discard(workload) {
            return decision;
        }
        if self.is_held_elsewhere(workload) {
            return Decision::wait();
        }
        Decision::act(edit::drop_finalizer(workload).into_iter().chain(release(self.kind, self.job)))
    }

    /// Its quota is given back. A hub's copy says why, for the hub to take it back. That of a job that was sent to a cluster is the
    /// dispatcher's to free.
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
        Decision::act([edit::put_on_hold(workload, &message, self.facts.reasons, self.now)])
    }

    /// It is queued again once its job is on hold no more. What puts a group's workload on hold takes it off again.
    fn off_hold(&self, workload: &Arc<Workload>) -> Option<Action> {
        let held_here = is_on_hold(workload) && !is_group_workload(workload);
        let held_here = held_here && !same_copy(self.kind.id(), self.job, workload);
        held_here.then(|| edit::take_off_hold(workload, self.facts.reasons, self.now))
    }

    /// Notes pods whose quota is not needed any more, where that is wanted.
    pub(super) fn reclaim(&self, workload: &Arc<Workload>, pods: Vec<ReclaimablePod>) -> Option<Action> {
        edit::reclaimable_pods(workload, pods, self.now).filter(|_| self.facts.reclaims)
    }

    /// Finishes the workload and tells the job.
    pub(super) fn declare_finished(&self, workload: &Arc<Workload>, reason: &str, message: &str) -> Decision {
        let told = Action::normal(events::FINISHED_WORKLOAD, finished_note(workload));
        Decision::act([edit::finish(workload, reason, message, self.now), told])
    }

    fn job_finished(&self, workload: &Arc<Workload>, success: bool, message: &str) -> Decision {
        if let Some(wait) = self.mirror_finishes(workload).or_else(|| self.hub_collects(workload)) {
            return Decision::wait_at_most(wait);
        }
        let reason = if success { finished::SUCCEEDED } else { finished::FAILED };
        self.declare_finished(workload, reason, message)
    }

    /// On a hub the mirror writes a dispatched job's status and then finishes its workload. If it has not done so for a
    /// while (it was restarted between the two), we do.
    fn mirror_finishes(&self, workload: &Workload) -> Option<Duration> {
        if self.facts.role != Role::Hub || workload.status.as_ref()?.cluster_name.is_none() {
            return None;
        }
        self.left_since_end(MIRROR_GRACE)
    }

    /// In a worker, a hub's copies go once the hub knows of the end. While it is away, the quota must not wait for it.
    fn hub_collects(&self, workload: &Workload) -> Option<Duration> {
        same_copy(self.kind.id(), self.job, workload).then(|| self.left_since_end(COPY_GRACE)).flatten()
    }

    /// What is left of a time that began with the end of the job.
    fn left_since_end(&self, grace: Duration) -> Option<Duration> {
        let ended = self.kind.ended_at(self.job)?;
        grace.checked_sub(since(self.now, ended)).filter(|left| !left.is_zero())
    }

    fn no_workload(&self) -> Decision {
        if !matches!(self.facts.prebuilt, Prebuilt::NotNamed) {
            if let Some(decision) = self.stop(None, termination_target::NO_MATCHING_WORKLOAD, "missing workload") {
                return decision;
            }
            // It comes, or the job waits: its arrival is a change that we are told about.
            return Decision::wait();
        }
        if self.kind.is_active(self.job) {
            return self.shown_for_nobody().unwrap_or_else(Decision::wait);
        }
        create::create(self)
    }

    /// What a job on a hub shows of a copy elsewhere, once its workload is gone: nobody tells any more how that goes, and it is
    /// removed.
    fn shown_for_nobody(&self) -> Option<Decision> {
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
            None => Decision::act([edit::release_quota(workload, self.facts.reasons, self.now)]),
            Some(left) => Decision::wait_at_most(left),
        }
    }

    /// How long the job still counts as active, at most; none when it is not.
    fn active_for(&self) -> Option<Duration> {
        if !self.kind.is_active(self.job) {
            // What it made may count itself as stopped before its pods are.
            return (self.facts.below_active)().then_some(Duration::MAX);
        }
        let Some(until) = self.kind.active_until(self.job) else { return Some(Duration::MAX) };
        if self.facts.releases_fast {
            // That their end is known says that all are being deleted.
            return None;
        }
        Some(since(until, self.now)).filter(|left| !left.is_zero())
    }

    /// A job that was deactivated for what it did, not by its user, is deleted in the end where the configuration says
    /// so, once it has given its quota back. Copies of a hub's jobs are for the hub to collect.
    fn retention(&self, workload: &Workload) -> Decision {
        let by_us = reasons::evicted::deactivated_due_to("");
        let evicted = condition(workload, conditions::EVICTED).filter(|it| it.reason.starts_with(&by_us));
        let (Some(keep), Some(evicted)) = (self.facts.keep_deactivated, evicted) else { return Decision::wait() };
        let copy = same_copy(self.kind.id(), self.job, workload);
        if workload.spec.is_active() || has_reservation(workload) || copy {
            return Decision::wait();
        }
        let kept = since(self.now, evicted.last_transition_time.0);
        match keep.checked_sub(kept).filter(|left| !left.is_zero()) {
            Some(left) => Decision::wait_at_most(left),
            None => {
                let delete = match self.kind.is_composed(self.job) {
                    true => Action::Terminate { members: self.kind.members(self.job).to_vec(), why: None },
                    false => Action::DeleteJob,
                };
                let told = Action::normal(events::DELETED, "Deleted job: deactivation retention period expired");
                Decision::act(release(self.kind, self.job).into_iter().chain([delete, told]))
            }
        }
    }

    /// On a hub, a workload that was committed to a cluster keeps its quota until the dispatcher gives it back: the
    /// job's status here says nothing of what runs there.
    fn was_sent(&self, workload: &Workload) -> bool {
        self.facts.role == Role::Hub && was_dispatched(workload)
    }

    /// It was sent to a cluster, and the dispatcher has not said yet that nothing of it is left there.
    pub(super) fn is_held_elsewhere(&self, workload: &Workload) -> bool {
        self.facts.role == Role::Hub && is_left_on_cluster(workload)
    }

    /// Something of it is left on a cluster, or pods of the job run with its quota.
    pub(super) fn is_in_use(&self, workload: &Workload) -> bool {
        let runs_here = || !self.is_handed_over() && has_reservation(workload) && self.active_for().is_some();
        self.is_held_elsewhere(workload) || runs_here()
    }

    /// A group that was sent: only its cluster knows of its end. Of its pods here some may show how an earlier attempt went,
    /// as one that has ended never changes again, while they run once more there.
    fn ends_elsewhere(&self, workload: &Workload) -> bool {
        self.kind.is_composed(self.job) && self.was_sent(workload)
    }

    /// A job of a dispatching queue that was created while no webhook could set `managedBy`, which cannot be changed
    /// later. Its check is rejected, with the reason, so that the workload does not hold quota for ever.
    fn not_dispatchable(&self, workload: &Arc<Workload>) -> Option<Decision> {
        let check = self.facts.multi_kueue_check.as_deref()?;
        let manager = self.kind.managed_by(self.job).unwrap_or_default();
        if manager == names::MULTIKUEUE_CONTROLLER || !self.kind.names_manager() {
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
                    let refused = self.outgrown(workload).or_else(|| group::overdrawn(self, workload));
                    refused.unwrap_or_else(|| self.start(workload))
                }
                (true, true) => self.show_started(),
                (true, false) => Decision::wait(),
            };
        }
        let moved = edit::queue_name(workload, meta::queue_name(self.job));
        // The queue of a copy is the hub's.
        moved
            .filter(|_| self.kind.leads_queue(self.job) && !is_sent(workload))
            .map_or_else(Decision::wait, |action| Decision::act([action]))
    }

    /// Evicts a workload whose pods would ask for more than it is charged: what adds to their requests has changed since quota was
    /// reserved.
    fn outgrown(&self, workload: &Arc<Workload>) -> Option<Decision> {
        let (resource, pod_set) = (self.facts.exceeded)(workload)?;
        let message =
            format!("The pods of pod set {pod_set} ask for more {resource} by now than quota was reserved for");
        Some(self.queue_anew(workload, message))
    }

    /// Evicts a workload that has too little quota for what its job asks for by now.
    pub(super) fn queue_anew(&self, workload: &Arc<Workload>, message: String) -> Decision {
        let eviction =
            Eviction { reason: reasons::evicted::REQUESTS_CHANGED, cause: String::new(), message: message.clone() };
        let evict = Action::edit_status(workload, self.now, |edit| drop(edit.evict(eviction)));
        Decision::act([evict, Action::normal(events::STOPPED, message)])
    }

    /// On a hub, jobs for other clusters are not started here; nor is a job that should have been one, or one that was
    /// sent to a cluster, whatever its queue has become since.
    fn runs_elsewhere(&self, workload: &Workload) -> bool {
        self.facts.role == Role::Hub
            && (self.is_handed_over() || self.facts.multi_kueue_check.is_some() || self.was_sent(workload))
    }

    /// A hub's job that no controller here runs: it says so itself. What it asks for stays what its user wrote.
    pub(super) fn is_handed_over(&self) -> bool {
        self.facts.role == Role::Hub && self.kind.managed_by(self.job) == Some(names::MULTIKUEUE_CONTROLLER)
    }

    /// A job that runs on another cluster is not suspended here either, as in Kueue; its templates stay what the user wrote,
    /// as they are what is sent.
    fn show_started(&self) -> Decision {
        let mut wanted = self.job.clone();
        let unchanged = |set: PodSet| PodSetInfo { name: set.name, count: set.count, ..PodSetInfo::default() };
        let shown = self
            .kind
            .pod_sets(self.job)
            .and_then(|sets| self.kind.run(&mut wanted, &sets.into_iter().map(unchanged).collect::<Vec<_>>()));
        match shown {
            Ok(()) => Decision::act([Action::UpdateJob(Box::new(wanted))]),
            Err(error) => Decision::retry([], error.to_string()),
        }
    }

    /// The members of the job that are not as they should be.
    fn changed(&self, wanted: &Value) -> Vec<Value> {
        let wanted = self.kind.members(wanted);
        // What is wanted was made of the job itself: its members are in the same order.
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
            // Nothing is left to be started.
            Ok(()) if wanted == *self.job => Decision::wait(),
            Ok(()) => {
                let note = format!("Admitted by clusterQueue {}", admitted_by(workload).unwrap_or_default());
                let told = match self.kind.is_composed(self.job) {
                    true => Action::TellMembers { members: self.changed(&wanted), reason: events::STARTED, note },
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

    /// Whether the job may change its size while it runs, be it on another cluster.
    pub(super) fn is_elastic(&self) -> bool {
        let may = match self.is_sent() {
            true => elastic::is_elastic_elsewhere(self.kind, self.job) && self.was_sent_so(),
            false => elastic::is_elastic(self.kind, self.job) && self.has_slices(),
        };
        self.facts.elastic && may
    }

    /// Whether the clusters of its workloads were told that the job is elastic: else its pods have no gate there.
    fn was_sent_so(&self) -> bool {
        self.facts.workloads.iter().all(|it| elastic::is_slice(it) || is_finished(it))
    }

    /// Whether a hub sends the job to another cluster.
    pub(super) fn is_sent(&self) -> bool {
        self.facts.role == Role::Hub && self.facts.multi_kueue_check.is_some()
    }

    /// Whether the workload says that its job is elastic, where somebody else has made it.
    fn has_slices(&self) -> bool {
        match &self.facts.prebuilt {
            Prebuilt::NotNamed => true,
            Prebuilt::Missing => self.facts.workloads.iter().any(|it| elastic::is_slice(it)),
            Prebuilt::Found(workload) => elastic::is_slice(workload),
        }
    }

    fn running(&self, workload: &Arc<Workload>) -> Decision {
        if is_admitted(workload) || slices::runs_on(self, workload) {
            return Decision::wait();
        }
        let reason = termination_target::NOT_ADMITTED;
        self.stop(Some(workload), reason, "Not admitted by cluster queue").unwrap_or_default()
    }

    /// The next step of stopping the job, `None` when it is stopped. Pods that are ended for it are told the reason, one of
    /// [`termination_target`].
    pub(super) fn stop(&self, workload: Option<&Arc<Workload>>, reason: &str, message: &str) -> Option<Decision> {
        let pod_sets: Option<&[PodSet]> = workload.map(|workload| workload.spec.pod_sets.as_slice());
        stopping(self.kind.stop(self.job, pod_sets), reason, message)
    }

    /// As [`Case::stop`] for a job whose workload is being deleted.
    fn discard(&self, workload: &Workload) -> Option<Decision> {
        let stop = self.kind.discard(self.job, &workload.spec.pod_sets);
        stopping(stop, termination_target::WORKLOAD_DELETED, "Workload is deleted")
    }

    /// Pod set infos of the workload's admission.
    pub(super) fn infos(&self, workload: &Workload) -> Result<Vec<PodSetInfo>, JobError> {
        let flavors: Vec<Arc<ResourceFlavor>> =
            flavor_names(workload).filter_map(|name| (self.facts.flavor)(name)).collect();
        let infos = pod_set_infos(workload, |name| {
            flavors.iter().find(|flavor| flavor.metadata.name.as_deref() == Some(name)).map(Arc::as_ref)
        })?;
        let labels = !self.facts.gates.without_queue_labels;
        Ok(if labels { infos } else { infos.into_iter().map(PodSetInfo::without_queue_labels).collect() })
    }

    /// Pod sets of the job, or the event that says why there are none.
    pub(super) fn pod_sets(&self) -> Result<Vec<PodSet>, Decision> {
        job_pod_sets(self.kind, self.job)
            .map_err(|error| Decision::act([Action::warning(events::ERR_WORKLOAD_COMPOSE, error.to_string())]))
    }
}

/// Of a job that runs with fewer pods than it asked for, quota is counted from what it asked for: what it did not get is
/// not needed either.
fn beside_those_not_admitted(workload: &Workload, sizes: &[PodSet], reclaimable: &mut [ReclaimablePod]) {
    let count_in = |sets: &[PodSet], name: &str| sets.iter().find(|it| it.name == name).map_or(0, |it| it.count);
    for pods in reclaimable.iter_mut().filter(|pods| pods.count > 0) {
        let asked = count_in(&workload.spec.pod_sets, &pods.name);
        let missing = asked.saturating_sub(count_in(sizes, &pods.name)).max(0);
        pods.count = pods.count.saturating_add(missing).min(asked);
    }
}

/// What a step of stopping comes to, `None` when nothing is left of it.
fn stopping(stop: Stop, reason: &str, message: &str) -> Option<Decision> {
    match stop {
        Stop::Done => None,
        Stop::Wait => Some(Decision::wait()),
        Stop::UpdateStatus(job) => Some(Decision::act([Action::UpdateJobStatus(job)])),
        Stop::Terminate(members) => {
            let told =
                Action::TellMembers { members: members.clone(), reason: events::STOPPED, note: message.to_owned() };
            let why = Some((reason.to_owned(), message.to_owned()));
            Some(Decision::act([Action::Terminate { members, why }, told]))
        }
        Stop::Update { job, now } => {
            let told = now.then(|| Action::normal(events::STOPPED, message));
            Some(Decision::act(std::iter::once(Action::UpdateJob(job)).chain(told)))
        }
    }
}

fn flavor_names(workload: &Workload) -> impl Iterator<Item = &str> {
    let admission = workload.status.as_ref().and_then(|status| status.admission.as_ref());
    let assignments = admission.into_iter().flat_map(|admission| &admission.pod_set_assignments);
    let names: BTreeSet<&str> =
        assignments.flat_map(|assignment| assignment.flavors.values()).map(String::as_str).collect();
    names.into_iter()
}
