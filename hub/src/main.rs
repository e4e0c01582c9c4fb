//! The hub's binary.

use std::process::ExitCode;

use clap::Parser;
use switchyard_controller::{signals, telemetry};
use switchyard_hub::{Args, run};
use tokio_util::sync::CancellationToken;

#[tokio::main]
async fn main() -> ExitCode {
    // One provider for everything that speaks TLS in this process, before anything does.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    match start(Args::parse()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn start(args: Args) -> anyhow::Result<()> {
    let telemetry = telemetry::init("switchyard-hub", &args.log, args.log_format)?;
    let shutdown = CancellationToken::new();
    tokio::spawn(stop_on_signal(shutdown.clone()));
    let result = match args.options().await {
        Ok(options) => run(options, shutdown).await,
        Err(error) => Err(error),
    };
    telemetry.shutdown();
    result
}

/// The first signal ends in order, the second at once.
async fn stop_on_signal(shutdown: CancellationToken) {
    signals::stop(shutdown).await;
    std::process::exit(130);
}
