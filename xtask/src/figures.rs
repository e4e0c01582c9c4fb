//! `cargo xtask figures`: builds for release, then measures what it built.

use crate::{programs, run};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Jobs sent one at a time, for latency.
    #[arg(long, default_value_t = 200)]
    jobs: usize,
    /// Jobs sent at once, for writes and memory.
    #[arg(long, default_value_t = 1000)]
    burst: usize,
    /// Instead: kill the leader of two replicas so many times, and tell how long it takes until the other goes on.
    #[arg(long, default_value_t = 0)]
    takeovers: usize,
    /// Instead: so many agents' sessions on one hub, what they cost and how late their news is.
    #[arg(long, default_value_t = 0)]
    sessions: usize,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let mut figures = programs::released("switchyard-figures")?;
    figures.args(["--jobs", &args.jobs.to_string(), "--burst", &args.burst.to_string()]);
    figures.args(["--takeovers", &args.takeovers.to_string(), "--sessions", &args.sessions.to_string()]);
    run::step("figures", figures)
}
