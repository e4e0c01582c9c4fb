//! The visibility API `visibility.kueue.x-k8s.io`: pending workloads of a queue in order, as an
//! aggregated API like Kueue's. An APIService points here.
//!
//! Every replica serves, because a follower's engine is up to date too. Unless another program
//! provides the serving certificate, each replica makes its own at start. The API server does not
//! verify it, as in Kueue's manifests (`insecureSkipTLSVerify`). Requests are trusted by the API
//! server's client certificate ([`switchyard_platform::delegated_auth`]).

mod discovery;
mod path;
mod summary;

use std::{path::Path, sync::Arc, time::Duration};

use anyhow::Context as _;
use arc_swap::ArcSwap;
use axum::{
    Json, Router,
    extract::{Query, Request},
    http::{Method, StatusCode, request::Parts},
    response::IntoResponse,
};
use rustls::{ServerConfig, ServerConnection};
use serde_json::Value;
use switchyard_api::visibility::{GROUP, openapi};
use switchyard_scheduler::LocalQueueKey;
use tokio_util::sync::CancellationToken;

use self::path::ResourcePath;
use self::summary::Page;
use crate::{
    context::Context,
    endpoint::{Endpoint, tls_policy},
    engine::EngineHandle,
};
use switchyard_platform::{
    delegated_auth::{Guard, StatusError, front_proxy::FrontProxy},
    https::{self, ServerCertificate, Site},
};

/// Name in [`switchyard_platform::components`].
const COMPONENT: &str = "visibility";
/// Interval for reading the API server's front-proxy configuration, and for the certificate check.
const RECHECK: Duration = Duration::from_secs(60);
/// The same after a failure. Until the first success, requests through the API server are refused.
const RETRY: Duration = Duration::from_secs(2);

/// Serves until `shutdown`.
///
/// # Errors
/// If the listener or TLS is unusable. An unreachable API server is retried; until it answers, only
/// clients with tokens are served.
pub(crate) async fn run(
    ctx: Arc<Context>,
    engine: EngineHandle,
    endpoint: Endpoint,
    shutdown: CancellationToken,
) -> anyhow::Result<()> {
    let Endpoint { listener, certificates } = endpoint;
    listener.set_nonblocking(true).context("visibility listener")?;
    let listener = tokio::net::TcpListener::from_std(listener).context("visibility listener")?;
    let mut keeper = TlsKeeper::new(ctx.clone(), certificates.as_deref())?;
    let answers =
        Arc::new(VisibilityApi { guard: Guard::new(ctx.client.clone()), ctx: ctx.clone(), engine });
    let site = Arc::new(Visibility { answers, state: keeper.state.clone() });
    let follow = async {
        loop {
            let known = keeper.refresh().await;
            ctx.components.set(COMPONENT, true);
            tokio::time::sleep(if known { RECHECK } else { RETRY }).await;
        }
    };
    tokio::select! {
        () = https::serve(listener, site, shutdown) => Ok(()),
        () = follow => Ok(()),
    }
}

/// Configuration for new connections.
struct TlsState {
    proxy: Arc<FrontProxy>,
    tls: Arc<ServerConfig>,
}

/// Keeps certificates and the front-proxy configuration up to date.
struct TlsKeeper {
    ctx: Arc<Context>,
    own: ServerCertificate,
    state: Arc<ArcSwap<TlsState>>,
}

impl TlsKeeper {
    fn new(ctx: Arc<Context>, certificates: Option<&Path>) -> anyhow::Result<Self> {
        let own = ServerCertificate::new(
            certificates,
            format!("visibility.{}.svc", ctx.namespace),
            ctx.clock.now(),
        );
        let own = own.context("the certificate of the visibility API")?;
        let proxy = Arc::new(FrontProxy::default());
        let tls = Arc::new(proxy.tls(own.certificate.clone(), &tls_policy(&ctx.config))?);
        Ok(Self { ctx, own, state: Arc::new(ArcSwap::from_pointee(TlsState { proxy, tls })) })
    }

    /// False if it must be retried soon.
    async fn refresh(&mut self) -> bool {
        self.own.renew(self.ctx.clock.now());
        let proxy = match FrontProxy::read(&self.ctx.client).await {
            Ok(proxy) => proxy,
            Err(error) => {
                tracing::warn!(%error, "visibility API: the API server's front proxy is not known");
                return false;
            }
        };
        if proxy == *self.state.load().proxy {
            return true;
        }
        match proxy.tls(self.own.certificate.clone(), &tls_policy(&self.ctx.config)) {
            Ok(tls) => {
                self.state.store(Arc::new(TlsState { proxy: Arc::new(proxy), tls: Arc::new(tls) }))
            }
            Err(error) => {
                tracing::warn!(%error, "visibility API: what the API server publishes cannot be used");
                return false;
            }
        }
        true
    }
}

struct Visibility {
    answers: Arc<VisibilityApi>,
    state: Arc<ArcSwap<TlsState>>,
}

impl Site for Visibility {
    fn name(&self) -> &'static str {
        COMPONENT
    }

    fn tls(&self) -> Arc<ServerConfig> {
        self.state.load().tls.clone()
    }

    fn router(&self, connection: &ServerConnection) -> Router {
        let proxy =
            Some(self.state.load().proxy.clone()).filter(|proxy| proxy.is_proxy(connection));
        let answers = self.answers.clone();
        Router::new().fallback(move |request: Request| {
            let (answers, proxy) = (answers.clone(), proxy.clone());
            async move {
                let (head, _) = request.into_parts();
                match answers.answer(&head, proxy.as_deref()).await {
                    Ok(body) => Json(body).into_response(),
                    Err(refusal) => refusal.into_response(),
                }
            }
        })
    }
}

struct VisibilityApi {
    ctx: Arc<Context>,
    guard: Guard,
    engine: EngineHandle,
}

impl VisibilityApi {
    async fn answer(&self, head: &Parts, proxy: Option<&FrontProxy>) -> Result<Value, StatusError> {
        let path = head.uri.path();
        let target = ResourcePath::parse(path);
        let wanted =
            target.as_ref().map_or_else(|| path::unknown(path), |target| target.wanted(path));
        self.guard.authorize(&head.headers, proxy, &wanted).await?;
        if head.method != Method::GET {
            let message = format!(
                "{} is not supported here: lists of pending workloads are read with GET",
                head.method
            );
            return Err(StatusError::new(
                StatusCode::METHOD_NOT_ALLOWED,
                "MethodNotAllowed",
                message,
            ));
        }
        match target {
            None => Err(StatusError::new(
                StatusCode::NOT_FOUND,
                "NotFound",
                format!("there is nothing at {path}"),
            )),
            Some(ResourcePath::OpenApi2) => Ok(openapi::v2()),
            Some(ResourcePath::OpenApi3) => Ok(discovery::documents()),
            Some(ResourcePath::OpenApi3Of(version)) => Ok(openapi::v3(version)),
            Some(ResourcePath::Groups) => Ok(discovery::groups()),
            Some(ResourcePath::Group) => Ok(discovery::group()),
            Some(ResourcePath::Version(version)) => Ok(discovery::resources(version)),
            Some(ResourcePath::ClusterQueue { version, name }) => {
                require(
                    self.ctx.stores.cluster_queues.get("", &name).is_some(),
                    "clusterqueue",
                    &name,
                )?;
                self.pending(head, version, name, None).await
            }
            Some(ResourcePath::LocalQueue { version, namespace, name }) => {
                let queue = self.ctx.stores.local_queues.get(&namespace, &name);
                require(queue.is_some(), "localqueue", &name)?;
                let cluster_queue =
                    queue.and_then(|queue| queue.spec.cluster_queue.clone()).unwrap_or_default();
                self.pending(
                    head,
                    version,
                    cluster_queue,
                    Some(LocalQueueKey::new(&*namespace, &*name)),
                )
                .await
            }
        }
    }

    async fn pending(
        &self,
        head: &Parts,
        version: &str,
        cluster_queue: String,
        local_queue: Option<LocalQueueKey>,
    ) -> Result<Value, StatusError> {
        let page = Query::<Page>::try_from_uri(&head.uri);
        let Query(page) = page.map_err(|error| {
            StatusError::new(StatusCode::BAD_REQUEST, "BadRequest", error.body_text())
        })?;
        let pending = self.engine.pending(page.of(cluster_queue, local_queue)).await;
        let pending = pending.map_err(|error| StatusError::internal(format!("{error:#}")))?;
        let workload = |namespace: &str, name: &str| self.ctx.stores.workloads.get(namespace, name);
        let summary = summary::summary(version, &pending, workload);
        serde_json::to_value(summary).map_err(|error| StatusError::internal(error.to_string()))
    }
}

fn require(known: bool, resource: &str, name: &str) -> Result<(), StatusError> {
    let message = || format!("{resource}.{GROUP} {name:?} not found");
    known
        .then_some(())
        .ok_or_else(|| StatusError::new(StatusCode::NOT_FOUND, "NotFound", message()))
}
