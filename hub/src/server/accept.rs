//! The listener: connections as they come, TLS in a task of its own, then gRPC.

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

use super::agent::AgentService;
use super::conn::{Conn, Peer};
use super::connection_limit::Places;
use super::enrolment::EnrolmentService;
use super::{Settings, TlsKeeper};
use crate::limits::MAX_AGENT_MESSAGE;

/// Tokens and signing requests are small.
const ENROLMENT_MESSAGE: usize = 64 * 1024;
/// Connections with their handshake done that wait to be taken over.
const READY: usize = 64;
/// Calls at once on one connection: an agent has a session, and renews its certificate.
const STREAMS: u32 = 2;

/// What is served.
pub struct Services {
    /// Enrolment.
    pub enrolment: EnrolmentService,
    /// Sessions.
    pub agent: AgentService,
}

/// Where connections come from: a TCP listener, or what stands for one.
pub trait Listen: Send {
    /// One connection.
    type Io: AsyncRead + AsyncWrite + Send + Unpin + 'static;

    /// The next connection, and whose it is.
    fn accept(&mut self) -> impl Future<Output = io::Result<(Self::Io, SocketAddr)>> + Send;
}

impl Listen for TcpListener {
    type Io = TcpStream;

    async fn accept(&mut self) -> io::Result<(TcpStream, SocketAddr)> {
        let (stream, address) = Self::accept(self).await?;
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(peer = %address, %error, "no TCP_NODELAY");
        }
        Ok((stream, address))
    }
}

/// Serves until shutdown.
///
/// # Errors
/// When the HTTP server ends by itself.
pub async fn serve<L: Listen>(
    listener: L,
    tls: Arc<TlsKeeper>,
    services: Services,
    settings: Settings,
    shutdown: CancellationToken,
) -> anyhow::Result<()> {
    let (ready, incoming) = mpsc::channel::<Result<Conn<L::Io>, io::Error>>(READY);
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

/// Accepts for ever. Never waits for a caller.
async fn accept<L: Listen>(
    mut listener: L,
    tls: Arc<TlsKeeper>,
    ready: mpsc::Sender<Result<Conn<L::Io>, io::Error>>,
    settings: Settings,
) {
    let places = Places::new(settings.newcomers, settings.of_a_source, settings.of_a_cluster);
    loop {
        let (io, address) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                // Out of file descriptors, mostly: let some go first.
                tracing::warn!(%error, "accepting a connection failed");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let (tls, ready, settings, places) =
            (tls.clone(), ready.clone(), settings.clone(), places.clone());
        // Taken here, in the order of arrival.
        let place = places.newcomer(address.ip());
        tokio::spawn(async move {
            let taken = place.taken();
            let shaken = tokio::select! {
                () = taken.cancelled() => return tracing::debug!(peer = %address, "too many newcomers, this one was closed"),
                shaken = tokio::time::timeout(settings.handshake, handshake(io, tls.current())) => shaken,
            };
            match shaken {
                Ok(Ok(io)) => {
                    let peer = Peer::of(&io, address);
                    let place = match &peer.identity {
                        Some(identity) => places.of(&identity.uid),
                        None => place,
                    };
                    let conn = Conn::new(io, peer, settings.unauthenticated, place);
                    // Closed only when the server ends.
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
