//! Plays scheduling scenarios through the engine, and compares its decisions with the recorded
//! ones.
//!
//! `cargo run --release -p switchyard-scheduler --example conformance -- [--json|--time] FILE...`
//!
//! Each line of a file is a scenario: Kueue objects, steps, and Kueue's decisions. Prints the first
//! difference of each failing scenario; with `--json` as one object per line. Exits with 1 if any
//! scenario failed.
//!
//! With `--time`, prints the times of each scenario's cycles instead, beside the first difference.

mod check;
mod compare;
mod edits;
mod objects;
mod play;
mod quantity;
mod times;
mod topology;

use std::error::Error;
use std::process::ExitCode;

use serde_json::json;

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let (options, files): (Vec<_>, Vec<_>) =
        std::env::args().skip(1).partition(|arg| arg.starts_with("--"));
    let known = |option: &String| ["--json", "--time"].contains(&option.as_str());
    if files.is_empty() || options.len() > 1 || !options.iter().all(known) {
        return Err("usage: conformance [--json|--time] FILE...".into());
    }
    if options.iter().any(|option| option == "--time") {
        for file in files {
            for line in std::fs::read_to_string(&file)?.lines() {
                println!("{}", times::line(line).map_err(|error| format!("{file}: {error}"))?);
            }
        }
        return Ok(ExitCode::SUCCESS);
    }
    let for_programs = !options.is_empty();
    let (mut passed, mut failed) = (0, 0);
    for file in files {
        let text = std::fs::read_to_string(&file).map_err(|error| format!("{file}: {error}"))?;
        let mut of_file = (0, 0);
        for (number, line) in (1..).zip(text.lines()).filter(|(_, line)| !line.trim().is_empty()) {
            let (name, difference) =
                check::line(line).map_err(|error| format!("{file}:{number}: {error}"))?;
            match difference {
                None => of_file.0 += 1,
                Some(difference) => {
                    of_file.1 += 1;
                    match for_programs {
                        true => println!(
                            "{}",
                            json!({ "file": file, "line": number, "difference": difference })
                        ),
                        false => println!("{name}\n{difference}"),
                    }
                }
            }
        }
        if !for_programs {
            println!("{file}: {} passed, {} failed", of_file.0, of_file.1);
        }
        passed += of_file.0;
        failed += of_file.1;
    }
    if !for_programs {
        println!("{passed} passed, {failed} failed");
    }
    Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
