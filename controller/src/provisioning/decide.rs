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
    facts::Facts,
    objects::{self, Asked, Creation},
    owned::workload_of,
    request_name,
    state::{Standing, has_ended, judged},
};
use crate::{clock::whole_seconds, store::Key, workload};

/// Steps to perform, in this order.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Plan {
    /// The status to write.
    pub(super) status: Option<WorkloadStatus>,
    /// Events to record once the status is written.
    pub(super) told: Vec<String>,
    /// Requests to delete because they are outdated.
    pub(super) delete: Vec<Arc<ProvisioningRequest>>,
    /// Templates to hand over to their requests.
    pub(super) hand_over: Vec<(Key, OwnerReference)>,
    pub(super) create: Vec<Creation>,
    /// Requests that cannot be composed: the check, and why.
    pub(super) refused: Vec<(String, String)>,
}

pub(super) fn decide(subject: &Workload, facts: &Facts, now: Timestamp) -> Plan {
    let evicted = workload::is_evicted(subject);
    if workload::is_finished(subject) || (evicted && facts.cleanup_on_eviction) {
        return Plan { delete: facts.requests.clone(), ..Plan::default() };
    }
    let status = subject.status.as_ref().filter(|_| !evicted && workload::has_reservation(subject));
    let Some(before) = status.filter(|status| status.admission.is_some()) else {
        return Plan::default();
    };
    let (mut plan, mut after, mut kept) = (Plan::default(), before.clone(), BTreeSet::new());
    for state in &mut after.admission_checks {
        let Some(config) = facts.checks.get(&state.name) else { continue };
        let Some(config) = config.as_deref().map(|config| &config.spec) else {
            turn(&mut plan, state, judged(subject, state, &Standing::Inactive), now);
            continue;
        };
        // Quota that does not fit the pod sets is about to change.
        let Some(asked) = objects::asked(subject, config) else { return Plan::default() };
        let latest = latest(subject, facts, state, config).filter(|_| !asked.is_empty());
        let standing = match &latest {
            _ if asked.is_empty() => Standing::NotNeeded,
            None => Standing::NotAsked,
            Some((attempt, request)) => Standing::Asked { request, attempt: *attempt, config },
        };
        turn(&mut plan, state, judged(subject, state, &standing), now);
        if let Some((_, request)) = &latest {
            kept.insert(request.name_any());
            hand_over(&mut plan, subject, facts, request);
        }
        if !asked.is_empty() {
            ask(&mut plan, subject, facts, state, config, (&asked, latest));
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
    facts: &'a Facts,
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
fn turn(
    plan: &mut Plan,
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
        plan.told.push(note);
    }
    *state = after;
}

/// A template belongs to the workload until its request exists, so it is not left behind if that
/// never does.
fn hand_over(
    plan: &mut Plan,
    subject: &Workload,
    facts: &Facts,
    request: &Arc<ProvisioningRequest>,
) {
    let Some(owner) = objects::controller(&**request) else { return };
    let named = request
        .spec
        .pod_sets
        .iter()
        .filter_map(|pods| facts.templates.get(&pods.pod_template_ref.name));
    let ours = |template: &&Arc<PartialObjectMeta<PodTemplate>>| {
        workload_of(&***template)
            .is_some_and(|owner| Some(&owner.uid) == subject.metadata.uid.as_ref())
    };
    plan.hand_over.extend(named.filter(ours).map(|template| (Key::of(&**template), owner.clone())));
}

/// Creates a check's first request, or the next one after a failed one.
fn ask(
    plan: &mut Plan,
    subject: &Workload,
    facts: &Facts,
    state: &AdmissionCheckState,
    config: &ProvisioningRequestConfigSpec,
    (asked, latest): (&[Asked<'_>], Option<(i32, &Arc<ProvisioningRequest>)>),
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
    match objects::creation(subject, &state.name, attempt, config, asked, &facts.flavors) {
        Ok(creation) => plan.create.push(creation),
        Err(message) => plan.refused.push((state.name.clone(), message)),
    }
}
