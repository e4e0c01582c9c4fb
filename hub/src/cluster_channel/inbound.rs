//! The inbound half of one session: order of messages, inventory, and persisted results. Pure.

use std::collections::{BTreeMap, BTreeSet};

use switchyard_dispatcher::is_terminal;
use switchyard_proto::digest::Digest;
use switchyard_proto::v1::{self, Observed, State};

use super::unpersisted_results::UnpersistedResults;

/// The verdict on a message of observations.
#[derive(Debug, PartialEq, Eq)]
pub enum Accepted {
    /// Use its observations.
    Take {
        /// All workloads of this hub on the cluster. Present when the message completes the
        /// inventory.
        inventory: Option<BTreeSet<String>>,
    },
    /// The session has had this message.
    Repeated,
    /// Messages before it are missing. The session must end.
    Gap {
        /// The sequence number that was due.
        expected: u64,
    },
    /// The cluster reports more workloads than it may.
    TooMany,
}

/// The inbound half of a session.
#[derive(Debug)]
pub struct Inbound {
    /// Most workloads that the cluster may report.
    limit: usize,
    last: u64,
    /// The inventory while its messages arrive.
    inventory: Option<BTreeSet<String>>,
    held: UnpersistedResults,
    acked: u64,
    /// The last report of each workload, and the digest over them. Workloads reported gone are in
    /// neither.
    told: BTreeMap<String, (u64, State)>,
    digest: Digest,
}

impl Default for Inbound {
    fn default() -> Self {
        Self::new(crate::limits::MAX_WORKLOADS)
    }
}

impl Inbound {
    /// Bounds the workloads that the cluster may report.
    pub fn new(limit: usize) -> Self {
        Self {
            limit,
            last: 0,
            inventory: None,
            held: UnpersistedResults::default(),
            acked: 0,
            told: BTreeMap::new(),
            digest: Digest::default(),
        }
    }

    /// Checks a message's place in the session.
    pub fn accept(&mut self, message: &Observed) -> Accepted {
        if message.sequence <= self.last {
            return Accepted::Repeated;
        }
        let expected = self.last + 1;
        if message.sequence != expected {
            return Accepted::Gap { expected };
        }
        self.last = message.sequence;
        self.remember(message);
        if self.told.len().max(self.held.len()) > self.limit
            || self.inventory.as_ref().is_some_and(|named| named.len() > self.limit)
        {
            return Accepted::TooMany;
        }
        let mut inventory = None;
        if message.inventory {
            let collected = self.inventory.get_or_insert_default();
            collected.extend(
                message.observations.iter().map(|observation| observation.workload_uid.clone()),
            );
            if !message.more {
                inventory = self.inventory.take();
            }
        }
        Accepted::Take { inventory }
    }

    /// The buckets in which the agent's digest differs from its reports. Empty: no drift.
    pub fn drift(&self, theirs: &v1::Digest) -> Vec<u32> {
        self.digest.differing_buckets(theirs)
    }

    fn remember(&mut self, message: &Observed) {
        for observation in &message.observations {
            let uid = &observation.workload_uid;
            if let Some((attempt, state)) = self.told.remove(uid) {
                self.digest.toggle(uid, attempt, state);
            }
            if observation.state() != State::Gone {
                let now = (observation.attempt, observation.state());
                self.digest.toggle(uid, now.0, now.1);
                self.told.insert(uid.clone(), now);
            }
        }
    }

    /// Holds the acknowledgement back until the terminal states in the last accepted message are
    /// persisted.
    ///
    /// Workloads reported gone release their results: an agent deletes a copy only after an earlier
    /// session acknowledged its terminal state or showed that it is not needed.
    pub fn hold_ends(&mut self, message: &Observed) {
        for observation in &message.observations {
            match observation.state() {
                State::Gone => {
                    self.held.release(&observation.workload_uid, observation.attempt);
                }
                state if is_terminal(state) => {
                    self.held.hold(&observation.workload_uid, observation.attempt, self.last);
                }
                _ => {}
            }
        }
    }

    /// The terminal states of a workload up to this attempt are persisted. Returns whether any was
    /// held.
    pub fn persisted(&mut self, workload_uid: &str, attempt: u64) -> bool {
        self.held.release(workload_uid, attempt)
    }

    /// The sequence number to acknowledge, if it has grown since the last call.
    pub fn ack(&mut self) -> Option<u64> {
        let through = self.held.first().map_or(self.last, |first| first - 1);
        if through <= self.acked {
            return None;
        }
        self.acked = through;
        Some(through)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use switchyard_proto::v1::Observation;

    #[test]
    fn drift_is_found_by_the_digest() {
        let mut inbound = Inbound::default();
        let running = |uid: &str, state: State| Observation {
            workload_uid: uid.into(),
            attempt: 1,
            state: state.into(),
            ..Observation::default()
        };
        let observations = vec![running("a", State::Running), running("b", State::Running)];
        inbound.accept(&Observed { sequence: 1, observations, ..Observed::default() });
        inbound.accept(&Observed {
            sequence: 2,
            observations: vec![running("b", State::Gone)],
            ..Observed::default()
        });
        let same = Digest::of([("a", 1, State::Running)]);
        assert!(inbound.drift(&same.to_wire()).is_empty());
        let other = Digest::of([("a", 1, State::Succeeded)]);
        assert_eq!(inbound.drift(&other.to_wire()).len(), 1);
    }

    #[test]
    fn unpersisted_results_count_towards_the_limit() {
        let mut inbound = Inbound::new(2);
        for sequence in 1..=3 {
            assert_eq!(
                inbound.accept(&message(sequence, false, false, &[])),
                Accepted::Take { inventory: None }
            );
            inbound.held.hold("u", sequence, sequence);
        }
        assert_eq!(inbound.accept(&message(4, false, false, &[])), Accepted::TooMany);
        inbound.persisted("u", 2);
        assert_eq!(
            inbound.accept(&message(5, false, false, &[])),
            Accepted::Take { inventory: None }
        );
    }

    fn message(sequence: u64, inventory: bool, more: bool, uids: &[&str]) -> Observed {
        let observations = uids
            .iter()
            .map(|uid| Observation { workload_uid: (*uid).into(), ..Observation::default() })
            .collect();
        Observed { sequence, inventory, more, observations }
    }

    #[test]
    fn observed_messages_are_taken_once_and_in_order() {
        let mut inbound = Inbound::default();
        let take = Accepted::Take { inventory: None };
        assert_eq!(inbound.accept(&message(1, false, false, &[])), take);
        assert_eq!(inbound.accept(&message(1, false, false, &[])), Accepted::Repeated);
        assert_eq!(inbound.accept(&message(3, false, false, &[])), Accepted::Gap { expected: 2 });
        assert_eq!(inbound.accept(&message(2, false, false, &[])), take);
    }

    #[test]
    fn inbound_rejects_more_workloads_than_its_limit() {
        let mut inbound = Inbound::new(3);
        let running = |uid: &str| Observation {
            workload_uid: uid.into(),
            state: State::Running.into(),
            ..Observation::default()
        };
        let say = |sequence: u64, uids: &[&str]| Observed {
            sequence,
            observations: uids.iter().map(|uid| running(uid)).collect(),
            ..Observed::default()
        };
        assert_eq!(
            inbound.accept(&say(1, &["a", "b", "a", "c"])),
            Accepted::Take { inventory: None }
        );
        assert_eq!(inbound.accept(&say(2, &["d"])), Accepted::TooMany);
        let mut named = Inbound::new(1);
        assert_eq!(
            named.accept(&message(1, true, true, &["a"])),
            Accepted::Take { inventory: None }
        );
        assert_eq!(named.accept(&message(2, true, true, &["b", "c"])), Accepted::TooMany);
    }

    #[test]
    fn inventory_is_complete_with_its_last_message() {
        let mut inbound = Inbound::default();
        assert_eq!(
            inbound.accept(&message(1, true, true, &["a"])),
            Accepted::Take { inventory: None }
        );
        let all = BTreeSet::from(["a".to_owned(), "b".to_owned()]);
        assert_eq!(
            inbound.accept(&message(2, true, false, &["b"])),
            Accepted::Take { inventory: Some(all) }
        );
        let empty = Accepted::Take { inventory: Some(BTreeSet::new()) };
        assert_eq!(inbound.accept(&message(3, true, false, &[])), empty);
    }

    #[test]
    fn unpersisted_result_holds_the_acknowledgement_back() {
        let mut inbound = Inbound::default();
        inbound.accept(&message(1, false, false, &[]));
        assert_eq!(inbound.ack(), Some(1));
        inbound.accept(&message(2, false, false, &["a", "b"]));
        inbound.held.hold("a", 1, 2);
        inbound.held.hold("b", 4, 2);
        inbound.accept(&message(3, false, false, &[]));
        assert_eq!(inbound.ack(), None);
        inbound.persisted("a", 1);
        inbound.persisted("b", 3);
        assert_eq!(inbound.ack(), None, "another attempt of b");
        inbound.persisted("b", 4);
        assert_eq!(inbound.ack(), Some(3));
        assert_eq!(inbound.ack(), None, "said once");
    }

    /// The cost of a message depends on that message alone, even for a cluster at its limit.
    #[test]
    fn gone_flood_visits_each_held_result_once() {
        const HELD: usize = 199_000;
        const FLOOD: usize = 100 * 10_000;
        let mut inbound = Inbound::default();
        let say = |sequence: usize, state: State, uids: std::ops::Range<usize>| Observed {
            sequence: sequence as u64,
            observations: uids
                .map(|number| Observation {
                    workload_uid: format!("w{number}"),
                    attempt: 1,
                    state: state.into(),
                    ..Observation::default()
                })
                .collect(),
            ..Observed::default()
        };
        let take = |inbound: &mut Inbound, message: Observed| {
            assert_eq!(inbound.accept(&message), Accepted::Take { inventory: None });
            inbound.hold_ends(&message);
        };
        take(&mut inbound, say(1, State::Succeeded, 0..HELD));
        let before = inbound.held.visited();
        for sequence in 2..=101 {
            take(&mut inbound, say(sequence, State::Gone, HELD..HELD + 10_000));
        }
        assert_eq!(
            (inbound.held.visited() - before, inbound.held.len()),
            (FLOOD, HELD),
            "of others"
        );
        take(&mut inbound, say(102, State::Gone, 0..HELD));
        assert_eq!(
            (inbound.held.visited() - before, inbound.held.len()),
            (FLOOD + 2 * HELD, 0),
            "of its own"
        );
        assert_eq!(inbound.ack(), Some(102));
    }

    #[test]
    fn result_of_a_gone_workload_holds_nothing_back() {
        let mut inbound = Inbound::default();
        let mut say = |sequence: u64, said: &[(u64, State)]| {
            let observed = |(attempt, state): &(u64, State)| Observation {
                workload_uid: "a".into(),
                attempt: *attempt,
                state: (*state).into(),
                ..Observation::default()
            };
            let message = Observed {
                sequence,
                observations: said.iter().map(observed).collect(),
                ..Observed::default()
            };
            inbound.accept(&message);
            inbound.hold_ends(&message);
            inbound.ack()
        };
        assert_eq!(say(1, &[(2, State::Succeeded)]), None);
        assert_eq!(say(2, &[(1, State::Gone)]), None, "another attempt");
        assert_eq!(say(3, &[(2, State::Gone)]), Some(3));
        assert_eq!(say(4, &[(3, State::Failed), (3, State::Gone)]), Some(4));
        assert_eq!(say(5, &[(4, State::Failed)]), None);
    }
}
