//! A TLS connection, and the identity in its client certificate.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use jiff::Timestamp;
use switchyard_hub_pki::ca::{identity_of, not_after};
use switchyard_proto::ClusterIdentity;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;
use tokio_rustls::server::TlsStream;
use tokio_util::sync::WaitForCancellationFutureOwned;
use tonic::transport::server::Connected;

use super::authorization::CallerRefusal;
use super::connection_limit::ConnectionSlot;

/// The caller at the other end of a connection, as gRPC handlers see it.
#[derive(Debug, Clone)]
pub struct Peer {
    /// From the client certificate, which the hub's CA signed. None if the client showed none.
    pub identity: Option<Arc<ClusterIdentity>>,
    /// When the client certificate expires. The connection may outlive it.
    pub not_after: Option<Timestamp>,
    pub address: SocketAddr,
}

impl Peer {
    pub(super) fn of<Io>(io: &TlsStream<Io>, address: SocketAddr) -> Self {
        let certificate = io.get_ref().1.peer_certificates().and_then(|chain| chain.first());
        let identity = certificate.and_then(identity_of).map(Arc::new);
        Self { identity, not_after: certificate.and_then(not_after), address }
    }

    /// The identity of the caller, checked again because the connection may be old.
    ///
    /// # Errors
    /// The caller showed no certificate, or it has expired.
    pub(super) fn caller(&self, now: Timestamp) -> Result<Arc<ClusterIdentity>, CallerRefusal> {
        let identity = self.identity.clone().ok_or(CallerRefusal::NoCertificate)?;
        match self.not_after {
            Some(not_after) if now < not_after => Ok(identity),
            _ => Err(CallerRefusal::Ended(self.not_after.unwrap_or_default())),
        }
    }
}

/// A connection after its TLS handshake.
pub(super) struct AgentConnection<Io> {
    io: TlsStream<Io>,
    peer: Peer,
    /// When a connection without a client certificate is closed.
    deadline: Option<Pin<Box<Sleep>>>,
    /// Resolves when the limiter gives this connection's slot to a younger one.
    evicted: Pin<Box<WaitForCancellationFutureOwned>>,
    /// Dropping it frees the slot.
    _slot: ConnectionSlot,
}

impl<Io> AgentConnection<Io> {
    pub(super) fn new(
        io: TlsStream<Io>,
        peer: Peer,
        unauthenticated: Duration,
        slot: ConnectionSlot,
    ) -> Self {
        let deadline =
            peer.identity.is_none().then(|| Box::pin(tokio::time::sleep(unauthenticated)));
        Self {
            io,
            peer,
            deadline,
            evicted: Box::pin(slot.evicted().cancelled_owned()),
            _slot: slot,
        }
    }
}

impl<Io> Connected for AgentConnection<Io> {
    type ConnectInfo = Peer;

    fn connect_info(&self) -> Peer {
        self.peer.clone()
    }
}

impl<Io: AsyncRead + AsyncWrite + Unpin> AsyncRead for AgentConnection<Io> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if let Some(deadline) = &mut self.deadline
            && deadline.as_mut().poll(cx).is_ready()
        {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        if self.evicted.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
        }
        Pin::new(&mut self.io).poll_read(cx, buf)
    }
}

impl<Io: AsyncRead + AsyncWrite + Unpin> AsyncWrite for AgentConnection<Io> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}
