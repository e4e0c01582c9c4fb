//! One session: its messages, its end, and what precedes it.

use std::sync::Arc;
use std::time::Duration;

use switchyard_hub::server::{ServerSettings, SessionEvent};
use switchyard_proto::v1::{
    Assignment, Hello, Observation, Observed, Payload, Phase, Ping, State, agent_message,
    hub_message,
};
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;
use tonic::Code;

use crate::raw::{RawSession, connect, hello, shown, tls};
use crate::test_server::{EPOCH, Loopback, soon};

const MOMENT: Duration = Duration::from_millis(300);

async fn open() -> Loopback {
    Loopback::open(ServerSettings::default()).await
}

#[tokio::test]
async fn session_sends_desired_and_receives_observed_state() {
    let mut hub = open().await;
    let identity = hub.enrolled("east").await;
    let assignment = |phase: Phase| Assignment {
        workload_uid: "u".into(),
        attempt: 1,
        phase: phase.into(),
        ..Assignment::default()
    };
    let port = hub.server.channels.of("east");
    port.set(assignment(Phase::Run), Some(Arc::new(Payload::new(b"{}".to_vec(), b"{}".to_vec()))));
    let named = Hello { software: "test/1".into(), ..hello() };
    let (mut session, first) = RawSession::open_with(&hub, shown(&identity), named).await.unwrap();
    let Some(hub_message::Kind::Welcome(welcome)) = first else { panic!("{first:?}") };
    assert_eq!((welcome.version, welcome.hub_id.as_str(), welcome.snapshot), (1, "hub", true));
    let Some(hub_message::Kind::Desired(desired)) = session.next().await else {
        panic!("no Desired")
    };
    assert_eq!((desired.assignments.len(), desired.payloads.len(), desired.snapshot), (1, 1, true));
    assert!(
        matches!(hub.event().await, SessionEvent::Up(info) if info.cluster == "east" && info.live.software == "test/1")
    );

    session.say(agent_message::Kind::Ping(Ping { nonce: 42, unable: false })).await;
    assert!(
        matches!(session.next().await, Some(hub_message::Kind::Pong(pong)) if pong.nonce == 42)
    );

    let observation = Observation {
        workload_uid: "u".into(),
        attempt: 1,
        state: State::Succeeded.into(),
        ..Observation::default()
    };
    let observed =
        Observed { sequence: 1, inventory: true, observations: vec![observation], more: false };
    session.say(agent_message::Kind::Observed(observed.clone())).await;
    session.say(agent_message::Kind::Observed(observed)).await;
    let SessionEvent::Observed { observations, inventory, .. } = hub.event().await else {
        panic!("not observed")
    };
    assert_eq!((observations.len(), inventory.map(|uids| uids.len())), (1, Some(1)));
    port.set(assignment(Phase::Absent), None);
    assert!(
        matches!(session.next().await, Some(hub_message::Kind::Desired(_))),
        "not acknowledged before it is persisted"
    );
    port.persisted("u", 1);
    assert!(matches!(session.next().await, Some(hub_message::Kind::ObservedAck(1))));

    drop(session);
    assert!(
        matches!(hub.event().await, SessionEvent::Down { cluster, .. } if cluster == "east"),
        "said once"
    );
    assert!(hub.server.registry.is_empty());
}

#[tokio::test]
async fn newer_session_supersedes_and_deletion_closes_it() {
    let mut hub = open().await;
    let identity = hub.enrolled("east").await;
    let mut older = RawSession::open(&hub, shown(&identity)).await.unwrap();
    assert!(matches!(hub.event().await, SessionEvent::Up(_)));
    let mut newer = RawSession::open(&hub, shown(&identity)).await.unwrap();
    assert_eq!(older.end().await, "superseded by a newer session");
    assert!(newer.session_id > older.session_id);
    assert_eq!(hub.server.registry.len(), 1);
    hub.server.registry.close("east", "deleted");
    assert_eq!(newer.end().await, "deleted");
}

#[tokio::test]
async fn session_has_the_difference_of_the_clocks() {
    let mut hub = open().await;
    let identity = hub.enrolled("east").await;
    hub.server.clock.forward(Duration::from_secs(3600));
    let skew = |event| match event {
        SessionEvent::Up(info) => info.live.skew,
        other => panic!("{other:?}"),
    };
    let clock = Some(std::time::SystemTime::now().into());
    let _late = RawSession::open_with(&hub, shown(&identity), Hello { clock, ..hello() }).await;
    let behind = skew(hub.until("a session", |it| matches!(it, SessionEvent::Up(_))).await);
    assert!(behind.is_some_and(|it| (-3610..=-3590).contains(&it)), "{behind:?}");
    let _silent = RawSession::open(&hub, shown(&identity)).await.unwrap();
    let unknown = hub.until("a session", |it| matches!(it, SessionEvent::Up(_))).await;
    assert_eq!(skew(unknown), None, "an agent that sends no time");
}

#[tokio::test]
async fn unsupported_protocol_version_gets_a_reason() {
    let hub = open().await;
    let identity = hub.enrolled("east").await;
    let future = Hello { min_version: 2, max_version: 9, ..hello() };
    let (_talk, answer) = RawSession::open_with(&hub, shown(&identity), future).await.unwrap();
    let Some(hub_message::Kind::Goodbye(goodbye)) = answer else { panic!("{answer:?}") };
    assert_eq!(
        goodbye.reason,
        "no common protocol version: the agent speaks 2 to 9, the hub 1 to 1"
    );
}

#[tokio::test]
async fn gaps_and_second_hellos_end_the_session() {
    let hub = open().await;
    let identity = hub.enrolled("east").await;
    for (kind, reason) in [
        (
            agent_message::Kind::Observed(Observed { sequence: 5, ..Observed::default() }),
            "observations are missing: expected 1, got 5",
        ),
        (agent_message::Kind::Hello(hello()), "a second Hello"),
    ] {
        let mut session = RawSession::open(&hub, shown(&identity)).await.unwrap();
        session.say(kind).await;
        assert_eq!(session.end().await, reason);
    }
}

#[tokio::test]
async fn unanswered_ping_ends_the_session() {
    let settings = ServerSettings {
        ping_interval: Duration::from_millis(100),
        ping_timeout: MOMENT,
        ..ServerSettings::default()
    };
    let mut hub = Loopback::open(settings).await;
    let identity = hub.enrolled("east").await;
    let _talk = RawSession::open(&hub, shown(&identity)).await.unwrap();
    assert!(matches!(hub.event().await, SessionEvent::Up(_)));
    let SessionEvent::Down { reason, .. } = hub.event().await else { panic!("still up") };
    assert_eq!(reason, "a ping was not answered within 300ms");
}

#[tokio::test]
async fn replica_without_leadership_accepts_no_session() {
    let hub = open().await;
    let identity = hub.enrolled("east").await;
    hub.server.term.send_replace(None);
    let refused = RawSession::open(&hub, shown(&identity)).await.err().unwrap();
    assert_eq!(refused.code(), Code::Unavailable);
}

#[tokio::test]
async fn later_epoch_of_an_agent_raises_the_election_once() {
    let hub = open().await;
    let east = hub.enrolled("east").await;
    let remembers =
        |hub: &str, epoch| Hello { last_hub_id: hub.into(), last_epoch: epoch, ..hello() };
    for (case, hello, begins, floor) in [
        ("this epoch", remembers("hub", EPOCH), true, 0),
        ("another hub's", remembers("other", 9), true, 0),
        ("more than any hub forgets", remembers("hub", EPOCH + (1 << 20) + 1), true, 0),
        ("a later one", remembers("hub", 9), false, 9),
        ("one that the election has been told", remembers("hub", 8), false, 9),
        ("once more", remembers("hub", 12), true, 9),
    ] {
        let (_talk, first) = RawSession::open_with(&hub, shown(&east), hello).await.unwrap();
        let welcome = matches!(first, Some(hub_message::Kind::Welcome(_)));
        assert_eq!((welcome, hub.server.floor.get()), (begins, floor), "{case}: {first:?}");
    }
}

#[tokio::test]
async fn slow_handshake_times_out_and_delays_no_other() {
    let hub =
        Loopback::open(ServerSettings { handshake: MOMENT, ..ServerSettings::default() }).await;
    let mut silent = TcpStream::connect(hub.address).await.unwrap();
    hub.enrolled("east").await;
    let read = soon("its end", silent.read(&mut [0])).await;
    assert!(matches!(read, Ok(0) | Err(_)));
}

#[tokio::test]
async fn connection_without_a_certificate_is_closed() {
    let hub =
        Loopback::open(ServerSettings { unauthenticated: MOMENT, ..ServerSettings::default() })
            .await;
    let mut stream = connect(hub.address, tls(&hub, &rustls::version::TLS13, None)).await.unwrap();
    // A clean or an abrupt end is fine.
    let _ = soon("its end", stream.read_to_end(&mut Vec::new())).await;
}
