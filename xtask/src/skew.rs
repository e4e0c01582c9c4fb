//! `cargo xtask skew`: hub and agents of two versions together.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, ensure};

use crate::run;

/// Programs of the other version.
const PROGRAMS: [&str; 2] = ["switchyard-hub", "switchyard-agent"];
/// The variable from which the test takes their directory. Without it, the test is not run.
pub(crate) const OTHER: &str = "SWITCHYARD_OTHER_BINARIES";
const TEST: &str = "hub_and_agents_of_two_versions_work_together";

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The other version: a commit, which is built in a worktree of its own below target/skew.
    /// Default: the last tag, or 30 commits before HEAD where there is none.
    #[arg(long, value_name = "COMMIT", conflicts_with = "binaries")]
    commit: Option<String>,
    /// The other version: a directory with switchyard-hub and switchyard-agent.
    #[arg(long, value_name = "DIRECTORY")]
    binaries: Option<PathBuf>,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let binaries = match &args.binaries {
        Some(dir) => std::path::absolute(dir).context("--binaries")?,
        None => build(args.commit.as_deref())?,
    };
    for name in PROGRAMS {
        let path = binaries.join(name);
        ensure!(path.is_file(), "--binaries: there is no {}", path.display());
    }
    let xtask = std::env::current_exe().context("where is the running program?")?;
    let mut test = Command::new(xtask);
    test.args(["test", "--only", "cluster", TEST]).env(OTHER, binaries).current_dir(run::root());
    run::long_step("run both versions together", "about 5 minutes, most of them compiling", test)
}

/// Builds the programs of a commit, and names their directory.
fn build(commit: Option<&str>) -> anyhow::Result<PathBuf> {
    let commit = match commit {
        Some(commit) => id_of(commit)?,
        None => last_tag().map_or_else(|| id_of("HEAD~30"), Ok)?,
    };
    println!("the other version is {commit}");
    let dir = run::target().join("skew");
    let (source, target) = (dir.join("source"), dir.join("target"));
    if !source.is_dir() {
        let mut add = git(&run::root());
        add.args(["worktree", "add", "--force", "--detach"]).arg(&source).arg(&commit);
        run::output(add)?;
    }
    let mut checkout = git(&source);
    checkout.args(["checkout", "--quiet", "--detach", &commit]);
    run::output(checkout)?;
    let mut build = run::cargo(&["build", "--workspace"]);
    for name in PROGRAMS {
        build.args(["--bin", name]);
    }
    build.current_dir(&source).env("CARGO_TARGET_DIR", &target);
    run::long_step("build the other version", "about 5 minutes", build)?;
    Ok(target.join("debug"))
}

fn last_tag() -> Option<String> {
    let mut describe = git(&run::root());
    describe.args(["describe", "--tags", "--abbrev=0", "HEAD^"]);
    let output = describe.output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

fn id_of(commit: &str) -> anyhow::Result<String> {
    let mut parse = git(&run::root());
    parse.args(["rev-parse", "--verify", &format!("{commit}^{{commit}}")]);
    Ok(run::output(parse)?.trim().to_owned())
}

fn git(dir: &Path) -> Command {
    let mut git = Command::new("git");
    git.arg("-C").arg(dir);
    git
}
