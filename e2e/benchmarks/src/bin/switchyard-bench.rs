//! `cargo xtask bench`.

use clap::Parser as _;
use switchyard_benchmarks::{adversary, burst, plot, runner, scale, topology, trickle};
use switchyard_flags::bench::Bench;

#[derive(clap::Parser)]
#[command(
    name = "cargo xtask bench",
    about = "Measure Switchyard beside stock Kueue and beside no dispatcher"
)]
struct Command {
    #[command(subcommand)]
    bench: Bench,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let Command { bench } = Command::parse();
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    match &bench {
        Bench::Burst(args) => burst::run(args).await,
        Bench::Trickle(args) => trickle::run(args).await,
        Bench::Scale(args) => scale::run(args).await,
        Bench::Adversary(args) => adversary::run(args).await,
        Bench::Runner(args) => runner::run(args).await,
        Bench::Topology(args) => topology::run(args),
        Bench::Plot(args) => plot::run(args),
    }
}
