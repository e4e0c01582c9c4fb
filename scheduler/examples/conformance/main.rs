//! Plays quota scheduling scenarios through the engine and compares its decisions with those written beside them.
//!
//! `cargo run -p switchyard-scheduler --example conformance -- FILE...`
//!
//! Each line of a file is a scenario: Kueue objects, steps, and what Kueue decided. The first difference of each
//! failing scenario is shown. Exits with 1 if any failed.

mod compare;
mod objects;
mod play;
mod quantity;

use std::error::Error;
use std::process::ExitCode;

use serde_json::Value;

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let files: Vec<String> = std::env::args().skip(1).collect();
    if files.is_empty() {
        return Err("usage: conformance FILE...".into());
    }
    let (mut passed, mut failed) = (0, 0);
    for file in files {
        let text = std::fs::read_to_string(&file).map_err(|error| format!("{file}: {error}"))?;
        let mut of_file = (0, 0);
        for (number, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
            let place = format!("{file}:{}", number + 1);
            let scenario: Value = serde_json::from_str(line).map_err(|error| format!("{place}: {error}"))?;
            match check(&scenario).map_err(|error| format!("{place}: {error}"))? {
                None => of_file.0 += 1,
                Some(difference) => {
                    of_file.1 += 1;
                    println!("{}\n{difference}", scenario["name"].as_str().unwrap_or(&place));
                }
            }
        }
        println!("{file}: {} passed, {} failed", of_file.0, of_file.1);
        passed += of_file.0;
        failed += of_file.1;
    }
    println!("{passed} passed, {failed} failed");
    Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The first difference between what the engine decides and what the scenario expects.
fn check(scenario: &Value) -> Result<Option<String>, String> {
    let got = play::play(scenario)?;
    let expected = compare::read(&scenario["expect"])?;
    Ok(compare::first_difference(&expected, &got))
}
