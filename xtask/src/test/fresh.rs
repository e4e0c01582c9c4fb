//! Simulation and property tests with seeds that no earlier run used.

use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::bail;

use super::build::{self, Program};
use super::libtest::{self, SEEDS};
use super::workspace::Workspace;
use crate::programs;
use crate::report::{Counts, Failure, Report, Tier};

/// Test programs with random inputs, and parts of the names of such tests. No part means all tests.
const RANDOM: [(&str, &[&str]); 12] = [
    ("switchyard-api", &[]),
    ("switchyard-api test conversion", &[]),
    ("switchyard-agent", &["proof::tests", "capacity::room"]),
    ("switchyard-jobs", &[]),
    ("switchyard-ledger", &["laws"]),
    ("switchyard-audit", &["hostile"]),
    ("switchyard-controller", &["laws"]),
    ("switchyard-hub", &["outbox"]),
    ("switchyard-platform", &["lease", "cached_json"]),
    ("switchyard-scheduler", &["tree::", "afs::", "queue::", "fair_admission::", "topology::"]),
    ("switchyard-scheduler test laws", &[]),
    ("switchyard-syntax", &[]),
];

/// The tests of the simulation. Their build also builds the program that runs seeds.
const SIMULATION: &str = "switchyard-simulation test seeds";

/// Runs the property tests once, then the simulation for the rest of the seconds, at least for a quarter of them. Prints the
/// first seed. If `all` packages are tested, a missing program is a failure.
pub(super) fn run(
    report: &Report,
    tests: &[Program],
    workspace: &Workspace,
    seconds: u64,
    all: bool,
) {
    let seed = first_seed();
    println!("==> fresh seeds from {seed}, for {seconds} s");
    for (title, words) in RANDOM {
        let part = format!("fresh seed: {title}");
        let Some(program) = tests.iter().find(|program| program.title() == title) else {
            if all {
                missing(report, &part, "there is no such test program");
            }
            continue;
        };
        let played = report.part(Tier::Fresh, &part, || {
            let mut command = build::start(program, workspace);
            command.args(words).envs(SEEDS.map(|variable| (variable, seed.to_string())));
            libtest::run(&part, command, program.has_harness())
        });
        let Some(outcome) = played else { continue };
        report.count(Tier::Fresh, outcome.counts);
        if outcome.counts == Counts::default() {
            missing(report, &part, "no test of that name");
        }
        for failure in outcome.failures {
            let variables = SEEDS.map(|variable| format!("{variable}={seed}")).join(" ");
            let test = if failure.what == part { "" } else { failure.what.as_str() };
            let again = program.again(&variables, test);
            report.fail(Tier::Fresh, Failure { again, ..failure });
        }
    }
    if !tests.iter().any(|program| program.title() == SIMULATION) {
        if all {
            missing(report, "fresh seeds: simulation", "there is no such test program");
        }
        return;
    }
    let spent = report.seconds(Tier::Fresh);
    let left = (seconds as f64 - spent).max(seconds as f64 / 4.0);
    report.part(Tier::Fresh, "fresh seeds: simulation", || simulate(seed, left));
}

fn missing(report: &Report, what: &str, why: &str) {
    report.fail(
        Tier::Fresh,
        Failure { what: what.to_owned(), message: why.to_owned(), ..Failure::default() },
    );
}

fn simulate(seed: u64, seconds: f64) -> anyhow::Result<()> {
    let mut command: Command = programs::command("debug", "switchyard-simulate");
    command.args(["--seed", &seed.to_string(), "--seconds", &format!("{:.0}", seconds.ceil())]);
    let output = command.output()?;
    let printed = String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr);
    if !output.status.success() || printed.starts_with("0 seeds") {
        bail!("{}", printed.trim());
    }
    println!("    {}", printed.trim());
    Ok(())
}

/// A seed that no earlier run used: the time in milliseconds, which is far above the seeds of the simulation's tests.
pub(crate) fn first_seed() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// Whether one of these programs has random inputs.
pub(super) fn has_any(tests: &[Program]) -> bool {
    let random =
        |title: &str| title == SIMULATION || RANDOM.iter().any(|(random, _)| *random == title);
    tests.iter().any(|program| random(&program.title()))
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use super::RANDOM;
    use super::Workspace;
    use crate::run;

    #[test]
    fn every_package_with_property_tests_plays_fresh_seeds() {
        let has_properties = |path: &PathBuf| {
            let text = std::fs::read_to_string(run::root().join(path)).unwrap_or_default();
            text.contains(concat!("proptest", "! {"))
        };
        let found: Vec<String> = run::rust_files()
            .iter()
            .filter(|path| has_properties(path))
            .map(|path| path.display().to_string())
            .collect();
        assert!(found.len() > 5, "{found:?}");
        let workspace = Workspace::read().unwrap();
        let played = |file: &str| {
            let package = workspace.owner(Path::new(file)).unwrap_or_default();
            let test = file.split_once("/tests/").filter(|_| !file.contains("/src/"));
            let test = test.map(|(_, below)| {
                below.trim_end_matches(".rs").split('/').next().unwrap_or_default()
            });
            let title = test.map_or(package.to_owned(), |test| format!("{package} test {test}"));
            let words = RANDOM.iter().find(|(of, _)| *of == title).map(|(_, words)| *words);
            words.is_some_and(|words| {
                let module = file.trim_end_matches(".rs").replace('/', "::") + "::";
                words.is_empty() || words.iter().any(|word| module.contains(word))
            })
        };
        let left_out: Vec<&String> = found.iter().filter(|file| !played(file)).collect();
        assert!(left_out.is_empty(), "no fresh seeds for {left_out:?}: add them to RANDOM");
    }
}
