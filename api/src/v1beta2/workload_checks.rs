//! States of a workload's admission checks and preemption gates.

use std::collections::BTreeMap;

use k8s_openapi::{api::core::v1::Toleration, apimachinery::pkg::apis::meta::v1::Time};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::schema;

/// State of one admission check of a workload.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[schemars(inline)]
#[serde(rename_all = "camelCase")]
pub struct AdmissionCheckState {
    /// The AdmissionCheck.
    #[schemars(schema_with = "schema::admission_check_name")]
    pub name: String,
    /// The state.
    pub state: CheckState,
    /// Time of the last change of the state.
    #[schemars(schema_with = "schema::time")]
    pub last_transition_time: Time,
    /// The reason for the state. May be empty.
    #[schemars(length(max = 32768))]
    pub message: String,
    /// Seconds to wait before a retry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub requeue_after_seconds: Option<i32>,
    /// How many retries the check has requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub retry_count: Option<i32>,
    /// Additions of the check to the pods.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 18), extend("x-kubernetes-list-type" = "atomic"))]
    pub pod_set_updates: Vec<PodSetUpdate>,
}

/// State of an admission check.
#[derive(
    JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord,
)]
#[schemars(inline)]
pub enum CheckState {
    /// Not decided yet.
    #[default]
    Pending,
    /// Passed.
    Ready,
    /// Failed for now: the workload releases its quota and is queued again.
    Retry,
    /// Failed: the workload is deactivated.
    Rejected,
}

impl CheckState {
    /// The state as written in a status.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "Pending",
            Self::Ready => "Ready",
            Self::Retry => "Retry",
            Self::Rejected => "Rejected",
        }
    }
}

/// Additions of a check to the pods of one pod set. It must not change existing entries.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[schemars(inline)]
#[serde(rename_all = "camelCase")]
pub struct PodSetUpdate {
    /// The pod set.
    #[schemars(schema_with = "schema::pod_set_name")]
    pub name: String,
    /// Labels.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "schema::string_map")]
    pub labels: BTreeMap<String, String>,
    /// Annotations.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "schema::string_map")]
    pub annotations: BTreeMap<String, String>,
    /// Node selectors.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "schema::string_map")]
    pub node_selector: BTreeMap<String, String>,
    /// Tolerations.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::tolerations")]
    pub tolerations: Vec<Toleration>,
}

/// State of one preemption gate of a workload.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[schemars(inline)]
#[serde(rename_all = "camelCase")]
pub struct PreemptionGateState {
    /// The gate.
    #[schemars(length(min = 1, max = 63))]
    pub name: String,
    /// The state.
    pub position: PreemptionGatePosition,
    /// Time of the last change of the state.
    #[schemars(schema_with = "schema::time")]
    pub last_transition_time: Time,
}

/// Whether a gate lets the workload preempt.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
#[schemars(inline)]
pub enum PreemptionGatePosition {
    /// No.
    #[default]
    Closed,
    /// Yes.
    Open,
}
