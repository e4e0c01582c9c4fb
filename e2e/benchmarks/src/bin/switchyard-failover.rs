//! `cargo xtask failover`.

use clap::Parser as _;
use switchyard_benchmarks::failover;

#[derive(clap::Parser)]
#[command(
    about = "The same faults for Switchyard and for stock MultiKueue, on real control planes, one after the other"
)]
struct Command {
    #[command(flatten)]
    args: switchyard_flags::failover::Args,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let Command { args } = Command::parse();
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    failover::run(&args).await
}
