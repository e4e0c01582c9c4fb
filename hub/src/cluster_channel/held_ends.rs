//! Ends of jobs that one session reported and the hub has not persisted. Pure.
//!
//! A cluster may have 200,000 of them, so every change costs the logarithm of that, and each end is released once.

use std::collections::BTreeMap;

/// Held ends, found by workload and by the message that reported them first.
#[derive(Debug, Default)]
pub(super) struct HeldEnds {
    /// The sequence number of the first message that reported each, by workload and attempt.
    ends: BTreeMap<String, BTreeMap<u64, u64>>,
    /// How many each message holds. No message is in it without one.
    messages: BTreeMap<u64, usize>,
    count: usize,
    /// Entries that lookups and releases have visited: the cost, for tests.
    visited: usize,
}

impl HeldEnds {
    /// Holds an end that the message with this sequence number reports. A repetition is released with the first report.
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

    /// Releases the ends of a workload up to an attempt. Returns whether there were any.
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

    /// The first message that still holds one.
    pub(super) fn first(&self) -> Option<u64> {
        self.messages.keys().next().copied()
    }

    /// How many there are.
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
        let mut held = HeldEnds::default();
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
    fn repeated_end_is_held_once_by_its_first_message() {
        let mut held = HeldEnds::default();
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
