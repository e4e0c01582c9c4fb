//! `cargo xtask life`.

use std::process::ExitCode;

use clap::Parser as _;

#[derive(clap::Parser)]
#[command(
    about = "Random life on a hub and two worker clusters on real control planes, with the auditor beside it"
)]
struct Command {
    #[command(flatten)]
    args: switchyard_flags::life::Args,
}

#[tokio::main]
async fn main() -> ExitCode {
    let Command { args } = Command::parse();
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    // The run itself logs its steps.
    switchyard_e2e::fixture::init_logs_of(
        "warn,kube_client::client::builder=off,kube_runtime=error",
    );
    match switchyard_suites::life::run(&args).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
