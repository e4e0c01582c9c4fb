//! How an agent reaches its hub: where it is, what carries the bytes, and the clock by which certificates are judged.
//! Tests put a network of their own in the place of TCP.

use std::io;
use std::sync::Arc;

use futures::future::BoxFuture;
use switchyard_platform::clock::{Clock, SystemClock};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

use crate::tls::HubAddress;

/// Bytes both ways.
pub trait Io: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Io for T {}

/// Opens connections.
pub trait Dial: Send + Sync {
    /// A connection to a host's port. Whoever calls has a deadline.
    fn dial<'a>(&'a self, host: &'a str, port: u16) -> BoxFuture<'a, io::Result<Box<dyn Io>>>;
}

/// TCP.
#[derive(Debug, Clone, Copy, Default)]
pub struct Tcp;

impl Dial for Tcp {
    fn dial<'a>(&'a self, host: &'a str, port: u16) -> BoxFuture<'a, io::Result<Box<dyn Io>>> {
        Box::pin(async move {
            let stream = TcpStream::connect((host, port)).await?;
            stream.set_nodelay(true)?;
            Ok(Box::new(stream) as Box<dyn Io>)
        })
    }
}

/// The way to the hub.
#[derive(Clone)]
pub struct Route {
    /// Where it is.
    pub hub: HubAddress,
    /// What carries the bytes.
    pub dial: Arc<dyn Dial>,
    /// Judges certificates, and says when ours is to be renewed.
    pub clock: Arc<dyn Clock>,
}

impl From<HubAddress> for Route {
    /// By TCP and the machine's clock.
    fn from(hub: HubAddress) -> Self {
        Self { hub, dial: Arc::new(Tcp), clock: Arc::new(SystemClock) }
    }
}
