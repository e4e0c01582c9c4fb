//! The message for a victim, in Kueue's words: `pkg/scheduler/preemption/preemption.go`.

use crate::Decision;
use crate::ids::NodeId;
use crate::tree::QuotaTree;

/// `/root/cohort/queue`.
pub(crate) fn path(tree: &QuotaTree, queue: NodeId) -> String {
    let mut names: Vec<_> =
        tree.path(queue).into_iter().filter_map(|id| tree.name(id)).cloned().collect();
    names.reverse();
    format!("/{}", names.join("/"))
}

impl Decision {
    /// The message of the victim's `Preempted` and `Evicted` conditions; `None` for other
    /// decisions. `job_uid` is the preemptor's label `kueue.x-k8s.io/job-uid`.
    pub fn preempted_message(&self, job_uid: Option<&str>) -> Option<String> {
        let Self::Preempt { reason, preemptor_uid, preemptor_path, preemptee_path, .. } = self
        else {
            return None;
        };
        let known =
            |text: &str| if text.is_empty() { "UNKNOWN".to_owned() } else { text.to_owned() };
        let because = match *reason {
            "InClusterQueue" => "prioritization in the ClusterQueue",
            "InCohortReclamation" => "reclamation within the cohort",
            "InCohortFairSharing" => "Fair Sharing within the cohort",
            "InCohortReclaimWhileBorrowing" => "reclamation within the cohort while borrowing",
            _ => "UNKNOWN",
        };
        Some(format!(
            "Preempted to accommodate a workload (UID: {}, JobUID: {}) due to {because}; preemptor path: {}; \
             preemptee path: {}",
            known(preemptor_uid),
            known(job_uid.unwrap_or_default()),
            known(preemptor_path),
            known(preemptee_path),
        ))
    }
}
