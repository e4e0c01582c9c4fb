//! One scenario: played, and compared.

use std::panic::{AssertUnwindSafe, catch_unwind};

use serde_json::Value;

use crate::{compare, play};

/// The name of the scenario in a line, and the first difference between what the engine decides and what the scenario
/// expects.
pub(crate) fn line(text: &str) -> Result<(String, Option<String>), String> {
    let scenario: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
    let name = scenario["name"].as_str().unwrap_or("unnamed").to_owned();
    let expected = compare::read(&scenario["expect"])?;
    // An engine that panics is a difference like any other, and the scenarios after it count too.
    let difference = match catch_unwind(AssertUnwindSafe(|| play::play(&scenario))) {
        Ok(got) => compare::first_difference(&expected, &got?),
        Err(_) => Some("  the engine panicked".to_owned()),
    };
    Ok((name, difference))
}
