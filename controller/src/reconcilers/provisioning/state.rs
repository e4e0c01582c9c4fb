//! Derives the state of a check from its ProvisioningRequest. Pure. The order of the conditions and
//! the messages are Kueue's.

use std::{collections::BTreeMap, time::Duration};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use switchyard_api::{
    autoscaling::{self, ProvisioningRequest},
    conditions::{self, truncated_message},
    v1beta2::{
        AdmissionCheckState, CheckState, PodSetUpdate, ProvisioningRequestConfigSpec, Workload,
    },
};

use super::request_name;
use crate::workload;
use switchyard_platform::clock::exponential_backoff;

pub(super) enum RequestState<'a> {
    /// The check has no valid configuration.
    Inactive,
    /// No pod of the workload needs a request.
    NotNeeded,
    /// There is no request, or it was deleted.
    Missing,
    /// The latest request.
    Latest {
        request: &'a ProvisioningRequest,
        attempt: i32,
        config: &'a ProvisioningRequestConfigSpec,
    },
}

/// The new state of a check, with the transition time unchanged.
pub(super) fn next_state(
    subject: &Workload,
    known: &AdmissionCheckState,
    request_state: &RequestState<'_>,
) -> AdmissionCheckState {
    let mut state = known.clone();
    match request_state {
        RequestState::Inactive => {
            state.state = CheckState::Pending;
            state.message = "the check is not active".to_owned();
        }
        RequestState::NotNeeded if known.state != CheckState::Ready => {
            state.state = CheckState::Ready;
            state.message = "the provisioning request is not needed".to_owned();
            state.pod_set_updates.clear();
        }
        RequestState::NotNeeded | RequestState::Missing => (),
        RequestState::Latest { request, attempt, config } => {
            by_request(&mut state, subject, request, *attempt, config)
        }
    }
    state.message = truncated_message(state.message);
    state
}

fn by_request(
    state: &mut AdmissionCheckState,
    subject: &Workload,
    request: &ProvisioningRequest,
    attempt: i32,
    config: &ProvisioningRequestConfigSpec,
) {
    if let Some(failed) = holds(request, autoscaling::FAILED) {
        retry(state, attempt, config, "Retrying after failure", &failed.message);
    } else if let Some(revoked) = holds(request, autoscaling::CAPACITY_REVOKED) {
        // The nodes are gone, so new pods would wait for ever.
        if subject.spec.is_active() {
            state.state = CheckState::Rejected;
            state.message.clone_from(&revoked.message);
        }
    } else if let Some(expired) = holds(request, autoscaling::BOOKING_EXPIRED) {
        // Pods of an admitted workload have their capacity already.
        if !workload::is_admitted(subject) {
            retry(state, attempt, config, "Retrying after booking expired", &expired.message);
        }
    } else if let Some(provisioned) = holds(request, autoscaling::PROVISIONED) {
        if state.state != CheckState::Ready {
            state.state = CheckState::Ready;
            state.message.clone_from(&provisioned.message);
            state.pod_set_updates = pod_set_updates(subject, request, config);
        }
    } else if holds(request, autoscaling::ACCEPTED).is_some() {
        // The message of `Provisioned` says when capacity is expected.
        if let Some(expected) = find(request, autoscaling::PROVISIONED) {
            state.state = CheckState::Pending;
            state.message.clone_from(&expected.message);
        }
    } else {
        // Clears a message about an earlier request or a failed creation.
        state.state = CheckState::Pending;
        state.message.clear();
    }
}

fn retry(
    state: &mut AdmissionCheckState,
    attempt: i32,
    config: &ProvisioningRequestConfigSpec,
    what: &str,
    message: &str,
) {
    let strategy = &config.retry_strategy;
    if attempt > strategy.backoff_limit_count {
        state.state = CheckState::Rejected;
        message.clone_into(&mut state.message);
        return;
    }
    state.message = format!("{what}: {message}");
    let retries = state.retry_count.unwrap_or(0);
    // An older request has had its retry.
    if attempt > retries {
        let seconds = |n: i32| Duration::from_secs(u64::try_from(n).unwrap_or(0));
        let (base, most) =
            (seconds(strategy.backoff_base_seconds), seconds(strategy.backoff_max_seconds));
        let wait = exponential_backoff(base, most, retries.saturating_add(1));
        state.state = CheckState::Retry;
        state.requeue_after_seconds = Some(i32::try_from(wait.as_secs()).unwrap_or(i32::MAX));
    }
}

/// Directs pods to the nodes provisioned for them. As in Kueue, pod sets merged into another's
/// template get no update.
fn pod_set_updates(
    subject: &Workload,
    request: &ProvisioningRequest,
    config: &ProvisioningRequestConfigSpec,
) -> Vec<PodSetUpdate> {
    let name = request.metadata.name.as_deref().unwrap_or_default();
    let details = request.status.as_ref().map(|status| &status.provisioning_class_details);
    let selectors = config.pod_set_updates.iter().flat_map(|updates| &updates.node_selector);
    let node_selector: BTreeMap<String, String> = selectors
        .filter_map(|it| {
            Some((it.key.clone(), details?.get(&it.value_from_provisioning_class_detail)?.clone()))
        })
        .collect();
    let annotations = BTreeMap::from([
        (autoscaling::CONSUME_PROVISIONING_REQUEST.to_owned(), name.to_owned()),
        (
            autoscaling::PROVISIONING_CLASS_NAME.to_owned(),
            request.spec.provisioning_class_name.clone(),
        ),
    ]);
    let of_template = |template: &str| {
        subject
            .spec
            .pod_sets
            .iter()
            .find(|pod_set| request_name::template(name, &pod_set.name) == template)
    };
    let pod_sets =
        request.spec.pod_sets.iter().filter_map(|pods| of_template(&pods.pod_template_ref.name));
    pod_sets
        .map(|pod_set| PodSetUpdate {
            name: pod_set.name.clone(),
            annotations: annotations.clone(),
            node_selector: node_selector.clone(),
            ..PodSetUpdate::default()
        })
        .collect()
}

/// Whether the request failed for good, so that another may be created.
pub(super) fn has_ended(subject: &Workload, request: &ProvisioningRequest) -> bool {
    holds(request, autoscaling::FAILED).is_some()
        || (holds(request, autoscaling::BOOKING_EXPIRED).is_some()
            && !workload::is_admitted(subject))
}

fn find<'a>(request: &'a ProvisioningRequest, type_: &str) -> Option<&'a Condition> {
    conditions::find(&request.status.as_ref()?.conditions, type_)
}

fn holds<'a>(request: &'a ProvisioningRequest, type_: &str) -> Option<&'a Condition> {
    find(request, type_).filter(|condition| condition.status == conditions::TRUE)
}
