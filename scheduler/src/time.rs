//! Time as the caller tells it: the engine has no clock.

use std::time::Duration;

/// A moment: nanoseconds since the Unix epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "record", derive(serde::Serialize, serde::Deserialize))]
pub struct Time(pub i64);

impl Time {
    /// Later than anything that happens.
    pub(crate) const NEVER: Self = Self(i64::MAX);

    /// A moment given in whole seconds since the Unix epoch. Saturates.
    pub const fn from_secs(secs: i64) -> Self {
        Self(secs.saturating_mul(1_000_000_000))
    }

    /// This moment and `after` more. Saturates.
    #[must_use]
    pub fn plus(self, after: Duration) -> Self {
        Self(self.0.saturating_add(i64::try_from(after.as_nanos()).unwrap_or(i64::MAX)))
    }

    /// How long ago `earlier` was; zero if it is later than this moment.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }
}
