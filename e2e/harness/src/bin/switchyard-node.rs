//! The first process of a real node of a test cluster. The harness starts it, in namespaces of its own.

use clap::{Parser, Subcommand};
use switchyard_e2e::nodes;

#[derive(Parser)]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run containerd and a kubelet.
    Init(nodes::InitArgs),
}

fn main() -> anyhow::Result<()> {
    match Args::parse().command {
        Command::Init(args) => nodes::init(&args),
    }
}
