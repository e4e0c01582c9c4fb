//! `/healthz`, `/livez`, `/readyz` and `/metrics`.

use std::{net::TcpListener, sync::Arc};

use axum::{
    Router,
    extract::{Query, State},
    http::{StatusCode, header},
    response::IntoResponse,
    routing::get,
};
use serde::Deserialize;
use tokio_util::sync::CancellationToken;

use crate::context::Context;

#[derive(Deserialize)]
struct Verbose {
    // `?verbose` as at an API server: every component's answer even when all is well.
    verbose: Option<String>,
}

/// One component's answer.
struct Check {
    name: String,
    ok: bool,
    says: &'static str,
}

/// Serves until `shutdown`.
///
/// # Errors
/// When the listener does not work.
pub(crate) async fn serve(ctx: Arc<Context>, listener: TcpListener, shutdown: CancellationToken) -> anyhow::Result<()> {
    listener.set_nonblocking(true)?;
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let shutdown = async move { shutdown.cancelled().await };
    axum::serve(listener, router(ctx)).with_graceful_shutdown(shutdown).await?;
    Ok(())
}

/// The routes, for those who serve them together with their own.
pub fn router(ctx: Arc<Context>) -> Router {
    Router::new()
        .route("/healthz", get(async || "ok"))
        .route("/livez", get(async || "ok"))
        .route("/readyz", get(ready))
        .route("/metrics", get(metrics))
        .with_state(ctx)
}

async fn ready(State(ctx): State<Arc<Context>>, Query(query): Query<Verbose>) -> impl IntoResponse {
    let checks = checks(&ctx);
    let ready = checks.iter().all(|check| check.ok);
    let status = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, render(&checks, ready, query.verbose.is_some()))
}

fn checks(ctx: &Context) -> Vec<Check> {
    let watches = ctx.stores.watches().into_iter().map(|watch| Check {
        name: format!("watch/{}", watch.kind),
        ok: watch.healthy,
        says: match (watch.ready, watch.healthy) {
            (false, _) => "the first list was not read yet",
            (true, false) => "the watch is broken and retried",
            (true, true) => "ok",
        },
    });
    watches
        .chain(ctx.components.checks().into_iter().map(|(name, ok)| Check {
            name: name.into(),
            ok,
            says: if ok { "ok" } else { "not running" },
        }))
        .collect()
}

fn render(checks: &[Check], ready: bool, verbose: bool) -> String {
    if ready && !verbose {
        return "ok".into();
    }
    let mut page: String = checks
        .iter()
        .map(|check| format!("[{}]{} {}\n", if check.ok { '+' } else { '-' }, check.name, check.says))
        .collect();
    page.push_str(if ready { "readyz check passed\n" } else { "readyz check failed\n" });
    page
}

pub(crate) async fn metrics(State(ctx): State<Arc<Context>>) -> impl IntoResponse {
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    ([(header::CONTENT_TYPE, kind)], ctx.metrics.render())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failing_component_is_named() {
        let checks = [
            Check { name: "watch/jobs".into(), ok: false, says: "the watch is broken and retried" },
            Check { name: "webhook".into(), ok: true, says: "ok" },
        ];
        insta::assert_snapshot!(render(&checks, false, false), @r"
        [-]watch/jobs the watch is broken and retried
        [+]webhook ok
        readyz check failed
        ");
        assert_eq!(render(&[], true, false), "ok");
    }
}
