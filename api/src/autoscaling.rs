//! `autoscaling.x-k8s.io/v1`: the ProvisioningRequest, by which the cluster autoscaler is asked for room. Its CRD is the
//! autoscaler's; here are the fields that we write and read.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use serde::{Deserialize, Serialize};

/// Condition: the autoscaler takes care of the request.
pub const ACCEPTED: &str = "Accepted";
/// Condition: all that was asked for is there. While it is false its message may tell when it will be.
pub const PROVISIONED: &str = "Provisioned";
/// Condition: what was asked for cannot be had.
pub const FAILED: &str = "Failed";
/// Condition: what was there is not kept for the request any more.
pub const BOOKING_EXPIRED: &str = "BookingExpired";
/// Condition: what was there is gone.
pub const CAPACITY_REVOKED: &str = "CapacityRevoked";

/// Annotation of pods: the request whose room they take.
pub const CONSUME_PROVISIONING_REQUEST: &str = "autoscaling.x-k8s.io/consume-provisioning-request";
/// Annotation of pods: the class of that request.
pub const PROVISIONING_CLASS_NAME: &str = "autoscaling.x-k8s.io/provisioning-class-name";

/// What is asked for. Immutable.
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
    /// How they are made room for.
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

/// Names a PodTemplate.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct PodTemplateReference {
    /// Its name.
    pub name: String,
}

/// What the autoscaler answers.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct ProvisioningRequestStatus {
    /// [`ACCEPTED`] and the others.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// What the class has to say, such as names of node groups.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub provisioning_class_details: BTreeMap<String, String>,
}
