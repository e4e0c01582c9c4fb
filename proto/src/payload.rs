//! How a payload is named.

use sha2::{Digest as _, Sha256};

/// The SHA-256 that names a payload in `Assignment.payload_hash` and `Payload.hash`.
///
/// The length of the Workload goes in first, so that no two pairs of Workload and job give the same input.
pub fn payload_hash(workload: &[u8], job: &[u8]) -> Vec<u8> {
    let mut hash = Sha256::new();
    hash.update((workload.len() as u64).to_be_bytes());
    hash.update(workload);
    hash.update(job);
    hash.finalize().to_vec()
}

#[cfg(test)]
mod tests {
    use super::payload_hash;

    #[test]
    fn a_byte_moved_from_workload_to_job_changes_the_hash() {
        assert_ne!(payload_hash(b"ab", b"c"), payload_hash(b"a", b"bc"));
        assert_eq!(payload_hash(b"ab", b"c"), payload_hash(b"ab", b"c"));
        assert_eq!(payload_hash(b"", b"").len(), 32);
    }
}
