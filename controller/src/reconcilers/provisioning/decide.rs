//! Decides what to do about a workload with ProvisioningRequest checks. Pure.

use std::{collections::BTreeSet, sync::Arc};

use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::PodTemplate,
    apimachinery::pkg::apis::meta::v1::{OwnerReference, Time},
};
use kube::{ResourceExt as _, core::PartialObjectMeta};
use switchyard_api::{
    autoscaling::ProvisioningRequest,
    v1beta2::{
        AdmissionCheckState, CheckState, ProvisioningRequestConfigSpec, Workload, WorkloadStatus,
    },
};

use super::{
    facts::ProvisioningFacts,
    objects::{self, NewRequest, RequestedPodSet},
    request_index::workload_of,
    request_name,
    state::{RequestState, has_ended, next_state},
};
use crate::workload;
use switchyard_platform::{clock::whole_seconds, store::Key};

/// Steps to perform, in this order.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct ProvisioningPlan {
    /// The status to write.
    pub(super) status: Option<WorkloadStatus>,
    /// Events to record once the status is written.
    pub(super) events: Vec<String>,
    /// Requests to delete because they are outdated.
    pub(super) delete: Vec<Arc<ProvisioningRequest>>,
    /// Templates to hand over to their requests.
    pub(super) hand_over: Vec<(Key, OwnerReference)>,
    pub(super) create: Vec<NewRequest>,
    /// Requests that cannot be composed: the check, and why.
    pub(super) refused: Vec<(String, String)>,
}

pub(super) fn decide(
    subject: &Workload,
    facts: &ProvisioningFacts,
    now: Timestamp,
) -> ProvisioningPlan {
    let evicted = workload::is_evicted(subject);
    if workload::is_finished(subject) || (evicted && facts.cleanup_on_eviction) {
        return ProvisioningPlan { delete: facts.requests.clone(), ..ProvisioningPlan::default() };
    }
    let status = subject.status.as_ref().filter(|_| !evicted && workload::has_reservation(subject));
    let Some(before) = status.filter(|status| status.admission.is_some()) else {
        return ProvisioningPlan::default();
    };
    let (mut plan, mut after, mut kept) =
        (ProvisioningPlan::default(), before.clone(), BTreeSet::new());
    for state in &mut after.admission_checks {
        let Some(config) = facts.checks.get(&state.name) else { continue };
        let Some(config) = config.as_deref().map(|config| &config.spec) else {
            transition(&mut plan, state, next_state(subject, state, &RequestState::Inactive), now);
            continue;
        };
        // Quota that does not fit the pod sets is about to change.
        let Some(asked) = objects::requested_pod_sets(subject, config) else {
            return ProvisioningPlan::default();
        };
        let latest = latest(subject, facts, state, config).filter(|_| !asked.is_empty());
        let request_state = match &latest {
            _ if asked.is_empty() => RequestState::NotNeeded,
            None => RequestState::Missing,
            Some((attempt, request)) => RequestState::Latest { request, attempt: *attempt, config },
        };
        transition(&mut plan, state, next_state(subject, state, &request_state), now);
        if let Some((_, request)) = &latest {
            kept.insert(request.name_any());
            hand_over(&mut plan, subject, facts, request);
        }
        if !asked.is_empty() {
            create_next(&mut plan, subject, facts, state, config, (&asked, latest));
        }
    }
    plan.delete = facts
        .requests
        .iter()
        .filter(|request| !kept.contains(&request.name_any()))
        .cloned()
        .collect();
    plan.status = (after != *before).then_some(after);
    plan
}

/// The latest attempt whose request matches the configuration.
fn latest<'a>(
    subject: &Workload,
    facts: &'a ProvisioningFacts,
    state: &AdmissionCheckState,
    config: &ProvisioningRequestConfigSpec,
) -> Option<(i32, &'a Arc<ProvisioningRequest>)> {
    let workload = subject.name_any();
    let of_check = facts.requests.iter().filter_map(|request| {
        let attempt = request_name::attempt(&request.name_any(), &workload, &state.name)?;
        objects::is_current(request, subject, config).then_some((attempt, request))
    });
    of_check.max_by_key(|(attempt, _)| *attempt)
}

/// Updates `state` and records an event if it changed.
fn transition(
    plan: &mut ProvisioningPlan,
    state: &mut AdmissionCheckState,
    mut after: AdmissionCheckState,
    now: Timestamp,
) {
    if after.state != state.state {
        after.last_transition_time = Time(whole_seconds(now));
        let (name, from, to) = (&after.name, state.state.as_str(), after.state.as_str());
        let mut note = format!("Admission check {name} updated state from {from} to {to}");
        if !after.message.is_empty() {
            note = format!("{note} with message: {}", after.message);
        }
        plan.events.push(note);
    }
    *state = after;
}

/// A template belongs to the workload until its request exists, so it is not left behind if that
/// never does.
fn hand_over(
    plan: &mut ProvisioningPlan,
    subject: &Workload,
    facts: &ProvisioningFacts,
    request: &Arc<ProvisioningRequest>,
) {
    let Some(owner) = objects::controller(&**request) else { return };
    let named = request
        .spec
        .pod_sets
        .iter()
        .filter_map(|pods| facts.templates.get(&pods.pod_template_ref.name));
    let of_workload = |template: &&Arc<PartialObjectMeta<PodTemplate>>| {
        workload_of(&***template)
            .is_some_and(|owner| Some(&owner.uid) == subject.metadata.uid.as_ref())
    };
    plan.hand_over
        .extend(named.filter(of_workload).map(|template| (Key::of(&**template), owner.clone())));
}

/// Creates a check's first request, or the next one after a failed one.
fn create_next(
    plan: &mut ProvisioningPlan,
    subject: &Workload,
    facts: &ProvisioningFacts,
    state: &AdmissionCheckState,
    config: &ProvisioningRequestConfigSpec,
    (asked, latest): (&[RequestedPodSet<'_>], Option<(i32, &Arc<ProvisioningRequest>)>),
) {
    if state.state != CheckState::Pending {
        return;
    }
    let attempt = match latest {
        // `retryCount` also counts attempts whose requests are deleted.
        None => state.retry_count.unwrap_or(0).saturating_add(1),
        Some((attempt, request)) if has_ended(subject, request) => attempt.saturating_add(1),
        Some(_) => return,
    };
    match objects::compose(subject, &state.name, attempt, config, asked, &facts.flavors) {
        Ok(creation) => plan.create.push(creation),
        Err(message) => plan.refused.push((state.name.clone(), message)),
    }
}
