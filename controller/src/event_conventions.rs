//! Kueue's rules for the texts of events.

use switchyard_api::conditions::{
    reasons::{events, finished},
    truncated_event,
};
use switchyard_platform::events::Conventions;

/// Kueue's actions and truncation.
pub const KUEUE: Conventions = Conventions { action, truncate: truncated_event };

/// The event's action. As in Kueue, it equals the reason with few exceptions.
fn action(reason: &str) -> &str {
    match reason {
        finished::WORKLOAD_SLICE_REPLACED => "Replaced",
        events::PROVISIONING_REQUEST_CREATED => "Created",
        events::WORKLOAD_NAME_CONFLICT => "Admission",
        events::FORCEFULLY_DELETED => "ForcefulTermination",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[rstest::rstest]
    #[case("Admitted", "Admitted")]
    #[case("WorkloadSliceReplaced", "Replaced")]
    #[case("ProvisioningRequestCreated", "Created")]
    #[case("WorkloadNameConflict", "Admission")]
    #[case("KueueForcefullyDeleted", "ForcefulTermination")]
    fn action_is_kueues(#[case] reason: &str, #[case] expected: &str) {
        assert_eq!(action(reason), expected);
    }
}
