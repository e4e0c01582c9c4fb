//! What every program of ours does around its work.

use std::process::ExitCode;

use tokio_util::sync::CancellationToken;

use switchyard_platform::telemetry::{self, LogFormat};

// Short-lived pieces of JSON, by the million: with glibc's allocator a quarter of our time goes there, and musl's own makes
// threads wait for each other.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Runs a program: TLS, logs and traces first, then `work` until it ends, with a token that the first SIGTERM or SIGINT
/// cancels. The second signal ends the process at once, with 130. An error of `work` is told in one line on stderr.
pub async fn run(
    name: &'static str,
    log: &str,
    format: LogFormat,
    work: impl AsyncFnOnce(CancellationToken) -> anyhow::Result<()>,
) -> ExitCode {
    // One provider for everything that speaks TLS in this process, before anything does.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    allow_connections();
    match observed(name, log, format, work).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// As many open files as we may have: each connection is one, and the limit that processes begin with is for those that
/// watch theirs with `select`.
pub fn allow_connections() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    // It stays as it is where that is not allowed.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
}

async fn observed(
    name: &'static str,
    log: &str,
    format: LogFormat,
    work: impl AsyncFnOnce(CancellationToken) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let telemetry = telemetry::init(name, log, format)?;
    let shutdown = CancellationToken::new();
    tokio::spawn(stop_on_signal(shutdown.clone()));
    let result = work(shutdown).await;
    telemetry.shutdown();
    result
}

async fn stop_on_signal(shutdown: CancellationToken) {
    signal().await;
    tracing::info!("signal received, ending");
    shutdown.cancel();
    signal().await;
    std::process::exit(130);
}

async fn signal() {
    use tokio::signal::unix::{SignalKind, signal};
    let Ok(mut terminate) = signal(SignalKind::terminate()) else {
        return std::future::pending().await;
    };
    tokio::select! {
        _ = terminate.recv() => {}
        _ = tokio::signal::ctrl_c() => {}
    }
}
