//! Serves metrics over HTTPS to clients that the API server lets read `/metrics`, as Kueue does.
//! The probes' port then serves none.

use std::{sync::Arc, time::Duration};

use anyhow::Context as _;
use axum::{
    Router,
    extract::{Request, State},
    http::StatusCode,
    response::{IntoResponse, Response},
};
use tokio_util::sync::CancellationToken;

use crate::{
    context::Context,
    endpoint::{Endpoint, tls_policy},
    http,
};
use switchyard_platform::{
    delegated_auth::{AccessTarget, Guard, StatusError},
    https::{self, Open, ServerCertificate},
};

const NAME: &str = "metrics";
const PATH: &str = "/metrics";
/// Interval of the certificate check.
const RECHECK: Duration = Duration::from_secs(60);

/// Serves until `shutdown`.
///
/// # Errors
/// If the listener or TLS is unusable.
pub(crate) async fn run(
    ctx: Arc<Context>,
    endpoint: Endpoint,
    shutdown: CancellationToken,
) -> anyhow::Result<()> {
    let Endpoint { listener, certificates } = endpoint;
    listener.set_nonblocking(true).context("metrics listener")?;
    let listener = tokio::net::TcpListener::from_std(listener).context("metrics listener")?;
    let name = format!("metrics.{}.svc", ctx.namespace);
    let own = ServerCertificate::new(certificates.as_deref(), name, ctx.clock.now());
    let mut own = own.context("the certificate of the metrics")?;
    let router =
        Router::new().fallback(answer).with_state((ctx.clone(), Guard::new(ctx.client.clone())));
    let site =
        Arc::new(Open::new(NAME, own.certificate.clone(), &tls_policy(&ctx.config), router)?);
    let renew = async {
        loop {
            tokio::time::sleep(RECHECK).await;
            own.renew(ctx.clock.now());
        }
    };
    tokio::select! {
        () = https::serve(listener, site, shutdown) => Ok(()),
        () = renew => Ok(()),
    }
}

async fn answer(State((ctx, guard)): State<(Arc<Context>, Guard)>, request: Request) -> Response {
    let path = request.uri().path();
    match guard.authorize(request.headers(), None, &AccessTarget::Path(path.to_owned())).await {
        Err(refusal) => refusal.into_response(),
        Ok(()) if path == PATH => http::metrics_page(State(ctx)).await.into_response(),
        Ok(()) => {
            let message = format!("there is nothing at {path}; metrics are at {PATH}");
            StatusError::new(StatusCode::NOT_FOUND, "NotFound", message).into_response()
        }
    }
}
