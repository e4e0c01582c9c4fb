//! `cargo xtask figures`: builds for release, then measures what it built.

use std::path::PathBuf;
use std::process::Command;

use crate::run;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Jobs sent one at a time, for latency.
    #[arg(long, default_value_t = 200)]
    jobs: usize,
    /// Jobs sent at once, for writes and memory.
    #[arg(long, default_value_t = 1000)]
    burst: usize,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    // All of them in one build: the measuring program starts the hub and the agent that lie beside it.
    run::step("build for release", run::cargo(&["build", "--release", "--workspace", "--bins"]))?;
    let mut figures = Command::new(release("switchyard-figures"));
    figures.args(["--jobs", &args.jobs.to_string(), "--burst", &args.burst.to_string()]).current_dir(run::root());
    run::step("figures", figures)
}

/// A program built for release.
pub(crate) fn release(name: &str) -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| run::root().join("target"), PathBuf::from);
    target.join("release").join(name)
}
