//! `cargo xtask bench`.

use clap::Parser as _;
use switchyard_e2e::bench::burst;

#[derive(clap::Parser)]
#[command(about = "Ours beside stock MultiKueue and beside no dispatcher at all, in one run on one machine")]
enum Args {
    /// So many Jobs created at once on a hub with three workers.
    Burst(burst::Args),
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let Args::Burst(args) = Args::parse();
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    burst::run(&args).await
}
