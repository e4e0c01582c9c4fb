//! Kubernetes quantities with exact arithmetic: `1500m`, `4Gi`, `1e3`.
//!
//! Parsing and rounding follow Go's `resource.Quantity`. Formatting follows Kueue's status and
//! messages. No value passes through a floating-point number.

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

mod format;
mod parse;
#[cfg(test)]
mod tests;

pub use format::{format_amount, format_shortest, quantity_of_nanos};
pub use parse::{ParseQuantityError, parse};

/// Billionths of one.
const NANO: i128 = 1_000_000_000;

/// A quantity in billionths, and the style of its suffix.
///
/// Parsing rounds finer parts away from zero. Values beyond about 1.7 * 10^29 are clamped. With a
/// binary suffix the bound is 2^63-1, as in Kubernetes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exact {
    nanos: i128,
    style: Style,
}

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

    /// In billionths. Exact.
    #[must_use]
    pub fn nanos(self) -> i128 {
        self.nanos
    }

    /// In whole units, rounded away from zero and clamped to 64 bits.
    #[must_use]
    pub fn value(self) -> i64 {
        self.scaled(NANO)
    }

    /// With at most three decimals, rounded away from zero, as the API server stores requests of
    /// pods.
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

    /// In thousandths, rounded away from zero and clamped to 64 bits.
    #[must_use]
    pub fn milli_value(self) -> i64 {
        self.scaled(NANO / 1000)
    }

    /// In the unit of quota: thousandths for `cpu`, whole units for other resources. Clamped.
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

    /// Whether this is one billionth, the least positive quantity.
    #[must_use]
    pub fn is_least(self) -> bool {
        self.nanos == 1
    }

    /// The sum, clamped. It has the style of the first operand that is not zero.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        let style = if self.nanos == 0 { other.style } else { self.style };
        Self { nanos: self.nanos.saturating_add(other.nanos), style }
    }

    /// The nearest float, for weights.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "the nearest float is what is asked for")]
    pub fn to_f64(self) -> f64 {
        self.nanos as f64 / NANO as f64
    }

    /// In `unit` billionths, rounded away from zero and clamped.
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
    /// By amount. Equal amounts are ordered by style, so that the order agrees with `==`.
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

/// The resource with quota in thousandths.
pub const CPU: &str = "cpu";

/// In the unit of quota: thousandths for `cpu`, whole units for other resources. Rounded away from
/// zero and clamped to 64 bits. `i64::MAX` means unlimited.
///
/// A text that is no quantity becomes `i64::MAX`, so a request for it never fits. The API server
/// rejects such texts, so only hand-made objects have them. [`try_amount_of`] returns the error.
#[must_use]
pub fn amount_of(resource: &str, quantity: &Quantity) -> i64 {
    try_amount_of(resource, quantity).unwrap_or(i64::MAX)
}

/// As [`amount_of`], with the error.
///
/// # Errors
/// If the text is not a quantity.
pub fn try_amount_of(resource: &str, quantity: &Quantity) -> Result<i64, ParseQuantityError> {
    parse(&quantity.0).map(|exact| exact.amount(resource))
}
