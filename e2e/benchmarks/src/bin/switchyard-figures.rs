//! `cargo xtask figures`.

use clap::Parser as _;

#[derive(clap::Parser)]
#[command(about = "What a hub and one worker cost: latency, API writes per job, memory")]
struct Command {
    #[command(flatten)]
    args: switchyard_flags::figures::Args,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let Command { args } = Command::parse();
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    if args.takeovers > 0 {
        return switchyard_benchmarks::takeover::run(args.takeovers).await;
    }
    if args.sessions > 0 {
        return switchyard_benchmarks::sessions::run(args.sessions).await;
    }
    switchyard_benchmarks::figures::run(args.jobs, args.burst).await
}
