//! `cargo xtask journeys`: the ways of a new user through the docs, each timed.

use std::path::PathBuf;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, bail};

use crate::{lint, run, test, times};

/// A way through the docs, and the cluster test that goes it.
struct Journey {
    name: &'static str,
    page: &'static str,
    test: &'static str,
}

const JOURNEYS: [Journey; 6] = [
    Journey {
        name: "one cluster by Helm",
        page: "docs/first-cluster.md",
        test: "nodes::journeys::one_cluster_is_installed_used_and_left_as_the_pages_say",
    },
    Journey {
        name: "a hub and two workers",
        page: "docs/first-fleet.md",
        test: "nodes::journeys::fleet_is_built_used_and_removed_as_the_pages_say",
    },
    Journey {
        name: "a worker by kubeconfig",
        page: "docs/workers.md",
        test: "nodes::by_kubeconfig::worker_without_an_agent_is_added_and_used_as_the_page_says",
    },
    Journey {
        name: "from Kueue",
        page: "docs/migrate.md",
        test: "nodes::from_kueue::commands_of_the_guide_move_a_cluster_from_kueue_and_back",
    },
    Journey {
        name: "from MultiKueue and back",
        page: "docs/migrate.md",
        test: "nodes::from_multikueue::commands_of_the_guide_move_a_manager_and_back",
    },
    Journey {
        name: "upgrade",
        page: "docs/upgrade.md",
        test: "nodes::installed::pods_of_the_chart_stand_drains_and_updates",
    },
];

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Run nothing: only list the commands of the pages, with the test that runs each or the reason
    /// why none does.
    #[arg(long)]
    commands: bool,
    /// Folder of a release, which the journeys on real nodes install. Default: the programs as built
    /// for tests.
    #[arg(long, value_name = "DIR", env = "SWITCHYARD_RELEASE")]
    release: Option<PathBuf>,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    if args.commands {
        return lint::list_commands();
    }
    let release = args.release.as_ref().map(std::fs::canonicalize).transpose();
    let release = release.context("--release: run `cargo xtask release --out DIR` first")?;
    let program = test::cluster_tests()?;
    let mut failed = Vec::new();
    let mut rows = Vec::new();
    for Journey { name, page, test } in JOURNEYS {
        run::announce(name, "about a minute");
        let start = Instant::now();
        let mut command = Command::new(&program);
        test::prepare(&mut command);
        command.envs(release.iter().map(|release| ("SWITCHYARD_RELEASE", release)));
        let output = command
            .args(["--exact", test])
            .output()
            .with_context(|| format!("cannot start {}", program.display()))?;
        let seconds = start.elapsed().as_secs_f64();
        let printed = String::from_utf8_lossy(&output.stdout);
        // A test on real nodes runs in a process of its own, whose result is printed, too.
        if !output.status.success() || test::passed(&printed) == 0 {
            eprintln!("{printed}");
            failed.push(name);
        } else {
            times::keep(name, seconds);
        }
        rows.push(format!("{name:<26} {:>5.1} min  {page}  {test}", seconds / 60.0));
    }
    println!("With programs and control planes built:");
    rows.iter().for_each(|row| println!("{row}"));
    if failed.is_empty() { Ok(()) } else { bail!("failed: {}", failed.join(", ")) }
}
