//! `cargo xtask bench`.

pub mod adversary;
pub mod burst;
pub mod plot;
pub mod runner;
pub mod scale;
pub mod system;
pub mod topology;
pub mod trickle;

/// The benchmarks, each with its flags.
#[derive(clap::Subcommand, Debug)]
pub enum Bench {
    /// Create many Jobs at once on a hub with three workers.
    Burst(burst::Args),
    /// Create Jobs one at a time, then at a steady rate, on a hub with three workers; and measure an idle hub.
    Trickle(trickle::Args),
    /// Run the same number of jobs on a hub with few, more and many clusters.
    Scale(scale::Args),
    /// Create a Job each second while agents and tenants attack the hub, and while they do not.
    Adversary(adversary::Args),
    /// Run Kueue's own scheduler performance test against single mode and against Kueue.
    Runner(runner::Args),
    /// Play large scenarios with topologies through Kueue's scheduler and through the engine, without API servers.
    Topology(topology::Args),
    /// Draw what the others have written with `--json`.
    Plot(plot::Args),
}
