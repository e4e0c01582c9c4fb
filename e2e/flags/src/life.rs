//! `cargo xtask life`.

/// How long, and which life.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// How many minutes it goes on, before all jobs are deleted.
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=1440))]
    pub minutes: u64,
    /// The seed of the plan. Default: one that was not used before.
    #[arg(long)]
    pub seed: Option<u64>,
}
