//! `cargo xtask figures`.

use clap::Parser as _;
use clap::builder::RangedU64ValueParser;

#[derive(clap::Parser)]
#[command(about = "What a hub and one worker cost: latency, API writes per job, memory")]
struct Args {
    /// Jobs sent one at a time, for latency.
    #[arg(long, default_value_t = 200, value_parser = RangedU64ValueParser::<usize>::new().range(1..))]
    jobs: usize,
    /// Jobs sent at once, for writes and memory.
    #[arg(long, default_value_t = 1000, value_parser = RangedU64ValueParser::<usize>::new().range(1..))]
    burst: usize,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    switchyard_e2e::figures::run(args.jobs, args.burst).await
}
