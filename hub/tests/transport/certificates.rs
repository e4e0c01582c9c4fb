//! Certificates that end, are renewed, and whose authority is replaced.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use futures::future::BoxFuture;
use jiff::Timestamp;
use switchyard_agent::enrol;
use switchyard_agent::route::{Dial, Io};
use switchyard_agent::session::SessionState;
use switchyard_controller::clock::Clock as _;
use switchyard_hub::server::{Listen, SessionEvent, Settings};
use switchyard_hub_pki::authority::OVERLAP;
use switchyard_hub_pki::ca::{AGENT_LIFE, SERVER_LIFE};
use switchyard_hub_pki::{Authority, ClusterIdentity};
use switchyard_proto::v1::enrolment_client::EnrolmentClient;
use switchyard_proto::v1::{Ping, RenewRequest, agent_message, hub_message};
use tokio::io::DuplexStream;
use tokio::sync::mpsc;

use crate::door::{Agent, Door, HandClock, Loopback, ca, over, soon};
use crate::raw::{Talk, channel, shown};

const HOUR: Duration = Duration::from_secs(3600);

/// A network inside this process: days of it pass in a moment of paused time.
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

/// Takes the steps of a replacement as they fall due, as the hub does.
fn step(door: &Door) {
    let next = door.authority.borrow().step(door.clock.now());
    if let Some(next) = next {
        door.authority.send_replace(std::sync::Arc::new(next));
    }
}

fn replace(door: &Door) {
    let next = door.authority.borrow().replace(ca(&door.clock)).unwrap();
    door.authority.send_replace(std::sync::Arc::new(next));
    step(door);
}

#[tokio::test(start_paused = true)]
async fn a_session_goes_on_while_certificates_end_and_the_authority_is_replaced() {
    let (dial, listener) = pipes();
    let settings = Settings {
        ping_interval: Duration::from_secs(300),
        ping_timeout: Duration::from_secs(60),
        lease: Duration::from_secs(900),
        ..Settings::default()
    };
    let (door, mut events) = Door::open(listener, settings, HandClock::new(Timestamp::now()));
    let drained = tokio::spawn(async move {
        let mut ups = 0;
        while let Some(event) = events.recv().await {
            ups += usize::from(matches!(event, SessionEvent::Up(_)));
        }
        ups
    });
    let route = over(dial, "https://hub:1", &door.clock);
    let identity = enrol::enrol(&route, &door.token("east")).await.unwrap();
    let first = door.authority.borrow().signer().pin();
    let mut agent = Agent::start(route.clone(), identity);
    let up = agent.until("the session", SessionState::is_up).await;

    // Renewed at two thirds of 24 hours, and not before.
    let issued = agent.identity.load().not_after;
    tokio::time::sleep(15 * HOUR).await;
    assert_eq!(agent.identity.load().not_after, issued);
    tokio::time::sleep(2 * HOUR).await;
    assert!(agent.identity.load().not_after > issued, "not renewed");
    replace(&door);
    for _ in 0..2 * (OVERLAP.as_secs() / 3600 + 1) {
        tokio::time::sleep(HOUR).await;
        step(&door);
    }
    let authority = door.authority.borrow().clone();
    assert_eq!(
        (authority.trusted().len(), authority.next_step()),
        (1, None),
        "the replacement is through"
    );
    assert_ne!(authority.signer().pin(), first);
    assert_eq!(*agent.state.borrow(), up, "it is the same session");

    // The next one is opened with what was issued last.
    door.registry.cut("east", "for the test");
    agent.until("the end", |state| !state.is_up()).await;
    agent.until("the next session", SessionState::is_up).await;
    drop(agent);

    // The hub's own certificate has been renewed, too: nobody else comes in for longer than it lasts.
    tokio::time::sleep(SERVER_LIFE + HOUR).await;
    let join = door.token("west");
    enrol::enrol(&route, &join).await.unwrap();
    drop((door, route));
    assert_eq!(drained.await.unwrap(), 2, "sessions");
}

#[tokio::test]
async fn a_certificate_that_has_ended_opens_nothing_and_renews_nothing() {
    let hub = Loopback::open(Settings::default()).await;
    let identity = hub.enrolled("east").await;
    let open = channel(&hub, Some(shown(&identity))).await.unwrap();
    let mut session = Talk::open(&hub, shown(&identity)).await.unwrap();
    hub.door.clock.forward(AGENT_LIFE + HOUR);

    // On a connection from before.
    let refused =
        EnrolmentClient::new(open).renew(RenewRequest { csr: Vec::new() }).await.unwrap_err();
    assert_eq!((refused.code(), refused.message()), (tonic::Code::PermissionDenied, "refused"));
    // A new connection.
    assert!(Talk::open(&hub, shown(&identity)).await.is_err());
    assert!(soon("the answer", enrol::renew(&hub.route(), &identity)).await.is_err());
    // The session that there was is not touched: only the end of its cluster ends it.
    session.say(agent_message::Kind::Ping(Ping { nonce: 5, unable: false })).await;
    loop {
        let message =
            soon("the pong", session.down.message()).await.unwrap().expect("the session goes on");
        if matches!(message.kind, Some(hub_message::Kind::Pong(pong)) if pong.nonce == 5) {
            break;
        }
    }
}

/// Waits until the listener has taken the change up: identities that it renews say what it trusts.
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
async fn whoever_renews_in_time_is_served_through_a_change_of_authority_and_nobody_else() {
    let hub = Loopback::open(Settings::default()).await;
    let first = hub.door.authority.borrow().clone();
    let idle = hub.enrolled("west").await;
    let early = hub.door.token("east");
    let identity = hub.enrolled("east").await;

    replace(&hub.door);
    let identity = renewed(&hub, &identity, 2).await;
    hub.door.clock.forward(12 * HOUR);
    let identity = renewed(&hub, &identity, 2).await;
    hub.door.clock.forward(OVERLAP - 12 * HOUR);
    step(&hub.door);
    let second = hub.door.authority.borrow().clone();
    assert_ne!(second.signer().pin(), first.signer().pin());

    // Signed by the old one, it is as good as before; the next is the new one's.
    let identity = renewed(&hub, &identity, 2).await;
    Talk::open(&hub, shown(&identity)).await.unwrap();
    hub.enrolled("north").await;
    // A token from before names the old authority, which is no longer shown.
    let stale = hub.enrol(&early).await.unwrap_err().to_string();
    assert!(stale.contains("--hub-ca-sha256"), "{stale}");

    hub.door.clock.forward(12 * HOUR);
    let identity = renewed(&hub, &identity, 2).await;
    hub.door.clock.forward(OVERLAP - 12 * HOUR);
    step(&hub.door);
    let identity = renewed(&hub, &identity, 1).await;
    Talk::open(&hub, shown(&identity)).await.unwrap();
    // Who was away all the time has nothing that is good.
    assert!(enrol::renew(&hub.route(), &idle).await.is_err());
    // What somebody who has the old authority's key signs today is worth nothing.
    let stolen = signed(&first, &hub.door);
    assert!(Talk::open(&hub, stolen).await.is_err());
    let good = signed(&hub.door.authority.borrow().clone(), &hub.door);
    Talk::open(&hub, good).await.unwrap();
}

/// A certificate for east of this authority, signed now.
fn signed(authority: &Authority, door: &Door) -> crate::raw::Shown {
    let key = rcgen::KeyPair::generate().unwrap();
    let csr = rcgen::CertificateParams::default().serialize_request(&key).unwrap().der().to_vec();
    let east =
        ClusterIdentity { hub_id: "hub".into(), cluster: "east".into(), uid: "east-uid".into() };
    let (leaf, _) =
        authority.signer().issue_agent(&csr, &east, AGENT_LIFE, door.clock.now()).unwrap();
    (vec![leaf], rustls::pki_types::PrivatePkcs8KeyDer::from(key.serialize_der()).into())
}
