//! Set-up and shutdown that all programs share.

use std::process::ExitCode;

use tokio_util::sync::CancellationToken;

use crate::telemetry::{self, LogFormat};

// JSON means millions of short-lived allocations. glibc's allocator takes a quarter of the
// processor time, and musl's serializes threads.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Runs a program: sets up TLS, logs and traces, then runs `work` to its end. The first SIGTERM or
/// SIGINT cancels the token; the second exits at once with code 130. An error of `work` goes to
/// stderr in one line.
pub async fn run(
    name: &'static str,
    log: &str,
    format: LogFormat,
    work: impl AsyncFnOnce(CancellationToken) -> anyhow::Result<()>,
) -> ExitCode {
    // rustls panics if two providers compete, so the process installs one first.
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

/// Raises the soft limit of open files to the hard limit. The soft default of 1,024 is for programs
/// that use `select`, and each connection takes one file.
pub fn allow_connections() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    // If the kernel refuses, the limit stays.
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
