//! Write guard: whether a decided change is still needed, given the Workload as last read.
//!
//! The writer asks before each try. Between decision and try, others may have changed the Workload.

use super::{CheckStatus, WorkloadFacts, WorkloadWrite};

/// The state of a Workload that decides about a write.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WorkloadState<'a> {
    pub uid: &'a str,
    /// Condition `Finished` is True.
    pub finished: bool,
    /// It has a deletion timestamp.
    pub deleting: bool,
    /// `spec.active`.
    pub active: bool,
    /// Condition `QuotaReserved` is True.
    pub reserved: bool,
    /// Condition `Evicted` is True.
    pub evicted: bool,
    /// `status.clusterName`.
    pub cluster: Option<&'a str>,
    /// `status.dispatch.attempt`.
    pub attempt: u64,
    /// It adopted a copy.
    pub adopted: bool,
    /// State of the dispatching AdmissionCheck.
    pub check: Option<CheckStatus>,
    /// Its quota is reserved in memory.
    pub in_memory: bool,
}

impl<'a> WorkloadState<'a> {
    /// As the dispatcher knows it.
    pub fn of(facts: &'a WorkloadFacts, in_memory: bool) -> Self {
        Self {
            uid: &facts.uid,
            finished: facts.finished,
            deleting: facts.deleting,
            active: facts.active,
            reserved: facts.reserved,
            evicted: facts.evicted,
            cluster: facts.cluster.as_deref(),
            attempt: facts.attempt,
            adopted: facts.cluster_uid.is_some(),
            check: facts.check.as_ref().map(|(_, check)| *check),
            in_memory,
        }
    }
}

/// Result of [`check`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteDecision {
    /// Write it.
    Write,
    /// First remove another cluster's name. Kueue's webhook forbids changing `status.clusterName`.
    ClearClusterFirst,
    /// The API shows it already.
    AlreadyApplied,
    /// Do not write it, for this reason.
    Obsolete(&'static str),
}

/// Decides whether a change is still needed.
pub fn check(write: &WorkloadWrite, at: &WorkloadState<'_>) -> WriteDecision {
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
            let here = at.cluster.is_none_or(|name| name == &**cluster);
            return if here && at.attempt == *attempt {
                WriteDecision::Write
            } else {
                WriteDecision::Obsolete("another attempt")
            };
        }
        // If it is not evicted, no quota is to be released.
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
    // Attempts under another uid are counted apart.
    let is_copy = |adopts: Option<&str>| adopts.is_some_and(|uid| uid != at.uid);
    let quota = if at.reserved || at.in_memory {
        WriteDecision::Write
    } else {
        WriteDecision::Obsolete("its reservation is gone")
    };
    match write {
        WorkloadWrite::Commit { cluster, attempt, adopts } => match at.cluster {
            Some(name) if name == &**cluster && at.attempt == *attempt => {
                WriteDecision::AlreadyApplied
            }
            // The API was restored. The name cannot be changed, but removed.
            Some(_) if adopts.is_some() && at.attempt < *attempt => {
                WriteDecision::ClearClusterFirst
            }
            Some(_) => WriteDecision::Obsolete("another cluster has it"),
            None if at.attempt >= *attempt && (at.adopted || !is_copy(adopts.as_deref())) => {
                WriteDecision::Obsolete("a later attempt was made")
            }
            None => quota,
        },
        WorkloadWrite::Rename { attempt, .. } if at.attempt != *attempt => {
            WriteDecision::Obsolete("another attempt")
        }
        WorkloadWrite::Rename { from, cluster: to, .. } => match at.cluster {
            Some(name) if name == &**to => WriteDecision::AlreadyApplied,
            Some(name) if from.as_ref().is_some_and(|from| name == &**from) => {
                WriteDecision::ClearClusterFirst
            }
            Some(_) => WriteDecision::Obsolete("another cluster has it"),
            None if at.reserved && at.check == Some(CheckStatus::Ready) => WriteDecision::Write,
            None => WriteDecision::Obsolete("it was given up"),
        },
        WorkloadWrite::Record { .. } if at.cluster.is_some() => {
            WriteDecision::Obsolete("a cluster has it")
        }
        WorkloadWrite::Record { .. } => quota,
        WorkloadWrite::Retry { .. } => match at.check {
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

    /// To `east`, as attempt 2.
    fn commit(adopts: Option<&str>) -> WorkloadWrite {
        WorkloadWrite::Commit { cluster: "east".into(), attempt: 2, adopts: adopts.map(Into::into) }
    }

    fn reserved() -> WorkloadState<'static> {
        WorkloadState {
            uid: "w",
            active: true,
            reserved: true,
            check: Some(CheckStatus::Pending),
            ..WorkloadState::default()
        }
    }

    fn on(cluster: &'static str, attempt: u64) -> WorkloadState<'static> {
        WorkloadState {
            cluster: Some(cluster),
            attempt,
            check: Some(CheckStatus::Ready),
            ..reserved()
        }
    }

    #[test]
    fn commit_is_written_once_and_only_in_expected_state() {
        let commit = |adopts: bool| commit(adopts.then_some("w"));
        for (case, adopts, standing, expected) in [
            ("it has quota", false, reserved(), WriteDecision::Write),
            (
                "quota in memory",
                false,
                WorkloadState { reserved: false, in_memory: true, ..reserved() },
                WriteDecision::Write,
            ),
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
            assert_eq!(check(&commit(adopts), &standing), expected, "{case}");
        }
    }

    #[test]
    fn rename_is_written_for_same_attempt_only() {
        let rename =
            WorkloadWrite::Rename { from: Some("east".into()), cluster: "west".into(), attempt: 2 };
        let taken_away = WorkloadState { cluster: None, ..on("east", 2) };
        for (case, standing, expected) in [
            ("it has the old name", on("east", 2), WriteDecision::ClearClusterFirst),
            ("it has none any more", taken_away, WriteDecision::Write),
            ("it has the new one", on("west", 2), WriteDecision::AlreadyApplied),
            ("a third one", on("south", 2), WriteDecision::Obsolete("another cluster has it")),
            ("another attempt", on("east", 3), WriteDecision::Obsolete("another attempt")),
            (
                "given up",
                WorkloadState { check: Some(CheckStatus::Pending), ..taken_away },
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
            assert_eq!(check(&rename, &standing), expected, "{case}");
        }
    }

    #[test]
    fn copy_attempts_are_separate_until_adopted() {
        let adopt = commit(Some("old"));
        let sent = WorkloadState { attempt: 3, ..reserved() };
        assert_eq!(check(&adopt, &sent), WriteDecision::Write);
        let late = WriteDecision::Obsolete("a later attempt was made");
        assert_eq!(check(&adopt, &WorkloadState { adopted: true, ..sent }), late);
        assert_eq!(
            check(&adopt, &on("west", 3)),
            WriteDecision::Obsolete("another cluster has it")
        );
        assert_eq!(check(&commit(Some("w")), &sent), late);
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
            assert_eq!(check(&end, &standing), expected, "{case}");
        }
    }

    #[test]
    fn release_needs_eviction_and_retry_is_written_once() {
        let evicted = WorkloadState { evicted: true, ..reserved() };
        let retry = WorkloadWrite::Retry { message: String::new(), retried: None };
        let record = WorkloadWrite::Record { message: None, nominated: None };
        assert_eq!(check(&WorkloadWrite::Release, &evicted), WriteDecision::Write);
        assert_eq!(check(&WorkloadWrite::Release, &reserved()), WriteDecision::AlreadyApplied);
        assert_eq!(check(&retry, &on("east", 1)), WriteDecision::Write);
        assert_eq!(
            check(&retry, &WorkloadState { check: Some(CheckStatus::Retry), ..reserved() }),
            WriteDecision::AlreadyApplied
        );
        let without = WorkloadState { check: None, ..reserved() };
        assert_eq!(check(&retry, &without), WriteDecision::Obsolete("it has no MultiKueue check"));
        assert_eq!(check(&record, &reserved()), WriteDecision::Write);
        assert_eq!(check(&record, &on("east", 1)), WriteDecision::Obsolete("a cluster has it"));
    }
}
