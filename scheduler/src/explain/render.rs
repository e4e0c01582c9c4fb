//! Explanations as text.

use super::{Explanation, Obstacle, Outlook, Verdict};
use crate::PreemptionPolicy;

impl Explanation {
    /// The message of the `QuotaReserved=False` condition and its event, in Kueue's words; `None`
    /// if the workload has quota.
    pub fn message(&self) -> Option<String> {
        self.reason.as_ref().map(crate::Reason::message)
    }
}

impl Outlook {
    /// For programs.
    pub fn name(self) -> &'static str {
        match self {
            Self::Finished => "Finished",
            Self::Admitted => "Admitted",
            Self::QuotaReserved => "QuotaReserved",
            Self::NotTried => "NotTried",
            Self::Fits => "Fits",
            Self::Preempts => "Preempts",
            Self::Blocked => "Blocked",
        }
    }
}

impl Verdict {
    /// For programs.
    pub fn name(self) -> &'static str {
        match self {
            Self::Mismatch => "Mismatch",
            Self::ExceedsMaxQuota => "ExceedsMaxQuota",
            Self::WaitingForQuota => "WaitingForQuota",
            Self::NoCandidates => "NoCandidates",
            Self::Preempt => "Preempt",
            Self::Reclaim => "Reclaim",
            Self::Fits => "Fits",
        }
    }
}

impl PreemptionPolicy {
    /// As in the API.
    pub fn name(self) -> &'static str {
        match self {
            Self::Never => "Never",
            Self::LowerPriority => "LowerPriority",
            Self::LowerOrNewerEqualPriority => "LowerOrNewerEqualPriority",
            Self::Any => "Any",
        }
    }
}

impl Obstacle {
    /// For programs.
    pub fn name(&self) -> &'static str {
        match self {
            Self::WithinClusterQueueNever => "WithinClusterQueueNever",
            Self::ReclaimWithinCohortNever => "ReclaimWithinCohortNever",
            Self::NotBorrowing { .. } => "NotBorrowing",
            Self::Priority { .. } => "Priority",
            Self::WhileBorrowing { .. } => "WhileBorrowing",
            Self::FairShare { .. } => "FairShare",
            Self::QueueInactive => "QueueInactive",
            Self::NotEnough => "NotEnough",
        }
    }

    /// For users: the field or fact that protects the workloads.
    pub fn message(&self) -> String {
        match self {
            Self::WithinClusterQueueNever => "preemption.withinClusterQueue is Never".to_owned(),
            Self::ReclaimWithinCohortNever => "preemption.reclaimWithinCohort is Never".to_owned(),
            Self::NotBorrowing { name } => format!("{name} uses no more than its own quota"),
            Self::Priority { field, policy, own, lowest } => {
                let than = match policy {
                    PreemptionPolicy::LowerOrNewerEqualPriority => "lower, or equal and newer",
                    _ => "lower",
                };
                format!(
                    "preemption.{field} is {}: priority {lowest} or more is not {than} than {own}",
                    policy.name()
                )
            }
            Self::WhileBorrowing { policy: PreemptionPolicy::Never, .. } => {
                "this workload would itself borrow, and preemption.borrowWithinCohort is Never"
                    .to_owned()
            }
            Self::WhileBorrowing { policy, max_priority_threshold: None } => format!(
                "this workload would itself borrow, and preemption.borrowWithinCohort is {}: theirs is not lower",
                policy.name()
            ),
            Self::WhileBorrowing { policy, max_priority_threshold: Some(threshold) } => format!(
                "this workload would itself borrow, and preemption.borrowWithinCohort is {} up to priority {threshold}",
                policy.name()
            ),
            Self::FairShare { own, theirs } => {
                format!(
                    "fair sharing: the share would be {} here and is {} there",
                    share(*own),
                    share(*theirs)
                )
            }
            Self::QueueInactive => "their ClusterQueue is not active".to_owned(),
            Self::NotEnough => {
                "they may be preempted, but it would not make enough room".to_owned()
            }
        }
    }
}

fn share(thousandths: i64) -> String {
    if thousandths == i64::MAX {
        "beyond all (weight 0)".to_owned()
    } else {
        thousandths.to_string()
    }
}
