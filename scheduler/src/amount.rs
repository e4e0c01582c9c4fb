//! Amounts of a resource, and their text.

use std::fmt;
use std::ops::{Add, Sub};

/// An amount of one resource: milli-units for `cpu`, whole units for all other resources.
///
/// Arithmetic saturates. [`Amount::UNLIMITED`] is greater than every other amount and stays
/// unlimited after additions and subtractions. A bounded amount minus an unlimited one is the least
/// amount, which callers treat as zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "record", derive(serde::Serialize, serde::Deserialize))]
pub struct Amount(i64);

impl Amount {
    pub const ZERO: Self = Self(0);
    pub const UNLIMITED: Self = Self(i64::MAX);

    /// In base units: milli-units for `cpu`. `i64::MAX` means unlimited.
    pub const fn new(value: i64) -> Self {
        Self(value)
    }

    /// In base units; `i64::MAX` if unlimited.
    pub const fn get(self) -> i64 {
        self.0
    }

    pub const fn is_unlimited(self) -> bool {
        self.0 == i64::MAX
    }

    /// Saturates.
    #[must_use]
    pub fn times(self, times: i32) -> Self {
        Self(self.0.saturating_mul(i64::from(times)))
    }

    /// Clamps an exact sum to the range. Above it, the amount is unlimited.
    pub(crate) fn clamped(exact: i128) -> Self {
        Self(i64::try_from(exact).unwrap_or(if exact < 0 { i64::MIN } else { i64::MAX }))
    }

    /// The rest after `used` is taken. An unlimited amount stays unlimited while `used` is below
    /// `i64::MAX`, and is zero after that. Kueue does the same:
    /// `pkg/cache/scheduler/resource_node.go`.
    pub(crate) fn minus(self, used: i128) -> Self {
        if self.is_unlimited() {
            return if used < i128::from(i64::MAX) { self } else { Self::ZERO };
        }
        Self::clamped(i128::from(self.0) - used)
    }

    /// The text that Kubernetes gives to a quantity of `resource`: `1500m`, `2`, `1Gi`, `8`.
    /// Unlimited is `<unlimited>`, as in Kueue. Use [`Amount::quantity`] where the text must parse
    /// as a quantity.
    pub fn format(self, resource: &str) -> String {
        if self.is_unlimited() { self.to_string() } else { self.quantity(resource) }
    }

    /// As [`Amount::format`], but unlimited is the largest quantity, which parses as unlimited
    /// again. Kueue writes a workload's requests in this form.
    pub fn quantity(self, resource: &str) -> String {
        match resource {
            "cpu" => decimal(self.0, 0),
            _ if is_bytes(resource) => binary(self.0),
            _ => decimal(self.0, 1),
        }
    }
}

fn is_bytes(resource: &str) -> bool {
    matches!(resource, "memory" | "ephemeral-storage") || resource.starts_with("hugepages-")
}

/// `value` with the largest decimal suffix that leaves a whole number. `scale` 0 counts in
/// milli-units, 1 in units.
fn decimal(mut value: i64, mut scale: usize) -> String {
    const SUFFIXES: [&str; 8] = ["m", "", "k", "M", "G", "T", "P", "E"];
    if value == 0 {
        return "0".to_owned();
    }
    while value % 1000 == 0 && scale + 1 < SUFFIXES.len() {
        value /= 1000;
        scale += 1;
    }
    format!("{value}{}", SUFFIXES[scale])
}

/// `value` with the largest binary suffix that leaves a whole number. Without such a suffix the
/// text is decimal, because Kueue parses the number once more: 2000 bytes are `2k`.
fn binary(mut value: i64) -> String {
    const SUFFIXES: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
    if value % 1024 != 0 || value == 0 {
        return decimal(value, 1);
    }
    let mut scale = 0;
    while value % 1024 == 0 && scale + 1 < SUFFIXES.len() {
        value /= 1024;
        scale += 1;
    }
    format!("{value}{}", SUFFIXES[scale])
}

impl Add for Amount {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        if self.is_unlimited() || other.is_unlimited() {
            return Self::UNLIMITED;
        }
        Self(self.0.saturating_add(other.0))
    }
}

impl Sub for Amount {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        match (self.is_unlimited(), other.is_unlimited()) {
            (true, true) => Self::ZERO,
            (true, false) => Self::UNLIMITED,
            (false, true) => Self(i64::MIN),
            (false, false) => Self(self.0.saturating_sub(other.0)),
        }
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

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::a_fraction_of_a_core_in_milli("cpu", 1500, "1500m")]
    #[case::whole_cores_without_a_suffix("cpu", 2000, "2")]
    #[case::thousands_of_cores_with_k("cpu", 2_000_000, "2k")]
    #[case::cores_that_are_no_round_thousand("cpu", 1_500_000, "1500")]
    #[case::less_than_nothing_after_a_cut("cpu", -500, "-500m")]
    #[case::nothing_of_memory("memory", 0, "0")]
    #[case::a_gibibyte("memory", 1 << 30, "1Gi")]
    #[case::one_and_a_half_gibibytes("memory", 1536 << 20, "1536Mi")]
    #[case::odd_bytes("memory", 1025, "1025")]
    #[case::few_bytes_are_decimal("memory", 1000, "1k")]
    #[case::bytes_that_only_ten_divides_are_decimal("memory", 2000, "2k")]
    #[case::huge_pages_are_bytes("hugepages-2Mi", 4 << 20, "4Mi")]
    #[case::devices_are_counted("nvidia.com/gpu", 8, "8")]
    #[case::many_devices_with_k("nvidia.com/gpu", 8000, "8k")]
    #[case::pods("pods", 15, "15")]
    #[case::the_least_amount("memory", i64::MIN, "-8Ei")]
    #[case::unlimited("cpu", i64::MAX, "<unlimited>")]
    fn amount_formats_as_kubernetes_quantity(
        #[case] resource: &str,
        #[case] amount: i64,
        #[case] text: &str,
    ) {
        assert_eq!(Amount::new(amount).format(resource), text);
    }

    #[test]
    fn unlimited_amount_is_a_valid_quantity() {
        assert_eq!(Amount::UNLIMITED.quantity("cpu"), "9223372036854775807m");
        assert_eq!(Amount::UNLIMITED.quantity("memory"), "9223372036854775807");
        assert_eq!(Amount::new(1500).quantity("cpu"), "1500m");
    }

    #[test]
    fn unlimited_amount_absorbs_arithmetic() {
        let bounded = Amount::new(5);
        assert_eq!(Amount::UNLIMITED + bounded, Amount::UNLIMITED);
        assert_eq!(Amount::UNLIMITED - bounded, Amount::UNLIMITED);
        assert_eq!(Amount::UNLIMITED - Amount::UNLIMITED, Amount::ZERO);
        assert_eq!(bounded - Amount::UNLIMITED, Amount::new(i64::MIN));
        assert_eq!(Amount::new(i64::MAX - 1) + bounded, Amount::UNLIMITED);
        assert_eq!(Amount::UNLIMITED.minus(7), Amount::UNLIMITED);
        assert_eq!(Amount::UNLIMITED.minus(i128::from(i64::MAX)), Amount::ZERO);
        assert_eq!(Amount::UNLIMITED.minus(i128::MAX), Amount::ZERO);
        assert_eq!(Amount::new(i64::MIN).minus(7), Amount::new(i64::MIN));
    }
}
