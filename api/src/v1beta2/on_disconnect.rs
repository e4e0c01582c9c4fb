//! The policy for jobs whose worker cluster is lost.

use std::str::FromStr;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use switchyard_syntax::GoDuration;

/// The policy for a cluster's jobs if it is lost.
///
/// A workload's annotation takes precedence over its ClusterQueue, and the ClusterQueue over the
/// MultiKueueCluster. The default is `Hold` for a cluster with an agent. A cluster with a
/// kubeconfig is given up after `multiKueue.workerLostTimeout`. A changed policy applies to a job
/// once the agent has received it.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[schemars(inline)]
#[serde(rename_all = "camelCase")]
pub struct OnDisconnect {
    /// The policy.
    #[serde(default)]
    pub policy: DisconnectPolicy,
    /// With `Fence`: how long after the end of its lease the agent lets jobs run on (default 0s).
    /// With `Duplicate`: how long the cluster must be lost before its jobs are sent to other
    /// clusters (default 1m). Examples: `5m`, `1h30m`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 2, max = 32), regex(pattern = r"^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$"))]
    pub after: Option<String>,
}

/// The policy for a cluster's jobs if it is lost.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
#[schemars(inline)]
pub enum DisconnectPolicy {
    /// They run on. They are not sent to other clusters until the cluster is back or declared lost.
    #[default]
    Hold,
    /// The agent suspends them when its lease lapses. The hub sends them to other clusters only
    /// after that must have happened.
    Fence,
    /// For jobs that may run twice: they are sent to other clusters early. When the cluster is
    /// back, one copy is kept.
    Duplicate,
}

/// A text is not a policy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is no policy: write Hold, Fence or Duplicate, where wanted with a time, such as Fence/5m or Duplicate/90s"
)]
pub struct ParseOnDisconnectError(String);

impl OnDisconnect {
    /// [`Self::after`] as a duration. `None` if it is absent or invalid.
    #[must_use]
    pub fn wait(&self) -> Option<Duration> {
        self.after
            .as_deref()?
            .parse::<GoDuration>()
            .ok()
            .filter(|after| !after.is_negative())
            .map(GoDuration::std)
    }
}

/// Parses the annotation's value, `POLICY` or `POLICY/TIME`.
impl FromStr for OnDisconnect {
    type Err = ParseOnDisconnectError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (policy, after) =
            text.split_once('/').map_or((text, None), |(policy, after)| (policy, Some(after)));
        let policy = match policy {
            "Hold" if after.is_none() => DisconnectPolicy::Hold,
            "Fence" => DisconnectPolicy::Fence,
            "Duplicate" => DisconnectPolicy::Duplicate,
            _ => return Err(ParseOnDisconnectError(text.to_owned())),
        };
        let rule = Self { policy, after: after.map(str::to_owned) };
        if rule.after.is_some() && rule.wait().is_none() {
            return Err(ParseOnDisconnectError(text.to_owned()));
        }
        Ok(rule)
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::hold("Hold", Some((DisconnectPolicy::Hold, None)))]
    #[case::fence_at_once("Fence", Some((DisconnectPolicy::Fence, None)))]
    #[case::fence_later("Fence/1h30m", Some((DisconnectPolicy::Fence, Some(5400))))]
    #[case::duplicate("Duplicate/90s", Some((DisconnectPolicy::Duplicate, Some(90))))]
    #[case::a_hold_has_no_end("Hold/5m", None)]
    #[case::no_policy("fence", None)]
    #[case::nothing("", None)]
    #[case::no_time("Fence/soon", None)]
    #[case::an_empty_time("Fence/", None)]
    #[case::before_it_began("Duplicate/-5m", None)]
    fn annotations(#[case] text: &str, #[case] want: Option<(DisconnectPolicy, Option<u64>)>) {
        let got = text.parse::<OnDisconnect>().ok();
        assert_eq!(got.map(|rule| (rule.policy, rule.wait().map(|wait| wait.as_secs()))), want);
    }
}
