//! Pace of explanations why pending workloads wait.

use std::{collections::BTreeMap, time::Duration};

use tokio::time::Instant;

/// Least and longest pause between two explanations that waited.
const PAUSE: [Duration; 2] = [Duration::from_millis(20), Duration::from_secs(1)];
/// So many explanations of one namespace are written at once in a second. Further ones wait.
const AT_ONCE: u32 = 20;

/// The pause after an explanation whose write took this long.
pub(super) fn pause_after(took: Duration) -> Duration {
    took.clamp(PAUSE[0], PAUSE[1])
}

/// The number of explanations in this second, by namespace.
#[derive(Debug, Default)]
pub(super) struct ExplanationLimit {
    since: Option<Instant>,
    counts: BTreeMap<String, u32>,
}

impl ExplanationLimit {
    /// Whether one more of this namespace may be written now. Counts it.
    pub(super) fn admits(&mut self, namespace: &str, now: Instant) -> bool {
        if self.since.is_none_or(|since| now >= since + Duration::from_secs(1)) {
            *self = Self { since: Some(now), counts: BTreeMap::new() };
        }
        let count = self.counts.entry(namespace.to_owned()).or_default();
        *count += 1;
        *count <= AT_ONCE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_namespace_has_its_share_of_a_second() {
        let (mut limit, start) = (ExplanationLimit::default(), Instant::now());
        let mut admitted = |namespace: &str, at: Duration, tries: u32| {
            (0..tries).filter(|_| limit.admits(namespace, start + at)).count()
        };
        assert_eq!(admitted("crowd", Duration::ZERO, 500), 20);
        assert_eq!(admitted("honest", Duration::from_millis(500), 3), 3);
        assert_eq!(admitted("crowd", Duration::from_millis(999), 5), 0);
        assert_eq!(admitted("crowd", Duration::from_secs(1), 5), 5);
    }
}
