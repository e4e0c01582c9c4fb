//! A hub on a loopback address with TLS. The test plays the rest.

use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use rustls::pki_types::CertificateDer;
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig, version};
use switchyard_proto::SERVER_NAME;
use switchyard_proto::copy_key::CopyKey;
use switchyard_proto::v1::agent_server::{Agent, AgentServer};
use switchyard_proto::v1::enrolment_server::{Enrolment, EnrolmentServer};
use switchyard_proto::v1::{
    self, AgentMessage, EnrolRequest, HubMessage, RenewRequest, agent_message, hub_message,
};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Server;
use tonic::transport::server::Connected;
use tonic::{Request, Response, Status, Streaming};

use super::soon;
use crate::hub_address::HubAddress;
use crate::identity::tests::Pki;
use crate::route::Route;

/// The hub's end of one session.
pub(crate) struct FakeSession {
    /// The caller's certificate.
    pub(crate) peer: CertificateDer<'static>,
    from_agent: Streaming<AgentMessage>,
    to_agent: mpsc::Sender<Result<HubMessage, Status>>,
}

impl FakeSession {
    pub(crate) async fn send(&self, kind: hub_message::Kind) {
        let message = HubMessage { session_id: 1, epoch: 1, kind: Some(kind) };
        soon("room", self.to_agent.send(Ok(message))).await.unwrap();
    }

    /// Answers as a hub of this protocol version.
    pub(crate) async fn welcome(&self, version: u32, lease: Option<v1::Lease>) {
        let welcome = v1::Welcome {
            version,
            hub_id: "hub-1".to_owned(),
            session_id: 1,
            lease,
            snapshot: true,
        };
        self.send(hub_message::Kind::Welcome(welcome)).await;
    }

    /// The next message; none once the agent has closed the session.
    pub(crate) async fn receive(&mut self) -> Option<agent_message::Kind> {
        let message = soon("a message of the agent", self.from_agent.message()).await;
        message.ok().flatten().and_then(|message| message.kind)
    }

    /// Waits until the agent closes its end of the session.
    pub(crate) async fn closed(&mut self) {
        while self.receive().await.is_some() {}
    }
}

/// The hub's behaviour.
#[derive(Default)]
struct Script {
    /// The tokens that the hub accepts.
    tokens: Vec<String>,
    /// The numbers of enrolments and renewals.
    enrolled: usize,
    renewed: usize,
    /// The key of copies that the hub issues, and whether its operators trust marked objects.
    key: Option<(CopyKey, bool)>,
    /// The obstacles in requests for the key of copies.
    obstacles: Vec<String>,
}

struct Service {
    pki: Arc<Pki>,
    script: Arc<Mutex<Script>>,
    sessions: mpsc::Sender<FakeSession>,
}

/// The hub. It ends with this.
pub(crate) struct FakeHub {
    pub(crate) address: Route,
    pub(crate) pki: Arc<Pki>,
    script: Arc<Mutex<Script>>,
    sessions: mpsc::Receiver<FakeSession>,
    _tasks: JoinSet<()>,
}

impl FakeHub {
    pub(crate) async fn start() -> Self {
        let pki = Arc::new(Pki::new());
        let script = Arc::new(Mutex::new(Script::default()));
        let (sessions, receiver) = mpsc::channel(8);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address: HubAddress =
            format!("https://{}", listener.local_addr().unwrap()).parse().unwrap();
        let address = address.into();
        let service = Arc::new(Service { pki: pki.clone(), script: script.clone(), sessions });
        let (accepted, incoming) = mpsc::channel(8);
        let mut tasks = JoinSet::new();
        tasks.spawn(accept(
            listener,
            TlsAcceptor::from(Arc::new(tls(&pki, SERVER_NAME))),
            accepted,
        ));
        tasks.spawn(async move {
            let server = Server::builder()
                .add_service(EnrolmentServer::from_arc(service.clone()))
                .add_service(AgentServer::from_arc(service));
            server.serve_with_incoming(ReceiverStream::new(incoming)).await.unwrap();
        });
        Self { address, pki, script, sessions: receiver, _tasks: tasks }
    }

    /// The value for `--hub-ca-sha256`.
    pub(crate) fn pin(&self) -> String {
        use sha2::Digest as _;
        sha2::Sha256::digest(&self.pki.ca).iter().map(|byte| format!("{byte:02x}")).collect()
    }

    pub(crate) fn accept_token(&self, token: &str) {
        self.script.lock().unwrap().tokens.push(token.to_owned());
    }

    pub(crate) fn give_key(&self, key: &CopyKey, trust: bool) {
        self.script.lock().unwrap().key = Some((key.clone(), trust));
    }

    pub(crate) fn give_nothing(&self) {
        self.script.lock().unwrap().key = None;
    }

    /// The obstacles that agents reported.
    pub(crate) fn obstacles(&self) -> Vec<String> {
        self.script.lock().unwrap().obstacles.clone()
    }

    /// The numbers of enrolments and renewals.
    pub(crate) fn issued(&self) -> (usize, usize) {
        let script = self.script.lock().unwrap();
        (script.enrolled, script.renewed)
    }

    pub(crate) async fn session(&mut self) -> FakeSession {
        soon("a session", self.sessions.recv()).await.unwrap()
    }
}

/// A server's configuration, with a certificate for this name.
pub(crate) fn tls(pki: &Pki, name: &str) -> ServerConfig {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut roots = RootCertStore::empty();
    roots.add(pki.ca.clone()).unwrap();
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone());
    let verifier = verifier.allow_unauthenticated().build().unwrap();
    let (chain, key) = pki.server(name);
    let builder = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&version::TLS13])
        .unwrap();
    let mut config =
        builder.with_client_cert_verifier(verifier).with_single_cert(chain, key).unwrap();
    config.alpn_protocols = vec![b"h2".to_vec()];
    config
}

async fn accept(
    listener: TcpListener,
    acceptor: TlsAcceptor,
    accepted: mpsc::Sender<std::io::Result<Io>>,
) {
    let mut handshakes = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        let (acceptor, accepted) = (acceptor.clone(), accepted.clone());
        handshakes.spawn(async move {
            if let Ok(stream) = acceptor.accept(stream).await {
                let _ = accepted.send(Ok(Io(stream))).await;
            }
        });
    }
}

/// A TLS stream that gives handlers the client's certificate.
struct Io(TlsStream<TcpStream>);

#[derive(Clone)]
struct Peer(Option<CertificateDer<'static>>);

impl Connected for Io {
    type ConnectInfo = Peer;

    fn connect_info(&self) -> Peer {
        let (_, connection) = self.0.get_ref();
        Peer(
            connection
                .peer_certificates()
                .and_then(<[_]>::first)
                .map(|leaf| leaf.clone().into_owned()),
        )
    }
}

impl AsyncRead for Io {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buf)
    }
}

impl AsyncWrite for Io {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}

fn peer<T>(request: &Request<T>) -> Option<CertificateDer<'static>> {
    request.extensions().get::<Peer>().and_then(|peer| peer.0.clone())
}

#[tonic::async_trait]
impl Enrolment for Service {
    async fn enrol(
        &self,
        request: Request<EnrolRequest>,
    ) -> Result<Response<v1::Certificate>, Status> {
        let EnrolRequest { token, csr } = request.into_inner();
        let mut script = self.script.lock().unwrap();
        let good = script.tokens.iter().position(|known| *known == token);
        let Some(good) = good else { return Err(Status::permission_denied("refused")) };
        script.tokens.remove(good);
        script.enrolled += 1;
        let cluster = token.split('.').next().unwrap_or_default();
        Ok(Response::new(self.pki.agent(&csr, cluster, -10, 3600)))
    }

    async fn renew(
        &self,
        request: Request<RenewRequest>,
    ) -> Result<Response<v1::Certificate>, Status> {
        if peer(&request).is_none() {
            return Err(Status::permission_denied("refused"));
        }
        self.script.lock().unwrap().renewed += 1;
        Ok(Response::new(self.pki.agent(&request.into_inner().csr, "east", -10, 3600)))
    }

    async fn copy_key(
        &self,
        request: Request<v1::CopyKeyRequest>,
    ) -> Result<Response<v1::CopyKeyAnswer>, Status> {
        if peer(&request).is_none() {
            return Err(Status::permission_denied("refused"));
        }
        let mut script = self.script.lock().unwrap();
        script
            .obstacles
            .extend(Some(request.into_inner().obstacle).filter(|text| !text.is_empty()));
        let (key, trust) =
            script.key.clone().map(|(key, trust)| (key.to_bytes(), trust)).unwrap_or_default();
        Ok(Response::new(v1::CopyKeyAnswer { key, trust }))
    }
}

#[tonic::async_trait]
impl Agent for Service {
    type SessionStream = ReceiverStream<Result<HubMessage, Status>>;

    async fn session(
        &self,
        request: Request<Streaming<AgentMessage>>,
    ) -> Result<Response<Self::SessionStream>, Status> {
        let peer = peer(&request).ok_or_else(|| Status::unauthenticated("no certificate"))?;
        let (to_agent, receiver) = mpsc::channel(64);
        let session = FakeSession { peer, from_agent: request.into_inner(), to_agent };
        self.sessions.send(session).await.map_err(|_| Status::unavailable("the test is over"))?;
        Ok(Response::new(ReceiverStream::new(receiver)))
    }
}
