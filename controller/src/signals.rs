//! How a process is told to end.

use tokio_util::sync::CancellationToken;

/// Cancels `shutdown` at the first SIGTERM or SIGINT and returns at the second, when the caller should end at once.
pub async fn stop(shutdown: CancellationToken) {
    signal().await;
    tracing::info!("signal received, ending");
    shutdown.cancel();
    signal().await;
}

async fn signal() {
    use tokio::signal::unix::{SignalKind, signal};
    let Ok(mut terminate) = signal(SignalKind::terminate()) else { return std::future::pending().await };
    tokio::select! {
        _ = terminate.recv() => {}
        _ = tokio::signal::ctrl_c() => {}
    }
}
