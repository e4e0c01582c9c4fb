//! Durations in Go's format: `5m0s`, `1h30m`, `500ms`.

use std::{borrow::Cow, fmt, str::FromStr, time::Duration};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A span of time in nanoseconds. May be negative, as in Go, so that validation can reject it by
/// field.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct GoDuration(i64);

/// The `format` of a duration in a JSON schema.
pub const FORMAT: &str = "go-duration";

/// A text is not a duration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no duration: write numbers with units, such as 5m, 1h30m or 500ms")]
pub struct ParseDurationError(String);

const UNITS: [(&str, i64); 8] = [
    ("ns", 1),
    ("us", 1_000),
    ("\u{b5}s", 1_000),
    ("\u{3bc}s", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
];

impl GoDuration {
    /// Zero.
    pub const ZERO: Self = Self(0);

    /// From seconds, clamped to 292 years.
    #[must_use]
    pub const fn from_secs(seconds: i64) -> Self {
        Self(seconds.saturating_mul(1_000_000_000))
    }

    /// From nanoseconds.
    #[must_use]
    pub const fn from_nanos(nanos: i64) -> Self {
        Self(nanos)
    }

    /// In nanoseconds.
    #[must_use]
    pub const fn nanos(self) -> i64 {
        self.0
    }

    /// As a standard duration. A negative value becomes zero.
    #[must_use]
    pub fn std(self) -> Duration {
        Duration::from_nanos(u64::try_from(self.0).unwrap_or(0))
    }

    /// Whether the duration is below zero.
    #[must_use]
    pub const fn is_negative(self) -> bool {
        self.0 < 0
    }
}

impl FromStr for GoDuration {
    type Err = ParseDurationError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        parse(text).map(Self).ok_or_else(|| ParseDurationError(text.to_owned()))
    }
}

fn parse(text: &str) -> Option<i64> {
    let (negative, mut rest) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    if rest == "0" {
        return Some(0);
    }
    if rest.is_empty() {
        return None;
    }
    let mut total: i128 = 0;
    while !rest.is_empty() {
        let number = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let end = rest[number..]
            .find(|c: char| c.is_ascii_digit() || c == '.')
            .map_or(rest.len(), |at| number + at);
        let unit = UNITS.iter().find(|(name, _)| *name == &rest[number..end])?.1;
        total += part(&rest[..number], unit)?;
        rest = &rest[end..];
    }
    i64::try_from(if negative { -total } else { total }).ok()
}

/// `number * unit` in nanoseconds. Smaller fractions are cut off.
fn part(number: &str, unit: i64) -> Option<i128> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() && fraction.is_empty() || fraction.contains('.') || whole.len() > 20 {
        return None;
    }
    let mut nanos =
        if whole.is_empty() { 0 } else { whole.parse::<i128>().ok()? * i128::from(unit) };
    let mut weight = i128::from(unit) * 1_000_000;
    for digit in fraction.bytes() {
        weight /= 10;
        nanos += i128::from(digit - b'0') * weight / 1_000_000;
    }
    Some(nanos)
}

impl fmt::Display for GoDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == 0 {
            return f.write_str("0s");
        }
        let sign = if self.0 < 0 { "-" } else { "" };
        let nanos = self.0.unsigned_abs();
        f.write_str(sign)?;
        match nanos {
            0..1_000 => write!(f, "{nanos}ns"),
            1_000..1_000_000 => write!(f, "{}\u{b5}s", Fraction(nanos, 1_000)),
            1_000_000..1_000_000_000 => write!(f, "{}ms", Fraction(nanos, 1_000_000)),
            _ => {
                let minutes = nanos / 60_000_000_000;
                if minutes >= 60 {
                    write!(f, "{}h", minutes / 60)?;
                }
                if minutes > 0 {
                    write!(f, "{}m", minutes % 60)?;
                }
                write!(f, "{}s", Fraction(nanos % 60_000_000_000, 1_000_000_000))
            }
        }
    }
}

/// `self.0 / self.1` as a decimal number without trailing zeros.
struct Fraction(u64, u64);

impl fmt::Display for Fraction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(parts, one) = *self;
        write!(f, "{}", parts / one)?;
        let rest = parts % one;
        if rest == 0 {
            return Ok(());
        }
        let digits = format!("{:0width$}", rest, width = one.ilog10() as usize);
        write!(f, ".{}", digits.trim_end_matches('0'))
    }
}

impl Serialize for GoDuration {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for GoDuration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Cow::<str>::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

impl JsonSchema for GoDuration {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "GoDuration".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "string", "format": FORMAT})
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::minutes("5m", "5m0s")]
    #[case::hours_and_minutes("1h30m", "1h30m0s")]
    #[case::a_fraction("1.5h", "1h30m0s")]
    #[case::no_digit_before_the_point(".5s", "500ms")]
    #[case::parts_of_a_second("1500ms", "1.5s")]
    #[case::micro_by_letter("3us", "3\u{b5}s")]
    #[case::micro_by_sign("3\u{3bc}s", "3\u{b5}s")]
    #[case::nothing_without_a_unit("0", "0s")]
    #[case::negative("-2m", "-2m0s")]
    #[case::more_than_a_day("168h", "168h0m0s")]
    fn read_and_written_as_go_does(#[case] text: &str, #[case] written: &str) {
        assert_eq!(text.parse::<GoDuration>().unwrap().to_string(), written);
    }

    #[rstest]
    #[case::empty("")]
    #[case::no_unit("5")]
    #[case::no_number("m")]
    #[case::an_unknown_unit("5d")]
    #[case::a_space("5 m")]
    #[case::two_points("1.2.3s")]
    #[case::beyond_292_years("9999999h")]
    #[case::many_digits("99999999999999999999999999s")]
    fn refused(#[case] text: &str) {
        assert!(text.parse::<GoDuration>().is_err());
    }

    proptest! {
        #[test]
        fn duration_round_trip_is_lossless(nanos: i64) {
            prop_assume!(nanos != i64::MIN);
            let duration = GoDuration::from_nanos(nanos);
            prop_assert_eq!(duration.to_string().parse::<GoDuration>().unwrap(), duration);
        }
    }
}
