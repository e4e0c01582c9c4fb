//! The difference between the clocks of an agent and of the hub. Pure.
//!
//! The hub decides nothing by an agent's clock. It reports a difference, because certificates and
//! tokens are valid by the clock of their reader, and because times in a job's status are the
//! worker's.

use jiff::Timestamp;

/// Seconds of difference from which the hub reports it. A Hello may take ten seconds.
const REPORTED: u64 = 60;

/// Seconds by which the clock in a Hello is ahead of `now`, negative if it is behind. None if the
/// agent sent no time.
pub(super) fn measure(clock: Option<prost_types::Timestamp>, now: Timestamp) -> Option<i64> {
    Some(clock?.seconds.saturating_sub(now.as_second()))
}

/// The message about a difference; None if it is too small.
pub(crate) fn report(skew: i64) -> Option<String> {
    let word = if skew > 0 { "ahead of" } else { "behind" };
    let amount = skew.unsigned_abs();
    (amount >= REPORTED).then(|| {
        format!(
            "the agent's clock was {amount} s {word} the hub's when its session began: certificates and tokens are valid by \
             the clock of their reader, and times in the status of jobs are the worker's"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn skew_is_reported_from_a_minute_on() {
        let now = Timestamp::from_second(1_000_000).unwrap();
        let at = |seconds| measure(Some(prost_types::Timestamp { seconds, nanos: 999 }), now);
        assert_eq!(measure(None, now), None);
        for (seconds, reported) in [
            (1_000_000, None),
            (1_000_059, None),
            (1_000_060, Some("60 s ahead of the hub's")),
            (999_941, None),
            (996_400, Some("3600 s behind the hub's")),
            (i64::MIN, Some("behind the hub's")),
            (i64::MAX, Some("ahead of the hub's")),
        ] {
            let text = report(at(seconds).unwrap());
            assert_eq!(text.is_some(), reported.is_some(), "{seconds}: {text:?}");
            let has = |part: &str| text.as_deref().is_some_and(|text| text.contains(part));
            assert!(reported.is_none_or(has), "{seconds}: {text:?}");
        }
    }
}
