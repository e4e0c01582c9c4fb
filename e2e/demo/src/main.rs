//! `cargo xtask demo`.

use std::process::ExitCode;

use clap::Parser as _;

#[derive(clap::Parser)]
#[command(about = "A hub and two worker clusters on real control planes, and sample jobs")]
struct Command {
    #[command(flatten)]
    args: switchyard_flags::demo::Args,
}

fn main() -> ExitCode {
    let Command { args } = Command::parse();
    // Before there are threads: the program starts itself again.
    match args.real_nodes.then(switchyard_e2e::nodes::enter) {
        Some(Err(error)) => {
            eprintln!("error: real nodes cannot run here: {error:#}");
            ExitCode::FAILURE
        }
        _ => run(args),
    }
}

#[tokio::main]
async fn run(args: switchyard_flags::demo::Args) -> ExitCode {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    // The demo prints its progress itself.
    switchyard_e2e::fixture::init_logs_of("warn,kube_client::client::builder=off");
    tokio::select! {
        // With `--stay`, Ctrl-C ends both; then the demo's own end counts.
        biased;
        result = switchyard_demo::run(args) => match result {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("error: {error:#}");
                ExitCode::FAILURE
            }
        },
        _ = tokio::signal::ctrl_c() => ExitCode::from(130),
    }
}
