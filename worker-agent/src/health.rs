//! The agent's health endpoints: the controller's, and `/sessionz`.
//!
//! Readiness does not depend on the session: this process also serves the cluster's webhooks, which
//! must work without the hub.

use std::net::TcpListener;
use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::IntoResponse;
use axum::routing::get;
use prometheus_client::metrics::gauge::Gauge;
use switchyard_controller::Context;
use switchyard_controller::http::{self, MetricsReaders};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::session::SessionState;

/// Serves until `shutdown`.
pub(crate) async fn serve(
    context: Arc<Context>,
    state: watch::Receiver<SessionState>,
    listener: TcpListener,
    shutdown: CancellationToken,
) -> anyhow::Result<()> {
    let up: Gauge = Gauge::default();
    context.metrics.register(|registry| {
        let ours = registry.sub_registry_with_prefix("switchyard_agent");
        ours.register("session_up", "Whether there is a session with the hub", up.clone());
    });
    let router = http::router(context, MetricsReaders::Everybody).merge(routes(state.clone()));
    tokio::select! {
        served = switchyard_platform::https::serve_bounded(listener, router, shutdown.clone()) => served,
        () = follow(state, up, shutdown) => Ok(()),
    }
}

fn routes(state: watch::Receiver<SessionState>) -> Router {
    Router::new().route("/sessionz", get(session)).with_state(state)
}

async fn session(State(state): State<watch::Receiver<SessionState>>) -> impl IntoResponse {
    match &*state.borrow() {
        SessionState::Up { since, session_id } => {
            (StatusCode::OK, format!("session {session_id} since {since}\n"))
        }
        SessionState::Down { since, reason } => {
            (StatusCode::SERVICE_UNAVAILABLE, format!("no session since {since}: {reason}\n"))
        }
    }
}

async fn follow(mut state: watch::Receiver<SessionState>, up: Gauge, shutdown: CancellationToken) {
    loop {
        up.set(i64::from(state.borrow_and_update().is_up()));
        tokio::select! {
            () = shutdown.cancelled() => return,
            changed = state.changed() => if changed.is_err() { return shutdown.cancelled().await },
        }
    }
}
