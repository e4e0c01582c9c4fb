//! `cargo xtask kueue-e2e`: Kueue's own end-to-end suites, run against Switchyard, beside Kueue's own results.
//!
//! The suites are Kueue's test binaries as released. A harness outside this repository runs them on real control planes
//! without containers: `run.py` in a folder that is a flag. It starts this same program to install the system under test
//! ([`install`]) and to be the process of each of its pods ([`start`]).

mod outcome;
mod programs;
mod report;
mod system;

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail};
use switchyard_flags::kueue_e2e::Args;

use self::outcome::{Outcome, Stock};
use self::programs::Programs;
use self::report::Report;
pub use self::system::{install, start};

/// The suites that need no operators of other projects.
const DEFAULT: [&str; 5] =
    ["single-baseline", "mk-baseline", "single-sequential", "mk-sequential", "tas-baseline"];

/// Runs the suites one after the other and prints a table.
///
/// # Errors
/// When a suite cannot be run; tests that fail are results.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let stock = Stock::recorded()?;
    let suites: Vec<&str> = match args.suites.as_slice() {
        [] => DEFAULT.to_vec(),
        named => named.iter().map(String::as_str).collect(),
    };
    if let Some(unknown) = suites.iter().find(|suite| stock.suite(suite).is_none()) {
        bail!("there is no suite {unknown}; there are {}", stock.names().join(", "));
    }
    let harness = harness(args.harness.as_deref())?;
    let programs = Programs::build(&harness, &suites)?;
    let out = args.out.clone().unwrap_or_else(|| switchyard_e2e::paths::logs().join("kueue-e2e"));
    let mut report = Report::new(&stock);
    for suite in suites {
        let out = out.join(suite);
        play(args, &harness, &programs, suite, &out)?;
        report.add(Outcome::read(suite, &out.join("results.json"))?);
        if let Some(path) = &args.json {
            let text = serde_json::to_string_pretty(&report.json())? + "\n";
            std::fs::write(path, text)
                .with_context(|| format!("cannot write {}", path.display()))?;
        }
    }
    println!("{report}");
    Ok(())
}

/// The harness's folder.
fn harness(named: Option<&Path>) -> anyhow::Result<PathBuf> {
    let Some(dir) = named else {
        bail!(
            "say where the harness of Kueue's suites is: --harness DIRECTORY, or SWITCHYARD_KUEUE_E2E; it holds run.py"
        );
    };
    for file in ["run.py", "build.sh", "build-operators.sh"] {
        if !dir.join(file).is_file() {
            bail!("--harness {}: there is no {file}", dir.display());
        }
    }
    dir.canonicalize().with_context(|| format!("--harness {}", dir.display()))
}

/// Runs one suite; its results are in `out` afterwards.
fn play(
    args: &Args,
    harness: &Path,
    programs: &Programs,
    suite: &str,
    out: &Path,
) -> anyhow::Result<()> {
    let _ = std::fs::remove_dir_all(out);
    std::fs::create_dir_all(out).with_context(|| format!("cannot create {}", out.display()))?;
    let system = match args.stock {
        true => "stock".to_owned(),
        false => format!(
            "exec:{}",
            std::env::current_exe().context("where is the running program?")?.display()
        ),
    };
    eprintln!("==> {suite}, in {}", out.display());
    let mut command = Command::new(harness.join("run.py"));
    command.args(["--suite", suite, "--sut", &system, "--limit", &args.limit.to_string()]);
    command.arg("--bin").arg(programs.dir()).arg("--out").arg(out);
    for (flag, values) in [("--focus", &args.focus), ("--skip", &args.skip)] {
        command.args(values.iter().flat_map(|value| [flag, value.as_str()]));
    }
    command.envs(args.dispatcher.as_ref().map(|name| (system::DISPATCHER, name)));
    // It also ends with 1 when a test failed; its output shows whether it ran.
    let status = command
        .status()
        .with_context(|| format!("cannot start {}", command.get_program().display()))?;
    if !out.join("results.json").is_file() {
        bail!("{suite} has no results ({status}); see {}", out.display());
    }
    Ok(())
}
