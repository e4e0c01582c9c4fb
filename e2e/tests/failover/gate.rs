//! A TCP proxy that can be shut: the network between an agent and its hub.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};

/// Connections to one address.
pub(crate) struct Gate {
    port: u16,
    state: Arc<Mutex<State>>,
    accepting: JoinHandle<()>,
}

#[derive(Default)]
struct State {
    shut: bool,
    /// They end when they are dropped.
    connections: JoinSet<()>,
}

impl Gate {
    /// One that leads to `address`.
    pub(crate) async fn open(address: &str) -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let port = listener.local_addr()?.port();
        let state = Arc::new(Mutex::new(State::default()));
        let (shared, address) = (state.clone(), address.to_owned());
        let accepting = tokio::spawn(async move {
            while let Ok((agent, _)) = listener.accept().await {
                let address = address.clone();
                let mut state = shared.lock().unwrap_or_else(PoisonError::into_inner);
                if !state.shut {
                    state.connections.spawn(pass(agent, address));
                }
            }
        });
        Ok(Self { port, state, accepting })
    }

    /// Where the agent dials.
    pub(crate) fn address(&self) -> String {
        format!("https://127.0.0.1:{}", self.port)
    }

    /// Ends all connections, and lets no other through.
    pub(crate) fn shut(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.shut = true;
        state.connections = JoinSet::new();
    }

    /// Lets connections through again.
    pub(crate) fn unshut(&self) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).shut = false;
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn pass(mut agent: TcpStream, address: String) {
    if let Ok(mut hub) = TcpStream::connect(address).await {
        // Either end may close it at any time.
        let _ = tokio::io::copy_bidirectional(&mut agent, &mut hub).await;
    }
}
