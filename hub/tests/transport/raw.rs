//! A client that is no agent: it speaks TLS and gRPC, and sends what a test wants.

use std::net::SocketAddr;
use std::sync::Arc;

use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore, SupportedProtocolVersion};
use switchyard_agent::identity::Identity;
use switchyard_platform::clock::RustlsClock;
use switchyard_proto::SERVER_NAME;
use switchyard_proto::v1::agent_client::AgentClient;
use switchyard_proto::v1::{
    AgentMessage, Hello, HubMessage, Observation, Observed, State, agent_message, hub_message,
};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio_rustls::client::TlsStream;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::{Channel, Endpoint};

use crate::test_server::{EPOCH, Loopback, soon};

/// A client certificate, leaf first, and its key.
pub(crate) type Shown = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

pub(crate) fn shown(identity: &Identity) -> Shown {
    (identity.chain.clone(), identity.key.clone_key())
}

/// The TLS configuration of a client that trusts this server's CA.
pub(crate) fn tls(
    hub: &Loopback,
    version: &'static SupportedProtocolVersion,
    shown: Option<Shown>,
) -> ClientConfig {
    let mut roots = RootCertStore::empty();
    for certificate in hub.server.authority.borrow().trusted() {
        roots.add(certificate).unwrap();
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let time = Arc::new(RustlsClock(Arc::new(hub.server.clock.clone())));
    let builder = ClientConfig::builder_with_details(provider, time)
        .with_protocol_versions(&[version])
        .unwrap();
    let builder = builder.with_root_certificates(roots);
    let mut config = match shown {
        Some((chain, key)) => builder.with_client_auth_cert(chain, key).unwrap(),
        None => builder.with_no_client_auth(),
    };
    config.alpn_protocols = vec![b"h2".to_vec()];
    config
}

pub(crate) async fn connect(
    address: SocketAddr,
    config: ClientConfig,
) -> std::io::Result<TlsStream<TcpStream>> {
    let tcp = TcpStream::connect(address).await?;
    let name = ServerName::try_from(SERVER_NAME).unwrap();
    tokio_rustls::TlsConnector::from(Arc::new(config)).connect(name, tcp).await
}

pub(crate) async fn channel(
    hub: &Loopback,
    shown: Option<Shown>,
) -> Result<Channel, tonic::transport::Error> {
    let (config, address) = (tls(hub, &rustls::version::TLS13, shown), hub.address);
    let connector = tower::service_fn(move |_: http::Uri| {
        let config = config.clone();
        async move { connect(address, config).await.map(hyper_util::rt::TokioIo::new) }
    });
    soon("a connection", Endpoint::from_static("http://hub").connect_with_connector(connector))
        .await
}

pub(crate) fn hello() -> Hello {
    Hello { boot_id: "b".into(), min_version: 1, max_version: 1, ..Hello::default() }
}

/// A session.
pub(crate) struct RawSession {
    pub(crate) up: mpsc::Sender<AgentMessage>,
    pub(crate) down: tonic::Streaming<HubMessage>,
    pub(crate) session_id: u64,
    pub(crate) sequence: u64,
}

impl RawSession {
    /// Opens a session, including the hub's `Welcome`.
    pub(crate) async fn open(hub: &Loopback, shown: Shown) -> Result<Self, tonic::Status> {
        let (session, answer) = Self::open_with(hub, shown, hello()).await?;
        assert!(matches!(answer, Some(hub_message::Kind::Welcome(_))), "{answer:?}");
        Ok(session)
    }

    /// Opens a session, including the hub's answer.
    pub(crate) async fn open_with(
        hub: &Loopback,
        shown: Shown,
        hello: Hello,
    ) -> Result<(Self, Option<hub_message::Kind>), tonic::Status> {
        let refused =
            |error: tonic::transport::Error| tonic::Status::unavailable(error.to_string());
        let channel = channel(hub, Some(shown)).await.map_err(refused)?;
        let (up, outgoing) = mpsc::channel(4);
        up.send(AgentMessage { session_id: 0, kind: Some(agent_message::Kind::Hello(hello)) })
            .await
            .unwrap();
        let mut client = AgentClient::new(channel);
        let mut down =
            soon("an answer", client.session(ReceiverStream::new(outgoing))).await?.into_inner();
        let answer = soon("an answer", down.message())
            .await?
            .ok_or_else(|| tonic::Status::aborted("no answer"))?;
        assert_eq!(answer.epoch, EPOCH);
        Ok((Self { up, down, session_id: answer.session_id, sequence: 0 }, answer.kind))
    }

    pub(crate) async fn say(&self, kind: agent_message::Kind) -> bool {
        let message = AgentMessage { session_id: self.session_id, kind: Some(kind) };
        self.up.send(message).await.is_ok()
    }

    /// The hub's next message. None at the end.
    pub(crate) async fn next(&mut self) -> Option<hub_message::Kind> {
        soon("a message", self.down.message()).await.ok()??.kind
    }

    /// Sends observations. False if the hub has ended the session.
    pub(crate) async fn observe(&mut self, observations: Vec<Observation>) -> bool {
        self.sequence += 1;
        let observed = Observed { sequence: self.sequence, observations, ..Observed::default() };
        self.say(agent_message::Kind::Observed(observed)).await
    }

    /// The reason with which the hub ended the session.
    pub(crate) async fn end(&mut self) -> String {
        loop {
            match soon("the end", self.down.message()).await {
                Ok(Some(HubMessage {
                    kind: Some(hub_message::Kind::Goodbye(goodbye)), ..
                })) => return goodbye.reason,
                Ok(Some(_)) => {}
                Ok(None) => return "the stream ended".into(),
                Err(status) => return status.message().to_owned(),
            }
        }
    }
}

pub(crate) fn running(uid: &str, attempt: u64) -> Observation {
    Observation {
        workload_uid: uid.into(),
        namespace: "ns".into(),
        name: uid.into(),
        attempt,
        state: State::Running.into(),
        ..Observation::default()
    }
}
