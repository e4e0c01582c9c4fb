//! The policy for jobs without a ready pod on their worker cluster.

use std::str::FromStr;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use switchyard_syntax::GoDuration;

/// The least time without a ready pod.
pub const MIN_STUCK_AFTER: Duration = Duration::from_secs(10);
/// Default of [`OnStuck::times`].
pub const DEFAULT_STUCK_TIMES: i32 = 3;
/// The most moves of one Workload.
pub const MAX_STUCK_TIMES: i32 = 10;

/// When the hub moves a job without a ready pod to another cluster. Absent: never.
///
/// The hub withdraws the job from its cluster only while it hears from that cluster, and only if
/// another cluster may take it. A job's annotation takes precedence over its ClusterQueue.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[schemars(inline)]
#[serde(rename_all = "camelCase")]
pub struct OnStuck {
    /// How long the job may be without a ready pod. At least 10s. The time doubles with each return
    /// to a cluster. Examples: `10m`, `1h30m`.
    #[schemars(length(min = 2, max = 32), regex(pattern = r"^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$"))]
    pub after: String,
    /// How many times the job is moved at most.
    #[serde(default = "default_times")]
    #[schemars(range(min = 1, max = 10))]
    pub times: i32,
}

fn default_times() -> i32 {
    DEFAULT_STUCK_TIMES
}

impl OnStuck {
    /// [`Self::after`] as a duration. `None` if it is invalid or too short.
    #[must_use]
    pub fn wait(&self) -> Option<Duration> {
        let after = self.after.parse::<GoDuration>().ok().filter(|after| !after.is_negative())?;
        Some(after.std()).filter(|after| *after >= MIN_STUCK_AFTER)
    }
}

/// The annotation's value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OnStuckAnnotation {
    /// The job stays, whatever its ClusterQueue says.
    Stay,
    /// The job moves by this policy.
    Move(OnStuck),
}

/// A text is not a policy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is no policy: write a time of at least 10s, where wanted with a number of moves from 1 to 10, such as 10m or 10m/3; \
     or Stay"
)]
pub struct ParseOnStuckError(String);

/// Parses `TIME`, `TIME/MOVES` or `Stay`.
impl FromStr for OnStuckAnnotation {
    type Err = ParseOnStuckError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "Stay" {
            return Ok(Self::Stay);
        }
        let refused = || ParseOnStuckError(text.to_owned());
        let (after, times) = match text.split_once('/') {
            Some((after, times)) => (after, times.parse::<i32>().map_err(|_| refused())?),
            None => (text, DEFAULT_STUCK_TIMES),
        };
        let rule = OnStuck { after: after.to_owned(), times };
        if rule.wait().is_none() || !(1..=MAX_STUCK_TIMES).contains(&times) {
            return Err(refused());
        }
        Ok(Self::Move(rule))
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::time("10m", Some(Some((600, 3))))]
    #[case::time_and_moves("1h30m/1", Some(Some((5400, 1))))]
    #[case::stay("Stay", Some(None))]
    #[case::too_short("9s", None)]
    #[case::negative("-10m", None)]
    #[case::no_time("soon", None)]
    #[case::nothing("", None)]
    #[case::no_moves("10m/", None)]
    #[case::zero_moves("10m/0", None)]
    #[case::too_many_moves("10m/11", None)]
    #[case::other_case("stay", None)]
    fn annotation_parses_or_is_refused(
        #[case] text: &str,
        #[case] want: Option<Option<(u64, i32)>>,
    ) {
        let got = text.parse::<OnStuckAnnotation>().ok().map(|rule| match rule {
            OnStuckAnnotation::Stay => None,
            OnStuckAnnotation::Move(rule) => Some((rule.wait().unwrap().as_secs(), rule.times)),
        });
        assert_eq!(got, want);
    }
}
