//! The CustomResourceDefinitions of all kinds.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{CustomResourceDefinition, JSONSchemaProps};
use kube::CustomResourceExt;

use crate::v1beta2;

/// The CustomResourceDefinitions of all kinds, by name.
#[must_use]
pub fn crds() -> Vec<CustomResourceDefinition> {
    let mut all = vec![
        v1beta2::AdmissionCheck::crd(),
        v1beta2::ClusterQueue::crd(),
        v1beta2::Cohort::crd(),
        v1beta2::LocalQueue::crd(),
        v1beta2::MultiKueueCluster::crd(),
        v1beta2::MultiKueueConfig::crd(),
        v1beta2::ProvisioningRequestConfig::crd(),
        v1beta2::ResourceFlavor::crd(),
        v1beta2::Topology::crd(),
        v1beta2::Workload::crd(),
        v1beta2::WorkloadPriorityClass::crd(),
    ];
    for crd in &mut all {
        for version in &mut crd.spec.versions {
            if let Some(root) = version.schema.as_mut().and_then(|schema| schema.open_api_v3_schema.as_mut()) {
                not_nullable(root);
            }
        }
    }
    all
}

/// Takes `nullable` away everywhere. An explicit `null` is then dropped before defaults are filled in, as with Kueue's
/// schemas; with `nullable` it would be stored and the default would not be.
fn not_nullable(schema: &mut JSONSchemaProps) {
    schema.nullable = None;
    for property in schema.properties.iter_mut().flat_map(|map| map.values_mut()) {
        not_nullable(property);
    }
}
