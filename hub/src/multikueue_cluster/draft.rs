//! What the status of a MultiKueueCluster is to say next, and what people are told once it says so. Pure.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use switchyard_api::conditions;
use switchyard_api::v1beta2::{MultiKueueCluster, MultiKueueClusterStatus};

use super::status::differ_beyond_capacity;

/// Capacity in a cluster's status is written at most this often: it is for people.
pub(super) const CAPACITY_EVERY: Duration = Duration::from_secs(5);
/// A cluster's status is written at most this often, however often its agent comes and goes.
pub(super) const CHANGES_EVERY: Duration = Duration::from_millis(250);

/// A status in the making.
pub(super) struct Draft {
    before: MultiKueueClusterStatus,
    /// As it is to be.
    pub(super) after: MultiKueueClusterStatus,
    now: Timestamp,
    news: bool,
    warnings: Vec<Warning>,
}

/// An event of the type Warning: its reason and note.
pub(super) type Warning = (&'static str, String);

/// What is to be done about it.
#[derive(Debug, PartialEq)]
pub(super) enum Plan {
    /// It says so already.
    Done,
    /// It is looked at again after so long; nobody is told before.
    Later(Duration),
    /// It is written; then these are published.
    Write(Vec<Warning>),
}

impl Draft {
    /// Begins with what the object says.
    pub(super) fn new(cluster: &MultiKueueCluster, now: Timestamp) -> Self {
        let before = cluster.status.clone().unwrap_or_default();
        Self { after: before.clone(), before, now, news: false, warnings: Vec::new() }
    }

    /// As it was.
    pub(super) fn before(&self) -> &MultiKueueClusterStatus {
        &self.before
    }

    /// Sets a condition. Returns whether that is news.
    pub(super) fn set(&mut self, condition: Condition) -> bool {
        let news = conditions::set(&mut self.after.conditions, condition, self.now);
        self.news |= news;
        news
    }

    /// Sets a condition under which something is amiss, and warns each time that it says something else.
    pub(super) fn set_and_warn(&mut self, reason: &'static str, condition: Condition) {
        let (holds, note) = (condition.status == conditions::TRUE, condition.message.clone());
        if self.set(condition) && holds {
            self.warnings.push((reason, note));
        }
    }

    /// As [`Self::set_and_warn`], for what changes all the time: warns only when it begins.
    pub(super) fn set_and_warn_once(&mut self, reason: &'static str, condition: Condition) {
        if conditions::is_true(&self.after.conditions, &condition.type_) {
            self.set(condition);
        } else {
            self.set_and_warn(reason, condition);
        }
    }

    /// What is to be done; `written`: how long ago its status was last written.
    pub(super) fn plan(&self, written: Option<Duration>) -> Plan {
        let news = self.news
            || differ_beyond_capacity(self.before.agent.as_ref(), self.after.agent.as_ref());
        if !news && self.before == self.after {
            return Plan::Done;
        }
        let every = if news { CHANGES_EVERY } else { CAPACITY_EVERY };
        match written.and_then(|written| every.checked_sub(written)).filter(|left| !left.is_zero())
        {
            Some(left) => Plan::Later(left),
            None => Plan::Write(self.warnings.clone()),
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

    fn draft(before: Option<bool>, once: bool, holds: bool, message: &str) -> Draft {
        let mut draft = Draft::new(&cluster(before), Timestamp::UNIX_EPOCH);
        let condition = conditions::new("Amiss", holds, "Reason", message, None);
        if once {
            draft.set_and_warn_once("Amiss", condition);
        } else {
            draft.set_and_warn("Amiss", condition);
        }
        draft
    }

    #[test]
    fn people_are_told_when_it_is_written_and_not_each_time_that_it_is_looked_at() {
        let begins = draft(None, false, true, "now");
        let told = || Plan::Write(vec![("Amiss", "now".to_owned())]);
        assert_eq!(begins.plan(None), told());
        assert_eq!(
            begins.plan(Some(Duration::from_millis(100))),
            Plan::Later(Duration::from_millis(150))
        );
        assert_eq!(begins.plan(Some(CHANGES_EVERY)), told());
    }

    #[test]
    fn people_are_told_of() {
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
                Plan::Write(warnings) => Some(warnings.len()),
                Plan::Done | Plan::Later(_) => None,
            };
            assert_eq!(told, want, "{case}");
        }
    }

    #[test]
    fn figures_wait_for_longer_than_news() {
        let mut figures = Draft::new(&cluster(None), Timestamp::UNIX_EPOCH);
        assert_eq!(figures.plan(None), Plan::Done);
        figures.after.orphans = vec![
            serde_json::from_value(json!({
                "workloadUid": "u", "namespace": "ns", "name": "w", "attempt": 1, "state": "Running",
                "since": "2026-01-01T00:00:00Z",
            }))
            .unwrap(),
        ];
        assert_eq!(figures.plan(Some(Duration::from_secs(1))), Plan::Later(Duration::from_secs(4)));
    }
}
