//! Amounts of a resource.

use std::fmt;

/// An amount of one resource: milli-units for `cpu`, whole units for everything else.
///
/// Arithmetic saturates. [`Amount::UNLIMITED`] stands for a quantity that does not fit: it stays unlimited when
/// something is added to or taken from it, and it is more than any other amount.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Amount(i64);

impl Amount {
    /// Nothing.
    pub const ZERO: Self = Self(0);
    /// More than any bounded amount.
    pub const UNLIMITED: Self = Self(i64::MAX);

    /// An amount in base units (milli-units for cpu). `i64::MAX` means unlimited.
    pub const fn new(value: i64) -> Self {
        Self(value)
    }

    /// The base units; `i64::MAX` if unlimited.
    pub const fn get(self) -> i64 {
        self.0
    }

    /// Whether this is [`Amount::UNLIMITED`].
    pub const fn is_unlimited(self) -> bool {
        self.0 == i64::MAX
    }
}

impl From<i64> for Amount {
    fn from(value: i64) -> Self {
        Self(value)
    }
}

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_unlimited() { f.write_str("<unlimited>") } else { self.0.fmt(f) }
    }
}
