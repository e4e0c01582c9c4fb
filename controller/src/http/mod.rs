//! `/healthz`, `/livez`, `/readyz`, and `/metrics` where they are not served to those alone who may read them.

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

use crate::{context::Context, stores::WatchState};
use switchyard_platform::https;

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

/// Who may read the metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricsReaders {
    /// Everybody who reaches the probes' port.
    Everybody,
    /// Those whom the API server lets read them, at a port of their own.
    Authorized,
}

/// Serves until `shutdown`.
///
/// # Errors
/// When the listener does not work.
pub(crate) async fn serve(
    ctx: Arc<Context>,
    listener: TcpListener,
    readers: MetricsReaders,
    shutdown: CancellationToken,
) -> anyhow::Result<()> {
    serve_bounded(listener, router(ctx, readers), shutdown).await
}

/// Serves what any pod of the cluster may ask: connections, those of one address, and silences are bounded.
///
/// # Errors
/// When the listener does not work.
pub async fn serve_bounded(
    listener: TcpListener,
    router: Router,
    shutdown: CancellationToken,
) -> anyhow::Result<()> {
    listener.set_nonblocking(true)?;
    https::serve_plain(tokio::net::TcpListener::from_std(listener)?, "probes", router, shutdown)
        .await;
    Ok(())
}

/// The routes, for those who serve them together with their own.
pub fn router(ctx: Arc<Context>, readers: MetricsReaders) -> Router {
    let probes = Router::new()
        .route("/healthz", get(async || "ok"))
        .route("/livez", get(async || "ok"))
        .route("/readyz", get(ready));
    let all = match readers {
        MetricsReaders::Everybody => probes.route("/metrics", get(metrics)),
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

/// A watch that is broken for less is no reason to take a replica's webhooks away: an API server ends watches when it comes to
/// serve another version of their kind, and a fault of the network ends those of all replicas at once.
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

pub(crate) async fn metrics(State(ctx): State<Arc<Context>>) -> impl IntoResponse {
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    ([(header::CONTENT_TYPE, kind)], ctx.metrics.render())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_watch_that_is_broken_for_a_moment_leaves_the_replica_ready() {
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

    #[tokio::test]
    async fn probe_is_answered_among_silent_connections() {
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (address, stop) = (listener.local_addr().unwrap(), CancellationToken::new());
        let router = Router::new().route("/livez", get(async || "ok"));
        let server = tokio::spawn(serve_bounded(listener, router, stop.clone()));
        let connect = || tokio::net::TcpStream::connect(address);
        let mut silent = Vec::new();
        for _ in 0..200 {
            silent.push(connect().await.unwrap());
        }
        let mut probe = connect().await.unwrap();
        probe
            .write_all(b"GET /livez HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
            .await
            .unwrap();
        let mut answer = String::new();
        tokio::time::timeout(Duration::from_secs(10), probe.read_to_string(&mut answer))
            .await
            .unwrap()
            .unwrap();
        assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("ok"), "{answer}");
        // The first ones have lost their places: 64 of one address are kept.
        let ended =
            tokio::time::timeout(Duration::from_secs(10), silent[0].read(&mut [0; 16])).await;
        assert!(matches!(ended, Ok(Ok(0) | Err(_))), "{ended:?}");
        stop.cancel();
        drop(silent);
        tokio::time::timeout(Duration::from_secs(10), server).await.unwrap().unwrap().unwrap();
    }

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
