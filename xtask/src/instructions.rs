//! `cargo xtask instructions`: counts the instructions of the engine's cycles on fixed inputs, and compares them with the
//! recorded counts. Unlike times, these counts do not depend on the load of the machine.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, bail};

use crate::run;

/// Largest accepted increase over the recorded count, in percent. Other compilers and C libraries differ by less.
const TOLERANCE: u64 = 10;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Write the counts into scheduler/benches/instructions.json instead of comparing them.
    #[arg(long)]
    record: bool,
    /// Only scenarios whose name contains this, such as `storm` or `live/fair`.
    filter: Option<String>,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    if !run::has("valgrind", "--version") {
        bail!(
            "no valgrind on this machine, so nothing was counted: install it, as with `apt install valgrind`"
        );
    }
    let bench = build()?;
    let recorded = recorded()?;
    let mut counts = BTreeMap::new();
    for name in scenarios(&bench)? {
        if args.filter.as_ref().is_none_or(|part| name.contains(part)) {
            let count = count(&bench, &name)?;
            println!("{}", row(&name, count, recorded.get(&name).copied()));
            counts.insert(name, count);
        }
    }
    if args.record {
        let all: BTreeMap<_, _> = recorded.into_iter().chain(counts).collect();
        let text = serde_json::to_string_pretty(&all)? + "\n";
        return std::fs::write(file(), text)
            .with_context(|| format!("cannot write {}", file().display()));
    }
    let known = |name: &str| recorded.get(name).copied();
    let grown = counts
        .iter()
        .filter(|(name, count)| known(name).is_none_or(|known| **count > most(known)))
        .count();
    match grown {
        0 => Ok(()),
        grown => bail!(
            "{grown} of {} take more than {TOLERANCE} % more instructions than recorded, or are new; if that must be, \
             `cargo xtask instructions --record`",
            counts.len()
        ),
    }
}

fn most(recorded: u64) -> u64 {
    recorded.saturating_add(recorded / 100 * TOLERANCE)
}

/// A line of the table: the count, and its change from the recorded one.
fn row(name: &str, count: u64, recorded: Option<u64>) -> String {
    let millions =
        |count: u64| format!("{}.{:02} million", count / 1_000_000, count / 10_000 % 100);
    let change = match recorded {
        None => "not recorded".to_owned(),
        Some(recorded) => {
            let permille =
                (i128::from(count) - i128::from(recorded)) * 1000 / i128::from(recorded.max(1));
            let sign = if permille < 0 { '-' } else { '+' };
            let size = permille.unsigned_abs();
            format!("{sign}{}.{} % of {}", size / 10, size % 10, millions(recorded))
        }
    };
    format!("  {name:<20} {:>16}  {change}", millions(count))
}

fn file() -> PathBuf {
    run::root().join("scheduler/benches/instructions.json")
}

fn recorded() -> anyhow::Result<BTreeMap<String, u64>> {
    match std::fs::read_to_string(file()) {
        Ok(text) => {
            serde_json::from_str(&text).with_context(|| format!("cannot read {}", file().display()))
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(BTreeMap::new()),
        Err(error) => Err(error).with_context(|| format!("cannot read {}", file().display())),
    }
}

/// Builds the bench with optimizations, and returns its path.
fn build() -> anyhow::Result<PathBuf> {
    run::announce("build the bench of the engine's cycles for release", "about 2 minutes");
    let messages = run::output(run::cargo(&[
        "bench",
        "-q",
        "-p",
        "switchyard-scheduler",
        "--bench",
        "instructions",
        "--no-run",
        "--message-format=json",
    ]))?;
    let mut executables = messages.lines().filter_map(|line| {
        let message: serde_json::Value = serde_json::from_str(line).ok()?;
        let named = message["target"]["name"] == "instructions";
        named.then(|| message["executable"].as_str().map(PathBuf::from)).flatten()
    });
    executables.next_back().context("cargo bench built no `instructions`")
}

fn scenarios(bench: &PathBuf) -> anyhow::Result<Vec<String>> {
    let mut list = Command::new(bench);
    list.arg("--list");
    let text = run::output(list)?;
    Ok(text
        .lines()
        .filter_map(|line| line.strip_suffix(": benchmark"))
        .map(str::to_owned)
        .collect())
}

/// The instructions of a scenario's cycles.
fn count(bench: &PathBuf, scenario: &str) -> anyhow::Result<u64> {
    let mut valgrind = Command::new("valgrind");
    valgrind
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null", "--collect-atstart=no"])
        .arg("--toggle-collect=*counted_cycle*")
        .arg(bench)
        .arg(scenario);
    let output = valgrind.output().context("cannot start valgrind")?;
    let text = String::from_utf8_lossy(&output.stderr);
    let collected =
        text.lines().find_map(|line| line.split_once("Collected :")).map(|(_, count)| count.trim());
    match collected.and_then(|count| count.parse().ok()) {
        Some(count) if count > 0 && output.status.success() => Ok(count),
        _ => bail!("valgrind counted nothing of {scenario} ({}):\n{text}", output.status),
    }
}
