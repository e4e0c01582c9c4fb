//! Names of Workloads.

use std::fmt::Write as _;

use sha1::{Digest, Sha1};

/// Longest name of an object.
const MAX_NAME: usize = 253;
/// Hex digits of the hash at the end of a name.
const HASH_DIGITS: usize = 5;
/// Longest part before the hash.
const MAX_PREFIX: usize = MAX_NAME - 1 - HASH_DIGITS;

/// Name of a job's Workload. Other tools rely on it.
///
/// As Kueue makes it (`pkg/controller/jobframework/workload_names.go`): `<kind>-<owner>` with the
/// kind in lower case, cut to 247 bytes. Five hex digits of the SHA-1 of the owner's kind, group,
/// name and uid follow.
#[must_use]
pub fn workload_name(kind: &str, group: &str, owner_name: &str, owner_uid: &str) -> String {
    workload_name_with_extra(kind, group, owner_name, owner_uid, "")
}

/// As [`workload_name`], with an extra part in the hash, such as the generation of an elastic job.
#[must_use]
pub fn workload_name_with_extra(
    kind: &str,
    group: &str,
    owner_name: &str,
    owner_uid: &str,
    extra: &str,
) -> String {
    let mut hashed = format!("{kind}\n{group}\n{owner_name}\n{owner_uid}");
    if !extra.is_empty() {
        hashed.push('\n');
        hashed.push_str(extra);
    }
    with_hash(format!("{}-{owner_name}", kind.to_lowercase()), &hashed)
}

/// Name of a Workload's variant for a flavor, as Kueue makes it: the Workload's name with the
/// flavor in place of its hash, and a hash of both.
#[must_use]
pub fn variant_name(parent: &str, parent_uid: &str, flavor: &str) -> String {
    let base = parent.rsplit_once('-').map_or(parent, |(base, _)| base);
    let hashed = format!("Workload\nkueue.x-k8s.io\n{parent}\n{parent_uid}\n{flavor}");
    with_hash(format!("{base}-variant-{flavor}"), &hashed)
}

/// A name of at most 253 bytes. Longer names than 247 bytes are cut there, and five hex digits of
/// the SHA-1 of the whole name follow. Kueue names ProvisioningRequests and their PodTemplates so.
#[must_use]
pub fn limited_name(whole: &str) -> String {
    if whole.len() <= MAX_PREFIX { whole.to_owned() } else { with_hash(whole.to_owned(), whole) }
}

fn with_hash(mut prefix: String, hashed: &str) -> String {
    let mut hex = String::with_capacity(2 * 20);
    for byte in Sha1::digest(hashed) {
        // Writing to a String cannot fail.
        let _ = write!(hex, "{byte:02x}");
    }
    cut(&mut prefix, MAX_PREFIX);
    format!("{prefix}-{}", &hex[..HASH_DIGITS])
}

/// Cuts to at most `max` bytes, at a character boundary. Object names are ASCII, so the boundary
/// matters only for names that the API server would reject.
fn cut(text: &mut String, max: usize) {
    let mut end = max.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.truncate(end);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_hash_covers_kind_group_name_and_uid() {
        // printf 'Job\nbatch\ntrain\n1234' | sha1sum
        assert_eq!(workload_name("Job", "batch", "train", "1234"), "job-train-199b9");
        assert_eq!(
            workload_name_with_extra("Job", "batch", "train", "1234", "2"),
            "job-train-f0dbe"
        );
    }

    #[test]
    fn variant_name_has_parent_and_flavor() {
        // printf 'Workload\nkueue.x-k8s.io\njob-train-199b9\n1234\nspot' | sha1sum
        assert_eq!(variant_name("job-train-199b9", "1234", "spot"), "job-train-variant-spot-6fde0");
    }

    #[test]
    fn long_owner_name_is_cut() {
        let name = workload_name("Job", "batch", &"x".repeat(253), "1234");
        assert_eq!(name.len(), MAX_NAME);
        assert!(name.starts_with("job-xxx"));
    }

    #[test]
    fn only_long_names_are_cut_and_hashed() {
        let fits = "x".repeat(247);
        assert_eq!(limited_name(&fits), fits);
        // printf 'x%.0s' $(seq 248) | sha1sum
        assert_eq!(limited_name(&format!("{fits}x")), format!("{fits}-f7a7d"));
    }
}
