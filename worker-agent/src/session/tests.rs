//! Sessions, enrolment and renewal over loopback TLS. The test plays the hub.

use std::sync::Arc;

use arc_swap::ArcSwap;
use switchyard_proto::v1::{self, agent_message, hub_message};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::{Dialler, SessionState};
use crate::capacity::CapacitySource;
use crate::core::run_core;
use crate::enrol::{self, EnrolError, Join};
use crate::identity::{Identity, IdentityStore};
use crate::testing::{FakeHub, api, settings, soon};

/// An agent without a controller: core, dialler and renewal.
struct Agent {
    state: watch::Receiver<SessionState>,
    identity: Arc<ArcSwap<Identity>>,
    shutdown: CancellationToken,
    _tasks: JoinSet<()>,
}

impl Agent {
    fn start(hub: &FakeHub, identity: Identity) -> Self {
        let client = api();
        let settings = settings("hub-1", "batch/job");
        let identity = Arc::new(ArcSwap::from_pointee(identity));
        let (links, incoming) = mpsc::channel(1);
        let (state, watched) = watch::channel(SessionState::initial());
        let shutdown = CancellationToken::new();
        let address = hub.address.clone();
        let dialler = Dialler {
            hub: address.clone(),
            identity: identity.clone(),
            links,
            state,
            leadership: None,
            random: Box::new(|| 0.0),
        };
        let mut tasks = JoinSet::new();
        let (core, renewal) = (shutdown.clone(), shutdown.clone());
        let store = IdentityStore::new(client.clone(), "switchyard-system");
        let kept = identity.clone();
        tasks.spawn(async move {
            run_core(client, incoming, CapacitySource::None, settings, core).await.unwrap()
        });
        tasks.spawn(dialler.run(shutdown.clone()));
        tasks.spawn(async move { enrol::keep(&address, &store, &kept, &renewal).await });
        Self { state: watched, identity, shutdown, _tasks: tasks }
    }

    async fn until(&mut self, what: &str, is: impl Fn(&SessionState) -> bool) {
        soon(what, self.state.wait_for(|state| is(state))).await.unwrap();
    }

    fn reason(&self) -> String {
        match &*self.state.borrow() {
            SessionState::Down { reason, .. } => reason.clone(),
            SessionState::Up { .. } => panic!("the session is up"),
        }
    }
}

fn lease(milliseconds: i32) -> Option<v1::Lease> {
    let duration = |part: i32| {
        Some(prost_types::Duration { seconds: 0, nanos: milliseconds / part * 1_000_000 })
    };
    Some(v1::Lease { duration: duration(1), ping_interval: duration(4), ping_timeout: duration(2) })
}

fn pong(ping: v1::Ping) -> hub_message::Kind {
    hub_message::Kind::Pong(v1::Pong { nonce: ping.nonce })
}

#[tokio::test]
async fn session_opens_with_hello_and_inventory_then_pings() {
    let mut hub = FakeHub::start().await;
    let mut agent = Agent::start(&hub, hub.pki.identity("east", -10, 3600));
    let mut session = hub.session().await;
    let Some(agent_message::Kind::Hello(hello)) = session.receive().await else {
        panic!("not Hello")
    };
    assert_eq!(
        (hello.boot_id.as_str(), hello.min_version, hello.kinds.as_slice()),
        ("boot", 1, &["batch/v1, Kind=Job".to_owned()][..])
    );
    session.welcome(1, lease(900)).await;
    session.send(hub_message::Kind::Ping(v1::Ping { nonce: 42, unable: false })).await;
    let (mut pinged, mut ponged, mut inventory) = (false, false, false);
    while !(pinged && ponged && inventory) {
        match session.receive().await.unwrap() {
            agent_message::Kind::Ping(ping) => {
                session.send(pong(ping)).await;
                pinged = true;
            }
            agent_message::Kind::Pong(pong) => ponged = pong.nonce == 42,
            agent_message::Kind::Observed(observed) => {
                inventory = observed.inventory && !observed.more
            }
            other => panic!("{other:?}"),
        }
    }
    agent.until("the session", SessionState::is_up).await;
    agent.shutdown.cancel();
    session.closed().await;
}

#[tokio::test]
async fn silent_hub_is_redialled() {
    let mut hub = FakeHub::start().await;
    let _agent = Agent::start(&hub, hub.pki.identity("east", -10, 3600));
    let mut first = hub.session().await;
    first.welcome(1, lease(400)).await;
    first.closed().await;
    let mut second = hub.session().await;
    second.welcome(1, lease(400)).await;
    assert!(
        matches!(second.receive().await, Some(agent_message::Kind::Hello(hello)) if hello.last_hub_id == "hub-1")
    );
}

#[tokio::test]
async fn hub_of_other_version_is_left_with_reason() {
    let mut hub = FakeHub::start().await;
    let mut agent = Agent::start(&hub, hub.pki.identity("east", -10, 3600));
    let mut session = hub.session().await;
    session.welcome(9, None).await;
    session.closed().await;
    agent
        .until("the reason", |state| matches!(state, SessionState::Down { reason, .. } if reason.contains("protocol")))
        .await;
    assert_eq!(
        agent.reason(),
        "the hub speaks protocol version 9, this agent 1 to 1: install an agent of the hub's release"
    );
}

#[tokio::test]
async fn superseded_session_redials_after_requested_delay() {
    let mut hub = FakeHub::start().await;
    let mut agent = Agent::start(&hub, hub.pki.identity("east", -10, 3600));
    let mut session = hub.session().await;
    session.welcome(1, None).await;
    agent.until("the session", SessionState::is_up).await;
    let retry_after = Some(prost_types::Duration { seconds: 0, nanos: 1_000_000 });
    let goodbye = v1::Goodbye { reason: "superseded".to_owned(), retry_after };
    session.send(hub_message::Kind::Goodbye(goodbye)).await;
    session.closed().await;
    agent
        .until(
            "the reason",
            |state| matches!(state, SessionState::Down { reason, .. } if reason.contains("superseded")),
        )
        .await;
    let next = hub.session().await;
    next.welcome(1, None).await;
    agent.until("the next session", SessionState::is_up).await;
}

#[tokio::test]
async fn other_hub_is_not_obeyed() {
    let mut hub = FakeHub::start().await;
    let _agent = Agent::start(&hub, hub.pki.identity("east", -10, 3600));
    let mut session = hub.session().await;
    let welcome = v1::Welcome {
        version: 1,
        hub_id: "other".to_owned(),
        session_id: 1,
        lease: None,
        snapshot: true,
    };
    session.send(hub_message::Kind::Welcome(welcome)).await;
    session.closed().await;
}

#[tokio::test]
async fn certificate_renewal_keeps_session_and_serves_next_dial() {
    let mut hub = FakeHub::start().await;
    // Nine tenths of its life are over.
    let mut agent = Agent::start(&hub, hub.pki.identity("east", -900, 100));
    let first = agent.identity.load().chain.clone();
    let mut session = hub.session().await;
    session.welcome(1, None).await;
    agent.until("the session", SessionState::is_up).await;
    let renewed = async {
        while agent.identity.load().chain == first {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    };
    soon("the renewal", renewed).await;
    assert_eq!(hub.issued(), (0, 1));
    session.send(hub_message::Kind::Ping(v1::Ping { nonce: 7, unable: false })).await;
    loop {
        match session.receive().await.expect("the same session") {
            agent_message::Kind::Pong(pong) => break assert_eq!(pong.nonce, 7),
            agent_message::Kind::Ping(ping) => session.send(pong(ping)).await,
            _ => {}
        }
    }
    assert_eq!(session.peer, first[0]);
    drop(session);
    assert_eq!(hub.session().await.peer, agent.identity.load().chain[0]);
}

#[tokio::test]
async fn restart_uses_stored_identity_without_enrolment() {
    let hub = FakeHub::start().await;
    let store = IdentityStore::new(api(), "switchyard-system");
    hub.accept_token("east.1.secret");
    let join = Join::new("east.1.secret", hub.pin().parse().unwrap());
    let first =
        soon("the identity", enrol::obtain(&store, &hub.address, Some(&join))).await.unwrap();
    assert_eq!((first.cluster.as_str(), first.hub_id.as_str()), ("east", "hub-1"));
    let again =
        soon("the identity", enrol::obtain(&store, &hub.address, Some(&join))).await.unwrap();
    assert_eq!(again.chain, first.chain);
    assert_eq!(hub.issued(), (1, 0));
    let other = Join::new("west.2.secret", hub.pin().parse().unwrap());
    let refused = enrol::obtain(&store, &hub.address, Some(&other)).await;
    assert!(matches!(refused, Err(EnrolError::OtherCluster { .. })), "{refused:?}");
}

#[tokio::test]
async fn new_token_is_tried_once_beside_valid_identity() {
    let hub = FakeHub::start().await;
    let store = IdentityStore::new(api(), "switchyard-system");
    let join = |token: &str| Join::new(token, hub.pin().parse().unwrap());
    let obtain = async |join: &Join| {
        let obtained =
            soon("the identity", enrol::obtain(&store, &hub.address, Some(join))).await.unwrap();
        (obtained.chain, obtained.token_digest)
    };
    hub.accept_token("east.1.first");
    let first = obtain(&join("east.1.first")).await;
    // The MultiKueueCluster was recreated, and the hub issued another token for it.
    hub.accept_token("east.2.second");
    let second = obtain(&join("east.2.second")).await;
    assert_ne!(first.0, second.0);
    assert_eq!(hub.issued(), (2, 0));
    // A refused token leaves the identity unchanged, and is not tried again.
    let refused = join("east.3.used");
    let third = obtain(&refused).await;
    assert_eq!((&third.0, third.1.as_ref()), (&second.0, Some(&refused.digest())));
    hub.accept_token("east.3.used");
    assert_eq!(obtain(&refused).await, third);
    assert_eq!(hub.issued(), (2, 0));
}

#[tokio::test]
async fn token_is_not_sent_to_hub_with_unpinned_ca() {
    let hub = FakeHub::start().await;
    hub.accept_token("east.1.secret");
    let join = Join::new("east.1.secret", FakeHub::start().await.pin().parse().unwrap());
    let store = IdentityStore::new(api(), "switchyard-system");
    let refused = soon("the refusal", enrol::obtain(&store, &hub.address, Some(&join)))
        .await
        .unwrap_err()
        .to_string();
    assert!(refused.contains("no certificate with the hash of --hub-ca-sha256"), "{refused}");
    assert_eq!(hub.issued(), (0, 0));
}

#[tokio::test]
async fn refused_token_names_next_step() {
    let hub = FakeHub::start().await;
    let join = Join::new("east.1.used", hub.pin().parse().unwrap());
    let store = IdentityStore::new(api(), "switchyard-system");
    let refused =
        soon("the refusal", enrol::enrol(&hub.address, &join)).await.unwrap_err().to_string();
    assert!(refused.contains("switchyard cluster add east"), "{refused}");
    let nothing = enrol::obtain(&store, &hub.address, None).await.unwrap_err();
    assert!(matches!(nothing, EnrolError::NoToken));
}

#[tokio::test]
async fn token_unknown_to_hub_is_retried() {
    let hub = FakeHub::start().await;
    let join = Join::new("east.1.secret", hub.pin().parse().unwrap());
    let store = IdentityStore::new(api(), "switchyard-system");
    let accept = async {
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        hub.accept_token("east.1.secret");
    };
    let (identity, ()) = soon("the identity", async {
        tokio::join!(enrol::obtain(&store, &hub.address, Some(&join)), accept)
    })
    .await;
    assert_eq!(identity.unwrap().cluster, "east");
}

#[tokio::test]
async fn certificate_of_other_ca_opens_no_session() {
    let hub = FakeHub::start().await;
    let other = crate::identity::tests::Pki::new();
    let mut foreign = other.identity("east", -10, 3600);
    foreign.trust = vec![hub.pki.ca.clone()];
    let mut agent = Agent::start(&hub, foreign);
    agent
        .until("the reason", |state| matches!(state, SessionState::Down { reason, .. } if reason != "not dialled yet"))
        .await;
    let mut wary = Agent::start(&hub, other.identity("east", -10, 3600));
    wary.until(
        "the reason",
        |state| matches!(state, SessionState::Down { reason, .. } if reason.contains("certificate")),
    )
    .await;
}
