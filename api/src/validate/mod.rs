//! Rules beyond the schema: Kueue's webhook rules, in Kubernetes' words.
//!
//! Pure functions over whole objects, called by the validating webhook. The schema repeats each
//! rule that it can express, and the API server checks the schema first.

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
pub use workload::{admission_gated_by, on_disconnect, on_stuck, workload, workload_warnings};
pub use workload_update::{admission_gated_by_update, workload_update};

/// Rules that depend on a feature gate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ValidationGates {
    /// `PriorityBoost`: a Workload's priority boost must be an integer.
    pub priority_boost: bool,
    /// `ConcurrentAdmission`: checks the concurrent-admission policy of a ClusterQueue.
    pub concurrent_admission: bool,
    /// `RejectUpdatesToCQWithInvalidOnFlavors`: updates may not keep admission checks for unknown
    /// flavors.
    pub reject_invalid_on_flavors: bool,
    /// `ElasticJobsViaWorkloadSlices`: counts may be lowered while the Workload holds quota.
    pub elastic: bool,
    /// `AdmissionGatedBy`: checks the annotation's syntax, and forbids adding gates later.
    pub admission_gated_by: bool,
    /// `WorkloadValidationForPodSetMetadata`: checks labels and annotations of pod templates.
    pub pod_set_metadata: bool,
    /// `WorkloadValidateResourcesAreNonNegative`: forbids negative requests.
    pub non_negative: bool,
    /// `TopologyAwareScheduling`: an admission may change its topology assignments.
    pub topology: bool,
    /// `TASValidateWorkloadSliceSize`: a slice topology requires a slice size.
    pub slice_size: bool,
}

/// The defaults of Kueue's feature gates.
impl Default for ValidationGates {
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

/// Message for a value below zero.
pub(crate) const NOT_NEGATIVE: &str = "must be greater than or equal to 0";
/// Message for a changed immutable field.
const IMMUTABLE: &str = "field is immutable";
