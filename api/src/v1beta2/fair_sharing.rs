//! Fair sharing: weights asked for and shares observed.

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::schema;

/// A weight among siblings that compete for unused quota.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[schemars(inline)]
#[serde(rename_all = "camelCase")]
pub struct FairSharing {
    /// 1 when absent. Zero puts this node behind all others; other values are above 10^-9.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::weight")]
    pub weight: Option<Quantity>,
}

/// The share in use.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[schemars(inline)]
#[serde(rename_all = "camelCase")]
pub struct FairSharingStatus {
    /// Use above nominal quota as a part of what the cohort can lend, divided by the weight; `i64::MAX` is infinite.
    pub weighted_share: i64,
}

/// Whether past use counts in the order of admission.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[schemars(inline)]
#[serde(rename_all = "camelCase")]
pub struct AdmissionScope {
    /// The mode.
    pub admission_mode: AdmissionMode,
}

/// Whether past use counts in the order of admission.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
#[schemars(inline)]
pub enum AdmissionMode {
    /// LocalQueues that used less come first.
    UsageBasedAdmissionFairSharing,
    /// It does not count.
    #[default]
    NoAdmissionFairSharing,
}
