//! The next status of a MultiKueueCluster, and the events that go with it. Pure.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use switchyard_api::conditions;
use switchyard_api::v1beta2::{MultiKueueCluster, MultiKueueClusterStatus};

use super::status::differ_beyond_capacity;

/// Least time between two writes of a status for its capacity. Operators read it.
pub(super) const CAPACITY_EVERY: Duration = Duration::from_secs(5);
/// Least time between two writes of a status, however often an agent connects.
pub(super) const CHANGES_EVERY: Duration = Duration::from_millis(250);

/// A status under construction.
pub(super) struct StatusDraft {
    before: MultiKueueClusterStatus,
    pub(super) after: MultiKueueClusterStatus,
    now: Timestamp,
    news: bool,
    warnings: Vec<Warning>,
}

/// Reason and note of a Warning event.
pub(super) type Warning = (&'static str, String);

/// The next step for a draft.
#[derive(Debug, PartialEq)]
pub(super) enum StatusPlan {
    /// The status says all of it already.
    Done,
    /// Reconcile again after this time. Publish no event before.
    Later(Duration),
    /// Write the status, then publish these events.
    Write(Vec<Warning>),
}

impl StatusDraft {
    pub(super) fn new(cluster: &MultiKueueCluster, now: Timestamp) -> Self {
        let before = cluster.status.clone().unwrap_or_default();
        Self { after: before.clone(), before, now, news: false, warnings: Vec::new() }
    }

    pub(super) fn before(&self) -> &MultiKueueClusterStatus {
        &self.before
    }

    /// Sets a condition. Returns whether it changed.
    pub(super) fn set(&mut self, condition: Condition) -> bool {
        let news = conditions::set(&mut self.after.conditions, condition, self.now);
        self.news |= news;
        news
    }

    /// Sets a condition that reports a fault. Warns when the fault occurs or its message changes.
    pub(super) fn set_and_warn(&mut self, reason: &'static str, condition: Condition) {
        let (holds, note) = (condition.status == conditions::TRUE, condition.message.clone());
        if self.set(condition) && holds {
            self.warnings.push((reason, note));
        }
    }

    /// As [`Self::set_and_warn`], but warns only when the fault occurs: its message changes all the
    /// time.
    pub(super) fn set_and_warn_once(&mut self, reason: &'static str, condition: Condition) {
        if conditions::is_true(&self.after.conditions, &condition.type_) {
            self.set(condition);
        } else {
            self.set_and_warn(reason, condition);
        }
    }

    /// The next step. `written` is the time since the last write.
    pub(super) fn plan(&self, written: Option<Duration>) -> StatusPlan {
        let news = self.news
            || differ_beyond_capacity(self.before.agent.as_ref(), self.after.agent.as_ref());
        if !news && self.before == self.after {
            return StatusPlan::Done;
        }
        let every = if news { CHANGES_EVERY } else { CAPACITY_EVERY };
        match written.and_then(|written| every.checked_sub(written)).filter(|left| !left.is_zero())
        {
            Some(left) => StatusPlan::Later(left),
            None => StatusPlan::Write(self.warnings.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn cluster(holds: Option<bool>) -> MultiKueueCluster {
        let condition =
            holds.map(|holds| conditions::new("Amiss", holds, "Reason", "as before", None));
        serde_json::from_value(json!({
            "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "MultiKueueCluster", "metadata": {"name": "west"},
            "spec": {"clusterSource": {"agent": {}}},
            "status": {"conditions": condition.into_iter().collect::<Vec<_>>()},
        }))
        .unwrap()
    }

    fn draft(before: Option<bool>, once: bool, holds: bool, message: &str) -> StatusDraft {
        let mut draft = StatusDraft::new(&cluster(before), Timestamp::UNIX_EPOCH);
        let condition = conditions::new("Amiss", holds, "Reason", message, None);
        if once {
            draft.set_and_warn_once("Amiss", condition);
        } else {
            draft.set_and_warn("Amiss", condition);
        }
        draft
    }

    #[test]
    fn event_is_published_with_the_write_only() {
        let begins = draft(None, false, true, "now");
        let told = || StatusPlan::Write(vec![("Amiss", "now".to_owned())]);
        assert_eq!(begins.plan(None), told());
        assert_eq!(
            begins.plan(Some(Duration::from_millis(100))),
            StatusPlan::Later(Duration::from_millis(150))
        );
        assert_eq!(begins.plan(Some(CHANGES_EVERY)), told());
    }

    #[test]
    fn warning_is_published_for_new_faults() {
        let cases = [
            ("what begins", (None, false, true, "now"), Some(1)),
            ("what begins again", (Some(false), false, true, "now"), Some(1)),
            ("what becomes otherwise", (Some(true), false, true, "now"), Some(1)),
            (
                "nothing that becomes otherwise all the time",
                (Some(true), true, true, "now"),
                Some(0),
            ),
            (
                "what begins, be it otherwise all the time",
                (Some(false), true, true, "now"),
                Some(1),
            ),
            ("no end", (Some(true), false, false, "over"), Some(0)),
            ("nothing that is as it was", (Some(true), false, true, "as before"), None),
        ];
        for (case, (before, once, holds, message), want) in cases {
            let told = match draft(before, once, holds, message).plan(None) {
                StatusPlan::Write(warnings) => Some(warnings.len()),
                StatusPlan::Done | StatusPlan::Later(_) => None,
            };
            assert_eq!(told, want, "{case}");
        }
    }

    #[test]
    fn capacity_waits_longer_than_conditions() {
        let mut figures = StatusDraft::new(&cluster(None), Timestamp::UNIX_EPOCH);
        assert_eq!(figures.plan(None), StatusPlan::Done);
        figures.after.orphans = vec![
            serde_json::from_value(json!({
                "workloadUid": "u", "namespace": "ns", "name": "w", "attempt": 1, "state": "Running",
                "since": "2026-01-01T00:00:00Z",
            }))
            .unwrap(),
        ];
        assert_eq!(
            figures.plan(Some(Duration::from_secs(1))),
            StatusPlan::Later(Duration::from_secs(4))
        );
    }
}
