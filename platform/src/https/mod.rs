//! HTTPS servers, and the plain HTTP server of the probes.
//!
//! - The certificate can be replaced while serving.
//! - Connections, handshakes and idle times are bounded.
//! - A site may serve each connection another router, by the client's certificate.

mod activity;
mod connection_slots;
mod server_certificate;
#[cfg(test)]
mod tests;
pub mod tls_policy;

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
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
    task::JoinSet,
    time::Instant,
};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use connection_slots::{ConnectionSlot, ConnectionSlots};
pub use server_certificate::ServerCertificate;
pub use tls_policy::TlsPolicy;

/// Concurrent connections. API servers keep a few open.
const CONNECTIONS: usize = 256;
/// Concurrent connections of one address. Several API servers may share it.
const PER_ADDRESS: usize = 64;
/// How long an evicted connection may take to close.
const LEAVE: Duration = Duration::from_millis(100);
/// Deadline of a handshake, and of a request's headers.
const HANDSHAKE: Duration = Duration::from_secs(5);
/// Interval of keep-alive pings on idle connections.
const KEEP_ALIVE: Duration = Duration::from_secs(30);
/// How long open requests may take after the shutdown.
const DRAIN: Duration = Duration::from_secs(5);
/// Pause after a failed `accept`, for example without free file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// The content of a server.
pub trait Site: Send + Sync + 'static {
    /// The site's name in the log.
    fn name(&self) -> &'static str;
    /// TLS configuration of the next connection.
    fn tls(&self) -> Arc<ServerConfig>;
    /// The router for a connection.
    fn router(&self, connection: &ServerConnection) -> Router;
}

/// A site that serves every client the same.
pub struct Open {
    name: &'static str,
    tls: Arc<ServerConfig>,
    router: Router,
}

impl Open {
    /// # Errors
    ///
    /// When TLS cannot be set up.
    pub fn new(
        name: &'static str,
        certificate: Arc<Certificate>,
        policy: &TlsPolicy,
        router: Router,
    ) -> Result<Self, rustls::Error> {
        Ok(Self { name, tls: Arc::new(tls(certificate, policy)?), router })
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

/// TLS without client certificates.
fn tls(certificate: Arc<Certificate>, policy: &TlsPolicy) -> Result<ServerConfig, rustls::Error> {
    let config = tls_policy::server(policy)?.with_no_client_auth().with_cert_resolver(certificate);
    Ok(with_protocols(config))
}

/// Offers HTTP/2 and HTTP/1.1.
pub fn with_protocols(mut config: ServerConfig) -> ServerConfig {
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    config
}

/// The served certificate. It can be replaced without closing connections.
#[derive(Debug)]
pub struct Certificate(ArcSwap<CertifiedKey>);

impl Certificate {
    pub fn new(key: Arc<CertifiedKey>) -> Arc<Self> {
        Arc::new(Self(ArcSwap::new(key)))
    }

    pub fn set(&self, key: Arc<CertifiedKey>) {
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

/// Serves until `shutdown`, then lets open requests finish.
pub async fn serve(listener: TcpListener, site: Arc<impl Site>, shutdown: CancellationToken) {
    let name = site.name();
    let connection = |stream: TcpStream, held: ConnectionGuard| {
        let site = site.clone();
        async move {
            let ConnectionGuard { slot, activity, shutdown } = held;
            serve_tls(&*site, stream, activity, slot.taken.clone(), shutdown).await;
        }
    };
    accept(listener, name, shutdown, connection).await;
}

/// Serves without TLS, for the probes' port.
pub async fn serve_plain(
    listener: TcpListener,
    name: &'static str,
    router: Router,
    shutdown: CancellationToken,
) {
    let connection = |stream: TcpStream, held: ConnectionGuard| {
        let router = router.clone();
        async move {
            let ConnectionGuard { slot, activity, shutdown } = held;
            serve_http(name, router, stream, activity, slot.taken.clone(), shutdown).await;
        }
    };
    accept(listener, name, shutdown, connection).await;
}

/// Serves a port that every pod of the cluster can reach: total connections, connections of one
/// address and idle times are bounded.
///
/// # Errors
///
/// When the listener does not work.
pub async fn serve_bounded(
    listener: std::net::TcpListener,
    router: Router,
    shutdown: CancellationToken,
) -> anyhow::Result<()> {
    listener.set_nonblocking(true)?;
    serve_plain(TcpListener::from_std(listener)?, "probes", router, shutdown).await;
    Ok(())
}

/// The resources of a connection.
struct ConnectionGuard {
    slot: ConnectionSlot,
    activity: Arc<Activity>,
    shutdown: CancellationToken,
}

/// Accepts connections and gives each a slot, until `shutdown`.
async fn accept<F>(
    listener: TcpListener,
    site: &'static str,
    shutdown: CancellationToken,
    connection: impl Fn(TcpStream, ConnectionGuard) -> F,
) where
    F: Future<Output = ()> + Send + 'static,
{
    let slots = ConnectionSlots::new(CONNECTIONS, PER_ADDRESS);
    let mut connections = JoinSet::new();
    loop {
        let (stream, source) = tokio::select! {
            biased;
            () = shutdown.cancelled() => break,
            Some(_) = connections.join_next() => continue,
            accepted = listener.accept() => match accepted {
                Ok((stream, address)) => (stream, address.ip().to_canonical()),
                Err(error) => {
                    tracing::warn!(%error, site, "connection not accepted");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            },
        };
        // Without the option only latency suffers.
        let _ = stream.set_nodelay(true);
        let activity = Activity::new(Instant::now());
        // Taken here, so that slots go in the order of arrival.
        let slot = slots.enter(source, activity.clone());
        connections.spawn(connection(
            stream,
            ConnectionGuard { slot, activity, shutdown: shutdown.clone() },
        ));
    }
    let drained = async { while connections.join_next().await.is_some() {} };
    if tokio::time::timeout(DRAIN, drained).await.is_err() {
        tracing::warn!(site, "connections cut off at shutdown");
    }
}

/// Serves a TLS connection until the client closes it, the shutdown, the idle timeout, or eviction.
async fn serve_tls<S>(
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
    activity.handshake_done(Instant::now());
    let router = site.router(stream.get_ref().1);
    serve_http(site.name(), router, stream, activity, taken, shutdown).await;
}

/// Serves HTTP over a stream, with or without TLS.
async fn serve_http<S>(
    site: &'static str,
    router: Router,
    stream: S,
    activity: Arc<Activity>,
    taken: CancellationToken,
    shutdown: CancellationToken,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let router = track_requests(router, activity.clone());
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
        () = activity.idle() => {
            serving.as_mut().graceful_shutdown();
            // The client does not even answer the GOAWAY.
            tokio::time::timeout(HANDSHAKE, serving).await.unwrap_or(Ok(()))
        }
    };
    if let Err(error) = served {
        tracing::debug!(%error, site, "connection broke");
    }
}

/// Records a router's requests in `activity`.
fn track_requests(router: Router, activity: Arc<Activity>) -> Router {
    router.layer(middleware::from_fn(move |request: Request, next: middleware::Next| {
        let busy = activity.start_request();
        async move {
            let answer = next.run(request).await;
            drop(busy);
            answer
        }
    }))
}
