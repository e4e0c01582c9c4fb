//! A TCP proxy that spreads connections over several backends in turn, as a Kubernetes Service does.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::Context;
use parking_lot::Mutex;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};

/// The proxy. Dropping it ends its connections.
#[derive(Debug)]
pub struct Forward {
    address: SocketAddr,
    backends: Backends,
    serving: JoinHandle<()>,
}

type Backends = Arc<Mutex<Vec<SocketAddr>>>;

impl Forward {
    /// A connection is passed to the first of `tries` backends that accepts it.
    pub(crate) async fn open(
        address: SocketAddr,
        backends: Vec<SocketAddr>,
        tries: usize,
    ) -> anyhow::Result<Self> {
        let listener = TcpListener::bind(address)
            .await
            .with_context(|| format!("cannot listen on {address}"))?;
        let address = listener.local_addr()?;
        let backends: Backends = Arc::new(Mutex::new(backends));
        let serving = tokio::spawn(serve(listener, Arc::clone(&backends), tries));
        Ok(Self { address, backends, serving })
    }

    /// A proxy on a free loopback port. Each connection goes to the first backend that accepts it.
    ///
    /// # Errors
    /// If no port is free.
    pub async fn local(backends: &[u16]) -> anyhow::Result<Self> {
        let local = |port: u16| SocketAddr::from(([127, 0, 0, 1], port));
        let addresses = backends.iter().map(|port| local(*port)).collect();
        Self::open(local(crate::ports::free()?), addresses, backends.len()).await
    }

    /// The port of the proxy.
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// Replaces the backends for new connections.
    pub(crate) fn lead_to(&self, backends: Vec<SocketAddr>) {
        *self.backends.lock() = backends;
    }
}

impl Drop for Forward {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

async fn serve(listener: TcpListener, backends: Backends, tries: usize) {
    let next = AtomicUsize::new(0);
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => if let Ok((caller, _)) = accepted {
                let mut backends = backends.lock().clone();
                let first = next.fetch_add(1, Ordering::Relaxed) % backends.len().max(1);
                backends.rotate_left(first);
                backends.truncate(tries);
                connections.spawn(pass(caller, backends));
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn pass(mut caller: TcpStream, backends: Vec<SocketAddr>) {
    for backend in backends {
        if let Ok(mut backend) = TcpStream::connect(backend).await {
            let _ = (caller.set_nodelay(true), backend.set_nodelay(true));
            // Either end may close it at any time.
            let _ = tokio::io::copy_bidirectional(&mut caller, &mut backend).await;
            return;
        }
    }
}
