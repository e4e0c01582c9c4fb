//! The digest by which the hub detects that it and an agent remember different states.
//!
//! Both ends keep a digest over each workload's last report. One operation adds and removes an
//! entry, so a change costs two hashes.

use sha2::{Digest as _, Sha256};

use crate::v1::State;

/// The number of buckets of a digest.
pub const BUCKETS: usize = 256;

/// Per bucket, an order-independent hash over (workload uid, attempt, state).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Digest {
    buckets: Vec<u64>,
}

impl Default for Digest {
    fn default() -> Self {
        Self { buckets: vec![0; BUCKETS] }
    }
}

impl Digest {
    /// The digest of these entries.
    pub fn of<'a>(entries: impl IntoIterator<Item = (&'a str, u64, State)>) -> Self {
        let mut digest = Self::default();
        for (uid, attempt, state) in entries {
            digest.toggle(uid, attempt, state);
        }
        digest
    }

    /// Adds the entry, or removes it if the digest contains it.
    pub fn toggle(&mut self, uid: &str, attempt: u64, state: State) {
        if let Some(slot) = self.buckets.get_mut(usize::from(bucket(uid))) {
            *slot ^= entry(uid, attempt, state);
        }
    }

    /// The protobuf message.
    pub fn to_wire(&self) -> crate::v1::Digest {
        crate::v1::Digest { buckets: self.buckets.clone() }
    }

    /// The buckets in which the other end's digest differs; all if it has another number of
    /// buckets.
    pub fn differing_buckets(&self, other: &crate::v1::Digest) -> Vec<u32> {
        if other.buckets.len() != BUCKETS {
            return (0..BUCKETS as u32).collect();
        }
        let pairs = self.buckets.iter().zip(&other.buckets).enumerate();
        pairs.filter(|(_, (own, other))| own != other).map(|(index, _)| index as u32).collect()
    }
}

/// The bucket of a workload: the first byte of its uid's SHA-256.
pub fn bucket(uid: &str) -> u8 {
    Sha256::digest(uid.as_bytes()).first().copied().unwrap_or_default()
}

fn entry(uid: &str, attempt: u64, state: State) -> u64 {
    let mut hash = Sha256::new();
    hash.update(attempt.to_be_bytes());
    hash.update((state as i32).to_be_bytes());
    hash.update(uid.as_bytes());
    hash.finalize().iter().take(8).fold(0, |sum, byte| sum << 8 | u64::from(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digest_ignores_order_and_second_toggle_removes() {
        let one = Digest::of([("a", 1, State::Running), ("b", 2, State::Waiting)]);
        let mut other =
            Digest::of([("b", 2, State::Waiting), ("c", 1, State::Gone), ("a", 1, State::Running)]);
        assert_ne!(one, other);
        other.toggle("c", 1, State::Gone);
        assert_eq!(one, other);
    }

    #[test]
    fn differing_buckets_names_only_changed_bucket() {
        let one = Digest::of([("a", 1, State::Running)]);
        let other = Digest::of([("a", 1, State::Succeeded)]);
        assert_eq!(one.differing_buckets(&other.to_wire()), vec![u32::from(bucket("a"))]);
        assert_eq!(one.differing_buckets(&crate::v1::Digest::default()).len(), BUCKETS);
    }
}
