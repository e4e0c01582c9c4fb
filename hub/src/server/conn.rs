//! A TLS connection with what its certificate says.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use jiff::Timestamp;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;
use tokio_rustls::server::TlsStream;
use tokio_util::sync::WaitForCancellationFutureOwned;
use tonic::transport::server::Connected;

use super::connection_limit::Place;
use super::gate::Refusal;
use switchyard_hub_pki::ClusterIdentity;
use switchyard_hub_pki::ca::{identity_of, not_after};

/// Who is at the other end, as handlers see it.
#[derive(Debug, Clone)]
pub struct Peer {
    /// From its certificate, which our authority has signed; none if it showed none.
    pub identity: Option<Arc<ClusterIdentity>>,
    /// When that certificate ends. A connection may last longer.
    pub not_after: Option<Timestamp>,
    /// For the log.
    pub address: SocketAddr,
}

impl Peer {
    pub(super) fn of<Io>(io: &TlsStream<Io>, address: SocketAddr) -> Self {
        let certificate = io.get_ref().1.peer_certificates().and_then(|chain| chain.first());
        let identity = certificate.and_then(identity_of).map(Arc::new);
        Self { identity, not_after: certificate.and_then(not_after), address }
    }

    /// Who calls now, on a connection that may be old.
    ///
    /// # Errors
    /// No certificate, or one that has ended meanwhile.
    pub(super) fn caller(&self, now: Timestamp) -> Result<Arc<ClusterIdentity>, Refusal> {
        let identity = self.identity.clone().ok_or(Refusal::NoCertificate)?;
        match self.not_after {
            Some(not_after) if now < not_after => Ok(identity),
            _ => Err(Refusal::Ended(self.not_after.unwrap_or_default())),
        }
    }
}

/// A connection after its handshake.
pub(super) struct Conn<Io> {
    io: TlsStream<Io>,
    peer: Peer,
    /// Of a connection without a certificate.
    ends: Option<Pin<Box<Sleep>>>,
    /// A younger connection has got our place.
    taken: Pin<Box<WaitForCancellationFutureOwned>>,
    /// Free again when this is dropped.
    _place: Place,
}

impl<Io> Conn<Io> {
    pub(super) fn new(
        io: TlsStream<Io>,
        peer: Peer,
        unauthenticated: Duration,
        place: Place,
    ) -> Self {
        let ends = peer.identity.is_none().then(|| Box::pin(tokio::time::sleep(unauthenticated)));
        Self { io, peer, ends, taken: Box::pin(place.taken().cancelled_owned()), _place: place }
    }
}

impl<Io> Connected for Conn<Io> {
    type ConnectInfo = Peer;

    fn connect_info(&self) -> Peer {
        self.peer.clone()
    }
}

impl<Io: AsyncRead + AsyncWrite + Unpin> AsyncRead for Conn<Io> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if let Some(ends) = &mut self.ends
            && ends.as_mut().poll(cx).is_ready()
        {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        if self.taken.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
        }
        Pin::new(&mut self.io).poll_read(cx, buf)
    }
}

impl<Io: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Conn<Io> {
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
