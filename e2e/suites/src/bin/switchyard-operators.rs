//! `cargo xtask operators`.

use clap::Parser as _;
use switchyard_suites::operators;

#[derive(clap::Parser)]
#[command(about = "Kinds of jobs with their real operators, on one cluster and from a hub")]
struct Command {
    #[command(flatten)]
    args: switchyard_flags::operators::Args,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let Command { args } = Command::parse();
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    operators::run(&args).await
}
