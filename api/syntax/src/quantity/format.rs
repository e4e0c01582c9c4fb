//! Formats quantities.

use std::fmt;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::{CPU, Exact, NANO, Style};

/// An amount (thousandths of `cpu`, whole units of other resources) as Kueue writes it in status
/// and messages: `1500m`, `2`, `1Gi`, `8`.
#[must_use]
pub fn format_amount(resource: &str, amount: i64) -> String {
    let nanos = i128::from(amount) * if resource == CPU { NANO / 1000 } else { NANO };
    let style = if is_bytes(resource) { Style::Binary } else { Style::Decimal };
    Exact { nanos, style }.to_string()
}

/// As [`format_amount`], but bytes take the shorter of the decimal and the binary form: `20G`
/// instead of `19531250Ki`, and `20Gi`. So an amount usually keeps the form that its user wrote.
#[must_use]
pub fn format_shortest(resource: &str, amount: i64) -> String {
    let kueues = format_amount(resource, amount);
    if !is_bytes(resource) {
        return kueues;
    }
    let decimal = Exact { nanos: i128::from(amount) * NANO, style: Style::Decimal }.to_string();
    if decimal.len() < kueues.len() { decimal } else { kueues }
}

/// From billionths, in decimal form.
#[must_use]
pub fn quantity_of_nanos(nanos: i128) -> Quantity {
    Quantity(Exact { nanos, style: Style::Decimal }.to_string())
}

/// Whether amounts of this resource have binary suffixes.
fn is_bytes(resource: &str) -> bool {
    matches!(resource, "memory" | "ephemeral-storage") || resource.starts_with("hugepages-")
}

impl fmt::Display for Exact {
    /// The canonical form: no fraction, and the largest suffix that loses nothing.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.style {
            Style::Binary => match binary(self.nanos) {
                Some((number, suffix)) => write!(f, "{number}{suffix}"),
                // No binary suffix divides it. Kueue then parses the plain number again, which
                // makes it decimal.
                None => decimal(self.nanos, f),
            },
            Style::Decimal => decimal(self.nanos, f),
            Style::Exponent => exponent(self.nanos, f),
        }
    }
}

/// The number and the largest binary suffix that divides it. `None` for fractions, small and odd
/// numbers.
fn binary(nanos: i128) -> Option<(i128, &'static str)> {
    const SUFFIXES: [&str; 6] = ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
    let mut number = nanos / NANO;
    if nanos % NANO != 0 || number == 0 || number % 1024 != 0 {
        return None;
    }
    let mut suffix = "";
    for next in SUFFIXES {
        if number % 1024 != 0 {
            break;
        }
        number /= 1024;
        suffix = next;
    }
    Some((number, suffix))
}

/// The number divided by 1000 as often as possible, at most `max` times, and how often.
fn thousands(mut number: i128, max: usize) -> (i128, usize) {
    let mut power = 0;
    while number != 0 && number % 1000 == 0 && power < max {
        number /= 1000;
        power += 1;
    }
    (number, power)
}

fn decimal(nanos: i128, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    const SUFFIXES: [&str; 10] = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"];
    if nanos == 0 {
        return f.write_str("0");
    }
    let (number, power) = thousands(nanos, SUFFIXES.len() - 1);
    write!(f, "{number}{}", SUFFIXES[power])
}

fn exponent(nanos: i128, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    if nanos == 0 {
        return f.write_str("0");
    }
    let (number, power) = thousands(nanos, usize::MAX);
    match i64::try_from(power).unwrap_or(i64::MAX) * 3 - 9 {
        0 => write!(f, "{number}"),
        exponent => write!(f, "{number}e{exponent}"),
    }
}
