//! Whether what was decided is still to be written, by what the API says of the Workload by now. Pure: whoever writes asks
//! before each try, with what it has read last.

use super::{Action, Check, Facts, Name};

/// What is to be written, as far as it matters whether it still is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Intent<'a> {
    /// [`Action::Commit`].
    Commit {
        /// The cluster.
        cluster: &'a Name,
        /// The attempt.
        attempt: u64,
        /// It runs there already.
        adopts: bool,
        /// By another uid, whose attempts are counted apart.
        copy: bool,
    },
    /// [`Action::Rename`].
    Rename {
        /// The name that it has, if it was not taken away.
        from: Option<&'a Name>,
        /// The name that it gets.
        to: &'a Name,
        /// The attempt, which stays.
        attempt: u64,
    },
    /// [`Action::Record`].
    Record,
    /// [`Action::Retry`].
    Retry,
    /// [`Action::Release`].
    Release,
    /// [`Action::Finish`].
    Finish {
        /// Where it ended.
        cluster: &'a Name,
        /// The attempt that ended.
        attempt: u64,
    },
}

impl<'a> Intent<'a> {
    /// What an action wants written; none if it is no write.
    pub fn of(action: &'a Action) -> Option<Self> {
        Some(match action {
            Action::Commit { uid, cluster, attempt, adopts } => {
                let copy = adopts.as_ref().is_some_and(|theirs| theirs != uid);
                Self::Commit { cluster, attempt: *attempt, adopts: adopts.is_some(), copy }
            }
            Action::Rename { from, cluster, attempt, .. } => {
                Self::Rename { from: from.as_ref(), to: cluster, attempt: *attempt }
            }
            Action::Record { .. } => Self::Record,
            Action::Retry { .. } => Self::Retry,
            Action::Release { .. } => Self::Release,
            Action::Finish { cluster, attempt, .. } => Self::Finish { cluster, attempt: *attempt },
            _ => return None,
        })
    }
}

/// What the API says of a Workload, as far as it matters for a write.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Standing<'a> {
    /// `Finished` is True.
    pub finished: bool,
    /// It is being deleted.
    pub deleting: bool,
    /// `spec.active`.
    pub active: bool,
    /// `QuotaReserved` is True.
    pub reserved: bool,
    /// `Evicted` is True.
    pub evicted: bool,
    /// `status.clusterName`.
    pub cluster: Option<&'a str>,
    /// `status.dispatch.attempt`.
    pub attempt: u64,
    /// It has adopted a copy: clusters know it by another uid.
    pub adopted: bool,
    /// The state of its MultiKueue check, if it has one.
    pub check: Option<Check>,
    /// Its quota is reserved in memory.
    pub in_memory: bool,
}

impl<'a> Standing<'a> {
    /// As the dispatcher knows it.
    pub fn of(facts: &'a Facts, in_memory: bool) -> Self {
        Self {
            finished: facts.finished,
            deleting: facts.deleting,
            active: facts.active,
            reserved: facts.reserved,
            evicted: facts.evicted,
            cluster: facts.cluster.as_deref(),
            attempt: facts.attempt,
            adopted: facts.known_as.is_some(),
            check: facts.check.as_ref().map(|(_, check)| *check),
            in_memory,
        }
    }
}

/// Whether a look at a Workload leads to a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It is to be written.
    Write,
    /// The name of another cluster is to be taken away first: it cannot be changed.
    TakeAway,
    /// The API says so already.
    There,
    /// It is not to be written any more, for this reason.
    Void(&'static str),
}

/// Whether it is still to be written.
pub fn judge(intent: Intent<'_>, at: &Standing<'_>) -> Verdict {
    if at.finished {
        return if matches!(intent, Intent::Finish { .. }) {
            Verdict::There
        } else {
            Verdict::Void("finished")
        };
    }
    match intent {
        Intent::Finish { cluster, attempt } => {
            // An eviction takes the cluster's name away; the attempt is its own.
            let here = at.cluster.is_none_or(|name| name == &**cluster);
            return if here && at.attempt == attempt {
                Verdict::Write
            } else {
                Verdict::Void("another attempt")
            };
        }
        // Not evicted yet: that nothing runs is all that was to be said.
        Intent::Release => {
            let goes = at.evicted || at.deleting;
            return if at.reserved && goes { Verdict::Write } else { Verdict::There };
        }
        Intent::Commit { .. } | Intent::Rename { .. } | Intent::Record | Intent::Retry => {}
    }
    if !at.active || at.deleting {
        return Verdict::Void("not to run any more");
    }
    if at.reserved && at.evicted {
        return Verdict::Void("being evicted");
    }
    let quota = if at.reserved || at.in_memory {
        Verdict::Write
    } else {
        Verdict::Void("its reservation is gone")
    };
    match intent {
        Intent::Commit { cluster, attempt, adopts, copy } => match at.cluster {
            Some(name) if name == &**cluster && at.attempt == attempt => Verdict::There,
            // What the API says was restored from a backup. The name is not to be changed, but may be taken away.
            Some(_) if adopts && at.attempt < attempt => Verdict::TakeAway,
            Some(_) => Verdict::Void("another cluster has it"),
            None if at.attempt >= attempt && (at.adopted || !copy) => {
                Verdict::Void("a later attempt was made")
            }
            None => quota,
        },
        Intent::Rename { attempt, .. } if at.attempt != attempt => Verdict::Void("another attempt"),
        Intent::Rename { from, to, .. } => match at.cluster {
            Some(name) if name == &**to => Verdict::There,
            Some(name) if from.is_some_and(|from| name == &**from) => Verdict::TakeAway,
            Some(_) => Verdict::Void("another cluster has it"),
            None if at.reserved && at.check == Some(Check::Ready) => Verdict::Write,
            None => Verdict::Void("it was given up"),
        },
        Intent::Record if at.cluster.is_some() => Verdict::Void("a cluster has it"),
        Intent::Record => quota,
        Intent::Retry => match at.check {
            None => Verdict::Void("it has no MultiKueue check"),
            Some(Check::Retry | Check::Rejected) => Verdict::There,
            Some(Check::Pending | Check::Ready) => Verdict::Write,
        },
        Intent::Release | Intent::Finish { .. } => Verdict::Void("judged above"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reserved() -> Standing<'static> {
        Standing {
            active: true,
            reserved: true,
            check: Some(Check::Pending),
            ..Standing::default()
        }
    }

    fn on(cluster: &'static str, attempt: u64) -> Standing<'static> {
        Standing { cluster: Some(cluster), attempt, check: Some(Check::Ready), ..reserved() }
    }

    #[test]
    fn a_commit_is_written_once_and_only_over_what_it_was_decided_on() {
        let east = Name::from("east");
        let commit = |adopts| Intent::Commit { cluster: &east, attempt: 2, adopts, copy: false };
        for (case, adopts, standing, expected) in [
            ("it has quota", false, reserved(), Verdict::Write),
            (
                "quota in memory",
                false,
                Standing { reserved: false, in_memory: true, ..reserved() },
                Verdict::Write,
            ),
            (
                "no quota",
                false,
                Standing { reserved: false, ..reserved() },
                Verdict::Void("its reservation is gone"),
            ),
            ("it is there", false, on("east", 2), Verdict::There),
            ("another has it", false, on("west", 1), Verdict::Void("another cluster has it")),
            ("an earlier one, restored", true, on("west", 1), Verdict::TakeAway),
            (
                "a later attempt",
                false,
                Standing { attempt: 2, ..reserved() },
                Verdict::Void("a later attempt was made"),
            ),
            (
                "evicted",
                false,
                Standing { evicted: true, ..reserved() },
                Verdict::Void("being evicted"),
            ),
            (
                "stopped",
                false,
                Standing { active: false, ..reserved() },
                Verdict::Void("not to run any more"),
            ),
            (
                "deleted",
                false,
                Standing { deleting: true, ..reserved() },
                Verdict::Void("not to run any more"),
            ),
            ("ended", false, Standing { finished: true, ..reserved() }, Verdict::Void("finished")),
        ] {
            assert_eq!(judge(commit(adopts), &standing), expected, "{case}");
        }
    }

    #[test]
    fn name_of_a_cluster_is_exchanged_for_the_same_attempt_only() {
        let (east, west) = (Name::from("east"), Name::from("west"));
        let rename = Intent::Rename { from: Some(&east), to: &west, attempt: 2 };
        let taken_away = Standing { cluster: None, ..on("east", 2) };
        for (case, standing, expected) in [
            ("it has the old name", on("east", 2), Verdict::TakeAway),
            ("it has none any more", taken_away, Verdict::Write),
            ("it has the new one", on("west", 2), Verdict::There),
            ("a third one", on("south", 2), Verdict::Void("another cluster has it")),
            ("another attempt", on("east", 3), Verdict::Void("another attempt")),
            (
                "given up",
                Standing { check: Some(Check::Pending), ..taken_away },
                Verdict::Void("it was given up"),
            ),
            (
                "evicted",
                Standing { evicted: true, ..on("east", 2) },
                Verdict::Void("being evicted"),
            ),
            ("ended", Standing { finished: true, ..on("east", 2) }, Verdict::Void("finished")),
        ] {
            assert_eq!(judge(rename, &standing), expected, "{case}");
        }
    }

    #[test]
    fn attempts_of_a_copy_are_counted_apart_until_it_is_adopted() {
        let east = Name::from("east");
        let adopt = Intent::Commit { cluster: &east, attempt: 2, adopts: true, copy: true };
        let sent = Standing { attempt: 3, ..reserved() };
        assert_eq!(judge(adopt, &sent), Verdict::Write);
        let late = Verdict::Void("a later attempt was made");
        assert_eq!(judge(adopt, &Standing { adopted: true, ..sent }), late);
        assert_eq!(judge(adopt, &on("west", 3)), Verdict::Void("another cluster has it"));
        assert_eq!(
            judge(Intent::Commit { cluster: &east, attempt: 2, adopts: true, copy: false }, &sent),
            late
        );
    }

    #[test]
    fn an_end_is_that_of_the_attempt_that_counts() {
        let east = Name::from("east");
        let end = Intent::Finish { cluster: &east, attempt: 2 };
        for (case, standing, expected) in [
            ("where it ran", on("east", 2), Verdict::Write),
            (
                "while it is evicted",
                Standing { cluster: None, evicted: true, ..on("east", 2) },
                Verdict::Write,
            ),
            ("elsewhere", on("west", 2), Verdict::Void("another attempt")),
            ("another attempt", on("east", 3), Verdict::Void("another attempt")),
            ("it is known", Standing { finished: true, ..on("east", 2) }, Verdict::There),
        ] {
            assert_eq!(judge(end, &standing), expected, "{case}");
        }
    }

    #[test]
    fn quota_goes_back_with_an_eviction_and_a_check_is_retried_once() {
        let evicted = Standing { evicted: true, ..reserved() };
        assert_eq!(judge(Intent::Release, &evicted), Verdict::Write);
        assert_eq!(judge(Intent::Release, &reserved()), Verdict::There);
        assert_eq!(judge(Intent::Retry, &on("east", 1)), Verdict::Write);
        assert_eq!(
            judge(Intent::Retry, &Standing { check: Some(Check::Retry), ..reserved() }),
            Verdict::There
        );
        let without = Standing { check: None, ..reserved() };
        assert_eq!(judge(Intent::Retry, &without), Verdict::Void("it has no MultiKueue check"));
        assert_eq!(judge(Intent::Record, &reserved()), Verdict::Write);
        assert_eq!(judge(Intent::Record, &on("east", 1)), Verdict::Void("a cluster has it"));
    }
}
