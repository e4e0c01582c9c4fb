//! Troubles that keep a job from starting on its cluster: the closed set of reasons, and the bounds of a report.
//!
//! Tenants can write events and pod statuses, so both ends bound the text: the agent before it sends, the hub as it
//! receives.

use crate::v1::JobTrouble;

/// The agent could not create the job or its Workload, twice or more.
pub const CREATION_FAILED: &str = "CreationFailed";
/// A controller could not create pods, or what makes them.
pub const FAILED_CREATE: &str = "FailedCreate";
/// The same, because a ResourceQuota is used up.
pub const QUOTA_EXCEEDED: &str = "QuotaExceeded";
/// The scheduler finds no node.
pub const UNSCHEDULABLE: &str = "Unschedulable";
/// A scheduling gate keeps pods from being scheduled.
pub const SCHEDULING_GATED: &str = "SchedulingGated";
/// An image cannot be pulled.
pub const IMAGE_PULL: &str = "ImagePull";
/// A container cannot be created, such as for a missing Secret.
pub const CONTAINER_CONFIG: &str = "ContainerConfig";
/// A volume cannot be attached or mounted.
pub const VOLUME: &str = "Volume";
/// A container ends again and again.
pub const CRASH_LOOP: &str = "CrashLoop";
/// Another warning.
pub const OTHER: &str = "Other";

/// All reasons, the most serious first: labels of metrics have no other value.
pub const REASONS: [&str; 10] = [
    CREATION_FAILED,
    QUOTA_EXCEEDED,
    FAILED_CREATE,
    UNSCHEDULABLE,
    SCHEDULING_GATED,
    IMAGE_PULL,
    CONTAINER_CONFIG,
    VOLUME,
    CRASH_LOOP,
    OTHER,
];

/// Troubles of one observation.
pub const MAX_TROUBLES: usize = 4;

/// A message, in bytes.
pub const MAX_TEXT: usize = 512;

/// The reason of the closed set.
#[must_use]
pub fn known(reason: &str) -> &'static str {
    REASONS.into_iter().find(|known| *known == reason).unwrap_or(OTHER)
}

/// A text in one line of at most [`MAX_TEXT`] bytes, without control characters.
#[must_use]
pub fn plain(text: &str) -> String {
    let mut plain = String::new();
    for word in
        text.split(|it: char| it.is_whitespace() || it.is_control()).filter(|word| !word.is_empty())
    {
        if !plain.is_empty() {
            plain.push(' ');
        }
        plain.push_str(word);
        if plain.len() > MAX_TEXT {
            let end = MAX_TEXT - "...".len();
            plain.truncate((0..=end).rev().find(|at| plain.is_char_boundary(*at)).unwrap_or(0));
            plain.push_str("...");
            break;
        }
    }
    plain
}

/// Brings what was received within the bounds: known reasons, each once, in their order.
pub fn bound(troubles: &mut Vec<JobTrouble>) {
    let mut bounded: Vec<JobTrouble> = Vec::new();
    // There are no more reasons than this: further entries repeat one.
    for trouble in troubles.drain(..).take(REASONS.len()) {
        let reason = known(&trouble.reason);
        if bounded.iter().all(|it| it.reason != reason) {
            bounded.push(JobTrouble {
                reason: reason.to_owned(),
                message: plain(&trouble.message),
                ..trouble
            });
        }
    }
    let rank = |reason: &str| REASONS.iter().position(|known| *known == reason);
    bounded.sort_by_key(|trouble| rank(&trouble.reason));
    bounded.truncate(MAX_TROUBLES);
    *troubles = bounded;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_one_bounded_line() {
        assert_eq!(plain(" a\n\tb\u{7}c  d\u{1b}[31m "), "a b c d [31m");
        let long = plain(&"ж".repeat(MAX_TEXT));
        assert!(long.len() <= MAX_TEXT && long.ends_with("..."), "{} bytes", long.len());
        assert_eq!(plain(&"x".repeat(MAX_TEXT)).len(), MAX_TEXT);
    }

    #[test]
    fn troubles_are_bounded_and_in_order() {
        let trouble = |reason: &str| JobTrouble {
            reason: reason.into(),
            message: "a\nb".into(),
            ..Default::default()
        };
        let mut troubles: Vec<JobTrouble> =
            ["CrashLoop", "Forged", "Forged", "Other", "FailedCreate", "Volume", "ImagePull"]
                .map(trouble)
                .into();
        bound(&mut troubles);
        let reasons: Vec<&str> = troubles.iter().map(|it| it.reason.as_str()).collect();
        assert_eq!(reasons, ["FailedCreate", "ImagePull", "Volume", "CrashLoop"]);
        assert_eq!(troubles[0].message, "a b");
        let mut many = vec![trouble("Other"); 100_000];
        bound(&mut many);
        assert_eq!(many.len(), 1);
    }
}
