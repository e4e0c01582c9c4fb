//! The times of a scenario's cycles.

use std::time::Duration;

use serde_json::{Value, json};

use crate::{compare, play};

/// Plays a line's scenario. Returns its times, and the first difference from the expected decisions.
pub(crate) fn line(text: &str) -> Result<Value, String> {
    let scenario: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
    let (got, mut times) = play::play_timed(&scenario)?;
    let difference = match &scenario["expect"] {
        Value::Null => None,
        expect => compare::first_difference(&compare::read(expect)?, &got),
    };
    times.sort_unstable();
    let at = |permille: usize| {
        let index = times.len().saturating_sub(1) * permille / 1000;
        times.get(index).map_or(0.0, |time| time.as_secs_f64() * 1000.0)
    };
    Ok(json!({
        "name": scenario["name"], "cycles": times.len(), "seconds": times.iter().sum::<Duration>().as_secs_f64(),
        "p50Ms": at(500), "p90Ms": at(900), "p99Ms": at(990), "maxMs": at(1000), "difference": difference,
    }))
}
