//! Pods whose quota is no longer needed (`status.reclaimablePods`).

use crate::v1beta2::{Workload, WorkloadStatus};

/// Whether the number of reclaimable pods of a pod set may become this low while the Workload holds
/// quota: only if no more pods are needed then than were admitted.
///
/// The number drops if pods start again, as after a restart of a JobSet, or if a job shrinks. Kueue
/// only lets it grow.
#[must_use]
pub fn may_reclaim(
    workload: &Workload,
    status: &WorkloadStatus,
    pod_set: &str,
    reclaimable: i32,
) -> bool {
    let asked =
        workload.spec.pod_sets.iter().find(|it| it.name == pod_set).map_or(0, |it| it.count);
    let assignments = status.admission.iter().flat_map(|admission| &admission.pod_set_assignments);
    let admitted = assignments.filter(|it| it.name == pod_set).find_map(|it| it.count);
    admitted.is_none_or(|admitted| asked.saturating_sub(reclaimable) <= admitted)
}
