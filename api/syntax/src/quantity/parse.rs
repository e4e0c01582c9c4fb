//! Parses quantities.

use super::{Exact, NANO, Style};

/// Why a text is not a quantity.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseQuantityError {
    /// It does not start with a number.
    #[error("{0:?} is not a quantity: write a number such as 500m, 2, 1.5 or 4Gi")]
    Number(String),
    /// The number is followed by an unknown suffix.
    #[error(
        "{text:?} is not a quantity: {suffix:?} is no suffix, use one of n, u, m, k, M, G, T, P, E, Ki, Mi, Gi, Ti, Pi, Ei or an exponent such as e3"
    )]
    Suffix {
        /// The whole text.
        text: String,
        /// The text after the number.
        suffix: String,
    },
}

/// Parses a quantity.
///
/// # Errors
/// If the text is not a quantity.
pub fn parse(text: &str) -> Result<Exact, ParseQuantityError> {
    let (negative, rest) = match text.as_bytes().first() {
        Some(b'-') => (true, &text[1..]),
        Some(b'+') => (false, &text[1..]),
        _ => (false, text),
    };
    let (whole, rest) = digits(rest);
    let (fraction, suffix) = rest.strip_prefix('.').map_or(("", rest), digits);
    if whole.is_empty() && fraction.is_empty() {
        return Err(ParseQuantityError::Number(text.to_owned()));
    }
    let scale = scale_of(suffix).ok_or_else(|| ParseQuantityError::Suffix {
        text: text.to_owned(),
        suffix: suffix.to_owned(),
    })?;
    let exact = magnitude(whole, fraction, scale);
    Ok(if negative { Exact { nanos: -exact.nanos, ..exact } } else { exact })
}

/// Splits off the leading decimal digits.
fn digits(text: &str) -> (&str, &str) {
    text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()))
}

/// The factor of a suffix.
#[derive(Clone, Copy)]
enum Scale {
    /// A power of ten.
    Ten(i64, Style),
    /// A power of two.
    Two(u32),
}

fn scale_of(suffix: &str) -> Option<Scale> {
    let ten = |exponent| Some(Scale::Ten(exponent, Style::Decimal));
    match suffix {
        "n" => ten(-9),
        "u" => ten(-6),
        "m" => ten(-3),
        "" => ten(0),
        "k" => ten(3),
        "M" => ten(6),
        "G" => ten(9),
        "T" => ten(12),
        "P" => ten(15),
        "E" => ten(18),
        "Ki" => Some(Scale::Two(10)),
        "Mi" => Some(Scale::Two(20)),
        "Gi" => Some(Scale::Two(30)),
        "Ti" => Some(Scale::Two(40)),
        "Pi" => Some(Scale::Two(50)),
        "Ei" => Some(Scale::Two(60)),
        _ => exponent(suffix.strip_prefix(['e', 'E'])?)
            .map(|exponent| Scale::Ten(exponent, Style::Exponent)),
    }
}

/// An exponent in digits. Excessive exponents are clamped. `None` beyond 64 bits, as in Kubernetes.
fn exponent(text: &str) -> Option<i64> {
    const FAR: i64 = 1_000_000;
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    if unsigned.is_empty() || !unsigned.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let size = unsigned.parse::<i64>().ok()?.min(FAR);
    Some(if text.starts_with('-') { -size } else { size })
}

/// The number without its sign.
fn magnitude(whole: &str, fraction: &str, scale: Scale) -> Exact {
    match scale {
        Scale::Ten(exponent, style) => {
            Exact { nanos: decimal(whole, fraction, exponent + 9), style }
        }
        Scale::Two(exponent) => {
            let nanos = binary(whole, fraction, exponent);
            // Kubernetes caps binary amounts, and writes those below one in decimal so that nothing
            // is lost.
            let nanos = nanos.min(i128::from(i64::MAX) * NANO);
            Exact { nanos, style: if nanos < NANO { Style::Decimal } else { Style::Binary } }
        }
    }
}

/// `whole.fraction * 10^exponent`, rounded up and clamped.
fn decimal(whole: &str, fraction: &str, exponent: i64) -> i128 {
    let all = whole.len() + fraction.len();
    // Digits before the point after the shift by the exponent.
    let before = i64::try_from(whole.len()).unwrap_or(i64::MAX).saturating_add(exponent);
    let mut number: i128 = 0;
    let mut rest = false;
    for (index, digit) in whole.bytes().chain(fraction.bytes()).enumerate() {
        if i64::try_from(index).unwrap_or(i64::MAX) < before {
            number = number.saturating_mul(10).saturating_add(i128::from(digit - b'0'));
        } else {
            rest |= digit != b'0';
        }
    }
    let mut missing = before.saturating_sub(i64::try_from(all).unwrap_or(i64::MAX));
    while missing > 0 && number != 0 && number != i128::MAX {
        number = number.saturating_mul(10);
        missing -= 1;
    }
    number.saturating_add(i128::from(rest))
}

/// `whole.fraction * 2^exponent` in billionths, rounded up and clamped.
fn binary(whole: &str, fraction: &str, exponent: u32) -> i128 {
    // Digits beyond these weigh less than a billionth even under the largest suffix.
    const DIGITS: usize = 60;
    // Below 2^90, so each product with a digit fits into 128 bits.
    let factor = (1i128 << exponent) * NANO;
    let units = decimal(whole, "", 0).saturating_mul(factor);
    // Multiplies by hand from the last digit to the first. The final carry is the whole part.
    let mut carry: i128 = 0;
    let mut rest = fraction.bytes().skip(DIGITS).any(|digit| digit != b'0');
    for digit in fraction.bytes().take(DIGITS).collect::<Vec<_>>().into_iter().rev() {
        let product = i128::from(digit - b'0') * factor + carry;
        rest |= product % 10 != 0;
        carry = product / 10;
    }
    units.saturating_add(carry).saturating_add(i128::from(rest))
}
