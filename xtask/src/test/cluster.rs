//! Runs the tests on real control planes: each file in its own process, several processes at once.

use std::collections::BTreeMap;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use anyhow::ensure;

use super::at_once;
use super::build::Program;
use super::changed::ClusterTests;
use super::libtest::{self, Outcome};
use super::nodes;
use crate::report::{Counts, Failure, Report, Tier};
use crate::{run, skew, times};

/// Seconds of each file on two cores, for a machine without measurements. They only decide the order.
const RECORDED: &str = include_str!("../../../e2e/tests/cluster/seconds.json");

/// Assumed seconds of a file that no run has measured.
const UNKNOWN: f64 = 60.0;

/// Files that run alone, after all others. `job_writes` limits the refused writes of the controller, and on a busy machine a
/// controller sees its own writes late.
const ALONE: [&str; 1] = ["job_writes"];

/// `GOGC` of control planes: how often Go's garbage collector runs. At Go's default of 100 they take a sixth more CPU time, and
/// they have enough memory.
const GOGC: &str = "400";

/// One process.
#[derive(Clone, Debug)]
pub(super) struct File {
    pub(super) name: String,
    tests: Vec<String>,
}

/// Runs the tests whose names contain the filter and whose files are selected, in at most `most_at_once` processes.
pub(super) fn run(
    report: &Report,
    program: &Program,
    filter: Option<&str>,
    wanted: &ClusterTests,
    most_at_once: usize,
) {
    let listed = report.part(Tier::Cluster, "list the cluster tests", || {
        let mut files = list(program, filter)?;
        files.retain(|file| file.name != nodes::FILE && wanted.wants(&file.name));
        ensure!(
            !files.is_empty() || filter.is_some(),
            "{} lists no test of {wanted:?}, so nothing would be tested",
            program.path.display()
        );
        Ok(files)
    });
    let Some(files) = listed else { return };
    let total = files.len();
    let (alone, together): (Vec<File>, Vec<File>) =
        files.into_iter().partition(|it| ALONE.contains(&it.name.as_str()));
    let done = AtomicUsize::new(0);
    let play = |file: File| {
        one(report, Tier::Cluster, &title(&file.name), Command::new(&program.path), &file);
        eprintln!(
            "    {} of {total} files of cluster tests",
            done.fetch_add(1, Ordering::Relaxed) + 1
        );
    };
    at_once::each(most_at_once.max(1), together, play);
    at_once::each(1, alone, play);
}

/// The files, the longest first, so that no long one starts last.
pub(super) fn list(program: &Program, filter: Option<&str>) -> anyhow::Result<Vec<File>> {
    let mut list = Command::new(&program.path);
    list.args(["--list", "--format", "terse"]).args(filter);
    if std::env::var_os(skew::OTHER).is_none() {
        list.args(["--skip", "skew::"]);
    }
    let files = by_file(&run::output(list)?);
    let mut files: Vec<File> =
        files.into_iter().map(|(name, tests)| File { name, tests }).collect();
    let recorded: BTreeMap<String, f64> = serde_json::from_str(RECORDED).unwrap_or_default();
    let expected = |file: &File| {
        let last = times::last(&title(&file.name)).or_else(|| recorded.get(&file.name).copied());
        last.unwrap_or(UNKNOWN)
    };
    files.sort_by(|one, other| expected(other).total_cmp(&expected(one)));
    Ok(files)
}

fn title(file: &str) -> String {
    format!("cluster tests: {file}")
}

/// Sets the directory, the seeds and the variables that the program of the cluster tests expects.
pub(crate) fn prepare(command: &mut Command) {
    command.current_dir(run::root());
    libtest::fix_seeds(command);
    if std::env::var_os("GOGC").is_none() {
        command.env("GOGC", GOGC);
    }
}

/// Runs one file's tests with a command that starts the program.
pub(super) fn one(report: &Report, tier: Tier, title: &str, mut command: Command, file: &File) {
    let start = Instant::now();
    let ran = report.part(tier, title, || {
        prepare(&mut command);
        command.args(["--include-ignored", "--exact"]).args(&file.tests);
        libtest::run(title, command, true)
    });
    let Some(outcome) = ran else { return };
    let Counts { passed, failed, .. } = outcome.counts;
    let seconds = start.elapsed().as_secs_f64();
    println!(
        "    {}: {passed} passed, {failed} failed, {seconds:.1} s{}",
        file.name,
        slowest(&outcome)
    );
    report.count(tier, outcome.counts);
    let (ran, sound) = (outcome.ends.len(), outcome.failures.is_empty());
    for failure in outcome.failures {
        let test =
            if failure.what == title { format!("{}::", file.name) } else { failure.what.clone() };
        let again = format!("{} cargo xtask test --only {} {test}", libtest::seeds(), tier.name());
        report.fail(tier, Failure { again, ..failure });
    }
    let listed = file.tests.len();
    if ran < listed && sound {
        let message = format!("{ran} of its {listed} tests ran");
        report.count(tier, Counts { failed: 1, ..Counts::default() });
        report.fail(tier, Failure { what: title.to_owned(), message, ..Failure::default() });
    }
}

/// The test that ended after the longest silence.
fn slowest(outcome: &Outcome) -> String {
    let mut before = 0.0;
    let mut gaps: Vec<(f64, &str)> = Vec::new();
    for (name, at) in &outcome.ends {
        gaps.push((at - before, name));
        before = *at;
    }
    let longest = gaps
        .into_iter()
        .filter(|(gap, _)| *gap > 10.0)
        .max_by(|one, other| one.0.total_cmp(&other.0));
    longest.map_or_else(String::new, |(gap, name)| format!("; {gap:.0} s until {name}"))
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::{RECORDED, by_file};

    #[test]
    fn recorded_seconds_are_read() {
        let recorded: BTreeMap<String, f64> = serde_json::from_str(RECORDED).unwrap();
        assert!(recorded.values().all(|seconds| *seconds > 0.0));
    }

    #[test]
    fn tests_of_one_file_run_together() {
        let list = "moves::to_another: test\nsingle::order::first: test\nsingle::stops::one: test\n\n3 tests, 0 benchmarks\n";
        let files: Vec<_> = by_file(list).into_iter().collect();
        let single = ["single::order::first", "single::stops::one"].map(str::to_owned);
        assert_eq!(
            files,
            [
                ("moves".to_owned(), vec!["moves::to_another".to_owned()]),
                ("single".to_owned(), single.to_vec())
            ]
        );
    }
}
