//! `cargo xtask nightly`: runs the steps that take hours. After a failed step the next one runs.

mod recorded;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use switchyard_parts::paths;

use crate::{run, test};

/// Lines of a step's output that the report repeats.
const LAST_LINES: usize = 3;

/// Pod templates that the step `requests` compares.
const NIGHTLY_TEMPLATES: &str = "10000";

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Only steps whose name contains one of these, separated by commas.
    #[arg(long, value_name = "STEP", value_delimiter = ',')]
    only: Vec<String>,
    /// Only print the steps, and why some of them cannot run here.
    #[arg(long)]
    list: bool,
    /// Minutes of each search without an end of its own.
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=1440))]
    minutes: u64,
    /// First seed of the steps with seeds. Default: a new one.
    #[arg(long)]
    seed: Option<u64>,
    /// The harness of Kueue's end-to-end suites; see `cargo xtask kueue-e2e --help`.
    #[arg(long, env = "SWITCHYARD_KUEUE_E2E", value_name = "DIRECTORY")]
    harness: Option<PathBuf>,
}

/// One step.
struct Step {
    name: &'static str,
    what: &'static str,
    command: Command,
    /// Why it cannot run on this machine; `None` if it can.
    missing: Option<String>,
    /// Whether it runs tests with Rust's harness; then it must run at least one.
    tests: bool,
    /// Its duration on two cores, builds included.
    usually: String,
}

/// How a step ended.
struct StepResult {
    name: &'static str,
    took: Duration,
    failed: bool,
    printed: String,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let dir = run::target().join("nightly");
    std::fs::create_dir_all(&dir).with_context(|| format!("cannot create {}", dir.display()))?;
    let all = steps(args, &dir)?;
    if let Some(unknown) =
        args.only.iter().find(|part| !all.iter().any(|step| step.name.contains(part.as_str())))
    {
        let names: Vec<&str> = all.iter().map(|step| step.name).collect();
        bail!("--only {unknown}: no step has that in its name; there are {}", names.join(", "));
    }
    let wanted = |step: &Step| {
        args.only.is_empty() || args.only.iter().any(|part| step.name.contains(part.as_str()))
    };
    let (steps, left_out): (Vec<Step>, Vec<Step>) = all.into_iter().partition(wanted);
    let mut results = Vec::new();
    let mut not_run: Vec<String> =
        left_out.iter().map(|step| format!("{} (--only)", step.name)).collect();
    for step in steps {
        let state =
            step.missing.as_ref().map_or_else(String::new, |why| format!("; cannot run: {why}"));
        if args.list {
            println!("{:<19} {}{state}", step.name, step.what);
        } else if let Some(why) = step.missing {
            not_run.push(format!("{} ({why})", step.name));
        } else {
            let name = step.name;
            results.push(play(step, &dir).unwrap_or_else(|error| StepResult {
                name,
                took: Duration::ZERO,
                failed: true,
                printed: format!("{error:#}"),
            }));
        }
    }
    if args.list {
        return Ok(());
    }
    print(&results, &not_run);
    if results.is_empty() {
        bail!("no step could run");
    }
    let failed: Vec<&str> =
        results.iter().filter(|result| result.failed).map(|result| result.name).collect();
    if failed.is_empty() { Ok(()) } else { bail!("failed: {}", failed.join(", ")) }
}

/// All steps, those that find most errors first.
fn steps(args: &Args, dir: &Path) -> anyhow::Result<Vec<Step>> {
    let xtask = std::env::current_exe().context("where is the running program?")?;
    let seed = args.seed.unwrap_or_else(test::first_seed).to_string();
    let minutes = args.minutes.to_string();
    let (seconds, scenarios) = ((args.minutes * 60).to_string(), (args.minutes * 200).to_string());
    let own = |name, what, usually: &str, flags: &[&str]| {
        let mut command = Command::new(&xtask);
        command.args(flags).current_dir(run::root());
        Step { name, what, command, missing: None, tests: false, usually: usually.to_owned() }
    };
    let cargo = |name, what, usually: &str, flags: &[&str], variables: &[(&str, &str)]| {
        let mut command = run::cargo(flags);
        command.envs(variables.iter().copied());
        Step { name, what, command, missing: None, tests: true, usually: usually.to_owned() }
    };
    let searched = |build: u64| {
        format!("about {build} minutes of compiling, then {} of searching", args.minutes)
    };
    let laws = &["test", "--release", "--package", "switchyard-scheduler", "--test", "laws"][..];
    let random = &["test", "--workspace", "--lib", "--test", "conversion", "--no-fail-fast"][..];
    let cases = [("PROPTEST_CASES", "4096"), ("PROPTEST_RNG_SEED", &seed), ("LAWS_SEED", &seed)];
    let mut steps = vec![
        own("tests", "every check and every test", "about half an hour", &["test"]),
        own(
            "simulation",
            "hub, agents and clusters under faults, with new seeds",
            &searched(5),
            &["simulate", "--seed", &seed, "--seconds", &seconds, "--all"],
        ),
        cargo(
            "engine-fuzz",
            "events that no sane cluster sends",
            &searched(5),
            &[laws, &["hostile"]].concat(),
            &[("FUZZ_SECONDS", &seconds), ("LAWS_SEED", &seed)],
        ),
        cargo(
            "laws",
            "laws of the engine, many cases with a new seed",
            "about 4 minutes, most of them compiling",
            laws,
            &cases,
        ),
        cargo(
            "properties",
            "property tests of all crates, many cases with a new seed",
            "about 4 minutes, most of them compiling",
            random,
            &cases,
        ),
        own(
            "usage",
            "usage under random life on a real control plane, with a new seed",
            "about 15 minutes, most of them compiling",
            &["test", "--only", "cluster", "usage"],
        ),
        own(
            "requests",
            "10,000 templates against a real API server's admission, with a new seed",
            "about 15 minutes, most of them compiling",
            &["test", "--only", "cluster", "_is_charged_what_its_pod"],
        ),
        own(
            "real-nodes",
            "the demo with its jobs in containers",
            "about 10 minutes, most of them compiling",
            &["demo", "--real-nodes"],
        ),
        own(
            "skew",
            "a hub and agents of two versions together, in both directions",
            "about 10 minutes, most of them compiling",
            &["skew"],
        ),
        own(
            "kubernetes-versions",
            "the demo and tests of each mode on the oldest and the newest Kubernetes",
            "about half an hour, most of it compiling",
            &["kubernetes-versions"],
        ),
        own(
            "life",
            "random life of jobs on a hub and two workers, with the auditor beside it",
            &format!("about 5 minutes of compiling, then {} and 5 at the end", args.minutes),
            &["life", "--seed", &seed, "--minutes", &minutes],
        ),
        own(
            "decisions",
            "random scenarios against Kueue's own scheduler",
            "not measured, with Go some minutes to compile Kueue",
            &["fuzz-decisions", "--scenarios", &scenarios],
        ),
        own(
            "mutants",
            "errors put into the engine, the dispatcher and the ledger, each of which a law must find",
            "about half an hour",
            &["break-engine"],
        ),
        own(
            "kueue-suites",
            "Kueue's own end-to-end suites",
            "not measured, an hour or more",
            &["kueue-e2e"],
        ),
        own(
            "operators",
            "kinds of jobs with their real operators",
            "not measured, an hour or more",
            &["operators"],
        ),
        own(
            "failover",
            "faults beside stock MultiKueue",
            "not measured, an hour or more",
            &["failover"],
        ),
        own(
            "release",
            "a release, built twice in two directories: the same bytes",
            "about half an hour",
            &["release", "--twice", "--out", "target/nightly/release"],
        ),
        own(
            "journeys",
            "the ways of a new user through the docs, with that release on real nodes",
            "about 10 minutes, most of them compiling",
            &["journeys", "--release", "target/nightly/release"],
        ),
        own("book", "the pages as a book, in target/book", "seconds", &["book"]),
        own(
            "instructions",
            "instructions of the engine's cycles beside the recorded ones",
            "about 5 minutes",
            &["instructions"],
        ),
    ];
    for (name, what, flags) in [
        (
            "bench-burst",
            "1,000 jobs at once beside the floor and stock Kueue",
            &["--jobs", "1000"][..],
        ),
        ("bench-trickle", "jobs one at a time and at a steady rate", &[]),
        ("bench-scale", "few, more and many clusters", &[]),
        ("bench-runner", "Kueue's scheduler performance test", &[]),
    ] {
        let json =
            dir.join(format!("{}.json", name.trim_start_matches("bench-"))).display().to_string();
        steps.push(own(
            name,
            what,
            "not measured, an hour or more",
            &[&["bench", name.trim_start_matches("bench-"), "--json", &json], flags].concat(),
        ));
    }
    for step in &mut steps {
        step.missing = missing(step.name, args);
        match (step.name, &args.harness) {
            ("usage", _) => _ = step.command.env("USAGE_SEED", &seed),
            ("requests", _) => {
                step.command
                    .env("REQUESTS_SEED", &seed)
                    .env("REQUESTS_TEMPLATES", NIGHTLY_TEMPLATES);
            }
            ("kueue-suites", Some(harness)) => _ = step.command.arg("--harness").arg(harness),
            _ => {}
        }
    }
    println!("new seeds begin at {seed}");
    Ok(steps)
}

/// Why a step cannot run on this machine.
fn missing(step: &str, args: &Args) -> Option<String> {
    let why = match step {
        "kueue-suites" if args.harness.is_none() => "--harness names no harness",
        "decisions" if !paths::oracle().join("go.mod").is_file() => {
            "there is no oracle of Kueue's decisions beside the checkout"
        }
        "release" if !run::has("musl-gcc", "--version") => "there is no musl-gcc",
        "release" if !run::has("rustup", "--version") => "there is no rustup",
        "book" if !run::has("mdbook", "--version") => {
            "there is no mdbook: cargo install --locked mdbook"
        }
        "real-nodes" | "journeys" => return test::why_no_nodes(),
        "instructions" if !run::has("valgrind", "--version") => "there is no valgrind",
        _ => return None,
    };
    Some(why.to_owned())
}

/// Runs a step to its end, with its output in a log.
fn play(mut step: Step, dir: &Path) -> anyhow::Result<StepResult> {
    let log = dir.join(format!("{}.log", step.name));
    run::announce(&format!("nightly: {}", step.name), &step.usually);
    eprintln!("    {}; output in {}", step.what, log.display());
    let file =
        std::fs::File::create(&log).with_context(|| format!("cannot create {}", log.display()))?;
    let errors = file.try_clone().with_context(|| format!("cannot share {}", log.display()))?;
    let json = step
        .name
        .strip_prefix("bench-")
        .map(|benchmark| (benchmark, dir.join(format!("{benchmark}.json"))));
    if let Some((_, json)) = json.as_ref().filter(|(_, json)| json.exists()) {
        // Results of an earlier night must not count for this one.
        std::fs::remove_file(json).with_context(|| format!("cannot remove {}", json.display()))?;
    }
    if step.name == "release" {
        // The step `journeys` must not install the release of an earlier night.
        let release = dir.join("release");
        if release.exists() {
            std::fs::remove_dir_all(&release)
                .with_context(|| format!("cannot remove {}", release.display()))?;
        }
    }
    let start = Instant::now();
    let status = step.command.stdin(Stdio::null()).stdout(file).stderr(errors).status();
    let status = status.with_context(|| format!("{}: cannot start it", step.name))?;
    let took = start.elapsed();
    crate::times::keep(&format!("nightly: {}", step.name), took.as_secs_f64());
    let text = std::fs::read_to_string(&log).unwrap_or_default();
    let idle = step.tests && status.success() && test::passed(&text) == 0;
    let mut printed = if idle { "it ran no test".to_owned() } else { last_lines(&text) };
    let failed = idle || !status.success();
    if failed {
        printed +=
            &format!("\nlog:   {}\nagain: cargo xtask nightly --only {}", log.display(), step.name);
    }
    if let Some((benchmark, json)) = json.filter(|_| !failed) {
        printed = recorded::beside(benchmark, &json).unwrap_or(printed);
    }
    eprintln!("    {}: {} after {:.1} min", step.name, status, took.as_secs_f64() / 60.0);
    Ok(StepResult { name: step.name, took, failed, printed })
}

fn last_lines(text: &str) -> String {
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    lines[lines.len().saturating_sub(LAST_LINES)..].join("\n")
}

fn print(results: &[StepResult], not_run: &[String]) {
    println!();
    for result in results {
        let end = if result.failed { "FAILED" } else { "passed" };
        println!("{:<19} {:>6.1} min  {end}", result.name, result.took.as_secs_f64() / 60.0);
        for line in result.printed.lines() {
            println!("    {line}");
        }
    }
    let failed = results.iter().filter(|result| result.failed).count();
    println!("{} passed, {failed} failed, {} skipped", results.len() - failed, not_run.len());
    if !not_run.is_empty() {
        println!("NOT RUN: {}", not_run.join("; "));
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{Args, last_lines, steps};
    use crate::run;

    #[test]
    fn steps_have_names_of_their_own_and_say_what_is_missing() {
        let args = Args { only: Vec::new(), list: true, minutes: 1, seed: None, harness: None };
        let steps = steps(&args, Path::new("/tmp")).unwrap();
        let mut names: Vec<&str> = steps.iter().map(|step| step.name).collect();
        let kueue = steps.iter().find(|step| step.name == "kueue-suites").unwrap();
        assert_eq!(kueue.missing.as_deref(), Some("--harness names no harness"));
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), steps.len());
    }

    #[test]
    fn each_step_is_in_a_nightly_job_of_ci_or_left_out() {
        const LEFT_OUT: [&str; 5] = ["decisions", "kueue-suites", "real-nodes", "journeys", "book"];
        let args = Args { only: Vec::new(), list: true, minutes: 1, seed: None, harness: None };
        let workflow = run::root().join(".github/workflows/ci.yml");
        let workflow = std::fs::read_to_string(workflow).unwrap();
        let mut named: Vec<&str> = workflow
            .lines()
            .filter_map(|line| line.trim().strip_prefix("- {steps: \"")?.split('"').next())
            .flat_map(|steps| steps.split(','))
            .chain(LEFT_OUT)
            .collect();
        let mut steps: Vec<&str> =
            steps(&args, Path::new("/tmp")).unwrap().iter().map(|step| step.name).collect();
        named.sort_unstable();
        steps.sort_unstable();
        assert_eq!(named, steps);
    }

    #[test]
    fn last_lines_skip_empty_ones() {
        assert_eq!(last_lines("a\nb\n\nc\nd\n\n"), "b\nc\nd");
    }
}
