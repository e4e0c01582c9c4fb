//! The HTTPS server: a certificate that can change while it serves, bounded connections, bounded requests.

use std::{sync::Arc, time::Duration};

use arc_swap::ArcSwap;
use axum::Router;
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::conn::auto,
    service::TowerToHyperService,
};
use rustls::{
    ServerConfig,
    crypto::aws_lc_rs,
    server::{ClientHello, ResolvesServerCert},
    sign::CertifiedKey,
};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::Semaphore,
    task::JoinSet,
};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

/// Connections at once. API servers keep a few open; more is somebody else.
const CONNECTIONS: usize = 256;
/// How long a handshake, and the headers of a request, may take.
const HANDSHAKE: Duration = Duration::from_secs(5);
/// How often an idle connection is asked whether it lives.
const KEEP_ALIVE: Duration = Duration::from_secs(30);
/// How long open requests may take after the shutdown.
const DRAIN: Duration = Duration::from_secs(5);
/// After an error of `accept` (no file descriptors left), wait before the next.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// The certificate that is served, exchanged without closing a connection.
#[derive(Debug)]
pub(super) struct Certificate(ArcSwap<CertifiedKey>);

impl Certificate {
    pub(super) fn new(key: Arc<CertifiedKey>) -> Arc<Self> {
        Arc::new(Self(ArcSwap::new(key)))
    }

    pub(super) fn set(&self, key: Arc<CertifiedKey>) {
        self.0.store(key);
    }
}

impl ResolvesServerCert for Certificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.load_full())
    }
}

/// Serves until `shutdown`, then lets open requests finish for a while.
///
/// # Errors
/// When TLS cannot be set up.
pub(super) async fn serve(
    listener: TcpListener,
    certificate: Arc<Certificate>,
    router: Router,
    shutdown: CancellationToken,
) -> Result<(), rustls::Error> {
    let acceptor = acceptor(certificate)?;
    let permits = Arc::new(Semaphore::new(CONNECTIONS));
    let mut connections = JoinSet::new();
    loop {
        let permit = tokio::select! {
            biased;
            () = shutdown.cancelled() => break,
            Some(_) = connections.join_next() => continue,
            permit = permits.clone().acquire_owned() => match permit { Ok(permit) => permit, Err(_) => break },
        };
        let stream = tokio::select! {
            biased;
            () = shutdown.cancelled() => break,
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => stream,
                Err(error) => {
                    tracing::warn!(%error, "webhook connection not accepted");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            },
        };
        let (acceptor, router, shutdown) = (acceptor.clone(), router.clone(), shutdown.clone());
        connections.spawn(async move {
            connection(acceptor, stream, router, shutdown).await;
            drop(permit);
        });
    }
    let drained = async { while connections.join_next().await.is_some() {} };
    if tokio::time::timeout(DRAIN, drained).await.is_err() {
        tracing::warn!("webhook connections cut off at shutdown");
    }
    Ok(())
}

fn acceptor(certificate: Arc<Certificate>) -> Result<TlsAcceptor, rustls::Error> {
    let mut config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_cert_resolver(certificate);
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

async fn connection(acceptor: TlsAcceptor, stream: TcpStream, router: Router, shutdown: CancellationToken) {
    // A refused option only costs a little latency.
    let _ = stream.set_nodelay(true);
    let stream = match tokio::time::timeout(HANDSHAKE, acceptor.accept(stream)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => return tracing::debug!(%error, "webhook handshake failed"),
        Err(_) => return tracing::debug!("webhook handshake timed out"),
    };
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(HANDSHAKE);
    builder.http2().timer(TokioTimer::new()).keep_alive_interval(KEEP_ALIVE).keep_alive_timeout(HANDSHAKE);
    let serving = builder.serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    let mut serving = std::pin::pin!(serving);
    let served = tokio::select! {
        served = serving.as_mut() => served,
        () = shutdown.cancelled() => {
            serving.as_mut().graceful_shutdown();
            serving.await
        }
    };
    if let Err(error) = served {
        tracing::debug!(%error, "webhook connection broke");
    }
}
