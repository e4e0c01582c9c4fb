//! AdmissionCheck: an additional condition for admission, decided by the controller that it names.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{names, schema};

/// The controller that decides the check, and its parameters.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[kube(
    group = "kueue.x-k8s.io",
    version = "v1beta2",
    kind = "AdmissionCheck",
    doc = "AdmissionCheck is a condition that workloads meet, beside quota, before they are admitted.",
    status = "AdmissionCheckStatus",
    shortname = "ac",
    derive = "PartialEq",
    derive = "Default"
)]
#[serde(rename_all = "camelCase")]
pub struct AdmissionCheckSpec {
    /// Name of the controller that decides this check, such as `kueue.x-k8s.io/multikueue`.
    /// Immutable.
    #[schemars(length(min = 1, max = 253))]
    #[x_kube(validation = Rule::new("self == oldSelf").message("field is immutable"))]
    pub controller_name: String,
    /// The object that holds the controller's parameters for this check.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parameters: Option<AdmissionCheckParametersReference>,
}

impl AdmissionCheckSpec {
    /// Whether MultiKueue decides the check: it sends workloads to worker clusters.
    #[must_use]
    pub fn is_multi_kueue(&self) -> bool {
        self.controller_name == names::MULTIKUEUE_CONTROLLER
    }
}

/// Reference to the cluster-scoped object with a check's parameters.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[schemars(inline)]
#[serde(rename_all = "camelCase")]
pub struct AdmissionCheckParametersReference {
    /// The object's API group.
    #[schemars(length(min = 1, max = 253), regex(pattern = schema::SUBDOMAIN))]
    pub api_group: String,
    /// The object's kind.
    #[schemars(length(min = 1, max = 63), regex(pattern = "^(?i)[a-z]([-a-z0-9]*[a-z0-9])?$"))]
    pub kind: String,
    /// The object's name.
    #[schemars(length(min = 1, max = 63), regex(pattern = schema::LABEL))]
    pub name: String,
}

/// Whether the check is usable.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[schemars(inline)]
#[serde(rename_all = "camelCase")]
pub struct AdmissionCheckStatus {
    /// `Active`: the controller is ready to decide.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::conditions")]
    pub conditions: Vec<Condition>,
}
