//! Names of Workloads.

use std::fmt::Write as _;

use sha1::{Digest, Sha1};

/// Longest name of a Workload: the limit of an object name.
const MAX_NAME: usize = 253;
/// Hex digits of the hash at the end of a name.
const HASH_DIGITS: usize = 5;
/// What is left before the hash.
const MAX_PREFIX: usize = MAX_NAME - 1 - HASH_DIGITS;

/// Name of the Workload of a job, as Kueue makes it: `<kind>-<owner>` in lower
/// case kind, cut to 247 bytes, and five hex digits of the SHA-1 of the owner's
/// kind, group, name and uid (inventory 1.9). Other tools rely on the name.
#[must_use]
pub fn workload_name(kind: &str, group: &str, owner_name: &str, owner_uid: &str) -> String {
    workload_name_with_extra(kind, group, owner_name, owner_uid, "")
}

/// As [`workload_name`] with one more part hashed in, such as the generation of
/// an elastic job.
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

/// Name of the variant of a workload for a flavor, as Kueue makes it: the workload's name with the flavor in the place of its
/// hash, and a hash of both.
#[must_use]
pub fn variant_name(parent: &str, parent_uid: &str, flavor: &str) -> String {
    let base = parent.rsplit_once('-').map_or(parent, |(base, _)| base);
    let hashed = format!("Workload\nkueue.x-k8s.io\n{parent}\n{parent_uid}\n{flavor}");
    with_hash(format!("{base}-variant-{flavor}"), &hashed)
}

/// A name of at most 253 bytes: one that is longer than 247 is cut there, and five hex digits of the SHA-1 of the whole
/// are put behind it. So Kueue names ProvisioningRequests and their PodTemplates.
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

/// Cuts to at most `max` bytes, on a character boundary. Object names are ASCII,
/// so the boundary only matters for input the API server would refuse.
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
    fn the_hash_is_of_kind_group_name_and_uid() {
        // printf 'Job\nbatch\ntrain\n1234' | sha1sum
        assert_eq!(workload_name("Job", "batch", "train", "1234"), "job-train-199b9");
        assert_eq!(
            workload_name_with_extra("Job", "batch", "train", "1234", "2"),
            "job-train-f0dbe"
        );
    }

    #[test]
    fn a_variant_is_named_after_its_parent_and_its_flavor() {
        // printf 'Workload\nkueue.x-k8s.io\njob-train-199b9\n1234\nspot' | sha1sum
        assert_eq!(variant_name("job-train-199b9", "1234", "spot"), "job-train-variant-spot-6fde0");
    }

    #[test]
    fn a_long_owner_name_is_cut_so_that_the_name_fits() {
        let name = workload_name("Job", "batch", &"x".repeat(253), "1234");
        assert_eq!(name.len(), MAX_NAME);
        assert!(name.starts_with("job-xxx"));
    }

    #[test]
    fn only_what_is_too_long_is_cut_and_hashed() {
        let fits = "x".repeat(247);
        assert_eq!(limited_name(&fits), fits);
        // printf 'x%.0s' $(seq 248) | sha1sum
        assert_eq!(limited_name(&format!("{fits}x")), format!("{fits}-f7a7d"));
    }
}
