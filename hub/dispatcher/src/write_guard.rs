//! Write guard: whether a decided change is still needed, given the Workload as last read.
//!
//! The writer asks before each try. Between decision and try, others may have changed the Workload,
//! or its cluster may have changed.

use std::time::Duration;

use switchyard_syntax::flavor_pins::FlavorPins;

use super::{CLUSTER_DRAINED, CLUSTER_LOST, CheckStatus, STUCK, WorkloadState, WorkloadWrite};

/// How long a decision about a cluster is valid, see [`is_outdated`].
const CLUSTER_DECISION_VALID: Duration = Duration::from_secs(15);

/// Result of [`check`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteDecision {
    /// Write the change.
    Write,
    /// First remove another cluster's name. Kueue's webhook forbids changing `status.clusterName`.
    ClearClusterFirst,
    /// The API shows it already.
    AlreadyApplied,
    /// Do not write it, for this reason.
    Obsolete(&'static str),
}

/// Whether the change must be decided again, because its decision is `age` old. While the API server
/// did not answer, the pods of a stuck job may have become ready. A lost cluster may have come back,
/// or an administrator may have stopped the drain. The Workload shows none of these.
pub fn is_outdated(write: &WorkloadWrite, age: Duration) -> bool {
    match write {
        WorkloadWrite::Retry { retried: Some(left), .. } => {
            let is_about_cluster = [STUCK, CLUSTER_LOST, CLUSTER_DRAINED].contains(&left.reason);
            is_about_cluster && age > CLUSTER_DECISION_VALID
        }
        WorkloadWrite::Commit { .. }
        | WorkloadWrite::Rename { .. }
        | WorkloadWrite::Record { .. }
        | WorkloadWrite::Retry { retried: None, .. }
        | WorkloadWrite::Release
        | WorkloadWrite::Finish { .. } => false,
    }
}

/// Decides whether a change of the Workload with this uid is still needed. `charged`: the flavors of
/// its quota in the API, or else in memory. `in_memory`: the engine holds its quota in memory.
pub fn check(
    write: &WorkloadWrite,
    uid: &str,
    at: &WorkloadState,
    charged: &FlavorPins,
    in_memory: bool,
) -> WriteDecision {
    if at.finished {
        return if matches!(write, WorkloadWrite::Finish { .. }) {
            WriteDecision::AlreadyApplied
        } else {
            WriteDecision::Obsolete("finished")
        };
    }
    match write {
        WorkloadWrite::Finish { cluster, attempt, .. } => {
            // An eviction removes the cluster's name; then the attempt decides.
            let here = at.cluster.as_ref().is_none_or(|name| name == cluster);
            return if here && at.attempt == *attempt {
                WriteDecision::Write
            } else {
                WriteDecision::Obsolete("another attempt")
            };
        }
        // Only an evicted workload has quota to release.
        WorkloadWrite::Release => {
            let goes = at.evicted || at.deleting;
            return if at.reserved && goes {
                WriteDecision::Write
            } else {
                WriteDecision::AlreadyApplied
            };
        }
        WorkloadWrite::Commit { .. }
        | WorkloadWrite::Rename { .. }
        | WorkloadWrite::Record { .. }
        | WorkloadWrite::Retry { .. } => {}
    }
    if !at.active || at.deleting {
        return WriteDecision::Obsolete("not to run any more");
    }
    if at.reserved && at.evicted {
        return WriteDecision::Obsolete("being evicted");
    }
    // Attempts under another uid have numbers of their own.
    let is_copy = |adopts: Option<&str>| adopts.is_some_and(|own| own != uid);
    let quota = if at.reserved || in_memory {
        WriteDecision::Write
    } else {
        WriteDecision::Obsolete("its reservation is gone")
    };
    match write {
        WorkloadWrite::Commit { cluster, attempt, adopts, charged: chosen } => match &at.cluster {
            Some(name) if name == cluster && at.attempt == *attempt => {
                WriteDecision::AlreadyApplied
            }
            // An earlier leader's late write may have reserved other flavors.
            _ if (at.reserved || in_memory) && **chosen != *charged => {
                WriteDecision::Obsolete("its quota is in other flavors")
            }
            // The API dropped or forgot the attempt.
            Some(name) if name == cluster && adopts.is_some() && at.attempt < *attempt => quota,
            // The API was restored. The name cannot be changed, but removed.
            Some(_) if adopts.is_some() && at.attempt < *attempt => {
                WriteDecision::ClearClusterFirst
            }
            Some(_) => WriteDecision::Obsolete("another cluster has it"),
            None if at.attempt >= *attempt
                && (at.cluster_uid.is_some() || !is_copy(adopts.as_deref())) =>
            {
                WriteDecision::Obsolete("a later attempt was made")
            }
            None => quota,
        },
        WorkloadWrite::Rename { attempt, .. } if at.attempt != *attempt => {
            WriteDecision::Obsolete("another attempt")
        }
        WorkloadWrite::Rename { from, cluster: to, .. } => match &at.cluster {
            Some(name) if name == to => WriteDecision::AlreadyApplied,
            Some(name) if from.as_ref().is_some_and(|from| name == from) => {
                WriteDecision::ClearClusterFirst
            }
            Some(_) => WriteDecision::Obsolete("another cluster has it"),
            None if at.reserved && matches!(at.check, Some((_, CheckStatus::Ready))) => {
                WriteDecision::Write
            }
            None => WriteDecision::Obsolete("it was given up"),
        },
        WorkloadWrite::Record { .. } if at.cluster.is_some() => {
            WriteDecision::Obsolete("a cluster has it")
        }
        WorkloadWrite::Record { .. } => quota,
        WorkloadWrite::Retry { .. } => match at.check.as_ref().map(|(_, status)| *status) {
            None => WriteDecision::Obsolete("it has no MultiKueue check"),
            Some(CheckStatus::Retry | CheckStatus::Rejected) => WriteDecision::AlreadyApplied,
            Some(CheckStatus::Pending | CheckStatus::Ready) => WriteDecision::Write,
        },
        WorkloadWrite::Release | WorkloadWrite::Finish { .. } => {
            WriteDecision::Obsolete("judged above")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RetriedAttempt;

    /// To `east`, as attempt 2.
    fn commit(adopts: Option<&str>) -> WorkloadWrite {
        WorkloadWrite::Commit {
            cluster: "east".into(),
            attempt: 2,
            adopts: adopts.map(Into::into),
            charged: charged("spot").into(),
        }
    }

    fn charged(flavor: &str) -> FlavorPins {
        FlavorPins::from_rows([("main", "cpu", flavor)]).unwrap()
    }

    fn decide(write: &WorkloadWrite, state: &WorkloadState) -> WriteDecision {
        check(write, "w", state, &charged("spot"), false)
    }

    fn status(status: CheckStatus) -> Option<(crate::Name, CheckStatus)> {
        Some(("mk".into(), status))
    }

    fn reserved() -> WorkloadState {
        WorkloadState {
            active: true,
            reserved: true,
            check: status(CheckStatus::Pending),
            ..WorkloadState::default()
        }
    }

    fn on(cluster: &str, attempt: u64) -> WorkloadState {
        WorkloadState {
            cluster: Some(cluster.into()),
            attempt,
            check: status(CheckStatus::Ready),
            ..reserved()
        }
    }

    #[rstest::rstest]
    #[case::stuck(STUCK, true)]
    #[case::lost(CLUSTER_LOST, true)]
    #[case::drained(CLUSTER_DRAINED, true)]
    #[case::evicted_there("EvictedOnWorker", false)]
    fn old_decision_about_a_cluster_is_outdated(
        #[case] reason: &'static str,
        #[case] expected: bool,
    ) {
        let cluster = "east".into();
        let left = RetriedAttempt { cluster, attempt: 2, reason, evicted_for: None };
        let retry = WorkloadWrite::Retry { message: String::new(), retried: Some(left) };
        assert!(!is_outdated(&retry, CLUSTER_DECISION_VALID));
        let later = CLUSTER_DECISION_VALID + Duration::from_millis(1);
        assert_eq!(is_outdated(&retry, later), expected);
        assert!(!is_outdated(&commit(None), later));
    }

    #[test]
    fn commit_is_written_once_and_only_in_expected_state() {
        let commit = |adopts: bool| commit(adopts.then_some("w"));
        for (case, adopts, standing, expected) in [
            ("it has quota", false, reserved(), WriteDecision::Write),
            (
                "no quota",
                false,
                WorkloadState { reserved: false, ..reserved() },
                WriteDecision::Obsolete("its reservation is gone"),
            ),
            ("it is there", false, on("east", 2), WriteDecision::AlreadyApplied),
            (
                "another has it",
                false,
                on("west", 1),
                WriteDecision::Obsolete("another cluster has it"),
            ),
            ("an earlier one, restored", true, on("west", 1), WriteDecision::ClearClusterFirst),
            ("its attempt was dropped", true, on("east", 0), WriteDecision::Write),
            (
                "a later attempt",
                false,
                WorkloadState { attempt: 2, ..reserved() },
                WriteDecision::Obsolete("a later attempt was made"),
            ),
            (
                "evicted",
                false,
                WorkloadState { evicted: true, ..reserved() },
                WriteDecision::Obsolete("being evicted"),
            ),
            (
                "stopped",
                false,
                WorkloadState { active: false, ..reserved() },
                WriteDecision::Obsolete("not to run any more"),
            ),
            (
                "deleted",
                false,
                WorkloadState { deleting: true, ..reserved() },
                WriteDecision::Obsolete("not to run any more"),
            ),
            (
                "ended",
                false,
                WorkloadState { finished: true, ..reserved() },
                WriteDecision::Obsolete("finished"),
            ),
        ] {
            assert_eq!(decide(&commit(adopts), &standing), expected, "{case}");
        }
        let in_memory = WorkloadState { reserved: false, ..reserved() };
        assert_eq!(
            check(&commit(false), "w", &in_memory, &charged("spot"), true),
            WriteDecision::Write
        );
    }

    #[rstest::rstest]
    #[case::no_cluster(None, reserved())]
    #[case::in_memory(None, WorkloadState { reserved: false, ..reserved() })]
    #[case::adopts(Some("w"), on("west", 1))]
    fn commit_needs_quota_for_which_it_was_decided(
        #[case] adopts: Option<&str>,
        #[case] standing: WorkloadState,
    ) {
        let decision = check(&commit(adopts), "w", &standing, &charged("reserved"), true);
        assert_eq!(decision, WriteDecision::Obsolete("its quota is in other flavors"));
    }

    #[test]
    fn rename_is_written_for_same_attempt_only() {
        let rename =
            WorkloadWrite::Rename { from: Some("east".into()), cluster: "west".into(), attempt: 2 };
        let taken_away = WorkloadState { cluster: None, ..on("east", 2) };
        for (case, standing, expected) in [
            ("it has the old name", on("east", 2), WriteDecision::ClearClusterFirst),
            ("it has none any more", taken_away.clone(), WriteDecision::Write),
            ("it has the new one", on("west", 2), WriteDecision::AlreadyApplied),
            ("a third one", on("south", 2), WriteDecision::Obsolete("another cluster has it")),
            ("another attempt", on("east", 3), WriteDecision::Obsolete("another attempt")),
            (
                "given up",
                WorkloadState { check: status(CheckStatus::Pending), ..taken_away },
                WriteDecision::Obsolete("it was given up"),
            ),
            (
                "evicted",
                WorkloadState { evicted: true, ..on("east", 2) },
                WriteDecision::Obsolete("being evicted"),
            ),
            (
                "ended",
                WorkloadState { finished: true, ..on("east", 2) },
                WriteDecision::Obsolete("finished"),
            ),
        ] {
            assert_eq!(decide(&rename, &standing), expected, "{case}");
        }
    }

    #[test]
    fn copy_attempts_are_separate_until_adopted() {
        let adopt = commit(Some("old"));
        let sent = WorkloadState { attempt: 3, ..reserved() };
        assert_eq!(decide(&adopt, &sent), WriteDecision::Write);
        let late = WriteDecision::Obsolete("a later attempt was made");
        assert_eq!(
            decide(&adopt, &WorkloadState { cluster_uid: Some("old".into()), ..sent.clone() }),
            late
        );
        assert_eq!(
            decide(&adopt, &on("west", 3)),
            WriteDecision::Obsolete("another cluster has it")
        );
        assert_eq!(decide(&commit(Some("w")), &sent), late);
    }

    #[test]
    fn finish_is_written_for_current_attempt_only() {
        let end = WorkloadWrite::Finish { cluster: "east".into(), attempt: 2, success: true };
        for (case, standing, expected) in [
            ("where it ran", on("east", 2), WriteDecision::Write),
            (
                "while it is evicted",
                WorkloadState { cluster: None, evicted: true, ..on("east", 2) },
                WriteDecision::Write,
            ),
            ("elsewhere", on("west", 2), WriteDecision::Obsolete("another attempt")),
            ("another attempt", on("east", 3), WriteDecision::Obsolete("another attempt")),
            (
                "it is known",
                WorkloadState { finished: true, ..on("east", 2) },
                WriteDecision::AlreadyApplied,
            ),
        ] {
            assert_eq!(decide(&end, &standing), expected, "{case}");
        }
    }

    #[test]
    fn release_needs_eviction_and_retry_is_written_once() {
        let evicted = WorkloadState { evicted: true, ..reserved() };
        let retry = WorkloadWrite::Retry { message: String::new(), retried: None };
        let record = WorkloadWrite::Record { message: None, nominated: None };
        assert_eq!(decide(&WorkloadWrite::Release, &evicted), WriteDecision::Write);
        assert_eq!(decide(&WorkloadWrite::Release, &reserved()), WriteDecision::AlreadyApplied);
        assert_eq!(decide(&retry, &on("east", 1)), WriteDecision::Write);
        assert_eq!(
            decide(&retry, &WorkloadState { check: status(CheckStatus::Retry), ..reserved() }),
            WriteDecision::AlreadyApplied
        );
        let without = WorkloadState { check: None, ..reserved() };
        assert_eq!(decide(&retry, &without), WriteDecision::Obsolete("it has no MultiKueue check"));
        assert_eq!(decide(&record, &reserved()), WriteDecision::Write);
        assert_eq!(decide(&record, &on("east", 1)), WriteDecision::Obsolete("a cluster has it"));
    }
}
