//! Expiry and renewal of certificates, and CA rotation.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use futures::future::BoxFuture;
use jiff::Timestamp;
use switchyard_agent::enrol;
use switchyard_agent::route::{Dial, Io};
use switchyard_agent::session::SessionState;
use switchyard_hub::server::{Listen, ServerSettings, SessionEvent};
use switchyard_hub_pki::Authority;
use switchyard_hub_pki::authority::OVERLAP;
use switchyard_hub_pki::ca::{AGENT_LIFE, SERVER_LIFE};
use switchyard_platform::clock::Clock as _;
use switchyard_proto::ClusterIdentity;
use switchyard_proto::v1::enrolment_client::EnrolmentClient;
use switchyard_proto::v1::{Ping, RenewRequest, agent_message, hub_message};
use tokio::io::DuplexStream;
use tokio::sync::mpsc;

use crate::raw::{RawSession, channel, shown};
use crate::test_server::{Agent, Loopback, ManualClock, TestServer, ca, over, soon};

const HOUR: Duration = Duration::from_secs(3600);

/// An in-process network, so that days pass in a moment of paused time.
struct Pipes(mpsc::Receiver<DuplexStream>);

#[derive(Clone)]
struct Piped(mpsc::Sender<DuplexStream>);

fn pipes() -> (Piped, Pipes) {
    let (sender, receiver) = mpsc::channel(8);
    (Piped(sender), Pipes(receiver))
}

impl Listen for Pipes {
    type Io = DuplexStream;

    async fn accept(&mut self) -> io::Result<(DuplexStream, SocketAddr)> {
        match self.0.recv().await {
            Some(stream) => Ok((stream, SocketAddr::from(([127, 0, 0, 1], 1)))),
            None => std::future::pending().await,
        }
    }
}

impl Dial for Piped {
    fn dial<'a>(&'a self, _: &'a str, _: u16) -> BoxFuture<'a, io::Result<Box<dyn Io>>> {
        Box::pin(async move {
            let (ours, theirs) = tokio::io::duplex(64 * 1024);
            self.0.send(theirs).await.map_err(|_| io::ErrorKind::ConnectionRefused)?;
            Ok(Box::new(ours) as Box<dyn Io>)
        })
    }
}

/// Takes the steps of a CA rotation when due, as the hub does.
fn step(server: &TestServer) {
    let next = server.authority.borrow().step(server.clock.now());
    if let Some(next) = next {
        server.authority.send_replace(std::sync::Arc::new(next));
    }
}

fn replace(server: &TestServer) {
    let next = server.authority.borrow().replace(ca(&server.clock)).unwrap();
    server.authority.send_replace(std::sync::Arc::new(next));
    step(server);
}

#[tokio::test(start_paused = true)]
async fn session_outlives_certificates_and_ca_rotation() {
    let (dial, listener) = pipes();
    let settings = ServerSettings {
        ping_interval: Duration::from_secs(300),
        ping_timeout: Duration::from_secs(60),
        lease: Duration::from_secs(900),
        ..ServerSettings::default()
    };
    let (server, mut events) =
        TestServer::open(listener, settings, ManualClock::new(Timestamp::now()));
    let drained = tokio::spawn(async move {
        let mut ups = 0;
        while let Some(event) = events.recv().await {
            ups += usize::from(matches!(event, SessionEvent::Up(_)));
        }
        ups
    });
    let route = over(dial, "https://hub:1", &server.clock);
    let identity = enrol::enrol(&route, &server.token("east")).await.unwrap();
    let first = server.authority.borrow().signer().pin();
    let mut agent = Agent::start(route.clone(), identity);
    let up = agent.until("the session", SessionState::is_up).await;

    // Renewed at two thirds of 24 hours, not before.
    let issued = agent.identity.load().not_after;
    tokio::time::sleep(15 * HOUR).await;
    assert_eq!(agent.identity.load().not_after, issued);
    tokio::time::sleep(2 * HOUR).await;
    assert!(agent.identity.load().not_after > issued, "not renewed");
    replace(&server);
    for _ in 0..2 * (OVERLAP.as_secs() / 3600 + 1) {
        tokio::time::sleep(HOUR).await;
        step(&server);
    }
    let authority = server.authority.borrow().clone();
    assert_eq!(
        (authority.trusted().len(), authority.next_step()),
        (1, None),
        "the replacement is through"
    );
    assert_ne!(authority.signer().pin(), first);
    assert_eq!(*agent.state.borrow(), up, "it is the same session");

    // The next session uses the newest certificate.
    server.registry.close("east", "for the test");
    agent.until("the end", |state| !state.is_up()).await;
    agent.until("the next session", SessionState::is_up).await;
    drop(agent);

    // The hub has renewed its own certificate: without that, no agent could connect now.
    tokio::time::sleep(SERVER_LIFE + HOUR).await;
    let join = server.token("west");
    enrol::enrol(&route, &join).await.unwrap();
    drop((server, route));
    assert_eq!(drained.await.unwrap(), 2, "sessions");
}

#[tokio::test]
async fn expired_certificate_neither_connects_nor_renews() {
    let hub = Loopback::open(ServerSettings::default()).await;
    let identity = hub.enrolled("east").await;
    let open = channel(&hub, Some(shown(&identity))).await.unwrap();
    let mut session = RawSession::open(&hub, shown(&identity)).await.unwrap();
    hub.server.clock.forward(AGENT_LIFE + HOUR);

    // On a connection opened before the certificate expired.
    let refused =
        EnrolmentClient::new(open).renew(RenewRequest { csr: Vec::new() }).await.unwrap_err();
    assert_eq!((refused.code(), refused.message()), (tonic::Code::PermissionDenied, "refused"));
    // On a new connection.
    assert!(RawSession::open(&hub, shown(&identity)).await.is_err());
    assert!(soon("the answer", enrol::renew(&hub.route(), &identity)).await.is_err());
    // The session goes on. Only the end of its cluster ends it.
    session.say(agent_message::Kind::Ping(Ping { nonce: 5, unable: false })).await;
    loop {
        let message =
            soon("the pong", session.down.message()).await.unwrap().expect("the session goes on");
        if matches!(message.kind, Some(hub_message::Kind::Pong(pong)) if pong.nonce == 5) {
            break;
        }
    }
}

/// Waits until the listener uses the changed CAs, as renewed identities show.
async fn renewed(
    hub: &Loopback,
    identity: &switchyard_agent::identity::Identity,
    trusted: usize,
) -> switchyard_agent::identity::Identity {
    let again = async {
        loop {
            let now = enrol::renew(&hub.route(), identity).await;
            if let Ok(now) = now
                && now.trust.len() == trusted
            {
                return now;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    soon("the renewal", again).await
}

#[tokio::test]
async fn ca_rotation_serves_agents_that_renew_in_time() {
    let hub = Loopback::open(ServerSettings::default()).await;
    let first = hub.server.authority.borrow().clone();
    let idle = hub.enrolled("west").await;
    let early = hub.server.token("east");
    let identity = hub.enrolled("east").await;

    replace(&hub.server);
    let identity = renewed(&hub, &identity, 2).await;
    hub.server.clock.forward(12 * HOUR);
    let identity = renewed(&hub, &identity, 2).await;
    hub.server.clock.forward(OVERLAP - 12 * HOUR);
    step(&hub.server);
    let second = hub.server.authority.borrow().clone();
    assert_ne!(second.signer().pin(), first.signer().pin());

    // The old CA's certificate is still valid. A renewal comes from the new CA.
    let identity = renewed(&hub, &identity, 2).await;
    RawSession::open(&hub, shown(&identity)).await.unwrap();
    hub.enrolled("north").await;
    // A join token from before pins the old CA, which the server no longer shows.
    let stale = hub.enrol(&early).await.unwrap_err().to_string();
    assert!(stale.contains("--hub-ca-sha256"), "{stale}");

    hub.server.clock.forward(12 * HOUR);
    let identity = renewed(&hub, &identity, 2).await;
    hub.server.clock.forward(OVERLAP - 12 * HOUR);
    step(&hub.server);
    let identity = renewed(&hub, &identity, 1).await;
    RawSession::open(&hub, shown(&identity)).await.unwrap();
    // An agent that was away during the whole rotation has no valid certificate.
    assert!(enrol::renew(&hub.route(), &idle).await.is_err());
    // A certificate signed today with the old CA's key is worthless.
    let stolen = signed(&first, &hub.server);
    assert!(RawSession::open(&hub, stolen).await.is_err());
    let good = signed(&hub.server.authority.borrow().clone(), &hub.server);
    RawSession::open(&hub, good).await.unwrap();
}

/// A certificate for cluster east, signed by this authority now.
fn signed(authority: &Authority, server: &TestServer) -> crate::raw::Shown {
    let key = rcgen::KeyPair::generate().unwrap();
    let csr = rcgen::CertificateParams::default().serialize_request(&key).unwrap().der().to_vec();
    let east =
        ClusterIdentity { hub_id: "hub".into(), cluster: "east".into(), uid: "east-uid".into() };
    let (leaf, _) =
        authority.signer().issue_agent(&csr, &east, AGENT_LIFE, server.clock.now()).unwrap();
    (vec![leaf], rustls::pki_types::PrivatePkcs8KeyDer::from(key.serialize_der()).into())
}
