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
    /// Instead: kill the leader of two replicas so many times, and tell how long it takes until the other goes on.
    #[arg(long, default_value_t = 0)]
    takeovers: usize,
    /// Instead: so many agents' sessions on one hub, what they cost and how late their news is.
    #[arg(long, default_value_t = 0)]
    sessions: usize,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    if args.takeovers > 0 {
        return switchyard_e2e::takeover::run(args.takeovers).await;
    }
    if args.sessions > 0 {
        return switchyard_e2e::sessions::run(args.sessions).await;
    }
    switchyard_e2e::figures::run(args.jobs, args.burst).await
}
