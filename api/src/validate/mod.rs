//! What must hold of an object beyond its schema: Kueue's webhook rules, in Kubernetes' words.
//!
//! Pure functions over whole objects, served by the validating webhook. Rules that the schema can state are in the
//! schema, too, and are met there first.

mod cluster_queue;
mod quota;
mod resource_flavor;
#[cfg(test)]
mod tests;
mod workload;
mod workload_update;

use switchyard_syntax::labels;

pub use cluster_queue::{cluster_queue, cluster_queue_update};
pub use quota::cohort;
pub use resource_flavor::resource_flavor;
pub use switchyard_syntax::labels::{
    SUBDOMAIN_MESSAGE, annotations, is_subdomain, label_key_error, label_selector,
    label_value_error, labels, selector_matches,
};
pub use workload::{admission_gated_by, on_disconnect, workload, workload_warnings};
pub use workload_update::{admission_gated_by_update, workload_update};

/// The rules that hold by a feature gate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gates {
    /// `PriorityBoost`: a Workload's boost is a number.
    pub priority_boost: bool,
    /// `ConcurrentAdmission`: the policy of a ClusterQueue fits the rest of it.
    pub concurrent_admission: bool,
    /// `RejectUpdatesToCQWithInvalidOnFlavors`: also checks that were there before are for flavors that there are.
    pub reject_invalid_on_flavors: bool,
    /// `ElasticJobsViaWorkloadSlices`: counts may be lowered while quota is held.
    pub elastic: bool,
    /// `AdmissionGatedBy`: the annotation that holds a Workload back lists gates, and none is added later.
    pub admission_gated_by: bool,
    /// `WorkloadValidationForPodSetMetadata`: labels and annotations of pod templates are such.
    pub pod_set_metadata: bool,
    /// `WorkloadValidateResourcesAreNonNegative`: no pod asks for less than nothing.
    pub non_negative: bool,
    /// `TopologyAwareScheduling`: an admission may change where its pods go.
    pub topology: bool,
    /// `TASValidateWorkloadSliceSize`: slices have a size.
    pub slice_size: bool,
}

/// As Kueue's gates are by default.
impl Default for Gates {
    fn default() -> Self {
        Self {
            priority_boost: false,
            concurrent_admission: false,
            reject_invalid_on_flavors: false,
            elastic: true,
            admission_gated_by: true,
            pod_set_metadata: true,
            non_negative: true,
            topology: true,
            slice_size: true,
        }
    }
}

/// What is said of a value below zero.
pub(crate) const NOT_NEGATIVE: &str = "must be greater than or equal to 0";
/// What is said of a value that changed.
const IMMUTABLE: &str = "field is immutable";
