//! Detects that another program keeps changing a field back, so that two programs do not overwrite
//! each other for ever.

use std::{collections::VecDeque, time::Duration};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry;
use serde_json::Value;
use tokio::time::Instant;

/// Corrections within [`WINDOW`] that manual changes can cause, for example applying a file again
/// or rolling a release back. More come from a program.
const CORRECTIONS: usize = 4;
pub(super) const WINDOW: Duration = Duration::from_secs(600);

/// The recent corrections of one object.
#[derive(Debug, Default)]
pub(super) struct CorrectionHistory {
    /// Times of the last corrections, at most [`CORRECTIONS`], oldest first.
    times: VecDeque<Instant>,
    reported: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CorrectionDecision {
    Correct,
    /// Another program would only undo it. `first` if this was not reported yet.
    LeaveAlone {
        first: bool,
    },
}

impl CorrectionHistory {
    /// Whether to correct an object that differs from what it should be.
    pub(super) fn decide(&mut self, now: Instant) -> CorrectionDecision {
        while self.times.front().is_some_and(|time| now.saturating_duration_since(*time) >= WINDOW)
        {
            self.times.pop_front();
        }
        if self.times.len() < CORRECTIONS {
            self.reported = false;
            return CorrectionDecision::Correct;
        }
        CorrectionDecision::LeaveAlone { first: !std::mem::replace(&mut self.reported, true) }
    }

    /// Counts a correction that succeeded.
    pub(super) fn record(&mut self, now: Instant) {
        self.times.push_back(now);
    }
}

/// The field manager that wrote `spec.<field>` last.
pub(super) fn last_writer<'a>(managed: &'a [ManagedFieldsEntry], field: &str) -> Option<&'a str> {
    let wrote = |entry: &&ManagedFieldsEntry| {
        let fields = entry.fields_v1.as_ref().map(|fields| &fields.0);
        fields
            .and_then(|fields| fields.get("f:spec")?.get(format!("f:{field}")))
            .is_some_and(|it| *it != Value::Null)
    };
    managed
        .iter()
        .filter(wrote)
        .max_by_key(|entry| entry.time.as_ref().map(|time| time.0))?
        .manager
        .as_deref()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn failed_corrections_are_retried_without_limit() {
        let mut history = CorrectionHistory::default();
        for _ in 0..10 * CORRECTIONS {
            assert_eq!(history.decide(Instant::now()), CorrectionDecision::Correct);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn frequent_changes_are_left_alone_for_a_while() {
        let (mut history, start) = (CorrectionHistory::default(), Instant::now());
        let mut decide = |seconds: u64| {
            let now = start + Duration::from_secs(seconds);
            let decision = history.decide(now);
            if decision == CorrectionDecision::Correct {
                history.record(now);
            }
            decision
        };
        let (first, again) = (
            CorrectionDecision::LeaveAlone { first: true },
            CorrectionDecision::LeaveAlone { first: false },
        );
        for (at, decision) in [
            (0, CorrectionDecision::Correct),
            (1, CorrectionDecision::Correct),
            (2, CorrectionDecision::Correct),
            (3, CorrectionDecision::Correct),
            (4, first),
            (5, again),
            (599, again),
            (600, CorrectionDecision::Correct),
            (600, first),
            (5000, CorrectionDecision::Correct),
        ] {
            assert_eq!(decide(at), decision, "after {at} s");
        }
    }

    #[test]
    fn last_writer_is_found_by_field() {
        let managed: Vec<ManagedFieldsEntry> = serde_json::from_value(json!([
            {"manager": "helm", "time": "2026-01-01T00:00:00Z", "fieldsV1": {"f:spec": {"f:conversion": {}}}},
            {"manager": "other", "time": "2026-01-03T00:00:00Z", "fieldsV1": {"f:spec": {"f:conversion": {".": {}}}}},
            {"manager": "kubectl", "time": "2026-01-04T00:00:00Z", "fieldsV1": {"f:spec": {"f:versions": {}}}},
        ]))
        .unwrap();
        assert_eq!(last_writer(&managed, "conversion"), Some("other"));
        assert_eq!(last_writer(&managed, "versions"), Some("kubectl"));
        assert_eq!(last_writer(&managed, "scope"), None);
    }
}
