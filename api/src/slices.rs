//! Slices: the Workloads of an elastic job, Kueue's `ElasticJobsViaWorkloadSlices` (KEP-77).

use crate::{names, v1beta2::Workload};

/// The feature gate, on by default as in Kueue.
pub const FEATURE_GATE: &str = "ElasticJobsViaWorkloadSlices";

/// Whether the Workload belongs to an elastic job.
#[must_use]
pub fn is_slice(workload: &Workload) -> bool {
    let annotations = workload.metadata.annotations.as_ref();
    annotations.and_then(|all| all.get(names::ELASTIC_JOB)).is_some_and(|value| value == "true")
}
