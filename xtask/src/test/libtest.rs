//! Runs a test program and parses the output of Rust's test harness.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use anyhow::Context;
use switchyard_parts::paths::keep_logs_of;

use crate::report::{Counts, Failure};
use crate::run;

/// A program that prints nothing for this long is killed. The longest single test takes about two minutes.
const SILENCE: Duration = Duration::from_secs(600);

/// Lines of a panic's message that a report repeats.
const MESSAGE_LINES: usize = 30;

/// The variables of [`SEEDS`] with their values, for a command that repeats a run.
pub(super) fn seeds() -> String {
    let value = |variable: &str| std::env::var(variable).unwrap_or_else(|_| FIXED.to_owned());
    SEEDS.map(|variable| format!("{variable}={}", value(variable))).join(" ")
}

/// The seed of tests whose variable is not set.
const FIXED: &str = "1";

/// The variables that seed the tests with random inputs.
pub(super) const SEEDS: [&str; 4] =
    ["LAWS_SEED", "PROPTEST_RNG_SEED", "REQUESTS_SEED", "USAGE_SEED"];

/// How a test program ended.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) counts: Counts,
    pub(crate) failures: Vec<Failure>,
    /// The end of each test in seconds since the program's start, by name.
    pub(crate) ends: Vec<(String, f64)>,
}

/// Sets the seeds to fixed values, so that a new failure comes from the change. Variables that are set already stay.
pub(super) fn fix_seeds(command: &mut Command) {
    for variable in SEEDS.into_iter().filter(|variable| std::env::var_os(variable).is_none()) {
        command.env(variable, FIXED);
    }
}

/// The file for a program's output: `target/test-logs/NAME.log`.
fn log(name: &str) -> anyhow::Result<PathBuf> {
    let dir = run::target().join("test-logs");
    std::fs::create_dir_all(&dir).with_context(|| format!("cannot create {}", dir.display()))?;
    Ok(dir.join(format!("{}.log", name.replace(|letter: char| !letter.is_alphanumeric(), "-"))))
}

/// Runs a test program to its end, with its output in a log. A program with Rust's test harness has failed if the harness's
/// last line is missing, whatever the exit code.
///
/// # Errors
/// When the program cannot be started, or its output cannot be written.
pub(crate) fn run(name: &str, mut command: Command, has_harness: bool) -> anyhow::Result<Outcome> {
    let log = log(name)?;
    let mut file =
        File::create(&log).with_context(|| format!("cannot create {}", log.display()))?;
    let stderr = file.try_clone().with_context(|| format!("cannot share {}", log.display()))?;
    // A backtrace would only hide the error's message.
    command
        .env("RUST_LIB_BACKTRACE", "0")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(stderr);
    let start = Instant::now();
    let mut child = command
        .spawn()
        .with_context(|| format!("{name}: cannot start {:?}", command.get_program()))?;
    let stdout = child.stdout.take().with_context(|| format!("{name}: no output"))?;
    let (lines, received) = mpsc::channel();
    std::thread::spawn(move || {
        BufReader::new(stdout)
            .lines()
            .map_while(Result::ok)
            .take_while(|line| lines.send(line.clone()).is_ok())
            .count()
    });
    let mut reader = Reader::default();
    let silent = loop {
        match received.recv_timeout(SILENCE) {
            Ok(line) => {
                writeln!(file, "{line}")
                    .with_context(|| format!("cannot write {}", log.display()))?;
                reader.read(&line, start.elapsed());
            }
            Err(RecvTimeoutError::Disconnected) => break false,
            Err(RecvTimeoutError::Timeout) => {
                child.kill().with_context(|| format!("{name}: cannot end it"))?;
                break true;
            }
        }
    };
    let status = child.wait()?;
    let ended = match (silent, status.success()) {
        (true, _) => format!("printed nothing for {} s and was killed", SILENCE.as_secs()),
        (false, false) => format!("ended with {status}"),
        (false, true) if has_harness && !reader.has_result => {
            "ended before its tests did".to_owned()
        }
        (false, true) => String::new(),
    };
    // A killed process cannot keep its logs itself.
    let kept = if ended.is_empty() { Vec::new() } else { keep_logs_of(child.id()) };
    let logs: Vec<String> =
        kept.into_iter().chain([log]).map(|path| path.display().to_string()).collect();
    Ok(reader.end(name, &ended, &logs))
}

/// Reads the harness's output line by line.
#[derive(Debug, Default)]
struct Reader {
    outcome: Outcome,
    /// The tests that failed, with what each printed.
    failed: Vec<(String, Vec<String>)>,
    /// The failed test whose output is being read.
    section: Option<usize>,
    /// Whether the harness has printed the result of all tests.
    has_result: bool,
}

impl Reader {
    fn read(&mut self, line: &str, at: Duration) {
        if let Some((name, result)) =
            line.strip_prefix("test ").and_then(|rest| rest.rsplit_once(" ... "))
        {
            self.outcome.ends.push((name.to_owned(), at.as_secs_f64()));
            if result.starts_with("FAILED") {
                self.failed.push((name.to_owned(), Vec::new()));
            }
        } else if let Some(name) =
            line.strip_prefix("---- ").and_then(|rest| rest.strip_suffix(" stdout ----"))
        {
            self.section = self.failed.iter().position(|(failed, _)| failed == name);
        } else if line == "failures:" || line.starts_with("test result: ") {
            self.section = None;
            self.has_result |= line != "failures:";
            self.outcome.counts += result(line);
        } else if let Some((_, printed)) = self.section.and_then(|at| self.failed.get_mut(at)) {
            printed.push(line.to_owned());
        }
    }

    fn end(mut self, name: &str, ended: &str, program_logs: &[String]) -> Outcome {
        // If failed tests and the harness's last line are known, the exit code adds nothing.
        if !ended.is_empty() && (self.failed.is_empty() || !self.has_result) {
            let message = format!("it {ended}");
            let logs = program_logs.to_vec();
            self.outcome.counts.failed += 1;
            self.outcome.failures.push(Failure {
                what: name.to_owned(),
                message,
                logs,
                ..Failure::default()
            });
        }
        if !self.has_result {
            self.outcome.counts.failed += self.failed.len() as u64;
        }
        for (test, printed) in self.failed {
            let mut logs = logs(&printed);
            logs.extend(program_logs.iter().cloned());
            self.outcome.failures.push(Failure {
                what: test,
                message: message(&printed),
                logs,
                ..Failure::default()
            });
        }
        self.outcome
    }
}

/// The number of passed tests in a program's output.
pub(crate) fn passed(text: &str) -> u64 {
    text.lines().map(|line| result(line).passed).sum()
}

/// Parses `test result: ok. 3 passed; 0 failed; 1 ignored; ...`. Other lines give zeros.
fn result(line: &str) -> Counts {
    let mut counts = Counts::default();
    let Some((_, numbers)) =
        line.strip_prefix("test result: ").and_then(|rest| rest.split_once(". "))
    else {
        return counts;
    };
    for part in numbers.split("; ") {
        let Some((number, what)) = part.split_once(' ') else { continue };
        let number: u64 = number.parse().unwrap_or(0);
        match what {
            "passed" => counts.passed += number,
            "failed" => counts.failed += number,
            "ignored" => counts.skipped += number,
            _ => {}
        }
    }
    counts
}

/// The first panic's message, without its backtrace.
fn message(printed: &[String]) -> String {
    let from = printed
        .iter()
        .position(|line| line.starts_with("thread '") && line.contains(" panicked at "));
    let ends = ["note: ", "stack backtrace:", "logs kept in "];
    let lines = printed.iter().skip(from.unwrap_or(0));
    let lines: Vec<&str> = lines
        .map(String::as_str)
        .take_while(|line| !ends.iter().any(|end| line.starts_with(end)))
        .take(MESSAGE_LINES)
        .collect();
    lines.join("\n")
}

/// The directories of logs that the harness of the cluster tests has printed.
fn logs(printed: &[String]) -> Vec<String> {
    let mut logs: Vec<String> = printed
        .iter()
        .filter_map(|line| line.strip_prefix("logs kept in "))
        .map(str::to_owned)
        .collect();
    logs.dedup();
    logs
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::time::Duration;

    use super::{Counts, Outcome, Reader, run};

    fn read(printed: &str, ended: &str) -> Outcome {
        let mut reader = Reader::default();
        printed.lines().for_each(|line| reader.read(line, Duration::ZERO));
        reader.end("cluster", ended, &["target/test-logs/cluster.log".to_owned()])
    }

    #[test]
    fn results_add_up_and_other_lines_count_nothing() {
        let printed = "running 4 tests\n\
            test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.01s\n\
            test result: FAILED. 2 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.01s";
        assert_eq!(read(printed, "").counts, Counts { passed: 5, failed: 1, skipped: 1 });
    }

    #[test]
    fn failure_keeps_message_and_logs_without_backtrace() {
        let printed = "running 2 tests\n\
            test moves::here ... ok\n\
            test moves::away ... FAILED\n\
            \n\
            failures:\n\
            \n\
            ---- moves::away stdout ----\n\
            2026 INFO a log line\n\
            thread 'moves::away' (7) panicked at e2e/tests/cluster/moves.rs:35:6:\n\
            waited 45 s for the other cluster:\n\
            it is on west\n\
            logs kept in /logs/fleet-7\n\
            stack backtrace:\n   0: rust_begin_unwind\n\
            failures:\n    moves::away\n\
            test result: FAILED. 1 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.01s";
        let outcome = read(printed, "ended with exit status: 101");
        assert_eq!(outcome.counts, Counts { passed: 1, failed: 1, skipped: 0 });
        let [failure] = &outcome.failures[..] else { panic!("one failure: {outcome:?}") };
        let message = "thread 'moves::away' (7) panicked at e2e/tests/cluster/moves.rs:35:6:\n\
            waited 45 s for the other cluster:\nit is on west";
        assert_eq!((failure.what.as_str(), failure.message.as_str()), ("moves::away", message));
        assert_eq!(failure.logs, ["/logs/fleet-7", "target/test-logs/cluster.log"]);
    }

    #[test]
    fn program_that_dies_without_a_result_fails() {
        let outcome = read("running 1 test", "ended with signal: 9 (SIGKILL)");
        assert_eq!(outcome.counts, Counts { passed: 0, failed: 1, skipped: 0 });
        assert_eq!(outcome.failures[0].message, "it ended with signal: 9 (SIGKILL)");
    }

    #[test]
    fn program_that_dies_after_a_failed_test_reports_both() {
        let outcome = read("test moves::away ... FAILED", "ended with signal: 9 (SIGKILL)");
        assert_eq!(outcome.counts.failed, 2);
        let failed: Vec<&str> =
            outcome.failures.iter().map(|failure| failure.what.as_str()).collect();
        assert_eq!(failed, ["cluster", "moves::away"]);
    }

    #[test]
    fn shell_script_is_read_as_a_test_program() {
        let mut shell = Command::new("sh");
        shell.args([
            "-c",
            "echo 'test a::b ... ok'; echo 'test result: ok. 1 passed; 0 failed; 0 ignored'",
        ]);
        let outcome = run("xtask libtest self test", shell, true).unwrap();
        assert_eq!(outcome.counts, Counts { passed: 1, failed: 0, skipped: 0 });
        assert_eq!(outcome.ends[0].0, "a::b");
        assert!(outcome.failures.is_empty());
    }

    #[test]
    fn program_that_ends_early_fails_unless_it_has_no_harness() {
        for (has_harness, failed) in [(true, 1), (false, 0)] {
            let outcome =
                run("xtask libtest early end", Command::new("true"), has_harness).unwrap();
            assert_eq!(outcome.counts.failed, failed);
        }
    }
}
