//! `cargo xtask test`: every check and every test, and how many there were.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, bail};
use clap::ValueEnum;

use crate::{lint, run};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Only this part.
    #[arg(long, value_enum)]
    only: Option<Part>,
    /// Only tests whose name contains this.
    filter: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Part {
    /// Format, lints, dependencies.
    Lint,
    /// Unit and property tests.
    Unit,
    /// Tests on real control planes.
    Cluster,
}

#[derive(Default)]
struct Counts {
    passed: u64,
    failed: u64,
    skipped: u64,
}

/// What seeds the property tests. Here they try the same cases in every run, so that a new failure comes from what was
/// changed; `cargo test` alone takes new seeds, and each variable a chosen one.
const SEEDS: [&str; 3] = ["LAWS_SEED", "PROPTEST_RNG_SEED", "USAGE_SEED"];

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let start = Instant::now();
    let wants = |part| args.only.is_none_or(|only| only == part);
    let filter: Vec<&str> = args.filter.as_deref().into_iter().collect();
    let mut counts = Counts::default();
    let mut failures = Vec::new();
    let mut panics = Panics::default();
    if wants(Part::Lint) && args.filter.is_none() {
        lint::run()?;
    }
    if wants(Part::Unit) {
        // The API's tests bring a CEL evaluator into kube; apart, the others share their build with the cluster tests.
        let api = run::cargo(&["test", "--package", "switchyard-api", "--no-fail-fast"]);
        failures.extend(tests("tests of the API", api, &filter, &mut counts, &mut panics)?);
        let apart = ["--exclude", "switchyard-api", "--exclude", "switchyard-e2e"];
        let rest = run::cargo(&[&["test", "--workspace", "--no-fail-fast"][..], &apart].concat());
        failures.extend(tests("unit and property tests", rest, &filter, &mut counts, &mut panics)?);
    }
    if wants(Part::Cluster) {
        // The binaries under test, and the one that ends what a killed test leaves behind.
        run::step("build what the cluster tests run", run::cargo(&["build", "--workspace", "--bins"]))?;
        let harness = run::cargo(&["test", "--package", "switchyard-e2e", "--no-fail-fast"]);
        failures.extend(tests("tests of the harness", harness, &filter, &mut counts, &mut panics)?);
        // Each file's in a process of their own: they share what they run on.
        let program = cluster_program()?;
        for (file, names) in cluster_tests(&program, &filter)? {
            let title = format!("real control planes: {file}");
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            let mut command = Command::new(&program);
            command.arg("--exact").current_dir(run::root());
            failures.extend(tests(&title, command, &names, &mut counts, &mut panics)?);
        }
    }
    panics.print();
    println!("\ntook {:.0} s", start.elapsed().as_secs_f64());
    println!("{} passed, {} failed, {} skipped", counts.passed, counts.failed, counts.skipped);
    if failures.is_empty() { Ok(()) } else { bail!("failed: {}", failures.join(", ")) }
}

/// Builds the program of the tests on real control planes.
fn cluster_program() -> anyhow::Result<PathBuf> {
    let build = ["test", "--package", "switchyard-e2e", "--test", "cluster", "--no-run", "--message-format", "json"];
    let built = run::output(run::cargo(&build))?;
    let artifact = |line: &str| {
        let message: serde_json::Value = serde_json::from_str(line).ok()?;
        let wanted = message["target"]["name"] == "cluster";
        message["executable"].as_str().filter(|_| wanted).map(PathBuf::from)
    };
    built.lines().find_map(artifact).context("cargo names no program of the tests on real control planes")
}

/// Its tests by file.
fn cluster_tests(program: &Path, filter: &[&str]) -> anyhow::Result<BTreeMap<String, Vec<String>>> {
    let mut list = Command::new(program);
    list.args(["--list", "--format", "terse"]).args(filter);
    Ok(by_file(&run::output(list)?))
}

/// Reads lines such as `dispatch::moves::one_that_waits: test`.
fn by_file(list: &str) -> BTreeMap<String, Vec<String>> {
    let mut files: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for name in list.lines().filter_map(|line| line.strip_suffix(": test")) {
        let file = name.split("::").next().unwrap_or(name);
        files.entry(file.to_owned()).or_default().push(name.to_owned());
    }
    files
}

/// Runs tests, shows its output, and adds up its `test result:` lines. The error names what failed.
fn tests(
    title: &str,
    mut command: Command,
    filter: &[&str],
    counts: &mut Counts,
    panics: &mut Panics,
) -> anyhow::Result<Option<String>> {
    eprintln!("==> {title}");
    let start = Instant::now();
    // An error says what happened; where it was made only pushes that off the screen.
    command.env("RUST_LIB_BACKTRACE", "0");
    for variable in SEEDS.into_iter().filter(|variable| std::env::var_os(variable).is_none()) {
        command.env(variable, "1");
    }
    let mut child =
        command.args(filter).stdout(Stdio::piped()).spawn().with_context(|| format!("{title}: cannot start"))?;
    let stdout = child.stdout.take().with_context(|| format!("{title}: no output"))?;
    for line in BufReader::new(stdout).lines() {
        let line = line?;
        println!("{line}");
        counts.add(&line);
        panics.add(&line);
    }
    let status = child.wait()?;
    eprintln!("    {title}: {:.1} s", start.elapsed().as_secs_f64());
    Ok((!status.success()).then(|| title.to_owned()))
}

impl Counts {
    /// Reads `test result: ok. 3 passed; 0 failed; 1 ignored; ...`.
    fn add(&mut self, line: &str) {
        let Some((_, result)) = line.strip_prefix("test result: ").and_then(|rest| rest.split_once(". ")) else {
            return;
        };
        for part in result.split("; ") {
            let Some((number, what)) = part.split_once(' ') else { continue };
            let number: u64 = number.parse().unwrap_or(0);
            match what {
                "passed" => self.passed += number,
                "failed" => self.failed += number,
                "ignored" => self.skipped += number,
                _ => {}
            }
        }
    }
}

/// What the failed tests said, to be repeated at the end, where it is found.
#[derive(Default)]
struct Panics {
    messages: Vec<String>,
    open: bool,
}

impl Panics {
    /// Of a message this many lines are repeated at most.
    const LINES: usize = 30;

    /// Reads a panic's message: from `thread 'NAME' ... panicked at FILE:` to its backtrace.
    fn add(&mut self, line: &str) {
        if line.starts_with("thread '") && line.contains(" panicked at ") {
            self.messages.push(line.to_owned());
            self.open = true;
            return;
        }
        self.open &= !["note: ", "stack backtrace:", "----", "failures:"].iter().any(|end| line.starts_with(end));
        if let Some(message) =
            self.messages.last_mut().filter(|message| self.open && message.lines().count() < Self::LINES)
        {
            message.push('\n');
            message.push_str(line);
        }
    }

    fn print(&self) {
        for message in &self.messages {
            println!("\n{}", message.trim_end());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Counts, Panics, by_file};

    #[test]
    fn the_tests_of_one_file_run_together() {
        let list =
            "moves::to_another: test\nsingle::order::first: test\nsingle::stops::one: test\n\n3 tests, 0 benchmarks\n";
        let files: Vec<_> = by_file(list).into_iter().collect();
        let single = ["single::order::first", "single::stops::one"].map(str::to_owned);
        assert_eq!(
            files,
            [("moves".to_owned(), vec!["moves::to_another".to_owned()]), ("single".to_owned(), single.to_vec())]
        );
    }

    #[test]
    fn the_message_of_a_panic_is_kept_and_its_backtrace_is_not() {
        let mut panics = Panics::default();
        let printed = "running 1 test\n\
            ---- moves stdout ----\n\
            2026 INFO a log line\n\
            thread 'moves' (7) panicked at e2e/tests/cluster/moves.rs:35:6:\n\
            waited 45 s for the other cluster:\n\
            it is on west\n\
            stack backtrace:\n   0: rust_begin_unwind\n\
            failures:\n    moves";
        printed.lines().for_each(|line| panics.add(line));
        let message = "thread 'moves' (7) panicked at e2e/tests/cluster/moves.rs:35:6:\nwaited 45 s for the other cluster:\nit is on west";
        assert_eq!(panics.messages, [message]);
    }

    #[test]
    fn result_lines_add_up_and_others_do_not_count() {
        let mut counts = Counts::default();
        counts.add("running 4 tests");
        counts.add("test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.01s");
        counts.add("test result: FAILED. 2 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.01s");
        assert_eq!((counts.passed, counts.failed, counts.skipped), (5, 1, 1));
    }
}
