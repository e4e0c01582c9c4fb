//! Kubernetes quantities with exact arithmetic: `1500m`, `4Gi`, `1e3`.
//!
//! Read and rounded as Go's `resource.Quantity` does it, and written as Kueue writes amounts into status and messages.
//! Nothing goes through a floating-point number.

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

mod format;
mod parse;
#[cfg(test)]
mod tests;

pub use format::{format_amount, format_shortest, quantity_of_nanos};
pub use parse::{ParseQuantityError, parse};

/// How many billionths one is.
const NANO: i128 = 1_000_000_000;

/// A quantity to the billionth, and the style of its suffix.
///
/// Finer parts are rounded away from zero when it is read. What exceeds the range (some 1.7 * 10^29) is clamped to it;
/// with a binary suffix the bound is 2^63-1, as in Kubernetes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exact {
    nanos: i128,
    style: Style,
}

/// The style of a suffix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Style {
    /// `m`, `k`, `M`, ...
    Decimal,
    /// `Ki`, `Mi`, ...
    Binary,
    /// `e3`, ...
    Exponent,
}

impl Exact {
    /// Zero.
    pub const ZERO: Self = Self { nanos: 0, style: Style::Decimal };

    /// The number of billionths, which is exact.
    #[must_use]
    pub fn nanos(self) -> i128 {
        self.nanos
    }

    /// The whole number, rounded away from zero and clamped to 64 bits.
    #[must_use]
    pub fn value(self) -> i64 {
        self.scaled(NANO)
    }

    /// The quantity with at most three decimals, rounded away from zero, as the API server stores amounts of pods.
    #[must_use]
    pub fn rounded_to_milli(self) -> Self {
        const MILLI: i128 = NANO / 1000;
        let rest = self.nanos % MILLI;
        Self {
            nanos: self.nanos.saturating_add(if rest == 0 {
                0
            } else {
                rest.signum() * MILLI - rest
            }),
            ..self
        }
    }

    /// The number of thousandths, rounded away from zero and clamped to 64 bits.
    #[must_use]
    pub fn milli_value(self) -> i64 {
        self.scaled(NANO / 1000)
    }

    /// The amount that quota is reckoned in: thousandths for `cpu`, whole units for everything else; clamped.
    #[must_use]
    pub fn amount(self, resource: &str) -> i64 {
        if resource == CPU { self.milli_value() } else { self.value() }
    }

    /// -1, 0 or 1.
    #[must_use]
    pub fn sign(self) -> i32 {
        match self.nanos {
            0 => 0,
            n if n < 0 => -1,
            _ => 1,
        }
    }

    /// Whether this is a billionth, the least above zero.
    #[must_use]
    pub fn is_least(self) -> bool {
        self.nanos == 1
    }

    /// The sum, clamped; in the style of the first that is not zero.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        let style = if self.nanos == 0 { other.style } else { self.style };
        Self { nanos: self.nanos.saturating_add(other.nanos), style }
    }

    /// As a float, for weights; the nearest one.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "the nearest float is what is asked for")]
    pub fn to_f64(self) -> f64 {
        self.nanos as f64 / NANO as f64
    }

    /// The number of `unit` billionths, rounded away from zero and clamped.
    fn scaled(self, unit: i128) -> i64 {
        let (whole, rest) = (self.nanos / unit, self.nanos % unit);
        let rounded = whole + rest.signum();
        i64::try_from(rounded).unwrap_or(if rounded < 0 { i64::MIN } else { i64::MAX })
    }
}

impl PartialOrd for Exact {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Exact {
    /// By amount; styles order only equal amounts, so that the order agrees with `==`.
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.nanos.cmp(&other.nanos).then((self.style as u8).cmp(&(other.style as u8)))
    }
}

impl std::str::FromStr for Exact {
    type Err = ParseQuantityError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        parse(text)
    }
}

impl TryFrom<&Quantity> for Exact {
    type Error = ParseQuantityError;

    fn try_from(quantity: &Quantity) -> Result<Self, Self::Error> {
        parse(&quantity.0)
    }
}

/// The resource that is reckoned in thousandths.
pub const CPU: &str = "cpu";

/// The amount that quota is reckoned in: thousandths for `cpu`, whole units for everything else; rounded away from zero
/// and clamped to 64 bits, where `i64::MAX` stands for unlimited.
///
/// What is no quantity counts as `i64::MAX`: a request for it never fits. The API server lets none through, so only
/// hand-made objects reach this; [`try_amount_of`] tells.
#[must_use]
pub fn amount_of(resource: &str, quantity: &Quantity) -> i64 {
    try_amount_of(resource, quantity).unwrap_or(i64::MAX)
}

/// As [`amount_of`], with the error.
///
/// # Errors
/// When the text is no quantity.
pub fn try_amount_of(resource: &str, quantity: &Quantity) -> Result<i64, ParseQuantityError> {
    parse(&quantity.0).map(|exact| exact.amount(resource))
}
