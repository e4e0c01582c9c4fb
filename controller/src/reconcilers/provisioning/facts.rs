//! Gathers what the decision about a workload depends on.

use std::{collections::BTreeMap, sync::Arc};

use k8s_openapi::api::core::v1::PodTemplate;
use kube::core::PartialObjectMeta;
use switchyard_api::{
    autoscaling::ProvisioningRequest,
    names,
    v1beta2::{AdmissionCheck, ProvisioningRequestConfig, ResourceFlavor, Workload},
};

use super::{check::config_of, request_index::RequestIndex};
use crate::context::Context;
use switchyard_platform::store::Key;

/// Input of the decision, besides the workload.
#[derive(Debug, Default)]
pub(super) struct ProvisioningFacts {
    /// The workload's ProvisioningRequest checks with their configuration; `None` if a check is
    /// inactive.
    pub(super) checks: BTreeMap<String, Option<Arc<ProvisioningRequestConfig>>>,
    pub(super) requests: Vec<Arc<ProvisioningRequest>>,
    /// Existing PodTemplates of those requests, by name.
    pub(super) templates: BTreeMap<String, Arc<PartialObjectMeta<PodTemplate>>>,
    /// Flavors assigned to the workload, by name.
    pub(super) flavors: BTreeMap<String, Arc<ResourceFlavor>>,
    /// Kueue's `CleanupProvisioningRequestsOnEviction`: delete an evicted workload's requests.
    pub(super) cleanup_on_eviction: bool,
}

impl ProvisioningFacts {
    pub(super) fn gather(ctx: &Context, index: &RequestIndex, subject: &Workload) -> Self {
        let namespace = subject.metadata.namespace.as_deref().unwrap_or_default();
        let stores = &ctx.stores;
        let keys = index.of(subject);
        let requests: Vec<_> =
            keys.iter().filter_map(|key| stores.provisioning_requests.by_key(key)).collect();
        let named = requests
            .iter()
            .flat_map(|request| &request.spec.pod_sets)
            .map(|set| &set.pod_template_ref.name);
        let templates = named
            .filter_map(|name| Some((name.clone(), stores.pod_templates.get(namespace, name)?)));
        let templates = templates.collect();
        let status = subject.status.as_ref();
        let checks =
            status.into_iter().flat_map(|status| &status.admission_checks).filter_map(|state| {
                let check = stores
                    .admission_checks
                    .get("", &state.name)
                    .filter(|check| is_provisioning_check(check))?;
                Some((
                    state.name.clone(),
                    config_of(&check, &stores.provisioning_request_configs).ok(),
                ))
            });
        let assigned = status.and_then(|status| status.admission.as_ref()).into_iter();
        let assigned = assigned
            .flat_map(|admission| &admission.pod_set_assignments)
            .flat_map(|it| it.flavors.values());
        let flavors = assigned.filter_map(|name| {
            Some((name.clone(), stores.resource_flavors.by_key(&Key::new("", name))?))
        });
        Self {
            checks: checks.collect(),
            flavors: flavors.collect(),
            requests,
            templates,
            cleanup_on_eviction: ctx.config.enabled("CleanupProvisioningRequestsOnEviction"),
        }
    }
}

/// Whether this controller is responsible for the check.
pub(super) fn is_provisioning_check(check: &AdmissionCheck) -> bool {
    check.spec.controller_name == names::PROVISIONING_REQUEST_CONTROLLER
}
