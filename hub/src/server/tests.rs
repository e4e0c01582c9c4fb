//! The door from outside: real TLS and gRPC over loopback, with a pretend agent.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future::BoxFuture;
use jiff::Timestamp;
use rcgen::{CertificateParams, KeyPair};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use switchyard_controller::EpochFloor;
use switchyard_controller::clock::SystemClock;
use switchyard_proto::v1::agent_client::AgentClient;
use switchyard_proto::v1::enrolment_client::EnrolmentClient;
use switchyard_proto::v1::{
    AgentMessage, Assignment, EnrolRequest, Hello, HubMessage, Observation, Observed, Phase, Ping, RenewRequest, State,
    agent_message, hub_message,
};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic::Code;
use tonic::transport::{Channel, Endpoint};

use super::*;
use crate::cluster::{Content, Ports};
use crate::pki::Authority;
use crate::pki::ca::{Ca, SERVER_NAME, identity_of};
use crate::pki::store::RedeemError;
use crate::pki::token::{Token, TokenBook};

/// Every wait of these tests.
const SOON: Duration = Duration::from_secs(10);

#[derive(Default)]
struct Named(Mutex<BTreeMap<String, String>>);

impl Clusters for Named {
    fn agent_cluster(&self, name: &str) -> Option<String> {
        self.0.lock().unwrap().get(name).cloned()
    }
}

struct Book(Mutex<TokenBook>);

impl Tokens for Book {
    fn redeem<'a>(&'a self, token: &'a Token, now: Timestamp) -> BoxFuture<'a, Result<(), RedeemError>> {
        let redeemed = self.0.lock().unwrap().redeem(token, now.as_second()).map_err(RedeemError::from);
        Box::pin(async move { redeemed })
    }
}

/// A door with the clusters `east` and `west`.
struct Door {
    ca: Arc<Ca>,
    clusters: Arc<Named>,
    book: Arc<Book>,
    ports: Arc<Ports>,
    registry: Arc<Registry>,
    events: mpsc::Receiver<SessionEvent>,
    term: watch::Sender<Option<u64>>,
    address: SocketAddr,
    shutdown: CancellationToken,
    floor: EpochFloor,
}

impl Drop for Door {
    fn drop(&mut self) {
        self.shutdown.cancel();
    }
}

impl Door {
    async fn open() -> Self {
        Self::open_with(Settings::default()).await
    }

    async fn open_with(settings: Settings) -> Self {
        let ca = Arc::new(Ca::generate("hub", Timestamp::now()).unwrap());
        let clusters = Arc::new(Named::default());
        for name in ["east", "west"] {
            clusters.0.lock().unwrap().insert(name.into(), format!("{name}-uid"));
        }
        let book = Arc::new(Book(Mutex::new(TokenBook::default())));
        let (ports, registry) = (Arc::new(Ports::default()), Arc::new(Registry::default()));
        let (term, watched) = watch::channel(Some(7));
        let (sender, events) = mpsc::channel(64);
        let floor = EpochFloor::default();
        let sessions = Sessions::new("hub", settings.clone(), registry.clone(), ports.clone(), watched, sender);
        let sessions = Arc::new(sessions.raising(floor.clone()));
        let clock = Arc::new(SystemClock);
        let gate = Gate::new("hub", clusters.clone(), clock.clone());
        let authority = Authority::new(Ca::from_pem(&ca.certificate_pem(), ca.key_pem()).unwrap());
        let authorities = watch::channel(Arc::new(authority)).1;
        let services = Services {
            enrolment: EnrolmentService::new(gate.clone(), authorities.clone(), book.clone(), settings.agent_life),
            agent: AgentService::new(gate, sessions),
        };
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let tls = Arc::new(TlsKeeper::new(authorities, Vec::new(), clock).unwrap());
        let shutdown = CancellationToken::new();
        tokio::spawn(serve(listener, tls, services, settings, shutdown.clone()));
        Self { ca, clusters, book, ports, registry, events, term, address, shutdown, floor }
    }

    fn token(&self, cluster: &str, ttl: i64) -> Token {
        let token = Token::from_random(cluster, rand::random(), rand::random());
        self.book.0.lock().unwrap().add(&token, ttl, Timestamp::now().as_second()).unwrap();
        token
    }

    async fn channel(&self, identity: Option<&Identity>) -> Result<Channel, tonic::transport::Error> {
        let mut roots = RootCertStore::empty();
        roots.add(self.ca.certificate().clone()).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .unwrap()
            .with_root_certificates(roots);
        let mut config = match identity {
            Some(identity) => builder.with_client_auth_cert(identity.chain.clone(), identity.key.clone_key()).unwrap(),
            None => builder.with_no_client_auth(),
        };
        config.alpn_protocols = vec![b"h2".to_vec()];
        let (config, address) = (Arc::new(config), self.address);
        let connector = tower::service_fn(move |_: http::Uri| {
            let config = config.clone();
            async move {
                let tcp = TcpStream::connect(address).await?;
                let name = ServerName::try_from(SERVER_NAME).unwrap();
                let tls = tokio_rustls::TlsConnector::from(config).connect(name, tcp).await?;
                Ok::<_, std::io::Error>(hyper_util::rt::TokioIo::new(tls))
            }
        });
        Endpoint::from_static("http://hub").connect_timeout(SOON).connect_with_connector(connector).await
    }

    /// A bare TLS connection without a certificate.
    async fn tls(
        &self,
        version: &'static rustls::SupportedProtocolVersion,
    ) -> std::io::Result<tokio_rustls::client::TlsStream<TcpStream>> {
        let mut roots = RootCertStore::empty();
        roots.add(self.ca.certificate().clone()).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[version])
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let tcp = TcpStream::connect(self.address).await?;
        let name = ServerName::try_from(SERVER_NAME).unwrap();
        tokio_rustls::TlsConnector::from(Arc::new(config)).connect(name, tcp).await
    }

    async fn enrol(&self, token: &str) -> Result<Identity, tonic::Status> {
        let mut client = EnrolmentClient::new(self.channel(None).await.unwrap());
        let (csr, key) = request();
        let given = client.enrol(EnrolRequest { token: token.to_owned(), csr }).await?.into_inner();
        let chain = given.chain.into_iter().map(CertificateDer::from).collect();
        Ok(Identity { chain, key })
    }

    async fn enrolled(&self, cluster: &str) -> Identity {
        let token = self.token(cluster, 60);
        self.enrol(&token.to_string()).await.unwrap()
    }

    async fn event(&mut self) -> SessionEvent {
        tokio::time::timeout(SOON, self.events.recv()).await.expect("an event in time").unwrap()
    }

    async fn session(&self, identity: &Identity) -> Talk {
        self.session_with(identity, hello()).await.unwrap()
    }

    async fn session_with(&self, identity: &Identity, hello: Hello) -> Result<Talk, tonic::Status> {
        let channel = self.channel(Some(identity)).await.unwrap();
        let (up, outgoing) = mpsc::channel(16);
        up.send(AgentMessage { session_id: 0, kind: Some(agent_message::Kind::Hello(hello)) }).await.unwrap();
        let down = AgentClient::new(channel).session(ReceiverStream::new(outgoing)).await?.into_inner();
        Ok(Talk { up, down, session_id: 0 })
    }
}

struct Identity {
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
}

fn request() -> (Vec<u8>, PrivateKeyDer<'static>) {
    let key = KeyPair::generate().unwrap();
    let csr = CertificateParams::default().serialize_request(&key).unwrap().der().to_vec();
    (csr, PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der())))
}

fn hello() -> Hello {
    Hello { boot_id: "b".into(), min_version: 1, max_version: 1, software: "test/1".into(), ..Hello::default() }
}

/// The agent's end of a session.
struct Talk {
    up: mpsc::Sender<AgentMessage>,
    down: tonic::Streaming<HubMessage>,
    session_id: u64,
}

impl Talk {
    async fn next(&mut self) -> Option<hub_message::Kind> {
        let message = tokio::time::timeout(SOON, self.down.message()).await.expect("a message in time").ok()??;
        assert_eq!(message.epoch, 7);
        self.session_id = message.session_id;
        message.kind
    }

    async fn say(&self, kind: agent_message::Kind) {
        self.up.send(AgentMessage { session_id: self.session_id, kind: Some(kind) }).await.unwrap();
    }

    /// Why the hub ended it; what else it says before is passed over.
    async fn goodbye(&mut self) -> String {
        loop {
            match self.next().await {
                Some(hub_message::Kind::Goodbye(goodbye)) => return goodbye.reason,
                Some(_) => {}
                None => return "the stream ended".into(),
            }
        }
    }
}

#[tokio::test]
async fn a_token_is_exchanged_once_and_the_certificate_names_its_cluster() {
    let door = Door::open().await;
    let token = door.token("east", 60).to_string();
    let identity = door.enrol(&token).await.unwrap();
    let named = identity_of(&identity.chain[0]).unwrap().to_string();
    assert_eq!(named, "spiffe://hub/cluster/east/east-uid");
    let again = door.enrol(&token).await.err().unwrap();
    assert_eq!((again.code(), again.message()), (Code::PermissionDenied, "refused"));
}

#[tokio::test]
async fn every_refusal_looks_the_same() {
    let door = Door::open().await;
    let good = door.token("east", 60);
    let renamed = Token { cluster: "west".into(), ..good.clone() };
    let wrong = Token { secret: "x".repeat(43), ..good.clone() };
    let unknown_cluster = door.token("north", 60);
    for (case, token) in [
        ("junk", "junk".to_owned()),
        ("another name", renamed.to_string()),
        ("a wrong secret", wrong.to_string()),
        ("a cluster that does not exist", unknown_cluster.to_string()),
        ("huge", "x".repeat(10_000)),
    ] {
        let refused = door.enrol(&token).await.err().unwrap();
        assert_eq!((refused.code(), refused.message()), (Code::PermissionDenied, "refused"), "{case}");
    }
    let bad_csr = EnrolmentClient::new(door.channel(None).await.unwrap())
        .enrol(EnrolRequest { token: good.to_string(), csr: vec![1, 2, 3] })
        .await
        .unwrap_err();
    assert_eq!(bad_csr.message(), "refused");
    door.enrol(&good.to_string()).await.expect("a refusal used nothing up");
}

#[tokio::test]
async fn a_certificate_is_needed_and_renewed_for_the_same_cluster_only_while_it_lives() {
    let door = Door::open().await;
    let renew = |channel: Channel| async move {
        let (csr, _) = request();
        EnrolmentClient::new(channel).renew(RenewRequest { csr }).await
    };
    assert_eq!(renew(door.channel(None).await.unwrap()).await.unwrap_err().message(), "refused");
    let identity = door.enrolled("east").await;
    let channel = door.channel(Some(&identity)).await.unwrap();
    let renewed = renew(channel.clone()).await.unwrap().into_inner();
    assert_eq!(renewed.cluster, "east");
    door.clusters.0.lock().unwrap().insert("east".into(), "another-uid".into());
    assert_eq!(renew(channel.clone()).await.unwrap_err().message(), "refused", "recreated");
    door.clusters.0.lock().unwrap().remove("east");
    assert_eq!(renew(channel).await.unwrap_err().message(), "refused", "deleted");
    assert_eq!(door.session_with(&identity, hello()).await.err().unwrap().message(), "refused");
}

#[tokio::test]
async fn a_certificate_of_another_authority_is_not_even_heard() {
    let door = Door::open().await;
    let other = Door::open().await;
    let identity = other.enrolled("east").await;
    let heard = match door.channel(Some(&identity)).await {
        // TLS 1.3: the client may believe in the connection before the server has looked.
        Ok(channel) => EnrolmentClient::new(channel).renew(RenewRequest { csr: request().0 }).await.is_ok(),
        Err(_) => false,
    };
    assert!(!heard);
}

#[tokio::test]
async fn tls_1_2_is_refused() {
    let door = Door::open().await;
    let refused = door.tls(&rustls::version::TLS12).await;
    assert!(refused.is_err());
}

#[tokio::test]
async fn a_slow_handshake_delays_nobody_and_is_given_up() {
    let settings = Settings { handshake: Duration::from_millis(300), ..Settings::default() };
    let door = Door::open_with(settings).await;
    let mut silent = TcpStream::connect(door.address).await.unwrap();
    door.enrolled("east").await;
    let mut byte = [0];
    let read = tokio::io::AsyncReadExt::read(&mut silent, &mut byte);
    let read = tokio::time::timeout(SOON, read).await.expect("closed in time");
    assert!(matches!(read, Ok(0) | Err(_)));
}

#[tokio::test]
async fn connections_without_a_certificate_end_soon() {
    let settings = Settings { unauthenticated: Duration::from_millis(300), ..Settings::default() };
    let door = Door::open_with(settings).await;
    let mut tls = door.tls(&rustls::version::TLS13).await.unwrap();
    let mut said = Vec::new();
    let end = tokio::io::AsyncReadExt::read_to_end(&mut tls, &mut said);
    // Whether it ends cleanly is of no interest.
    let _ = tokio::time::timeout(SOON, end).await.expect("closed in time");
}

#[tokio::test]
async fn a_session_tells_what_is_desired_and_hears_what_is() {
    let mut door = Door::open().await;
    let identity = door.enrolled("east").await;
    let assignment = |phase: Phase| Assignment {
        workload_uid: "u".into(),
        attempt: 1,
        phase: phase.into(),
        ..Assignment::default()
    };
    let content = Arc::new(Content::new(b"{}".to_vec(), b"{}".to_vec()));
    let port = door.ports.of("east");
    port.set(assignment(Phase::Run), Some(content));
    let mut talk = door.session(&identity).await;
    let Some(hub_message::Kind::Welcome(welcome)) = talk.next().await else { panic!("no Welcome") };
    assert_eq!((welcome.version, welcome.hub_id.as_str(), welcome.snapshot), (1, "hub", true));
    let Some(hub_message::Kind::Desired(desired)) = talk.next().await else { panic!("no Desired") };
    assert_eq!((desired.assignments.len(), desired.payloads.len(), desired.snapshot), (1, 1, true));
    assert!(
        matches!(door.event().await, SessionEvent::Up(info) if info.cluster == "east" && info.live.software == "test/1")
    );

    talk.say(agent_message::Kind::Ping(Ping { nonce: 42, unable: false })).await;
    assert!(matches!(talk.next().await, Some(hub_message::Kind::Pong(pong)) if pong.nonce == 42));

    let observation =
        Observation { workload_uid: "u".into(), attempt: 1, state: State::Succeeded.into(), ..Observation::default() };
    let observed = Observed { sequence: 1, inventory: true, observations: vec![observation], more: false };
    talk.say(agent_message::Kind::Observed(observed.clone())).await;
    talk.say(agent_message::Kind::Observed(observed)).await;
    let SessionEvent::Observed { observations, inventory, .. } = door.event().await else { panic!("not observed") };
    assert_eq!((observations.len(), inventory.map(|uids| uids.len())), (1, Some(1)));
    port.set(assignment(Phase::Absent), None);
    assert!(
        matches!(talk.next().await, Some(hub_message::Kind::Desired(_))),
        "not acknowledged before it is persisted"
    );
    port.persisted("u", 1);
    assert!(matches!(talk.next().await, Some(hub_message::Kind::ObservedAck(1))));

    drop(talk);
    assert!(matches!(door.event().await, SessionEvent::Down { cluster, .. } if cluster == "east"), "said once");
    assert!(door.registry.is_empty());
}

#[tokio::test]
async fn a_newer_session_supersedes_and_a_deleted_cluster_is_cut() {
    let mut door = Door::open().await;
    let identity = door.enrolled("east").await;
    let mut older = door.session(&identity).await;
    older.next().await.unwrap();
    assert!(matches!(door.event().await, SessionEvent::Up(_)));
    let mut newer = door.session(&identity).await;
    newer.next().await.unwrap();
    assert_eq!(older.goodbye().await, "superseded by a newer session");
    assert!(newer.session_id > older.session_id);
    assert_eq!(door.registry.len(), 1);
    door.registry.cut("east", "deleted");
    assert_eq!(newer.goodbye().await, "deleted");
}

#[tokio::test]
async fn another_protocol_version_is_sent_away_with_the_reason() {
    let door = Door::open().await;
    let identity = door.enrolled("east").await;
    let future = Hello { min_version: 2, max_version: 9, ..hello() };
    let mut talk = door.session_with(&identity, future).await.unwrap();
    assert_eq!(talk.goodbye().await, "no common protocol version: the agent speaks 2 to 9, the hub 1 to 1");
}

#[tokio::test]
async fn gaps_and_second_hellos_end_the_session() {
    let door = Door::open().await;
    let identity = door.enrolled("east").await;
    for (kind, reason) in [
        (
            agent_message::Kind::Observed(Observed { sequence: 5, ..Observed::default() }),
            "observations are missing: expected 1, got 5",
        ),
        (agent_message::Kind::Hello(hello()), "a second Hello"),
    ] {
        let mut talk = door.session(&identity).await;
        talk.next().await.unwrap();
        talk.say(kind).await;
        assert_eq!(talk.goodbye().await, reason);
    }
}

#[tokio::test]
async fn an_agent_that_does_not_answer_pings_is_given_up() {
    let settings = Settings {
        ping_interval: Duration::from_millis(100),
        ping_timeout: Duration::from_millis(300),
        ..Settings::default()
    };
    let mut door = Door::open_with(settings).await;
    let identity = door.enrolled("east").await;
    let mut talk = door.session(&identity).await;
    talk.next().await.unwrap();
    assert!(matches!(door.event().await, SessionEvent::Up(_)));
    let SessionEvent::Down { reason, .. } = door.event().await else { panic!("still up") };
    assert_eq!(reason, "a ping was not answered within 300ms");
}

#[tokio::test]
async fn a_replica_that_does_not_lead_takes_no_sessions() {
    let door = Door::open().await;
    let identity = door.enrolled("east").await;
    door.term.send_replace(None);
    assert_eq!(door.session_with(&identity, hello()).await.err().unwrap().code(), Code::Unavailable);
}

#[tokio::test]
async fn a_later_epoch_that_an_agent_remembers_is_told_to_the_election_once() {
    let door = Door::open().await;
    let east = door.enrolled("east").await;
    let remembers = |hub: &str, epoch| Hello { last_hub_id: hub.into(), last_epoch: epoch, ..hello() };
    for (case, hello, begins, floor) in [
        ("this epoch", remembers("hub", 7), true, 0),
        ("another hub's", remembers("other", 9), true, 0),
        ("more than any hub forgets", remembers("hub", 7 + (1 << 20) + 1), true, 0),
        ("a later one", remembers("hub", 9), false, 9),
        ("one that the election has been told", remembers("hub", 8), false, 9),
        ("once more", remembers("hub", 12), true, 9),
    ] {
        let mut talk = door.session_with(&east, hello).await.unwrap();
        let first = talk.next().await;
        let welcome = matches!(first, Some(hub_message::Kind::Welcome(_)));
        assert_eq!((welcome, door.floor.get()), (begins, floor), "{case}: {first:?}");
    }
}
