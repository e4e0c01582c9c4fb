//! Fair sharing: configured weights and observed shares.

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::schema;

/// A weight among siblings that compete for unused quota.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[schemars(inline)]
#[serde(rename_all = "camelCase")]
pub struct FairSharing {
    /// 1 if absent. Zero puts this node behind all others. Other values must be above 10^-9.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::weight")]
    pub weight: Option<Quantity>,
}

/// The observed share.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[schemars(inline)]
#[serde(rename_all = "camelCase")]
pub struct FairSharingStatus {
    /// Usage above nominal quota as a fraction of the cohort's lendable quota, divided by the
    /// weight. `i64::MAX` means infinite.
    pub weighted_share: i64,
}

/// Whether past usage influences the order of admission.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[schemars(inline)]
#[serde(rename_all = "camelCase")]
pub struct AdmissionScope {
    /// The mode.
    pub admission_mode: AdmissionMode,
}

/// Whether past usage influences the order of admission.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
#[schemars(inline)]
pub enum AdmissionMode {
    /// LocalQueues with less past usage come first.
    UsageBasedAdmissionFairSharing,
    /// Past usage has no influence.
    #[default]
    NoAdmissionFairSharing,
}
