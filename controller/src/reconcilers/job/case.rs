//! One job with its inputs: where it runs, whether it is active, how it is stopped.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use jiff::Timestamp;
use serde_json::Value;
use switchyard_api::{
    conditions::reasons::{self, events, termination_target},
    names,
    v1beta2::{PodSet, ResourceFlavor, Workload},
};
use switchyard_jobs::{
    JobError, JobKind, PodSetInfo, Stop, SuspendMode, TopologyGates, elastic, pod_set_infos,
    pod_sets_with_topology,
};

use super::{
    action::{Action, Decision},
    edit,
    inputs::{JobInputs, Prebuilt},
};
use crate::{
    role::Role,
    workload::{Eviction, has_reservation, is_finished, was_dispatched},
};
use switchyard_platform::clock::since;

/// A job and its inputs.
pub(super) struct Case<'a> {
    pub(super) kind: &'a dyn JobKind,
    pub(super) job: &'a Value,
    pub(super) inputs: &'a JobInputs<'a>,
    pub(super) now: Timestamp,
}

impl Case<'_> {
    /// Whether a hub dispatches the job, or has: its queue may have changed or gone since.
    pub(super) fn is_sent(&self) -> bool {
        let is_dispatched =
            self.inputs.role == Role::Hub && self.inputs.multi_kueue_check.is_some();
        let is_live = |it: &Arc<Workload>| self.was_sent(it) && !is_finished(it);
        is_dispatched || self.is_handed_over() && self.inputs.workloads.iter().any(is_live)
    }

    /// Whether the job says itself that another cluster's controller runs it (`managedBy`). Its
    /// templates stay as its user wrote them.
    pub(super) fn is_handed_over(&self) -> bool {
        self.inputs.role == Role::Hub
            && self.kind.managed_by(self.job) == Some(names::MULTIKUEUE_CONTROLLER)
    }

    /// Whether the workload was committed to a cluster. It keeps its quota until the dispatcher
    /// releases it, because the job's status on the hub says nothing about the remote copy.
    pub(super) fn was_sent(&self, workload: &Workload) -> bool {
        self.inputs.role == Role::Hub && was_dispatched(workload)
    }

    /// Whether the job must not be started on this hub: it is or should have been dispatched, or
    /// its workload was, even if the queue has changed since.
    pub(super) fn runs_elsewhere(&self, workload: &Workload) -> bool {
        self.inputs.role == Role::Hub
            && (self.is_handed_over()
                || self.inputs.multi_kueue_check.is_some()
                || self.was_sent(workload))
    }

    /// Whether the job may be resized while it runs, here or on a worker cluster.
    pub(super) fn is_elastic(&self) -> bool {
        let may = match self.is_sent() {
            true => {
                elastic::is_elastic_elsewhere(self.kind, self.job)
                    && self.was_dispatched_as_elastic()
            }
            false => elastic::is_elastic(self.kind, self.job) && self.has_slices(),
        };
        self.inputs.elastic && may
    }

    /// Whether the job was dispatched as an elastic one. Otherwise its remote pods have no gate.
    fn was_dispatched_as_elastic(&self) -> bool {
        self.inputs.workloads.iter().all(|it| elastic::is_slice(it) || is_finished(it))
    }

    /// Whether the workload marks its job as elastic, for workloads that another component made.
    fn has_slices(&self) -> bool {
        match &self.inputs.prebuilt {
            Prebuilt::NotNamed => true,
            Prebuilt::Missing => self.inputs.workloads.iter().any(|it| elastic::is_slice(it)),
            Prebuilt::Found(workload) => elastic::is_slice(workload),
        }
    }

    /// How long the job may still be active. `None` if it is not active.
    pub(super) fn active_for(&self) -> Option<Duration> {
        if !self.kind.is_active(self.job) {
            // A job below it may be suspended while its pods still run.
            return (self.inputs.below_active)().then_some(Duration::MAX);
        }
        let Some(until) = self.kind.active_until(self.job) else { return Some(Duration::MAX) };
        if self.inputs.releases_fast {
            // All pods are being deleted, because their end is known.
            return None;
        }
        Some(since(until, self.now)).filter(|left| !left.is_zero())
    }

    /// The pod set infos of the workload's admission.
    pub(super) fn infos(&self, workload: &Workload) -> Result<Vec<PodSetInfo>, JobError> {
        let flavors: Vec<Arc<ResourceFlavor>> =
            flavor_names(workload).filter_map(|name| (self.inputs.flavor)(name)).collect();
        let infos = pod_set_infos(workload, |name| {
            flavors
                .iter()
                .find(|flavor| flavor.metadata.name.as_deref() == Some(name))
                .map(Arc::as_ref)
        })?;
        let labels = !self.inputs.gates.without_queue_labels;
        Ok(if labels {
            infos
        } else {
            infos.into_iter().map(PodSetInfo::without_queue_labels).collect()
        })
    }

    /// Whether the job's topology requests no longer matter: it runs or has ended. A malformed
    /// annotation must not keep its end from being noticed.
    fn is_placed(&self) -> bool {
        let waits = self.kind.is_suspended(self.job) && self.kind.finished(self.job).is_none();
        self.kind.suspend_mode() != SuspendMode::Pods && !waits
    }

    /// Whether a pending Workload requests the job's topology. A Workload with quota keeps its own.
    pub(super) fn has_topology_of(&self, workload: &Workload, pod_sets: &[PodSet]) -> bool {
        if !self.inputs.gates.topology.aware
            || self.is_placed()
            || has_reservation(workload)
            || is_finished(workload)
        {
            return true;
        }
        let both = pod_sets.iter().zip(&workload.spec.pod_sets);
        both.into_iter().all(|(job, workload)| job.topology_request == workload.topology_request)
    }

    /// The job's pod sets, or the decision that reports why there are none.
    pub(super) fn pod_sets(&self) -> Result<Vec<PodSet>, Decision> {
        let topology =
            if self.is_placed() { TopologyGates::default() } else { self.inputs.gates.topology };
        pod_sets_with_topology(self.kind, self.job, topology).map_err(|error| {
            Decision::act([Action::warning(events::ERR_WORKLOAD_COMPOSE, error.to_string())])
        })
    }

    /// Finishes the workload and publishes the event.
    pub(super) fn declare_finished(
        &self,
        workload: &Arc<Workload>,
        reason: &str,
        message: &str,
    ) -> Decision {
        let told = Action::normal(events::FINISHED_WORKLOAD, finished_note(workload));
        Decision::act([edit::finish(workload, reason, message, self.now), told])
    }

    /// Evicts a workload whose quota no longer suffices for its job.
    pub(super) fn requeue(&self, workload: &Arc<Workload>, message: String) -> Decision {
        let eviction = Eviction {
            reason: reasons::evicted::REQUESTS_CHANGED,
            cause: String::new(),
            message: message.clone(),
        };
        let evict = Action::edit_status(workload, self.now, |edit| drop(edit.evict(eviction)));
        Decision::act([evict, Action::normal(events::STOPPED, message)])
    }

    /// The next step of stopping the job. `None` once it is stopped. Deleted pods get the reason,
    /// one of [`termination_target`].
    pub(super) fn stop(
        &self,
        workload: Option<&Arc<Workload>>,
        reason: &str,
        message: &str,
    ) -> Option<Decision> {
        let pod_sets: Option<&[PodSet]> =
            workload.map(|workload| workload.spec.pod_sets.as_slice());
        stopping(self.kind.stop(self.job, pod_sets), reason, message)
    }

    /// As [`Case::stop`] for a job whose workload is being deleted.
    pub(super) fn discard(&self, workload: &Workload) -> Option<Decision> {
        let stop = self.kind.discard(self.job, &workload.spec.pod_sets);
        stopping(stop, termination_target::WORKLOAD_DELETED, "Workload is deleted")
    }
}

/// `namespace/name`, as in events.
pub(super) fn key(workload: &Workload) -> String {
    let part = |part: &Option<String>| part.clone().unwrap_or_default();
    format!("{}/{}", part(&workload.metadata.namespace), part(&workload.metadata.name))
}

/// Note of the event about a finished workload.
#[must_use]
pub fn finished_note(workload: &Workload) -> String {
    format!("Workload '{}' is declared finished", key(workload))
}

/// The decision for a step of stopping. `None` once the job is stopped.
fn stopping(stop: Stop, reason: &str, message: &str) -> Option<Decision> {
    match stop {
        Stop::Done => None,
        Stop::Wait => Some(Decision::wait()),
        Stop::UpdateStatus(job) => Some(Decision::act([Action::UpdateJobStatus(job)])),
        Stop::Terminate(members) => {
            let told = Action::MemberEvents {
                members: members.clone(),
                reason: events::STOPPED,
                note: message.to_owned(),
            };
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
    let names: BTreeSet<&str> = assignments
        .flat_map(|assignment| assignment.flavors.values())
        .map(String::as_str)
        .collect();
    names.into_iter()
}
