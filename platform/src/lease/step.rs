//! The decisions of leader election, without clock or client.

use std::time::{Duration, Instant};

use super::Leadership;

/// Timing of the election. Kueue's is 15 s, 10 s and 2 s.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timing {
    /// A record that did not change for this long may be taken over.
    pub lease: Duration,
    /// A leader that could not renew for this long stops leading.
    pub renew: Duration,
    /// Pause between attempts.
    pub retry: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            lease: Duration::from_secs(15),
            renew: Duration::from_secs(10),
            retry: Duration::from_secs(2),
        }
    }
}

/// A Lease as it was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObservedLease {
    pub version: String,
    /// Empty when released.
    pub holder: String,
    /// The holder's `leaseDurationSeconds`.
    pub duration: Option<Duration>,
    /// `leaseTransitions`, the epoch.
    pub transitions: u64,
}

/// The next action on the Lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeaseAction {
    /// Another process leads.
    Wait,
    /// There is no Lease.
    Create,
    /// This process holds it.
    Renew,
    /// The holder let it lapse or released it, or it is of an earlier run of this process.
    TakeOver,
}

impl LeaseAction {
    /// The `leaseTransitions` to write, from the observed value and the highest remembered epoch.
    #[must_use]
    pub fn transitions(self, observed: u64, floor: u64) -> u64 {
        match self {
            Self::Wait => observed,
            Self::Create if floor == 0 => 0,
            // Below the floor, a renewal starts a new term of the same leader.
            Self::Renew if floor <= observed => observed,
            Self::Create | Self::Renew | Self::TakeOver => observed.max(floor) + 1,
        }
    }
}

/// One contender of the election.
#[derive(Debug, Default)]
pub struct State {
    // When the last successful renewal was sent. `None` when not leading.
    renewed: Option<Instant>,
    // It led, the term expired, and no other holder was seen.
    unsure: bool,
    begun: u64,
    epoch: u64,
    // The last seen version, and since when it has not changed.
    seen: Option<(String, Instant)>,
}

/// The least time for an attempt, if so much is left.
const LEAST_ATTEMPT: Duration = Duration::from_secs(2);

impl State {
    /// Decides about the Lease as it was read at `now`.
    pub fn step(
        &mut self,
        observed: Option<ObservedLease>,
        identity: &str,
        timing: Timing,
        now: Instant,
    ) -> LeaseAction {
        let Some(observed) = observed else {
            self.seen = None;
            self.renewed = None;
            return LeaseAction::Create;
        };
        let unchanged_since = match &self.seen {
            Some((version, since)) if *version == observed.version => *since,
            _ => {
                self.seen = Some((observed.version.clone(), now));
                now
            }
        };
        // Another process's term has begun, or lies in between.
        let others = !observed.holder.is_empty() && observed.holder != identity;
        self.unsure &= !others && observed.transitions == self.epoch;
        self.epoch = self.epoch.max(observed.transitions);
        if observed.holder == identity {
            // After a restart with the same identity the record is this process's, but the term is
            // not. A new term lets others tell the two runs apart.
            return if self.renewed.is_some() && observed.transitions == self.epoch {
                LeaseAction::Renew
            } else {
                LeaseAction::TakeOver
            };
        }
        self.renewed = None;
        let lapsed = now.saturating_duration_since(unchanged_since)
            >= observed.duration.unwrap_or(timing.lease).max(timing.lease);
        if observed.holder.is_empty() || lapsed { LeaseAction::TakeOver } else { LeaseAction::Wait }
    }

    /// The write sent at `sent` succeeded. Returns whether a new term begins.
    pub fn won(&mut self, observed: ObservedLease, sent: Instant) -> bool {
        let is_new_term = self.renewed.is_none();
        self.renewed = Some(sent);
        self.begun += u64::from(is_new_term && !self.unsure);
        self.unsure = false;
        self.epoch = observed.transitions;
        self.seen = Some((observed.version, sent));
        is_new_term
    }

    /// Another process's write succeeded. Returns whether this process led until now.
    pub fn lost(&mut self) -> bool {
        self.unsure = false;
        self.renewed.take().is_some()
    }

    /// Stops leading if the last renewal is too old. Returns whether it led.
    pub fn expire(&mut self, timing: Timing, now: Instant) -> bool {
        let expired =
            self.renewed.is_some_and(|sent| now.saturating_duration_since(sent) >= timing.renew);
        if expired {
            self.renewed = None;
            self.unsure = true;
        }
        expired
    }

    /// Deadline of one attempt: at most half of the renewal time, so that a request that hangs leaves
    /// time for another. With a renewal time below four seconds it may take the rest of it, because a
    /// busy API server answers late more often than never.
    pub fn attempt_timeout(&self, timing: Timing, now: Instant) -> Duration {
        let left = self
            .renewed
            .map_or(timing.renew, |sent| (sent + timing.renew).saturating_duration_since(now));
        left.min((timing.renew / 2).max(LEAST_ATTEMPT))
    }

    /// Pause before the next attempt.
    pub fn pause(&self, timing: Timing, now: Instant) -> Duration {
        self.renewed.map_or(timing.retry, |sent| {
            timing.retry.min((sent + timing.renew).saturating_duration_since(now))
        })
    }

    pub fn leading(&self) -> bool {
        self.renewed.is_some()
    }

    /// The highest epoch seen.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// The leadership to publish.
    pub fn leadership(&self) -> Leadership {
        Leadership {
            leading: self.leading(),
            unsure: self.unsure,
            begun: self.begun,
            epoch: self.epoch,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const T: Timing = Timing {
        lease: Duration::from_secs(15),
        renew: Duration::from_secs(10),
        retry: Duration::from_secs(2),
    };

    fn lease(version: u64, holder: &str, transitions: u64) -> ObservedLease {
        ObservedLease {
            version: version.to_string(),
            holder: holder.into(),
            duration: Some(T.lease),
            transitions,
        }
    }

    /// Second of a read, and the version, holder and transitions that it showed.
    type Read = (u64, Option<(u64, &'static str, u64)>);

    #[rstest::rstest]
    #[case::first_lease(LeaseAction::Create, 0, 0, 0)]
    #[case::recreated_lease_with_floor(LeaseAction::Create, 0, 7, 8)]
    #[case::renewal(LeaseAction::Renew, 3, 0, 3)]
    #[case::renewal_below_the_floor(LeaseAction::Renew, 3, 7, 8)]
    #[case::renewal_above_the_floor(LeaseAction::Renew, 8, 7, 8)]
    #[case::takeover(LeaseAction::TakeOver, 3, 0, 4)]
    #[case::takeover_below_the_floor(LeaseAction::TakeOver, 3, 7, 8)]
    fn epoch_exceeds_the_floor(
        #[case] action: LeaseAction,
        #[case] observed: u64,
        #[case] floor: u64,
        #[case] expected: u64,
    ) {
        assert_eq!(action.transitions(observed, floor), expected);
    }

    /// Reads of the Lease, and what `me` does after each. Each of its writes succeeds.
    #[rstest::rstest]
    #[case::creates_a_missing_lease(&[(0, None)], &[LeaseAction::Create])]
    #[case::waits_for_a_renewing_holder(
        &[(0, Some((1, "you", 3))), (10, Some((2, "you", 3))), (20, Some((3, "you", 3)))],
        &[LeaseAction::Wait, LeaseAction::Wait, LeaseAction::Wait])]
    #[case::takes_over_an_expired_lease(
        &[(0, Some((1, "you", 3))), (14, Some((1, "you", 3))), (15, Some((1, "you", 3)))],
        &[LeaseAction::Wait, LeaseAction::Wait, LeaseAction::TakeOver])]
    #[case::takes_over_a_released_lease_at_once(&[(0, Some((1, "", 3)))], &[LeaseAction::TakeOver])]
    #[case::new_term_after_restart_with_same_identity(&[(0, Some((1, "me", 3)))], &[LeaseAction::TakeOver])]
    #[case::renews_its_own_lease(&[(0, Some((1, "", 3))), (2, Some((2, "me", 4)))], &[LeaseAction::TakeOver, LeaseAction::Renew])]
    #[case::yields_to_a_new_holder(
        &[(0, Some((1, "", 3))), (2, Some((3, "you", 5)))],
        &[LeaseAction::TakeOver, LeaseAction::Wait])]
    fn decides(#[case] reads: &[Read], #[case] expected: &[LeaseAction]) {
        let (mut state, start) = (State::default(), Instant::now());
        let mut actions = Vec::new();
        for (second, read) in reads {
            let now = start + Duration::from_secs(*second);
            let read =
                read.map(|(version, holder, transitions)| lease(version, holder, transitions));
            let (version, transitions) = read
                .as_ref()
                .map_or((0, 0), |r| (r.version.parse::<u64>().unwrap(), r.transitions));
            let action = state.step(read, "me", T, now);
            match action {
                LeaseAction::Wait => (),
                LeaseAction::Create => _ = state.won(lease(1, "me", 0), now),
                LeaseAction::Renew => _ = state.won(lease(version + 1, "me", transitions), now),
                LeaseAction::TakeOver => {
                    _ = state.won(lease(version + 1, "me", transitions + 1), now);
                }
            }
            actions.push(action);
        }
        assert_eq!(actions, expected);
    }

    #[test]
    fn leader_stops_before_another_may_start() {
        let (mut state, start) = (State::default(), Instant::now());
        assert_eq!(state.step(None, "me", T, start), LeaseAction::Create);
        assert!(state.won(lease(1, "me", 0), start));
        assert!(!state.expire(T, start + Duration::from_millis(9_999)));
        assert_eq!(state.attempt_timeout(T, start + T.retry), T.renew / 2, "time for another");
        assert_eq!(
            state.attempt_timeout(T, start + Duration::from_secs(8)),
            Duration::from_secs(2)
        );
        assert!(state.expire(T, start + T.renew), "5 s before another may take over");
        assert!(!state.leading());
    }

    #[rstest::rstest]
    #[case::lease_unreadable(None, true)]
    #[case::still_the_holder(Some(("me", 0)), true)]
    #[case::released(Some(("", 0)), true)]
    #[case::another_holds_it(Some(("you", 1)), false)]
    #[case::another_held_it_in_between(Some(("", 1)), false)]
    fn expired_leader_is_unsure_until_another_leads(
        #[case] read: Option<(&'static str, u64)>,
        #[case] unsure: bool,
    ) {
        let (mut state, start) = (State::default(), Instant::now());
        state.step(None, "me", T, start);
        state.won(lease(1, "me", 0), start);
        assert!(!state.leadership().unsure);
        let later = start + T.renew;
        state.expire(T, later);
        let seen = read.map_or(0, |(_, transitions)| transitions);
        if let Some((holder, transitions)) = read {
            state.step(Some(lease(1, holder, transitions)), "me", T, later);
        }
        assert_eq!(
            state.leadership(),
            Leadership { leading: false, unsure, begun: 1, epoch: seen }
        );
        state.won(lease(2, "me", seen + 1), later);
        let begun = if unsure { 1 } else { 2 };
        assert_eq!(
            state.leadership(),
            Leadership { leading: true, unsure: false, begun, epoch: seen + 1 }
        );
    }

    #[test]
    fn conflict_ends_the_term_at_once() {
        let (mut state, start) = (State::default(), Instant::now());
        state.step(None, "me", T, start);
        state.won(lease(1, "me", 0), start);
        assert!(state.lost());
        assert_eq!(state.leadership(), Leadership { begun: 1, ..Leadership::default() });
    }

    /// A Lease on a server, and contenders that act and lose messages at arbitrary times.
    #[derive(Debug, Clone)]
    struct Turn {
        who: usize,
        after_ms: u64,
        lost: bool,
        restarted: bool,
    }

    proptest! {
        #[test]
        fn one_leader_at_a_time_and_one_epoch_per_term(
            turns in proptest::collection::vec(
                (0_usize..3, 0_u64..6_000, any::<bool>(), 0_u8..12).prop_map(|(who, after_ms, lost, restart)| Turn {
                    who, after_ms, lost, restarted: restart == 0,
                }),
                1..200,
            )
        ) {
            let names = ["a", "b", "c"];
            let mut states: Vec<State> = names.iter().map(|_| State::default()).collect();
            let mut server: Option<ObservedLease> = None;
            let mut now = Instant::now();
            let mut terms: std::collections::BTreeMap<u64, usize> = std::collections::BTreeMap::new();
            for turn in turns {
                now += Duration::from_millis(turn.after_ms);
                let state = &mut states[turn.who];
                if turn.restarted {
                    *state = State::default();
                }
                if !turn.lost {
                    let read = server.clone();
                    let action = state.step(read.clone(), names[turn.who], T, now);
                    let (version, transitions) =
                        read.map_or((0, 0), |r| (r.version.parse::<u64>().unwrap(), r.transitions));
                    let write = match action {
                        LeaseAction::Wait => None,
                        LeaseAction::Create => Some(lease(1, names[turn.who], 0)),
                        LeaseAction::Renew => Some(lease(version + 1, names[turn.who], transitions)),
                        LeaseAction::TakeOver => Some(lease(version + 1, names[turn.who], transitions + 1)),
                    };
                    if let Some(write) = write {
                        server = Some(write.clone());
                        if state.won(write, now) {
                            prop_assert!(terms.insert(state.epoch(), turn.who).is_none(), "an epoch was used twice");
                        }
                    }
                }
                for state in &mut states {
                    state.expire(T, now);
                }
                prop_assert!(states.iter().filter(|state| state.leading()).count() <= 1);
            }
        }
    }
}
