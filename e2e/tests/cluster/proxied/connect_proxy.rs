//! An HTTP proxy that only serves CONNECT.

use std::sync::{Arc, Mutex};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{AbortHandle, JoinHandle, JoinSet};
use tokio_util::sync::CancellationToken;

/// The most bytes of a request.
const LARGEST_REQUEST: usize = 8 * 1024;

/// The proxy. Dropping it ends its connections.
pub(crate) struct ConnectProxy {
    pub(crate) port: u16,
    shared: Arc<Shared>,
    serving: JoinHandle<()>,
}

struct Shared {
    /// The only target, `HOST:PORT`, and the address behind it.
    target: String,
    backend: String,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// `USER:PASSWORD`.
    credentials: String,
    /// The status of every answer, instead of a tunnel.
    refuses: Option<&'static str>,
    /// The targets of all requests.
    targets: Vec<String>,
    /// The first bytes that each tunnel carried.
    hellos: Vec<Vec<u8>>,
    tunnels: Vec<AbortHandle>,
    stalled: CancellationToken,
}

impl ConnectProxy {
    pub(crate) async fn open(target: &str, backend: &str, credentials: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let state = State { credentials: credentials.to_owned(), ..State::default() };
        let shared = Arc::new(Shared {
            target: target.to_owned(),
            backend: backend.to_owned(),
            state: Mutex::new(state),
        });
        let serving = tokio::spawn(serve(listener, Arc::clone(&shared)));
        Self { port, shared, serving }
    }

    /// Accepts these credentials from now on.
    pub(crate) fn accept(&self, credentials: &str) {
        credentials.clone_into(&mut self.shared.state.lock().unwrap().credentials);
    }

    /// Answers requests with this status, or with tunnels again.
    pub(crate) fn refuse(&self, status: Option<&'static str>) {
        self.shared.state.lock().unwrap().refuses = status;
    }

    /// Closes all tunnels.
    pub(crate) fn cut(&self) {
        let mut state = self.shared.state.lock().unwrap();
        state.tunnels.drain(..).for_each(|tunnel| tunnel.abort());
    }

    /// Keeps all present tunnels open, and passes nothing on any more.
    pub(crate) fn stall(&self) {
        let mut state = self.shared.state.lock().unwrap();
        std::mem::take(&mut state.stalled).cancel();
    }

    /// The targets of all requests so far.
    pub(crate) fn targets(&self) -> Vec<String> {
        self.shared.state.lock().unwrap().targets.clone()
    }

    /// The first bytes in each tunnel so far.
    pub(crate) fn hellos(&self) -> Vec<Vec<u8>> {
        self.shared.state.lock().unwrap().hellos.clone()
    }
}

impl Drop for ConnectProxy {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

async fn serve(listener: TcpListener, shared: Arc<Shared>) {
    let mut tunnels = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => if let Ok((caller, _)) = accepted {
                let tunnel = tunnels.spawn(pass(caller, Arc::clone(&shared)));
                shared.state.lock().unwrap().tunnels.push(tunnel);
            },
            Some(_) = tunnels.join_next() => {}
        }
    }
}

async fn pass(mut caller: TcpStream, shared: Arc<Shared>) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") && head.len() < LARGEST_REQUEST {
        let Ok(byte) = caller.read_u8().await else { return };
        head.push(byte);
    }
    let (refusal, stalled) = shared.answer(&String::from_utf8_lossy(&head));
    if let Some(refusal) = refusal {
        let _ = caller.write_all(format!("HTTP/1.1 {refusal}\r\n\r\n").as_bytes()).await;
        return;
    }
    let mut backend = TcpStream::connect(&shared.backend).await.unwrap();
    caller.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").await.unwrap();
    let mut hello = vec![0; 4096];
    // A caller may hang up before its hello.
    let Ok(length @ 1..) = caller.read(&mut hello).await else { return };
    hello.truncate(length);
    let _ = backend.write_all(&hello).await;
    shared.state.lock().unwrap().hellos.push(hello);
    tokio::select! {
        _ = tokio::io::copy_bidirectional(&mut caller, &mut backend) => {}
        () = stalled.cancelled() => std::future::pending().await,
    }
}

impl Shared {
    /// The status of a request without a tunnel, with headers, if there is one; and the token that
    /// stalls its tunnel.
    fn answer(&self, head: &str) -> (Option<String>, CancellationToken) {
        let mut state = self.state.lock().unwrap();
        let target = head
            .strip_prefix("CONNECT ")
            .and_then(|rest| rest.split_once(" HTTP/1.1\r\n"))
            .map_or("not CONNECT", |(target, _)| target);
        state.targets.push(target.to_owned());
        let encoded = BASE64_STANDARD.encode(&state.credentials);
        let authorized = format!("Proxy-Authorization: Basic {encoded}");
        let refusal = if let Some(status) = state.refuses {
            Some(status.to_owned())
        } else if !head.lines().any(|line| line == authorized) {
            Some("407 Who\r\nProxy-Authenticate: Basic realm=\"test\"".to_owned())
        } else if target != self.target {
            Some("403 Elsewhere".to_owned())
        } else {
            None
        };
        (refusal, state.stalled.clone())
    }
}
