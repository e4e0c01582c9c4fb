//! HTTP servers with TLS, and the probes' without: a certificate that can change while it serves, bounded connections, bounded handshakes and silences. What
//! is served over a connection may depend on who has made it.

mod activity;
mod identity;
mod places;
pub(crate) mod spoken;
#[cfg(test)]
mod tests;

use std::{sync::Arc, time::Duration};

use activity::Activity;
use arc_swap::ArcSwap;
use axum::{Router, extract::Request, middleware};
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::conn::auto,
    service::TowerToHyperService,
};
use rustls::{
    ServerConfig, ServerConnection,
    server::{ClientHello, ResolvesServerCert},
    sign::CertifiedKey,
};
use switchyard_config::Tls;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
    task::JoinSet,
    time::Instant,
};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

pub(crate) use identity::Identity;
use places::{Place, Places};

/// Connections at once. API servers keep a few open; more is somebody else.
const CONNECTIONS: usize = 256;
/// Connections at once of one address, which several API servers may share.
const OF_A_SOURCE: usize = 64;
/// How long a connection that loses its place may take to end.
const LEAVE: Duration = Duration::from_millis(100);
/// How long a handshake, and the headers of a request, may take.
const HANDSHAKE: Duration = Duration::from_secs(5);
/// How often an idle connection is asked whether it lives.
const KEEP_ALIVE: Duration = Duration::from_secs(30);
/// How long open requests may take after the shutdown.
const DRAIN: Duration = Duration::from_secs(5);
/// After an error of `accept` (no file descriptors left), wait before the next.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// What a server serves.
pub(crate) trait Site: Send + Sync + 'static {
    /// Its name, for the log.
    fn name(&self) -> &'static str;
    /// How the next connection is secured.
    fn tls(&self) -> Arc<ServerConfig>;
    /// What is served over a connection.
    fn router(&self, connection: &ServerConnection) -> Router;
}

/// A site that shows everybody the same, with a certificate that can change.
pub(crate) struct Open {
    name: &'static str,
    tls: Arc<ServerConfig>,
    router: Router,
}

impl Open {
    /// # Errors
    /// When TLS cannot be set up.
    pub(crate) fn new(
        name: &'static str,
        certificate: Arc<Certificate>,
        allowed: Option<&Tls>,
        router: Router,
    ) -> Result<Self, rustls::Error> {
        Ok(Self { name, tls: Arc::new(tls(certificate, allowed)?), router })
    }
}

impl Site for Open {
    fn name(&self) -> &'static str {
        self.name
    }

    fn tls(&self) -> Arc<ServerConfig> {
        self.tls.clone()
    }

    fn router(&self, _: &ServerConnection) -> Router {
        self.router.clone()
    }
}

/// TLS that asks for no certificate of clients.
fn tls(
    certificate: Arc<Certificate>,
    allowed: Option<&Tls>,
) -> Result<ServerConfig, rustls::Error> {
    let config = spoken::server(allowed)?.with_no_client_auth().with_cert_resolver(certificate);
    Ok(with_protocols(config))
}

/// The protocols that are spoken here.
pub(crate) fn with_protocols(mut config: ServerConfig) -> ServerConfig {
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    config
}

/// The certificate that is served, exchanged without closing a connection.
#[derive(Debug)]
pub(crate) struct Certificate(ArcSwap<CertifiedKey>);

impl Certificate {
    pub(crate) fn new(key: Arc<CertifiedKey>) -> Arc<Self> {
        Arc::new(Self(ArcSwap::new(key)))
    }

    pub(crate) fn set(&self, key: Arc<CertifiedKey>) {
        self.0.store(key);
    }

    #[cfg(test)]
    fn served(&self) -> Vec<rustls::pki_types::CertificateDer<'static>> {
        self.0.load().cert.clone()
    }
}

impl ResolvesServerCert for Certificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.load_full())
    }
}

/// Serves until `shutdown`, then lets open requests finish for a while.
pub(crate) async fn serve(
    listener: TcpListener,
    site: Arc<impl Site>,
    shutdown: CancellationToken,
) {
    let name = site.name();
    let connection = |stream: TcpStream, held: Held| {
        let site = site.clone();
        async move {
            let Held { place, activity, shutdown } = held;
            over(&*site, stream, activity, place.taken.clone(), shutdown).await;
        }
    };
    accept(listener, name, shutdown, connection).await;
}

/// The same without TLS, for the probes' port.
pub(crate) async fn serve_plain(
    listener: TcpListener,
    name: &'static str,
    router: Router,
    shutdown: CancellationToken,
) {
    let connection = |stream: TcpStream, held: Held| {
        let router = router.clone();
        async move {
            let Held { place, activity, shutdown } = held;
            speak(name, router, stream, activity, place.taken.clone(), shutdown).await;
        }
    };
    accept(listener, name, shutdown, connection).await;
}

/// Held by a connection until it ends: its place, its activity, and the signal to shut down.
struct Held {
    place: Place,
    activity: Arc<Activity>,
    shutdown: CancellationToken,
}

/// Gives each connection a place, until `shutdown`.
async fn accept<F>(
    listener: TcpListener,
    site: &'static str,
    shutdown: CancellationToken,
    connection: impl Fn(TcpStream, Held) -> F,
) where
    F: Future<Output = ()> + Send + 'static,
{
    let places = Places::new(CONNECTIONS, OF_A_SOURCE);
    let mut connections = JoinSet::new();
    loop {
        let (stream, source) = tokio::select! {
            biased;
            () = shutdown.cancelled() => break,
            Some(_) = connections.join_next() => continue,
            accepted = listener.accept() => match accepted {
                Ok((stream, address)) => (stream, address.ip()),
                Err(error) => {
                    tracing::warn!(%error, site, "connection not accepted");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            },
        };
        // A refused option only costs a little latency.
        let _ = stream.set_nodelay(true);
        let activity = Activity::new(Instant::now());
        // Taken here, in the order of arrival.
        let place = places.enter(source, activity.clone());
        connections.spawn(connection(stream, Held { place, activity, shutdown: shutdown.clone() }));
    }
    let drained = async { while connections.join_next().await.is_some() {} };
    if tokio::time::timeout(DRAIN, drained).await.is_err() {
        tracing::warn!(site, "connections cut off at shutdown");
    }
}

/// Serves over a connection with TLS until its peer ends it, the shutdown, too long a silence, or the loss of its place.
async fn over<S>(
    site: &impl Site,
    stream: S,
    activity: Arc<Activity>,
    taken: CancellationToken,
    shutdown: CancellationToken,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let acceptor = TlsAcceptor::from(site.tls());
    let shaken = tokio::select! {
        () = taken.cancelled() => return tracing::debug!(site = site.name(), "too many connections, this one was closed"),
        shaken = tokio::time::timeout(HANDSHAKE, acceptor.accept(stream)) => shaken,
    };
    let stream = match shaken {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => return tracing::debug!(%error, site = site.name(), "handshake failed"),
        Err(_) => return tracing::debug!(site = site.name(), "handshake timed out"),
    };
    activity.begins(Instant::now());
    let router = site.router(stream.get_ref().1);
    speak(site.name(), router, stream, activity, taken, shutdown).await;
}

/// Serves HTTP over a stream that is secured as far as it is to be.
async fn speak<S>(
    site: &'static str,
    router: Router,
    stream: S,
    activity: Arc<Activity>,
    taken: CancellationToken,
    shutdown: CancellationToken,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let router = noted(router, activity.clone());
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(HANDSHAKE);
    builder
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(KEEP_ALIVE)
        .keep_alive_timeout(HANDSHAKE);
    let serving = builder.serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    let mut serving = std::pin::pin!(serving);
    let served = tokio::select! {
        served = serving.as_mut() => served,
        () = shutdown.cancelled() => {
            serving.as_mut().graceful_shutdown();
            serving.await
        }
        () = taken.cancelled() => {
            serving.as_mut().graceful_shutdown();
            tokio::time::timeout(LEAVE, serving).await.unwrap_or(Ok(()))
        }
        () = activity.over() => {
            serving.as_mut().graceful_shutdown();
            // A peer that does not even take its leave is left.
            tokio::time::timeout(HANDSHAKE, serving).await.unwrap_or(Ok(()))
        }
    };
    if let Err(error) = served {
        tracing::debug!(%error, site, "connection broke");
    }
}

/// Notes what is asked of a router.
fn noted(router: Router, activity: Arc<Activity>) -> Router {
    router.layer(middleware::from_fn(move |request: Request, next: middleware::Next| {
        let busy = activity.begin();
        async move {
            let answer = next.run(request).await;
            drop(busy);
            answer
        }
    }))
}
