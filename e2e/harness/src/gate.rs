//! A TCP proxy that can be shut, to fault the network between a hub and a worker.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

/// Buffered bytes of one direction of a connection.
const BUFFER: usize = 16 * 1024;

/// Connections to one address. Dropping it ends them.
#[derive(Debug)]
pub struct Gate {
    port: u16,
    state: Arc<Mutex<State>>,
    mute: watch::Sender<bool>,
    accepting: JoinHandle<()>,
}

#[derive(Debug, Default)]
struct State {
    shut: bool,
    /// Dropping them ends the connections.
    connections: JoinSet<()>,
}

impl Gate {
    /// A gate to `address`, as `host:port`.
    ///
    /// # Errors
    /// When no port can be listened on.
    pub async fn open(address: &str) -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let port = listener.local_addr()?.port();
        let state = Arc::new(Mutex::new(State::default()));
        let mute = watch::Sender::new(false);
        let (shared, muted, address) = (state.clone(), mute.subscribe(), address.to_owned());
        let accepting = tokio::spawn(async move {
            while let Ok((caller, _)) = listener.accept().await {
                let (address, muted) = (address.clone(), muted.clone());
                let mut state = shared.lock();
                // Ended connections need not be kept.
                while state.connections.try_join_next().is_some() {}
                if !state.shut {
                    state.connections.spawn(pass(caller, address, muted));
                }
            }
        });
        Ok(Self { port, state, mute, accepting })
    }

    /// The address to dial instead.
    #[must_use]
    pub fn address(&self) -> String {
        format!("https://127.0.0.1:{}", self.port)
    }

    /// Closes all connections, and each new one at once. Both ends notice it.
    pub fn shut(&self) {
        let mut state = self.state.lock();
        state.shut = true;
        state.connections = JoinSet::new();
    }

    /// Lets connections through again.
    pub fn unshut(&self) {
        self.state.lock().shut = false;
    }

    /// Holds back all data in both directions, and leaves the connections open, as when packets are lost.
    pub fn mute(&self) {
        self.mute.send_replace(true);
    }

    /// Passes on the data held back, and all later data.
    pub fn unmute(&self) {
        self.mute.send_replace(false);
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn pass(caller: TcpStream, address: String, muted: watch::Receiver<bool>) {
    let Ok(callee) = TcpStream::connect(address).await else { return };
    let _ = (caller.set_nodelay(true), callee.set_nodelay(true));
    let ((from, to), (back_from, back_to)) = (caller.into_split(), callee.into_split());
    let there = carry(from, back_to, muted.clone());
    tokio::join!(there, carry(back_from, to, muted));
}

/// Carries one direction until either end closes it.
async fn carry(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    mut muted: watch::Receiver<bool>,
) {
    let mut buffer = vec![0; BUFFER];
    loop {
        let read = from.read(&mut buffer).await.unwrap_or(0);
        if muted.wait_for(|muted| !muted).await.is_err() {
            return;
        }
        let bytes = buffer.get(..read).unwrap_or_default();
        if bytes.is_empty() || to.write_all(bytes).await.is_err() {
            let _ = to.shutdown().await;
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const WAIT: Duration = Duration::from_secs(20);

    /// Something behind a gate that sends back what it gets, and a connection to it.
    async fn connected() -> (Gate, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let gate = Gate::open(&listener.local_addr().unwrap().to_string()).await.unwrap();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                tokio::spawn(async move {
                    let (mut from, mut to) = stream.split();
                    let _ = tokio::io::copy(&mut from, &mut to).await;
                });
            }
        });
        let stream = TcpStream::connect(("127.0.0.1", gate.port)).await.unwrap();
        (gate, stream)
    }

    async fn echo(stream: &mut TcpStream, byte: u8) -> Option<u8> {
        stream.write_all(&[byte]).await.ok()?;
        heard(stream).await
    }

    async fn heard(stream: &mut TcpStream) -> Option<u8> {
        let mut back = [0];
        tokio::time::timeout(WAIT, stream.read_exact(&mut back))
            .await
            .unwrap()
            .ok()
            .map(|_| back[0])
    }

    #[tokio::test]
    async fn shut_it_ends_connections_and_unshut_it_takes_new_ones() {
        let (gate, mut stream) = connected().await;
        assert_eq!(echo(&mut stream, 1).await, Some(1));
        gate.shut();
        assert_eq!(heard(&mut stream).await, None);
        let mut refused = TcpStream::connect(("127.0.0.1", gate.port)).await.unwrap();
        assert_eq!(heard(&mut refused).await, None);
        gate.unshut();
        let mut again = TcpStream::connect(("127.0.0.1", gate.port)).await.unwrap();
        assert_eq!(echo(&mut again, 2).await, Some(2));
    }

    #[tokio::test]
    async fn mute_it_keeps_connections_and_what_they_carry_until_later() {
        let (gate, mut stream) = connected().await;
        assert_eq!(echo(&mut stream, 1).await, Some(1));
        gate.mute();
        stream.write_all(&[2]).await.unwrap();
        let silence = tokio::time::timeout(Duration::from_millis(200), stream.read_u8()).await;
        assert!(silence.is_err(), "heard {silence:?}");
        gate.unmute();
        assert_eq!(heard(&mut stream).await, Some(2));
    }
}
