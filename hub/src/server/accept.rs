//! The listener: TCP, TLS in a task of its own, then gRPC.

use std::sync::Arc;

use switchyard_proto::MAX_MESSAGE;
use switchyard_proto::v1::agent_server::AgentServer;
use switchyard_proto::v1::enrolment_server::EnrolmentServer;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc};
use tokio_rustls::TlsAcceptor;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic::transport::Server;

use super::agent::AgentService;
use super::conn::Conn;
use super::enrolment::EnrolmentService;
use super::{Settings, TlsKeeper};

/// Tokens and signing requests are small.
const ENROLMENT_MESSAGE: usize = 64 * 1024;
/// Connections with their handshake done that wait to be taken over.
const READY: usize = 64;

/// What is served.
pub struct Services {
    /// Enrolment.
    pub enrolment: EnrolmentService,
    /// Sessions.
    pub agent: AgentService,
}

/// Serves until shutdown.
///
/// # Errors
/// When the HTTP server ends by itself.
pub async fn serve(
    listener: TcpListener,
    tls: Arc<TlsKeeper>,
    services: Services,
    settings: Settings,
    shutdown: CancellationToken,
) -> anyhow::Result<()> {
    let (ready, incoming) = mpsc::channel::<Result<Conn, std::io::Error>>(READY);
    let keepalive = settings.ping_interval * 2;
    let server = Server::builder()
        .http2_keepalive_interval(Some(keepalive))
        .http2_keepalive_timeout(Some(settings.ping_timeout * 2))
        .max_concurrent_streams(8)
        .http2_max_header_list_size(16 * 1024)
        .max_frame_size(64 * 1024)
        .add_service(EnrolmentServer::new(services.enrolment).max_decoding_message_size(ENROLMENT_MESSAGE))
        .add_service(
            AgentServer::new(services.agent)
                .max_decoding_message_size(MAX_MESSAGE)
                .max_encoding_message_size(MAX_MESSAGE),
        )
        .serve_with_incoming_shutdown(ReceiverStream::new(incoming), shutdown.clone().cancelled_owned());
    let renewing = shutdown.clone();
    tokio::select! {
        served = server => served.map_err(Into::into),
        () = accept(listener, tls.clone(), ready, settings) => Ok(()),
        () = tls.renew(&renewing) => Ok(()),
    }
}

/// Accepts for ever. Never waits for a caller.
async fn accept(
    listener: TcpListener,
    tls: Arc<TlsKeeper>,
    ready: mpsc::Sender<Result<Conn, std::io::Error>>,
    settings: Settings,
) {
    let places = Arc::new(Semaphore::new(settings.connections));
    loop {
        let (tcp, address) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                // Out of file descriptors, mostly: let some go first.
                tracing::warn!(%error, "accepting a connection failed");
                tokio::time::sleep(std::time::Duration::from_millis(100)).await;
                continue;
            }
        };
        let Ok(place) = places.clone().try_acquire_owned() else {
            tracing::warn!(peer = %address, limit = settings.connections, "too many connections, closing this one");
            continue;
        };
        let (tls, ready, settings) = (tls.current(), ready.clone(), settings.clone());
        tokio::spawn(async move {
            if let Err(error) = tcp.set_nodelay(true) {
                tracing::debug!(peer = %address, %error, "no TCP_NODELAY");
            }
            match tokio::time::timeout(settings.handshake, handshake(tcp, tls)).await {
                Ok(Ok(io)) => {
                    let conn = Conn::new(io, address, settings.unauthenticated, place);
                    // Closed only when the server ends.
                    let _ = ready.send(Ok(conn)).await;
                }
                Ok(Err(error)) => tracing::info!(peer = %address, %error, "TLS handshake refused"),
                Err(_) => tracing::info!(peer = %address, "TLS handshake took too long"),
            }
        });
    }
}

async fn handshake(
    tcp: TcpStream,
    config: Arc<rustls::ServerConfig>,
) -> std::io::Result<tokio_rustls::server::TlsStream<TcpStream>> {
    TlsAcceptor::from(config).accept(tcp).await
}
