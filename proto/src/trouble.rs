//! Reasons why a job does not start on its cluster (a closed set), and the bounds of their report.
//!
//! Tenants can write events and pod statuses. So both ends bound the text: the agent before it
//! sends, the hub when it receives.

use crate::v1::JobTrouble;

/// The agent failed to create the job or its Workload at least twice.
pub const CREATION_FAILED: &str = "CreationFailed";
/// A controller could not create the pods, or the objects that create them.
pub const FAILED_CREATE: &str = "FailedCreate";
/// As [`FAILED_CREATE`], because a ResourceQuota is exhausted.
pub const QUOTA_EXCEEDED: &str = "QuotaExceeded";
/// The scheduler finds no node.
pub const UNSCHEDULABLE: &str = "Unschedulable";
/// Pods have a scheduling gate.
pub const SCHEDULING_GATED: &str = "SchedulingGated";
/// An image cannot be pulled.
pub const IMAGE_PULL: &str = "ImagePull";
/// A container cannot be created, for example because a Secret is missing.
pub const CONTAINER_CONFIG: &str = "ContainerConfig";
/// A volume cannot be attached or mounted.
pub const VOLUME: &str = "Volume";
/// A container exits repeatedly.
pub const CRASH_LOOP: &str = "CrashLoop";
/// Any other warning.
pub const OTHER: &str = "Other";

/// All reasons, most serious first. Metric labels have no other values.
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

/// The most troubles of one observation.
pub const MAX_TROUBLES: usize = 4;

/// The longest message, in bytes.
pub const MAX_TEXT: usize = 512;

/// The reason itself if it is in the closed set, else [`OTHER`].
#[must_use]
pub fn known_reason(reason: &str) -> &'static str {
    REASONS.into_iter().find(|known| *known == reason).unwrap_or(OTHER)
}

/// The text on one line, without control characters, cut to at most [`MAX_TEXT`] bytes.
#[must_use]
pub fn single_line(text: &str) -> String {
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

/// Enforces the bounds on received troubles: known reasons, each once, most serious first, at most
/// [`MAX_TROUBLES`].
pub fn sanitize(troubles: &mut Vec<JobTrouble>) {
    let mut bounded: Vec<JobTrouble> = Vec::new();
    // There are only so many reasons. Further entries would repeat one.
    for trouble in troubles.drain(..).take(REASONS.len()) {
        let reason = known_reason(&trouble.reason);
        if bounded.iter().all(|it| it.reason != reason) {
            bounded.push(JobTrouble {
                reason: reason.to_owned(),
                message: single_line(&trouble.message),
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
    fn single_line_joins_and_truncates() {
        assert_eq!(single_line(" a\n\tb\u{7}c  d\u{1b}[31m "), "a b c d [31m");
        let long = single_line(&"ж".repeat(MAX_TEXT));
        assert!(long.len() <= MAX_TEXT && long.ends_with("..."), "{} bytes", long.len());
        assert_eq!(single_line(&"x".repeat(MAX_TEXT)).len(), MAX_TEXT);
    }

    #[test]
    fn sanitize_bounds_and_sorts_troubles() {
        let trouble = |reason: &str| JobTrouble {
            reason: reason.into(),
            message: "a\nb".into(),
            ..Default::default()
        };
        let mut troubles: Vec<JobTrouble> =
            ["CrashLoop", "Forged", "Forged", "Other", "FailedCreate", "Volume", "ImagePull"]
                .map(trouble)
                .into();
        sanitize(&mut troubles);
        let reasons: Vec<&str> = troubles.iter().map(|it| it.reason.as_str()).collect();
        assert_eq!(reasons, ["FailedCreate", "ImagePull", "Volume", "CrashLoop"]);
        assert_eq!(troubles[0].message, "a b");
        let mut many = vec![trouble("Other"); 100_000];
        sanitize(&mut many);
        assert_eq!(many.len(), 1);
    }
}
