//! Kubernetes quantities and times, in the forms that scenarios use.

use std::time::Duration;

use switchyard_scheduler::{Amount, Time};

/// Milli-units of cpu, units of all other resources; rounded up, unlimited above the range.
pub(crate) fn amount(resource: &str, text: &str) -> Result<Amount, String> {
    let nano = nano(text).ok_or_else(|| format!("{text:?} is no quantity"))?;
    let unit: i128 = if resource == "cpu" { 1_000_000 } else { 1_000_000_000 };
    let value = nano.div_euclid(unit) + i128::from(nano.rem_euclid(unit) > 0);
    Ok(Amount::new(i64::try_from(value).unwrap_or(i64::MAX)))
}

/// Thousandths, for weights.
pub(crate) fn milli(text: &str) -> Result<i64, String> {
    amount("cpu", text).map(Amount::get)
}

/// Billionths, for past usage.
pub(crate) fn nanos(text: &str) -> Result<i128, String> {
    nano(text).ok_or_else(|| format!("{text:?} is no quantity"))
}

/// A duration such as `600s`.
pub(crate) fn seconds(text: &str) -> Result<Duration, String> {
    let number = text.strip_suffix('s').and_then(|number| number.parse().ok());
    number.map(Duration::from_secs).ok_or_else(|| format!("{text:?} is no duration in seconds"))
}

fn nano(text: &str) -> Option<i128> {
    let end = text
        .find(|c: char| !c.is_ascii_digit() && c != '.' && c != '-' && c != '+')
        .unwrap_or(text.len());
    let (number, suffix) = text.split_at(end);
    let factor: i128 = match suffix {
        "n" => 1,
        "u" => 1_000,
        "m" => 1_000_000,
        "" => 1_000_000_000,
        "k" => 1_000_000_000_000,
        "M" => 1_000_000_000_000_000,
        "G" => 1_000_000_000_000_000_000,
        "T" => 1_000_000_000_000_000_000_000,
        "Ki" => 1_000_000_000 << 10,
        "Mi" => 1_000_000_000 << 20,
        "Gi" => 1_000_000_000 << 30,
        "Ti" => 1_000_000_000 << 40,
        _ => return None,
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let digits: i128 = format!("{whole}{fraction}").parse().ok()?;
    let scale = 10_i128.checked_pow(u32::try_from(fraction.len()).ok()?)?;
    digits.checked_mul(factor)?.checked_div(scale)
}

/// From `2026-01-01T00:00:00Z`.
pub(crate) fn time(text: &str) -> Result<Time, String> {
    let parts: Vec<i64> = text
        .trim_end_matches('Z')
        .split(['-', 'T', ':'])
        .map(|part| part.parse::<i64>().map_err(|_| format!("{text:?} is no time")))
        .collect::<Result<_, _>>()?;
    let [year, month, day, hour, minute, second] = parts[..] else {
        return Err(format!("{text:?} is no time"));
    };
    // Days since the epoch, with years from March, so that the leap day is the last one.
    let shifted = if month <= 2 { year - 1 } else { year };
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let days = shifted * 365 + shifted.div_euclid(4) - shifted.div_euclid(100)
        + shifted.div_euclid(400)
        + day_of_year;
    Ok(Time::from_secs((days - 719_468) * 86_400 + hour * 3_600 + minute * 60 + second))
}
