//! Plays and compares one scenario.

use std::panic::{AssertUnwindSafe, catch_unwind};

use serde_json::Value;

use crate::{compare, play};

/// The name of a line's scenario, and the first difference between the engine's decisions and the
/// expected ones.
pub(crate) fn line(text: &str) -> Result<(String, Option<String>), String> {
    let scenario: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
    let name = scenario["name"].as_str().unwrap_or("unnamed").to_owned();
    let expected = compare::read(&scenario["expect"])?;
    // A panic of the engine is a difference like any other. Later scenarios still count.
    let difference = match catch_unwind(AssertUnwindSafe(|| play::play(&scenario))) {
        Ok(got) => compare::first_difference(&expected, &got?),
        Err(_) => Some("  the engine panicked".to_owned()),
    };
    Ok((name, difference))
}
