//! `/healthz`, `/livez` and `/readyz`, and `/metrics` unless it is restricted to authorized
//! clients.

pub(crate) mod metrics;

use std::{net::TcpListener, sync::Arc, time::Duration};

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
use switchyard_platform::https;
use switchyard_platform::watch::WatchState;

#[derive(Deserialize)]
struct Verbose {
    // `?verbose` as in the API server: list every component even if all are ready.
    verbose: Option<String>,
}

/// The state of one component.
struct Check {
    name: String,
    ok: bool,
    says: &'static str,
}

/// The clients that may read `/metrics`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricsReaders {
    /// Every client of the health port.
    Everybody,
    /// Clients that the API server authorizes, on a port of its own.
    Authorized,
}

/// Serves until `shutdown`.
///
/// # Errors
///
/// When the listener does not work.
pub(crate) async fn serve(
    ctx: Arc<Context>,
    listener: TcpListener,
    readers: MetricsReaders,
    shutdown: CancellationToken,
) -> anyhow::Result<()> {
    https::serve_bounded(listener, router(ctx, readers), shutdown).await
}

/// The routes, for servers that add their own.
pub fn router(ctx: Arc<Context>, readers: MetricsReaders) -> Router {
    let probes = Router::new()
        .route("/healthz", get(async || "ok"))
        .route("/livez", get(async || "ok"))
        .route("/readyz", get(ready));
    let all = match readers {
        MetricsReaders::Everybody => probes.route("/metrics", get(metrics_page)),
        MetricsReaders::Authorized => probes.route("/metrics", get(elsewhere)),
    };
    all.with_state(ctx)
}

async fn elsewhere() -> impl IntoResponse {
    (
        StatusCode::NOT_FOUND,
        "metrics are served over HTTPS at metrics.bindAddress (--metrics-listen) to those who may read them\n",
    )
}

async fn ready(State(ctx): State<Arc<Context>>, Query(query): Query<Verbose>) -> impl IntoResponse {
    let checks = checks(&ctx);
    let ready = checks.iter().all(|check| check.ok);
    let status = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, render(&checks, ready, query.verbose.is_some()))
}

/// A watch that is broken for less does not make the replica unready, which would take its webhooks
/// away. The API server ends watches when it starts to serve another version of their kind, and a
/// network fault breaks those of all replicas.
const BEARABLE: Duration = Duration::from_secs(15);

fn watch_check(watch: &WatchState) -> Check {
    let (ok, says) = match watch.broken_for {
        _ if !watch.ready => (false, "the first list was not read yet"),
        None => (true, "ok"),
        Some(broken) => (broken < BEARABLE, "the watch is broken and retried"),
    };
    Check { name: format!("watch/{}", watch.kind), ok, says }
}

fn checks(ctx: &Context) -> Vec<Check> {
    let watches = ctx.stores.watches();
    let watches = watches.iter().map(watch_check);
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
        .map(|check| {
            format!("[{}]{} {}\n", if check.ok { '+' } else { '-' }, check.name, check.says)
        })
        .collect();
    page.push_str(if ready { "readyz check passed\n" } else { "readyz check failed\n" });
    page
}

pub(crate) async fn metrics_page(State(ctx): State<Arc<Context>>) -> impl IntoResponse {
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    ([(header::CONTENT_TYPE, kind)], ctx.metrics.render())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn briefly_broken_watch_leaves_the_replica_ready() {
        let verdict = |ready, broken_for: Option<u64>| {
            let broken_for = broken_for.map(Duration::from_secs);
            let check = watch_check(&WatchState { kind: "jobs".into(), ready, broken_for });
            (check.ok, check.says)
        };
        for (ready, broken_for, ok, says) in [
            (false, None, false, "the first list was not read yet"),
            (false, Some(1), false, "the first list was not read yet"),
            (true, None, true, "ok"),
            (true, Some(0), true, "the watch is broken and retried"),
            (true, Some(14), true, "the watch is broken and retried"),
            (true, Some(15), false, "the watch is broken and retried"),
        ] {
            assert_eq!(verdict(ready, broken_for), (ok, says), "{ready} {broken_for:?}");
        }
    }

    #[test]
    fn failing_component_is_named() {
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
