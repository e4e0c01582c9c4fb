//! A loopback port that leads to several others, as a Kubernetes Service does: each connection goes to the next that
//! answers.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};

/// The port. Dropping it ends all that goes through it.
#[derive(Debug)]
pub(crate) struct Service {
    port: u16,
    serving: JoinHandle<()>,
}

impl Service {
    pub(crate) async fn open(backends: [u16; 2]) -> anyhow::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", crate::ports::free()?)).await?;
        let port = listener.local_addr()?.port();
        let next = Arc::new(AtomicUsize::new(0));
        let serving = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                tokio::select! {
                    accepted = listener.accept() => if let Ok((caller, _)) = accepted {
                        let first = next.fetch_add(1, Ordering::Relaxed);
                        connections.spawn(pass(caller, backends, first));
                    },
                    Some(_) = connections.join_next() => {}
                }
            }
        });
        Ok(Self { port, serving })
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

async fn pass(mut caller: TcpStream, backends: [u16; 2], first: usize) {
    for turn in 0..backends.len() {
        let Some(port) = backends.get((first + turn) % backends.len()) else { return };
        if let Ok(mut backend) = TcpStream::connect(("127.0.0.1", *port)).await {
            let _ = (caller.set_nodelay(true), backend.set_nodelay(true));
            // Either end may close it at any time.
            let _ = tokio::io::copy_bidirectional(&mut caller, &mut backend).await;
            return;
        }
    }
}
