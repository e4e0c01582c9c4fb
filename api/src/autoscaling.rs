//! `autoscaling.x-k8s.io/v1` ProvisioningRequest: asks the cluster autoscaler for capacity. The
//! autoscaler owns the CRD. These types have the fields that Switchyard reads and writes.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use serde::{Deserialize, Serialize};

/// Condition: the autoscaler handles the request.
pub const ACCEPTED: &str = "Accepted";
/// Condition: the capacity exists. While false, its message may say when it will exist.
pub const PROVISIONED: &str = "Provisioned";
/// Condition: the capacity is unavailable.
pub const FAILED: &str = "Failed";
/// Condition: the capacity is no longer reserved for the request.
pub const BOOKING_EXPIRED: &str = "BookingExpired";
/// Condition: the capacity was taken away.
pub const CAPACITY_REVOKED: &str = "CapacityRevoked";

/// Annotation of pods: the request whose capacity they use.
pub const CONSUME_PROVISIONING_REQUEST: &str = "autoscaling.x-k8s.io/consume-provisioning-request";
/// Annotation of pods: the class of that request.
pub const PROVISIONING_CLASS_NAME: &str = "autoscaling.x-k8s.io/provisioning-class-name";

/// The requested capacity. Immutable.
#[derive(CustomResource, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[kube(
    group = "autoscaling.x-k8s.io",
    version = "v1",
    kind = "ProvisioningRequest",
    namespaced,
    schema = "disabled",
    status = "ProvisioningRequestStatus",
    derive = "PartialEq",
    derive = "Default"
)]
#[serde(rename_all = "camelCase")]
pub struct ProvisioningRequestSpec {
    /// The pods, at least one entry.
    pub pod_sets: Vec<RequestedPods>,
    /// The provisioning class, which decides how the capacity is created.
    pub provisioning_class_name: String,
    /// Parameters of the class.
    #[serde(default)]
    pub parameters: BTreeMap<String, String>,
}

/// Equal pods.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct RequestedPods {
    /// The PodTemplate in the request's namespace.
    pub pod_template_ref: PodTemplateReference,
    /// How many, at least one.
    pub count: i32,
}

/// Reference to a PodTemplate.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct PodTemplateReference {
    /// Name of the PodTemplate.
    pub name: String,
}

/// The autoscaler's answer.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct ProvisioningRequestStatus {
    /// [`ACCEPTED`] and others.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// Details from the class, such as names of node groups.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub provisioning_class_details: BTreeMap<String, String>,
}
