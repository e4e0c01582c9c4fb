//! Queueing, admission and retention of workloads.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use switchyard_api::devices::DeviceClassMapping;

use super::GoDuration;

/// Timeouts for pods to become ready.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct WaitForPodsReady {
    /// Time from admission until the pods are ready. Then the workload is evicted.
    pub timeout: GoDuration,
    /// Whether all other admissions wait meanwhile.
    pub block_admission: bool,
    /// How the evicted workload is queued again.
    pub requeuing_strategy: RequeuingStrategy,
    /// Time from a pod's failure until all pods are ready again. Zero disables it. Defaults to
    /// `timeout`.
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
    /// The recovery timeout that applies. `None` if disabled.
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
    /// The timestamp that orders it.
    pub timestamp: RequeuingTimestamp,
    /// Requeues before it is deactivated. Unlimited if absent.
    pub backoff_limit_count: Option<i32>,
    /// Seconds before the first requeue. Doubled for each further one.
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

/// The timestamp that orders an evicted workload.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RequeuingTimestamp {
    /// Its creation: the workload comes before newer ones.
    Creation,
    /// Its eviction: the workload goes to the end.
    #[default]
    Eviction,
}

/// The managed job kinds.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Integrations {
    /// Built-in kinds, such as `batch/job`.
    pub frameworks: Vec<String>,
    /// Kinds whose Workloads another controller makes, as `Kind.version.group`.
    pub external_frameworks: Vec<String>,
    /// Keys of the job's labels to copy to its Workload.
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
    /// Conditions for a preemption, tried in this order.
    pub preemption_strategies: Vec<PreemptionStrategy>,
}

/// The condition for a preemption under fair sharing.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq)]
pub enum PreemptionStrategy {
    /// The preemptor's share after the preemption is at most the victim queue's share after it.
    LessThanOrEqualToFinalShare,
    /// The preemptor's share after the preemption is below the victim queue's share before it.
    LessThanInitialShare,
}

/// Admission in the order of past usage.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct AdmissionFairSharing {
    /// Time after which past usage counts half. Zero means that past usage never counts.
    pub usage_half_life_time: GoDuration,
    /// Interval of the usage samples.
    pub usage_sampling_interval: GoDuration,
    /// Weights of resources. 1 if absent.
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

/// Which requests count against quota.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Resources {
    /// The treatment of requests for resources that the ClusterQueue does not cover.
    pub quota_check_strategy: QuotaCheckStrategy,
    /// Prefixes of names of resources that do not count.
    pub exclude_resource_prefixes: Vec<String>,
    /// Resources that count as other resources.
    pub transformations: Vec<ResourceTransformation>,
    /// DeviceClasses that count as resources.
    pub device_class_mappings: Vec<DeviceClassMapping>,
}

/// The treatment of requests for resources that the ClusterQueue does not cover.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum QuotaCheckStrategy {
    /// The workload is not admitted.
    #[default]
    BlockUndeclared,
    /// The requests do not count.
    IgnoreUndeclared,
}

/// A resource that counts as other resources.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ResourceTransformation {
    /// The requested resource.
    pub input: String,
    /// Whether the input itself still counts.
    #[serde(default)]
    pub strategy: TransformationStrategy,
    /// A resource whose request multiplies the outputs.
    #[serde(default)]
    pub multiply_by: String,
    /// Amounts of other resources for one unit of the input.
    #[serde(default)]
    pub outputs: BTreeMap<String, Quantity>,
}

/// Whether the input of a transformation still counts.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TransformationStrategy {
    /// Yes.
    #[default]
    Retain,
    /// No.
    Replace,
}

/// Retention of objects.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct ObjectRetentionPolicies {
    /// Retention of Workloads.
    pub workloads: WorkloadRetentionPolicy,
}

/// Retention of Workloads: for ever if absent, not at all if zero.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct WorkloadRetentionPolicy {
    /// Time after their end.
    pub after_finished: Option<GoDuration>,
    /// Time after the controller deactivated them.
    pub after_deactivated_by_kueue: Option<GoDuration>,
}
