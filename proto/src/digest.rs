//! The digest by which hub and agent find that they remember different states.
//!
//! Both keep one over what the agent last reported of each workload. An entry is added and removed by the same
//! operation, so keeping the digest up to date costs two hashes a change.

use sha2::{Digest as _, Sha256};

use crate::v1::State;

/// How many buckets a digest has.
pub const BUCKETS: usize = 256;

/// An order-independent hash a bucket over (workload uid, attempt, state).
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
    /// The digest of all these.
    pub fn of<'a>(entries: impl IntoIterator<Item = (&'a str, u64, State)>) -> Self {
        let mut digest = Self::default();
        for (uid, attempt, state) in entries {
            digest.toggle(uid, attempt, state);
        }
        digest
    }

    /// Adds the entry, or takes it out if it was in.
    pub fn toggle(&mut self, uid: &str, attempt: u64, state: State) {
        if let Some(slot) = self.buckets.get_mut(usize::from(bucket(uid))) {
            *slot ^= entry(uid, attempt, state);
        }
    }

    /// As it goes on the wire.
    pub fn to_wire(&self) -> crate::v1::Digest {
        crate::v1::Digest { buckets: self.buckets.clone() }
    }

    /// The buckets in which the other end's digest differs; all when it has another number of them.
    pub fn differing(&self, other: &crate::v1::Digest) -> Vec<u32> {
        if other.buckets.len() != BUCKETS {
            return (0..BUCKETS as u32).collect();
        }
        let pairs = self.buckets.iter().zip(&other.buckets).enumerate();
        pairs.filter(|(_, (ours, theirs))| ours != theirs).map(|(index, _)| index as u32).collect()
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
    fn order_does_not_matter_and_a_toggle_undoes_itself() {
        let one = Digest::of([("a", 1, State::Running), ("b", 2, State::Waiting)]);
        let mut other =
            Digest::of([("b", 2, State::Waiting), ("c", 1, State::Gone), ("a", 1, State::Running)]);
        assert_ne!(one, other);
        other.toggle("c", 1, State::Gone);
        assert_eq!(one, other);
    }

    #[test]
    fn the_differing_bucket_is_named() {
        let one = Digest::of([("a", 1, State::Running)]);
        let other = Digest::of([("a", 1, State::Succeeded)]);
        assert_eq!(one.differing(&other.to_wire()), vec![u32::from(bucket("a"))]);
        assert_eq!(one.differing(&crate::v1::Digest::default()).len(), BUCKETS);
    }
}
