//! A TLS connection with what its certificate says.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Sleep;
use tokio_rustls::server::TlsStream;
use tonic::transport::server::Connected;

use crate::pki::ClusterIdentity;
use crate::pki::ca::identity_of;

/// Who is at the other end, as handlers see it.
#[derive(Debug, Clone)]
pub struct Peer {
    /// From its certificate, which our authority has signed; none if it showed none.
    pub identity: Option<Arc<ClusterIdentity>>,
    /// For the log.
    pub address: SocketAddr,
}

/// A connection after its handshake.
pub(super) struct Conn {
    io: TlsStream<TcpStream>,
    peer: Peer,
    /// Of a connection without a certificate.
    ends: Option<Pin<Box<Sleep>>>,
    /// Gives the place among the connections free when this is dropped.
    _place: OwnedSemaphorePermit,
}

impl Conn {
    pub(super) fn new(
        io: TlsStream<TcpStream>,
        address: SocketAddr,
        unauthenticated: std::time::Duration,
        place: OwnedSemaphorePermit,
    ) -> Self {
        let certificate = io.get_ref().1.peer_certificates().and_then(|chain| chain.first());
        let identity = certificate.and_then(identity_of).map(Arc::new);
        let ends = identity.is_none().then(|| Box::pin(tokio::time::sleep(unauthenticated)));
        Self { io, peer: Peer { identity, address }, ends, _place: place }
    }
}

impl Connected for Conn {
    type ConnectInfo = Peer;

    fn connect_info(&self) -> Peer {
        self.peer.clone()
    }
}

impl AsyncRead for Conn {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if let Some(ends) = &mut self.ends
            && ends.as_mut().poll(cx).is_ready()
        {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        Pin::new(&mut self.io).poll_read(cx, buf)
    }
}

impl AsyncWrite for Conn {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}
