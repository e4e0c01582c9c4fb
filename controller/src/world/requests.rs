//! What the pods of a workload ask for, after the rules of the cluster and of the configuration.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, PodTemplateSpec};
use switchyard_api::{quantity::amount_of, v1beta2::PodTemplate};
use switchyard_scheduler::{Amount, Name};

use crate::context::Context;

/// What changes requests besides the pod template.
#[derive(Debug, Default)]
pub(crate) struct RequestRules {}

impl RequestRules {
    /// The rules that hold in a namespace.
    pub(crate) fn of(_ctx: &Context, _namespace: &str) -> Self {
        Self {}
    }

    /// What one pod asks for, and why it can never be admitted, if so.
    pub(super) fn requests(&self, _template: &PodTemplate, parsed: &PodTemplateSpec) -> (BTreeMap<Name, Amount>, Option<String>) {
        let mut total: BTreeMap<Name, i64> = BTreeMap::new();
        let Some(spec) = &parsed.spec else { return (BTreeMap::new(), None) };
        for container in &spec.containers {
            for (resource, amount) in of_container(container) {
                let sum = total.entry(resource).or_default();
                *sum = sum.saturating_add(amount);
            }
        }
        (total.into_iter().map(|(resource, amount)| (resource, Amount::new(amount))).collect(), None)
    }
}

fn of_container(container: &Container) -> BTreeMap<Name, i64> {
    let mut amounts = BTreeMap::new();
    let Some(resources) = &container.resources else { return amounts };
    for list in [&resources.limits, &resources.requests].into_iter().flatten() {
        for (resource, quantity) in list {
            amounts.insert(Name::from(resource.as_str()), amount_of(resource, quantity));
        }
    }
    amounts
}
