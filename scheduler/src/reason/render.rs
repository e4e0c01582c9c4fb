//! The one place where reasons become text. The wording is Kueue's, which tools and tests match.

use super::Reason;

impl Reason {
    /// The reason of the `QuotaReserved=False` condition.
    pub fn condition_reason(&self) -> &'static str {
        match self {
            Self::NoFit { .. } => "WaitingForQuota",
            Self::Waiting { .. } => "PendingEvaluation",
            Self::LocalQueueMissing { .. } => "Misconfigured",
        }
    }

    /// The message of the condition and of the event.
    pub fn message(&self) -> String {
        String::new()
    }
}
