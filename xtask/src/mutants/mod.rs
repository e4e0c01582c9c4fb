//! `cargo xtask break-engine`: puts errors into a copy of the engine, one after the other, and checks that each fails its law.
//! Then it does the same with the dispatcher and the ledger, whose errors the simulation or a unit test must find.

mod list;
mod machines;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, bail, ensure};

use crate::run;
use list::{ENGINE_MUTANTS, EngineMutant};
use machines::{MACHINE_MUTANTS, MachineMutant};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Only errors whose law or description contains this.
    #[arg(long)]
    only: Option<String>,
    /// Seeds within which a law must find an error.
    #[arg(long, default_value_t = 3)]
    runs: usize,
    /// Seeds within which the simulation must find an error of the dispatcher or the ledger.
    #[arg(long, default_value_t = 3_000)]
    seeds: u64,
}

/// The result of a law.
enum Verdict {
    Caught { run: usize },
    Missed,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let wanted = |mutant: &&EngineMutant| {
        args.only
            .as_ref()
            .is_none_or(|part| mutant.law.contains(part) || mutant.says.contains(part))
    };
    let mutants: Vec<_> = ENGINE_MUTANTS.iter().filter(wanted).collect();
    let is_wanted = |it: &&MachineMutant| {
        args.only.as_ref().is_none_or(|part| it.name.contains(part) || it.says.contains(part))
    };
    let breaks: Vec<_> = MACHINE_MUTANTS.iter().filter(is_wanted).collect();
    ensure!(!mutants.is_empty() || !breaks.is_empty(), "no error is of that name");
    let mut missed = 0;
    if !breaks.is_empty() {
        missed += machines::judge(&breaks, args.seeds)?;
    }
    if !mutants.is_empty() {
        missed += judge(&mutants, args.runs)?;
    }
    let all = mutants.len() + breaks.len();
    println!("{all} errors, {} caught, {missed} missed", all - missed);
    ensure!(missed == 0, "{missed} errors are missed");
    Ok(())
}

/// Puts the errors into the engine. Returns how many their laws missed.
fn judge(mutants: &[&EngineMutant], runs: usize) -> anyhow::Result<usize> {
    let copy = BrokenEngine::make()?;
    let title =
        format!("put {} errors into the engine: build it and ask a law for each", mutants.len());
    run::announce(&title, "about half a minute for each, and 2 minutes more");
    let mut missed = 0;
    for mutant in mutants {
        let verdict = copy
            .judge(mutant, runs)
            .with_context(|| format!("{}: {}", mutant.file, mutant.says))?;
        match verdict {
            Verdict::Caught { run } => {
                println!("caught in run {run}: {} ({}): {}", mutant.says, mutant.file, mutant.law)
            }
            Verdict::Missed => {
                missed += 1;
                println!("MISSED: {} ({}): {}", mutant.says, mutant.file, mutant.law);
            }
        }
    }
    Ok(missed)
}

/// A workspace with only the engine, compiled in the target directory of the repository.
struct BrokenEngine {
    root: PathBuf,
}

impl BrokenEngine {
    fn make() -> anyhow::Result<Self> {
        let (from, root) = (run::root(), run::root().join("target/broken-engine"));
        if root.exists() {
            std::fs::remove_dir_all(&root)
                .with_context(|| format!("cannot remove {}", root.display()))?;
        }
        for directory in ["src", "tests", "examples", "benches"] {
            copy(&from.join("scheduler").join(directory), &root.join("scheduler").join(directory))?;
        }
        write(&root.join("Cargo.lock"), &read(&from.join("Cargo.lock"))?)?;
        // The copy needs another package name. Otherwise cargo would take its artifacts for those of the engine.
        let package = read(&from.join("scheduler/Cargo.toml"))?
            .replace("name = \"switchyard-scheduler\"", "name = \"broken-engine\"")
            .replace("{ path = \".\",", "{ path = \".\", package = \"broken-engine\",");
        write(
            &root.join("scheduler/Cargo.toml"),
            &(package + "\n[lib]\nname = \"switchyard_scheduler\"\n"),
        )?;
        write(&root.join("Cargo.toml"), &manifest_with(&["scheduler"])?)?;
        Ok(Self { root })
    }

    fn judge(&self, mutant: &EngineMutant, runs: usize) -> anyhow::Result<Verdict> {
        let path = self.root.join("scheduler/src").join(mutant.file);
        let sound = read(&path)?;
        let mut broken = sound.clone();
        for (from, to) in mutant.changes {
            broken = replace_once(mutant.file, &broken, from, to)?;
        }
        write(&path, &broken)?;
        let verdict = (1..=runs).find_map(|run| match self.holds(mutant) {
            Ok(true) => None,
            Ok(false) => Some(Ok(Verdict::Caught { run })),
            Err(error) => Some(Err(error)),
        });
        write(&path, &sound)?;
        verdict.unwrap_or(Ok(Verdict::Missed))
    }

    /// Whether the law holds despite the error, so that the error is missed.
    fn holds(&self, mutant: &EngineMutant) -> anyhow::Result<bool> {
        let target: &[&str] =
            if mutant.is_beside_the_code() { &["--lib"] } else { &["--test", "laws"] };
        let mut test = run::cargo(&["test", "--offline", "--quiet", "--package", "broken-engine"]);
        test.args(target).arg(mutant.law).current_dir(&self.root);
        test.env("CARGO_TARGET_DIR", run::root().join("target"));
        passes(test, mutant.law)
    }
}

/// Whether a test passes. Fails if there is no such test, or the code does not compile.
fn passes(mut test: Command, name: &str) -> anyhow::Result<bool> {
    let output = test.stderr(Stdio::piped()).output().context("cannot start cargo")?;
    let printed = String::from_utf8_lossy(&output.stdout);
    match output.status.success() {
        true if printed.contains("test result: ok. 0 passed") => bail!("there is no test {name}"),
        true => Ok(true),
        false if printed.contains("test result: FAILED") => Ok(false),
        false => bail!("not compiled or not run:\n{}", String::from_utf8_lossy(&output.stderr)),
    }
}

/// Replaces a text that the file must contain once.
fn replace_once(file: &str, text: &str, from: &str, to: &str) -> anyhow::Result<String> {
    let times = text.matches(from).count();
    ensure!(times == 1, "{file} contains {from:?} {times} times: update the list of errors");
    Ok(text.replacen(from, to, 1))
}

/// The workspace's manifest with other members.
fn manifest_with(members: &[&str]) -> anyhow::Result<String> {
    let manifest = read(&run::root().join("Cargo.toml"))?;
    let line = manifest.lines().find(|line| line.starts_with("members = "));
    let line = line.context("Cargo.toml has no members")?;
    Ok(manifest.replace(line, &format!("members = {members:?}")))
}

fn read(path: &Path) -> anyhow::Result<String> {
    std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}

fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    if let Some(directory) = path.parent() {
        std::fs::create_dir_all(directory)
            .with_context(|| format!("cannot create {}", directory.display()))?;
    }
    std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

/// Copies a directory with all below it.
fn copy(from: &Path, to: &Path) -> anyhow::Result<()> {
    let entries =
        std::fs::read_dir(from).with_context(|| format!("cannot read {}", from.display()))?;
    for entry in entries {
        let entry = entry?;
        let to = to.join(entry.file_name());
        match entry.file_type()?.is_dir() {
            true => copy(&entry.path(), &to)?,
            false => write(&to, &read(&entry.path())?)?,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_error_still_applies_to_the_engine() {
        for mutant in ENGINE_MUTANTS {
            let text = read(&run::root().join("scheduler/src").join(mutant.file)).unwrap();
            for (from, _) in mutant.changes {
                assert_eq!(text.matches(from).count(), 1, "{}: {from:?}", mutant.file);
            }
        }
    }
}
