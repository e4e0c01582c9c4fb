//! How an agent reaches its hub: the address, the transport, and the clock that validates
//! certificates. Tests replace TCP by a network of their own.

use std::io;
use std::sync::Arc;

use futures::future::BoxFuture;
use switchyard_platform::clock::{Clock, SystemClock};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

use crate::hub_address::HubAddress;

/// A bidirectional byte stream.
pub trait Io: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Io for T {}

/// Opens connections.
pub trait Dial: Send + Sync {
    /// Connects to a host and port. The caller sets a deadline.
    fn dial<'a>(&'a self, host: &'a str, port: u16) -> BoxFuture<'a, io::Result<Box<dyn Io>>>;
}

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
    pub hub: HubAddress,
    pub dial: Arc<dyn Dial>,
    /// Validates certificates, and decides when the agent renews its own.
    pub clock: Arc<dyn Clock>,
}

impl From<HubAddress> for Route {
    /// Uses TCP and the system clock.
    fn from(hub: HubAddress) -> Self {
        Self { hub, dial: Arc::new(Tcp), clock: Arc::new(SystemClock) }
    }
}
