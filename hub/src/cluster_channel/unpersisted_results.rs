//! Terminal states that one session reported and the hub has not persisted. Pure.
//!
//! A cluster may have 200,000 of them. Each operation costs the logarithm of that, and each result
//! is released once.

use std::collections::BTreeMap;

/// Unpersisted results by workload, and by the message that first reported them.
#[derive(Debug, Default)]
pub(super) struct UnpersistedResults {
    /// The sequence number of the message that first reported each attempt, by workload.
    ends: BTreeMap<String, BTreeMap<u64, u64>>,
    /// The number of results of each message. Never zero.
    messages: BTreeMap<u64, usize>,
    count: usize,
    /// Entries visited by lookups and releases. Tests use it as the cost.
    visited: usize,
}

impl UnpersistedResults {
    /// Holds a result that this message reports. A repeated report changes nothing.
    pub(super) fn hold(&mut self, workload_uid: &str, attempt: u64, sequence: u64) {
        self.visited += 1;
        let attempts = match self.ends.get_mut(workload_uid) {
            Some(attempts) => attempts,
            None => self.ends.entry(workload_uid.to_owned()).or_default(),
        };
        if attempts.contains_key(&attempt) {
            return;
        }
        attempts.insert(attempt, sequence);
        *self.messages.entry(sequence).or_default() += 1;
        self.count += 1;
    }

    /// Releases the results of a workload up to an attempt. Returns whether there were any.
    pub(super) fn release(&mut self, workload_uid: &str, attempt: u64) -> bool {
        self.visited += 1;
        let Some(attempts) = self.ends.get_mut(workload_uid) else { return false };
        let before = self.count;
        while let Some(entry) = attempts.first_entry().filter(|entry| *entry.key() <= attempt) {
            self.visited += 1;
            let sequence = entry.remove();
            self.count -= 1;
            if let Some(ends) = self.messages.get_mut(&sequence) {
                *ends -= 1;
                if *ends == 0 {
                    self.messages.remove(&sequence);
                }
            }
        }
        if attempts.is_empty() {
            self.ends.remove(workload_uid);
        }
        self.count < before
    }

    /// The first message with an unpersisted result.
    pub(super) fn first(&self) -> Option<u64> {
        self.messages.keys().next().copied()
    }

    pub(super) fn len(&self) -> usize {
        self.count
    }

    #[cfg(test)]
    pub(super) fn visited(&self) -> usize {
        self.visited
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn release_visits_only_ends_of_its_workload() {
        let mut held = UnpersistedResults::default();
        for number in 0..1_000_u64 {
            held.hold(&format!("w{number}"), 1, number + 1);
        }
        let before = held.visited();
        assert!(!held.release("unknown", 1) && !held.release("w0", 0));
        assert_eq!(held.visited() - before, 2);
        assert!(held.release("w7", 5));
        assert_eq!((held.visited() - before, held.len(), held.first()), (4, 999, Some(1)));
        assert!(held.release("w0", 1));
        assert_eq!(held.first(), Some(2));
    }

    #[test]
    fn repeated_result_is_held_by_its_first_message() {
        let mut held = UnpersistedResults::default();
        held.hold("w", 1, 3);
        held.hold("w", 1, 9);
        held.hold("w", 2, 9);
        assert_eq!((held.len(), held.first()), (2, Some(3)));
        held.release("w", 1);
        assert_eq!((held.len(), held.first()), (1, Some(9)));
        held.release("w", 2);
        assert_eq!((held.len(), held.first()), (0, None));
    }
}
