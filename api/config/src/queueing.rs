//! How workloads are queued, admitted and kept.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use switchyard_api::devices::DeviceClassMapping;

use super::GoDuration;

/// How long pods may take to become ready.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct WaitForPodsReady {
    /// From admission until the pods are ready; then the workload is evicted.
    pub timeout: GoDuration,
    /// Whether nothing else is admitted meanwhile.
    pub block_admission: bool,
    /// How the workload is queued again.
    pub requeuing_strategy: RequeuingStrategy,
    /// From the failure of a pod until all are ready again; zero never ends it. As `timeout` when absent.
    pub recovery_timeout: Option<GoDuration>,
}

impl Default for WaitForPodsReady {
    fn default() -> Self {
        Self {
            timeout: GoDuration::from_secs(30 * 60),
            block_admission: false,
            requeuing_strategy: RequeuingStrategy::default(),
            recovery_timeout: None,
        }
    }
}

impl WaitForPodsReady {
    /// The recovery timeout that applies; none when it is switched off.
    #[must_use]
    pub fn recovery_timeout(&self) -> Option<GoDuration> {
        Some(self.recovery_timeout.unwrap_or(self.timeout))
            .filter(|timeout| *timeout != GoDuration::ZERO)
    }
}

/// How an evicted workload is queued again.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct RequeuingStrategy {
    /// Which moment gives its place.
    pub timestamp: RequeuingTimestamp,
    /// How often, before it is deactivated; without bound when absent.
    pub backoff_limit_count: Option<i32>,
    /// Seconds before the first time; doubled for each further one.
    pub backoff_base_seconds: i32,
    /// The longest wait in seconds.
    pub backoff_max_seconds: i32,
}

impl Default for RequeuingStrategy {
    fn default() -> Self {
        Self {
            timestamp: RequeuingTimestamp::Eviction,
            backoff_limit_count: None,
            backoff_base_seconds: 60,
            backoff_max_seconds: 3600,
        }
    }
}

/// Which moment gives an evicted workload its place.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RequeuingTimestamp {
    /// Its creation: it comes before newer ones.
    Creation,
    /// Its eviction: it goes to the end.
    #[default]
    Eviction,
}

/// Which kinds of jobs are managed.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Integrations {
    /// Built-in kinds, such as `batch/job`.
    pub frameworks: Vec<String>,
    /// Kinds that another controller makes workloads for, as `Kind.version.group`.
    pub external_frameworks: Vec<String>,
    /// Labels of a job that its workload gets.
    pub label_keys_to_copy: Vec<String>,
}

impl Default for Integrations {
    fn default() -> Self {
        Self {
            frameworks: vec![super::BATCH_JOB.to_owned()],
            external_frameworks: Vec::new(),
            label_keys_to_copy: Vec::new(),
        }
    }
}

/// Fair sharing of unused quota.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct FairSharing {
    /// What a preemption must satisfy; the second is tried where the first does not suffice.
    pub preemption_strategies: Vec<PreemptionStrategy>,
}

/// What a preemption must satisfy under fair sharing.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq)]
pub enum PreemptionStrategy {
    /// The share with the newcomer is at most the share of the other queue without the victim.
    LessThanOrEqualToFinalShare,
    /// The share with the newcomer is below the share of the other queue as it is.
    LessThanInitialShare,
}

/// Past use counts in the order of admission.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct AdmissionFairSharing {
    /// After how long past use counts half; zero forgets at once.
    pub usage_half_life_time: GoDuration,
    /// How often use is reckoned.
    pub usage_sampling_interval: GoDuration,
    /// How much a resource weighs; one when absent.
    pub resource_weights: BTreeMap<String, f64>,
}

impl Default for AdmissionFairSharing {
    fn default() -> Self {
        Self {
            usage_half_life_time: GoDuration::ZERO,
            usage_sampling_interval: GoDuration::from_secs(5 * 60),
            resource_weights: BTreeMap::new(),
        }
    }
}

/// What counts as a request.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Resources {
    /// What happens to requests for a resource that the ClusterQueue does not cover.
    pub quota_check_strategy: QuotaCheckStrategy,
    /// Resources that do not count, by the beginning of their names.
    pub exclude_resource_prefixes: Vec<String>,
    /// Resources that count as others.
    pub transformations: Vec<ResourceTransformation>,
    /// Devices that count as resources.
    pub device_class_mappings: Vec<DeviceClassMapping>,
}

/// What happens to requests for a resource that the ClusterQueue does not cover.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum QuotaCheckStrategy {
    /// The workload is not admitted.
    #[default]
    BlockUndeclared,
    /// They do not count.
    IgnoreUndeclared,
}

/// A resource that counts as others.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ResourceTransformation {
    /// The resource asked for.
    pub input: String,
    /// Whether it counts itself, too.
    #[serde(default)]
    pub strategy: TransformationStrategy,
    /// A resource whose request multiplies the outputs.
    #[serde(default)]
    pub multiply_by: String,
    /// What one unit counts as.
    #[serde(default)]
    pub outputs: BTreeMap<String, Quantity>,
}

/// Whether a transformed resource counts itself, too.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TransformationStrategy {
    /// It does.
    #[default]
    Retain,
    /// It does not.
    Replace,
}

/// How long objects are kept.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct ObjectRetentionPolicies {
    /// Workloads.
    pub workloads: WorkloadRetentionPolicy,
}

/// How long workloads are kept: for ever when absent, not at all when zero.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct WorkloadRetentionPolicy {
    /// After their end.
    pub after_finished: Option<GoDuration>,
    /// After the controller deactivated them.
    pub after_deactivated_by_kueue: Option<GoDuration>,
}
