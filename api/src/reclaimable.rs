//! Pods whose quota is not needed any more (`status.reclaimablePods`).

use crate::v1beta2::{Workload, WorkloadStatus};

/// Whether so few pods of a pod set may be reclaimable while quota is held: no more are needed then than were admitted. Fewer
/// become reclaimable when pods start again, as a JobSet that restarts has them do, or when a job shrinks. Kueue has the number
/// only grow.
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
