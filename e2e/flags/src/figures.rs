//! `cargo xtask figures`.

use clap::builder::RangedU64ValueParser;

/// Flags of the figures.
#[derive(clap::Args, Clone, Copy, Debug)]
pub struct Args {
    /// Jobs sent one at a time, for latency.
    #[arg(long, default_value_t = 200, value_parser = RangedU64ValueParser::<usize>::new().range(1..))]
    pub jobs: usize,
    /// Jobs sent at once, for writes and memory.
    #[arg(long, default_value_t = 1000, value_parser = RangedU64ValueParser::<usize>::new().range(1..))]
    pub burst: usize,
    /// Instead: kill the leader of two replicas so many times, and print how long each takeover takes.
    #[arg(long, default_value_t = 0)]
    pub takeovers: usize,
    /// Instead: open so many agents' sessions on one hub, and print their cost and the delay of their messages.
    #[arg(long, default_value_t = 0)]
    pub sessions: usize,
}
