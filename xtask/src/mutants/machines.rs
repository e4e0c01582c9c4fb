//! Errors of the dispatcher and of the agent's ledger, each of which the simulation or a test must find. One copy of the code
//! gets all errors, and an environment variable switches one of them on. The repository's code has no such switch.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, bail, ensure};

use super::{copy, manifest_with, passes, read, replace_once, write};
use crate::run;

/// A way to find an error.
pub(super) enum Finder {
    /// A law of the simulation.
    Simulation,
    /// A test beside the code: its package, and its name.
    Test(&'static str, &'static str),
}

/// An error of a machine.
pub(super) struct MachineMutant {
    /// The value of [`VARIABLE`] that switches it on.
    pub(super) name: &'static str,
    /// The error in words.
    pub(super) says: &'static str,
    /// The file.
    file: &'static str,
    by: Finder,
    /// A text with its replacement. The file must contain the text once.
    change: (&'static str, &'static str),
}

/// The errors.
pub(super) const MACHINE_MUTANTS: &[MachineMutant] = &[
    MachineMutant {
        name: "unjudged",
        says: "the write guard always writes",
        file: "hub/dispatcher/src/write_guard.rs",
        by: Finder::Test(
            "switchyard-dispatcher",
            "commit_is_written_once_and_only_in_expected_state",
        ),
        change: (
            "    if at.finished {\n        return if matches!",
            "    if crate::is_broken(\"unjudged\") {\n        return WriteDecision::Write;\n    }\n    if at.finished {\n        return if matches!",
        ),
    },
    MachineMutant {
        name: "twice",
        says: "an attempt is given up while its cluster is connected",
        file: "hub/dispatcher/src/dispatcher/give_up.rs",
        by: Finder::Simulation,
        change: (
            "        if cluster.is_connected {\n",
            "        if cluster.is_connected && !crate::is_broken(\"twice\") {\n",
        ),
    },
    MachineMutant {
        name: "stuck-for-ever",
        says: "a job without a ready pod is moved more often than its policy allows",
        file: "hub/dispatcher/src/dispatcher/stuck.rs",
        by: Finder::Simulation,
        change: (
            "facts.stuck.moves >= policy.times",
            "facts.stuck.moves >= policy.times && !crate::is_broken(\"stuck-for-ever\")",
        ),
    },
    MachineMutant {
        name: "stuck-though-ready",
        says: "a running job counts as one without a ready pod",
        file: "hub/dispatcher/src/dispatcher/stuck.rs",
        by: Finder::Simulation,
        change: (
            "Some(State::Running) => no_ready_pod,",
            "Some(State::Running) => no_ready_pod || crate::is_broken(\"stuck-though-ready\"),",
        ),
    },
    MachineMutant {
        name: "stuck-in-silence",
        says: "time without reports of the cluster counts as time without a ready pod",
        file: "hub/dispatcher/src/dispatcher/fences.rs",
        by: Finder::Test("switchyard-dispatcher", "time_without_reports_does_not_count"),
        change: (
            "            (remote.stalled_since, remote.confirmed_at) = (None, None);\n",
            "            if !crate::is_broken(\"stuck-in-silence\") {\n                (remote.stalled_since, remote.confirmed_at) = (None, None);\n            }\n",
        ),
    },
    MachineMutant {
        name: "old-word",
        says: "an observation of an earlier attempt counts for a later one",
        file: "hub/dispatcher/src/dispatcher/observed.rs",
        by: Finder::Test("switchyard-dispatcher", "at_most_one_runs_and_none_is_lost"),
        change: (
            "        if observation.attempt < remote.attempt {\n",
            "        if observation.attempt < remote.attempt && !crate::is_broken(\"old-word\") {\n",
        ),
    },
    MachineMutant {
        name: "any-end",
        says: "the end of any attempt ends the job",
        file: "hub/dispatcher/src/dispatcher/tracked_workload.rs",
        by: Finder::Test(
            "switchyard-dispatcher",
            "later_end_blocks_nothing_while_another_is_silent",
        ),
        change: (
            "!self.facts.state.finished && here && attempt > 0 && self.facts.state.attempt == attempt",
            "!self.facts.state.finished && (here && self.facts.state.attempt == attempt || crate::is_broken(\"any-end\")) && attempt > 0",
        ),
    },
    MachineMutant {
        name: "lease",
        says: "a restarted agent forgets when its lease ends",
        file: "worker-agent/ledger/src/ledger/mod.rs",
        by: Finder::Test("switchyard-ledger", "restarted_agent_without_hub_fences"),
        change: (
            "        self.lease = self.lease.max(lease);\n",
            "        let forgets = crate::is_broken(\"lease\");\n        self.lease = if forgets { Time::from_secs(1 << 30) } else { self.lease.max(lease) };\n",
        ),
    },
    MachineMutant {
        name: "resume",
        says: "a fenced job resumes before the complete desired state",
        file: "worker-agent/ledger/src/ledger/session.rs",
        by: Finder::Test(
            "switchyard-ledger",
            "fenced_job_resumes_only_after_complete_desired_state",
        ),
        change: (
            "        self.awaits_desired = true;\n",
            "        self.awaits_desired = !crate::is_broken(\"resume\");\n",
        ),
    },
    MachineMutant {
        name: "any-attempt",
        says: "an agent deletes objects of any attempt",
        file: "worker-agent/ledger/src/desired.rs",
        by: Finder::Simulation,
        change: (
            "            Phase::Absent => self.attempt,\n",
            "            _ if crate::is_broken(\"any-attempt\") => u64::MAX,\n            Phase::Absent => self.attempt,\n",
        ),
    },
    MachineMutant {
        name: "background",
        says: "an agent deletes a job before its pods",
        file: "worker-agent/ledger/src/entry/plan.rs",
        by: Finder::Simulation,
        change: (
            "foreground: job.end.is_none() };",
            "foreground: job.end.is_none() && !crate::is_broken(\"background\") };",
        ),
    },
    MachineMutant {
        name: "left-behind",
        says: "an agent skips its own foreground deletion if another client deletes the job in the background",
        file: "worker-agent/ledger/src/entry/plan.rs",
        by: Finder::Simulation,
        change: (
            "        if self.job_slot.is_free(now) && !self.job_slot.was_deleted_recently(&target.uid, now) {\n            self.start(ObjectKind::Job, Verb::Delete",
            "        let sent = self.job_slot.was_deleted_recently(&target.uid, now) || crate::is_broken(\"left-behind\");\n        if self.job_slot.is_free(now) && !sent {\n            self.start(ObjectKind::Job, Verb::Delete",
        ),
    },
];

/// The crates that the simulation needs.
const MEMBERS: [&str; 13] = [
    "api",
    "audit",
    "scheduler",
    "platform",
    "controller",
    "proto",
    "worker-agent",
    "worker-agent/ledger",
    "hub",
    "hub/dispatcher",
    "e2e/flags",
    "e2e/simulation",
    "xtask/pages",
];

/// Crates with errors.
const BROKEN: [&str; 2] = ["worker-agent/ledger", "hub/dispatcher"];

/// The environment variable with the name of the error to switch on.
const VARIABLE: &str = "SWITCHYARD_BROKEN";

const SWITCH: &str = r#"
/// Whether this error is switched on.
pub(crate) fn is_broken(name: &str) -> bool {
    static NAME: std::sync::OnceLock<Option<String>> = std::sync::OnceLock::new();
    NAME.get_or_init(|| std::env::var("SWITCHYARD_BROKEN").ok()).as_deref() == Some(name)
}
"#;

/// Puts all errors into a copy, builds it once, and switches on one error after the other. Returns how many were missed.
pub(super) fn judge(mutants: &[&MachineMutant], seeds: u64) -> anyhow::Result<usize> {
    let title = format!(
        "put {} errors into the dispatcher and the ledger: build them and the simulation once",
        mutants.len()
    );
    run::announce(&title, "about 10 minutes");
    let root = run::root().join("target/broken-machines");
    make(&root)?;
    let mut build = cargo(&root, &["build", "--package", "switchyard-simulation", "--bins"]);
    ensure!(build.status().context("cannot start cargo")?.success(), "the copy does not compile");
    if let Some(found) = play(&root, None, seeds)? {
        bail!("without any error: {found}");
    }
    let mut missed = 0;
    for MachineMutant { name, says, file, by, .. } in mutants {
        let found = match by {
            Finder::Simulation => play(&root, Some(*name), seeds)?,
            Finder::Test(package, test) => ask(&root, name, package, test)?,
        };
        match found {
            Some(found) => println!("caught: {says} ({file}): {found}"),
            None => {
                missed += 1;
                println!("MISSED: {says} ({file})");
            }
        }
    }
    Ok(missed)
}

fn cargo(root: &Path, args: &[&str]) -> Command {
    let mut cargo = run::cargo(args);
    cargo
        .args(["--offline", "--quiet"])
        .current_dir(root)
        .env("CARGO_TARGET_DIR", root.join("target"));
    cargo
}

/// Runs the test with the error on. Returns the test's name if it fails.
fn ask(root: &Path, name: &str, package: &str, test: &str) -> anyhow::Result<Option<String>> {
    let mut asked = cargo(root, &["test", "--package", package, "--lib", test]);
    asked.env(VARIABLE, name);
    let found = !passes(asked, test)?;
    Ok(found.then(|| format!("{package}: {test}")))
}

/// Runs the simulation. Returns the first seed that breaks a law, with the violation.
fn play(root: &Path, name: Option<&str>, seeds: u64) -> anyhow::Result<Option<String>> {
    let mut command = Command::new(root.join("target/debug/switchyard-simulate"));
    command
        .args(["--seeds", &seeds.to_string(), "--whole"])
        .env_remove(VARIABLE)
        .stderr(Stdio::null());
    command.envs(name.map(|name| (VARIABLE, name)));
    let output = command.output().context("cannot start the simulation")?;
    let told = String::from_utf8_lossy(&output.stdout);
    let found = told
        .lines()
        .find(|line| line.starts_with("seed "))
        .map(|line| line.chars().take(160).collect());
    ensure!(
        output.status.success() || found.is_some(),
        "the simulation ended with {}",
        output.status
    );
    Ok(found)
}

fn make(root: &Path) -> anyhow::Result<()> {
    let from = run::root();
    for member in MEMBERS {
        let to = root.join(member);
        if to.exists() {
            std::fs::remove_dir_all(&to)
                .with_context(|| format!("cannot remove {}", to.display()))?;
        }
        copy(&from.join(member), &to)?;
    }
    write(&root.join("Cargo.toml"), &manifest_with(&MEMBERS)?)?;
    write(&root.join("Cargo.lock"), &read(&from.join("Cargo.lock"))?)?;
    for member in BROKEN {
        let path = root.join(member).join("src/lib.rs");
        write(&path, &(read(&path)? + SWITCH))?;
    }
    for MachineMutant { file, change: (from, to), .. } in MACHINE_MUTANTS {
        let path = root.join(file);
        write(&path, &replace_once(file, &read(&path)?, from, to)?)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_error_fits_the_code_once() {
        for MachineMutant { name, file, change: (from, to), .. } in MACHINE_MUTANTS {
            let text = read(&run::root().join(file)).unwrap();
            assert_eq!(text.matches(from).count(), 1, "{name}: {from:?} in {file}");
            assert!(
                to.contains(&format!("is_broken(\"{name}\")")),
                "{name} is switched on by another name"
            );
            assert_eq!(
                MACHINE_MUTANTS.iter().filter(|other| other.name == *name).count(),
                1,
                "{name}"
            );
        }
    }

    #[test]
    fn members_contain_their_dependencies() {
        let manifest = read(&run::root().join("Cargo.toml")).unwrap();
        let path_of = |name: &str| {
            let start = format!("{name} = {{ path = \"");
            let path = manifest.lines().find_map(|line| line.strip_prefix(&start))?;
            path.split('"').next()
        };
        for member in MEMBERS {
            let text = read(&run::root().join(member).join("Cargo.toml")).unwrap();
            let names = text.lines().filter_map(|line| line.split(['.', ' ']).next());
            for path in names.filter(|name| name.starts_with("switchyard-")).filter_map(path_of) {
                assert!(MEMBERS.iter().any(|it| path.starts_with(it)), "{member} uses {path}");
            }
        }
    }
}
