//! `cargo xtask bench`.

use clap::Parser as _;
use switchyard_e2e::bench::{burst, plot, runner, scale, trickle};

#[derive(clap::Parser)]
#[command(
    name = "cargo xtask bench",
    bin_name = "cargo xtask bench",
    about = "Ours beside stock Kueue and beside no dispatcher at all, in one run on one machine"
)]
enum Args {
    /// So many Jobs created at once on a hub with three workers.
    Burst(burst::Args),
    /// Jobs that come one at a time, then at a steady rate, on a hub with three workers; and nothing at all.
    Trickle(trickle::Args),
    /// A hub with few, more and many clusters, and as many jobs each time.
    Scale(scale::Args),
    /// Kueue's own scheduler performance test against our single mode and against Kueue.
    Runner(runner::Args),
    /// Draw what the others have written with `--json`.
    Plot(plot::Args),
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    match &args {
        Args::Burst(args) => burst::run(args).await,
        Args::Trickle(args) => trickle::run(args).await,
        Args::Scale(args) => scale::run(args).await,
        Args::Runner(args) => runner::run(args).await,
        Args::Plot(args) => plot::run(args),
    }
}
