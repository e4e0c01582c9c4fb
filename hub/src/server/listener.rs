//! Accepts agents' connections: each TLS handshake in a task of its own, then gRPC.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use switchyard_proto::MAX_MESSAGE;
use switchyard_proto::v1::agent_server::AgentServer;
use switchyard_proto::v1::enrolment_server::EnrolmentServer;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic::transport::Server;

use super::agent_connection::{AgentConnection, Peer};
use super::agent_service::AgentService;
use super::connection_limit::ConnectionLimiter;
use super::enrolment::EnrolmentService;
use super::{ListenerTls, ServerSettings};
use crate::limits::MAX_AGENT_MESSAGE;

/// Largest enrolment message, in bytes: a token and a signing request.
const ENROLMENT_MESSAGE: usize = 64 * 1024;
/// Connections past their handshake that wait for the gRPC server.
const READY: usize = 64;
/// Concurrent calls on one connection: an agent has a session and renews its certificate.
const STREAMS: u32 = 2;

/// The gRPC services of the agents' listener.
pub struct AgentServices {
    pub enrolment: EnrolmentService,
    pub agent: AgentService,
}

/// A TCP listener, or a test's replacement for one.
pub trait Listen: Send {
    type Io: AsyncRead + AsyncWrite + Send + Unpin + 'static;

    /// The next connection, and its peer's address.
    fn accept(&mut self) -> impl Future<Output = io::Result<(Self::Io, SocketAddr)>> + Send;
}

impl Listen for TcpListener {
    type Io = TcpStream;

    async fn accept(&mut self) -> io::Result<(TcpStream, SocketAddr)> {
        let (stream, mut address) = Self::accept(self).await?;
        // A socket of both families has IPv4 peers as ::ffff:192.0.2.1.
        address.set_ip(address.ip().to_canonical());
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(peer = %address, %error, "no TCP_NODELAY");
        }
        Ok((stream, address))
    }
}

/// Serves until shutdown.
///
/// # Errors
/// The HTTP server failed.
pub async fn serve<L: Listen>(
    listener: L,
    tls: Arc<ListenerTls>,
    services: AgentServices,
    settings: ServerSettings,
    shutdown: CancellationToken,
) -> anyhow::Result<()> {
    let (ready, incoming) = mpsc::channel::<Result<AgentConnection<L::Io>, io::Error>>(READY);
    let keepalive = settings.ping_interval * 2;
    let server = Server::builder()
        .http2_keepalive_interval(Some(keepalive))
        .http2_keepalive_timeout(Some(settings.ping_timeout * 2))
        .max_concurrent_streams(STREAMS)
        .http2_max_header_list_size(16 * 1024)
        .max_frame_size(64 * 1024)
        .add_service(
            EnrolmentServer::new(services.enrolment).max_decoding_message_size(ENROLMENT_MESSAGE),
        )
        .add_service(
            AgentServer::new(services.agent)
                .max_decoding_message_size(MAX_AGENT_MESSAGE)
                .max_encoding_message_size(MAX_MESSAGE),
        )
        .serve_with_incoming_shutdown(
            ReceiverStream::new(incoming),
            shutdown.clone().cancelled_owned(),
        );
    let renewing = shutdown.clone();
    tokio::select! {
        served = server => served.map_err(Into::into),
        () = accept(listener, tls.clone(), ready, settings) => Ok(()),
        () = tls.renew(&renewing) => Ok(()),
    }
}

/// Accepts connections without end, and never waits for a caller.
async fn accept<L: Listen>(
    mut listener: L,
    tls: Arc<ListenerTls>,
    ready: mpsc::Sender<Result<AgentConnection<L::Io>, io::Error>>,
    settings: ServerSettings,
) {
    let limiter =
        ConnectionLimiter::new(settings.newcomers, settings.per_address, settings.per_cluster);
    loop {
        let (io, address) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                // The usual cause is a lack of file descriptors. Wait for connections to close.
                tracing::warn!(%error, "accepting a connection failed");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let (tls, ready, settings, limiter) =
            (tls.clone(), ready.clone(), settings.clone(), limiter.clone());
        // Taken before the task starts, so that slots follow the order of arrival.
        let slot = limiter.newcomer(address.ip());
        tokio::spawn(async move {
            let evicted = slot.evicted();
            let shaken = tokio::select! {
                () = evicted.cancelled() => return tracing::debug!(peer = %address, "too many newcomers, this one was closed"),
                shaken = tokio::time::timeout(settings.handshake, handshake(io, tls.current())) => shaken,
            };
            match shaken {
                Ok(Ok(io)) => {
                    let peer = Peer::of(&io, address);
                    let slot = match &peer.identity {
                        Some(identity) => limiter.of(&identity.uid),
                        None => slot,
                    };
                    let conn = AgentConnection::new(io, peer, settings.unauthenticated, slot);
                    // Fails only when the server has ended.
                    let _ = ready.send(Ok(conn)).await;
                }
                Ok(Err(error)) => tracing::debug!(peer = %address, %error, "TLS handshake refused"),
                Err(_) => tracing::debug!(peer = %address, "TLS handshake took too long"),
            }
        });
    }
}

async fn handshake<Io>(io: Io, config: Arc<rustls::ServerConfig>) -> io::Result<TlsStream<Io>>
where
    Io: AsyncRead + AsyncWrite + Unpin,
{
    TlsAcceptor::from(config).accept(io).await
}
