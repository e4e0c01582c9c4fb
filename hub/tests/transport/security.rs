//! Hostile callers: each is refused or bounded, and an honest agent is not affected.

use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Duration;

use rand::{RngCore as _, SeedableRng as _};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use switchyard_agent::enrol::EnrolError;
use switchyard_agent::session::SessionState;
use switchyard_hub::server::{ServerSettings, SessionEvent};
use switchyard_proto::v1::{
    Assignment, Capacity, Hello, HubMessage, Observation, Phase, Ping, QueueCapacity, Reason,
    agent_message, hub_message,
};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tonic::codegen::http::uri::PathAndQuery;

use crate::raw::{self, RawSession, connect, running, shown, tls};
use crate::test_server::{Agent, Loopback, SOON, soon};

/// An honest agent that connects before all others.
struct Bystander {
    agent: Agent,
    up: SessionState,
    probes: u32,
}

impl Bystander {
    async fn connected(hub: &mut Loopback) -> Self {
        let identity = hub.enrolled("west").await;
        let mut agent = Agent::start(hub.route(), identity);
        let up = agent.until("the bystander's session", SessionState::is_up).await;
        let mut bystander = Self { agent, up, probes: 0 };
        bystander.unharmed(hub).await;
        bystander
    }

    /// Sends the agent a probe. The answer is an event with the probe's uid.
    fn probe(&mut self, hub: &Loopback) -> String {
        self.probes += 1;
        let uid = format!("probe-{}", self.probes);
        let tombstone = Assignment {
            workload_uid: uid.clone(),
            namespace: "ns".into(),
            name: uid.clone(),
            attempt: 1,
            phase: Phase::Absent.into(),
            ..Assignment::default()
        };
        hub.server.channels.of("west").set(tombstone, None);
        uid
    }

    /// The agent keeps its session, receives desired state, and its reports arrive.
    async fn unharmed(&mut self, hub: &mut Loopback) {
        let uid = self.probe(hub);
        hub.until("the bystander's answer", |event| answers(event, &uid)).await;
        assert_eq!(*self.agent.state.borrow(), self.up, "another session");
        assert!(hub.server.registry.get("west").is_some());
    }
}

fn answers(event: &SessionEvent, uid: &str) -> bool {
    matches!(event, SessionEvent::Observed { cluster, observations, .. }
        if cluster == "west" && observations.iter().any(|observation| observation.workload_uid == uid))
}

/// With these settings the hub sends no ping while a test plays an agent that answers none.
fn calm() -> ServerSettings {
    ServerSettings { ping_interval: SOON * 10, ..ServerSettings::default() }
}

#[tokio::test]
async fn message_with_foreign_session_id_is_dropped() {
    let mut hub = Loopback::open(calm()).await;
    let mut bystander = Bystander::connected(&mut hub).await;
    let SessionState::Up { session_id: wests, .. } = bystander.up else { panic!("not up") };
    let east = hub.enrolled("east").await;
    let mut session = RawSession::open(&hub, shown(&east)).await.unwrap();
    // No field names a cluster. A message with another session's id is dropped, so the next own
    // message is the first.
    let own = std::mem::replace(&mut session.session_id, wests);
    for forged in [wests, own + 1, 0, u64::MAX] {
        session.session_id = forged;
        assert!(session.observe(vec![running("forged", 1)]).await);
    }
    (session.session_id, session.sequence) = (own, 0);
    assert!(session.observe(vec![running("own", 1)]).await);
    let event =
        hub.until("east's own", |event| matches!(event, SessionEvent::Observed { .. })).await;
    let SessionEvent::Observed { cluster, session_id, observations, .. } = event else {
        unreachable!()
    };
    assert_eq!(
        (cluster.as_str(), session_id, observations[0].workload_uid.as_str()),
        ("east", own, "own")
    );
    bystander.unharmed(&mut hub).await;
}

#[tokio::test]
async fn foreign_certificate_without_its_key_is_rejected() {
    let mut hub = Loopback::open(calm()).await;
    let mut bystander = Bystander::connected(&mut hub).await;
    let (east, west) = (hub.enrolled("east").await, bystander.agent.identity.load_full());
    let provider = rustls::crypto::aws_lc_rs::default_provider();
    let key = provider.key_provider.load_private_key(east.key.clone_key()).unwrap();
    let mut config = tls(&hub, &rustls::version::TLS13, None);
    let stolen = CertifiedKey::new(west.chain.clone(), key);
    config.client_auth_cert_resolver = Arc::new(SingleCertAndKey::from(stolen));
    // In TLS 1.3 the client's handshake may succeed before the server has checked its certificate.
    if let Ok(mut stream) = connect(hub.address, config).await {
        let end = soon("the end", stream.read(&mut [0; 64])).await;
        assert!(end.is_err() || end.is_ok_and(|bytes| bytes < 64), "it was let in");
    }
    // A certificate of another hub, for the same cluster name.
    let other = Loopback::open(ServerSettings::default()).await;
    let foreign = other.enrolled("west").await;
    assert!(RawSession::open(&hub, shown(&foreign)).await.is_err());
    bystander.unharmed(&mut hub).await;
}

#[tokio::test]
async fn concurrent_uses_of_one_token_enrol_one() {
    let mut hub = Loopback::open(ServerSettings::default()).await;
    let mut bystander = Bystander::connected(&mut hub).await;
    let token = hub.server.token("east");
    let tries = (0..8).map(|_| hub.enrol(&token));
    let tried = futures::future::join_all(tries).await;
    assert_eq!(tried.iter().filter(|tried| tried.is_ok()).count(), 1);
    let refused = |tried: &&Result<_, EnrolError>| matches!(tried, Err(EnrolError::Refused { .. }));
    assert_eq!(tried.iter().filter(refused).count(), 7);
    bystander.unharmed(&mut hub).await;
}

#[tokio::test]
async fn client_without_tls_1_3_and_http_2_is_rejected() {
    let mut hub = Loopback::open(ServerSettings::default()).await;
    let mut bystander = Bystander::connected(&mut hub).await;
    assert!(
        connect(hub.address, tls(&hub, &rustls::version::TLS12, None)).await.is_err(),
        "TLS 1.2"
    );

    let mut plain = TcpStream::connect(hub.address).await.unwrap();
    plain.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.unwrap();
    ended("without TLS", &mut plain).await;

    let mut other = tls(&hub, &rustls::version::TLS13, None);
    other.alpn_protocols = vec![b"http/1.1".to_vec()];
    assert!(connect(hub.address, other).await.is_err(), "HTTP/1.1 by ALPN");
    bystander.unharmed(&mut hub).await;
}

/// Waits until the hub has closed a connection, whatever it sends before.
async fn ended(what: &str, stream: &mut (impl tokio::io::AsyncRead + Unpin)) {
    let mut said = Vec::new();
    let _ = soon(what, stream.read_to_end(&mut said)).await;
    assert!(said.len() < 4096, "{what}: it got {} bytes", said.len());
}

#[tokio::test]
async fn malformed_frames_end_only_their_connection() {
    let mut hub = Loopback::open(ServerSettings::default()).await;
    let mut bystander = Bystander::connected(&mut hub).await;
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
    let seed: u64 = 20_261_122;
    let mut random = rand::rngs::StdRng::seed_from_u64(seed);
    let mut junk = vec![0; 20_000];
    random.fill_bytes(&mut junk);
    let frame = |header: [u8; 9]| [&preface[..], &header[..], &junk[..1000]].concat();
    let cases = [
        ("junk in the place of HTTP/2", junk.clone()),
        ("HTTP/1.1", b"GET / HTTP/1.1\r\nhost: hub\r\n\r\n".to_vec()),
        ("a frame of 16 MiB", frame([0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 1])),
        ("headers that are none", frame([0, 3, 0xe8, 1, 4, 0, 0, 0, 1])),
        ("data of no stream", frame([0, 3, 0xe8, 0, 0, 0, 0, 0, 7])),
        ("junk frames", [&preface[..], &junk[..]].concat()),
    ];
    for (case, bytes) in cases {
        println!("{case}, seed {seed}");
        let mut stream =
            connect(hub.address, tls(&hub, &rustls::version::TLS13, None)).await.unwrap();
        // The hub may close the connection before everything is written.
        let _ = stream.write_all(&bytes).await;
        ended(case, &mut stream).await;
    }
    bystander.unharmed(&mut hub).await;
}

/// A `Hello` that is no protobuf message.
#[derive(Clone, PartialEq, prost::Message)]
struct Garbage {
    #[prost(bytes = "vec", tag = "2")]
    hello: Vec<u8>,
}

#[tokio::test]
async fn invalid_or_oversized_message_ends_its_session() {
    let mut hub = Loopback::open(calm()).await;
    let mut bystander = Bystander::connected(&mut hub).await;
    let east = hub.enrolled("east").await;

    let mut grpc = tonic::client::Grpc::new(raw::channel(&hub, Some(shown(&east))).await.unwrap());
    grpc.ready().await.unwrap();
    let garbage = tokio_stream::iter([Garbage { hello: vec![0xff; 100] }]);
    let path = PathAndQuery::from_static("/switchyard.agent.v1.Agent/Session");
    let codec = tonic_prost::ProstCodec::<Garbage, HubMessage>::default();
    let answer =
        soon("the answer", grpc.streaming(tonic::Request::new(garbage), path, codec)).await;
    if let Ok(stream) = answer {
        let first = soon("the end", stream.into_inner().message()).await;
        assert!(!matches!(first, Ok(Some(_))), "{first:?}");
    }

    let shouting = Hello { software: "x".repeat(70_000), ..raw::hello() };
    assert!(
        RawSession::open_with(&hub, shown(&east), shouting).await.is_err(),
        "a first message of 70 kB"
    );

    let mut session = RawSession::open(&hub, shown(&east)).await.unwrap();
    session.observe(vec![Observation::default(); 300_000]).await;
    let (_, reason) = hub.until_down("the end of the empty ones").await;
    assert!(reason.contains("a message's parts would take"), "600 kB that become 50 MB: {reason}");

    let large = |bytes: usize| Observation { job_status: vec![b' '; bytes], ..running("u", 1) };
    let mut session = RawSession::open(&hub, shown(&east)).await.unwrap();
    session.observe(vec![large(5 << 20)]).await;
    let (cluster, reason) = hub.until_down("5 MiB").await;
    assert_eq!(cluster, "east");
    assert!(reason.contains("message length too large"), "{reason}");
    bystander.unharmed(&mut hub).await;
}

/// Tenants of a cluster can write what its agent reads.
#[tokio::test]
async fn impossible_observations_do_not_end_the_session() {
    let mut hub = Loopback::open(calm()).await;
    let mut bystander = Bystander::connected(&mut hub).await;
    let east = hub.enrolled("east").await;
    let mut session = RawSession::open(&hub, shown(&east)).await.unwrap();
    session
        .observe(vec![
            running("", 1),
            running("u", u64::MAX),
            running("ж", 1),
            running("honest", 1),
        ])
        .await;
    let of_east = |event: &SessionEvent| matches!(event, SessionEvent::Observed { cluster, .. } if cluster == "east");
    let told = hub.until("the honest one", of_east).await;
    let SessionEvent::Observed { observations, .. } = told else { unreachable!() };
    let uids: Vec<&str> = observations.iter().map(|it| it.workload_uid.as_str()).collect();
    assert_eq!(uids, ["honest"]);
    session.observe(vec![running("next", 1)]).await;
    let told = hub.until("the next one", of_east).await;
    let SessionEvent::Observed { observations, .. } = told else { unreachable!() };
    assert_eq!(observations.len(), 1);
    bystander.unharmed(&mut hub).await;
}

#[tokio::test]
async fn duplicate_cluster_is_refused_and_the_first_goes_on() {
    let mut hub = Loopback::open(calm()).await;
    let mut bystander = Bystander::connected(&mut hub).await;
    let (east, north) = (hub.enrolled("east").await, hub.enrolled("north").await);
    let there = Hello { cluster_uid: "one".into(), ..raw::hello() };
    let (mut first, _) = RawSession::open_with(&hub, shown(&east), there.clone()).await.unwrap();
    hub.until("east's session", |event| matches!(event, SessionEvent::Up(_))).await;
    let (_, answer) = RawSession::open_with(&hub, shown(&north), there.clone()).await.unwrap();
    let Some(hub_message::Kind::Goodbye(goodbye)) = answer else { panic!("{answer:?}") };
    assert_eq!(goodbye.reason, "MultiKueueCluster \"east\" leads to the same cluster");
    assert_eq!(hub.server.registry.holder_of_refused("north").as_deref(), Some("east"));
    assert!(hub.server.registry.get("north").is_none());
    assert!(first.observe(vec![running("u", 1)]).await);
    hub.until(
        "east's word",
        |event| matches!(event, SessionEvent::Observed { cluster, .. } if cluster == "east"),
    )
    .await;
    // After the first has left, the second may connect: neither has a known worker cluster.
    drop(first);
    hub.until(
        "east's end",
        |event| matches!(event, SessionEvent::Down { cluster, .. } if cluster == "east"),
    )
    .await;
    let (_second, answer) = RawSession::open_with(&hub, shown(&north), there).await.unwrap();
    assert!(matches!(answer, Some(hub_message::Kind::Welcome(_))), "{answer:?}");
    bystander.unharmed(&mut hub).await;
}

#[tokio::test]
async fn half_open_connections_keep_no_agent_out() {
    const THOUSAND: usize = 1000;
    switchyard_platform::program::allow_connections();
    let settings = calm();
    let most = settings.newcomers;
    let mut hub = Loopback::open(settings).await;
    let mut bystander = Bystander::connected(&mut hub).await;
    let mut silent = Vec::with_capacity(THOUSAND);
    for _ in 0..THOUSAND {
        silent.push(TcpStream::connect(hub.address).await.unwrap());
    }
    // Meanwhile an honest agent can enrol and start a session.
    let east = hub.enrolled("east").await;
    let session = RawSession::open(&hub, shown(&east)).await.unwrap();
    bystander.unharmed(&mut hub).await;
    let held = |silent: &[TcpStream]| {
        let open = |stream: &&TcpStream| matches!(stream.try_read(&mut [0]), Err(error) if error.kind() == ErrorKind::WouldBlock);
        silent.iter().filter(open).count()
    };
    let bounded = async {
        while held(&silent) > most {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    soon("the oldest to be closed", bounded).await;
    bystander.unharmed(&mut hub).await;
    drop(session);
}

#[tokio::test]
async fn idle_connections_are_bounded_by_peer_class() {
    let settings = ServerSettings { newcomers: 16, per_cluster: 4, ..calm() };
    let mut hub = Loopback::open(settings).await;
    let mut bystander = Bystander::connected(&mut hub).await;
    let mut idle = Vec::new();
    for _ in 0..48 {
        idle.push(connect(hub.address, tls(&hub, &rustls::version::TLS13, None)).await.unwrap());
    }
    for (number, stream) in idle.iter_mut().take(32).enumerate() {
        ended(&format!("connection {number}"), stream).await;
    }
    let east = hub.enrolled("east").await;
    let mut talks = Vec::new();
    for _ in 0..12 {
        talks.push(RawSession::open(&hub, shown(&east)).await.unwrap());
    }
    for session in talks.iter_mut().take(8) {
        session.end().await;
    }
    assert_eq!(hub.server.registry.len(), 2, "one session for each cluster");
    bystander.unharmed(&mut hub).await;
}

#[tokio::test]
async fn report_flood_waits_in_its_own_connection() {
    let mut hub = Loopback::open(calm()).await;
    let mut bystander = Bystander::connected(&mut hub).await;
    let east = hub.enrolled("east").await;
    let mut session = RawSession::open(&hub, shown(&east)).await.unwrap();
    hub.until("east's session", |event| matches!(event, SessionEvent::Up(_))).await;
    let flood = tokio::spawn(async move {
        let reason = Reason { code: "Flood".into(), message: "x".repeat(1000) };
        loop {
            let made = (0..64).map(|number| Observation {
                reasons: vec![reason.clone()],
                ..running(&format!("u{number}"), 1)
            });
            let queue =
                QueueCapacity { cluster_queue: "q".repeat(1000), ..QueueCapacity::default() };
            let capacity = Capacity { queues: vec![queue; 64], ..Capacity::default() };
            if !session.observe(made.collect()).await
                || !session.say(agent_message::Kind::Capacity(capacity)).await
            {
                return session.end().await;
            }
        }
    });
    // The dispatcher takes no event: the queue grows to east's budget and no further.
    let settled = async {
        let mut before = 0;
        loop {
            tokio::time::sleep(Duration::from_millis(300)).await;
            let now = hub.events.len();
            if now > 0 && now == before {
                return now;
            }
            before = now;
        }
    };
    let waiting = soon("the flood to be stemmed", settled).await;
    assert!(waiting <= 64, "{waiting} messages wait");
    // The bystander's events are taken in between.
    let uid = bystander.probe(&hub);
    let passed = async {
        while hub.events.len() == waiting {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    soon("the bystander to pass", passed).await;
    let mut found = false;
    for _ in 0..=waiting {
        let event = hub.event().await;
        assert!(matches!(event.cluster(), "east" | "west"));
        found |= answers(&event, &uid);
    }
    assert!(found, "it waits behind the flood");
    assert!(!flood.is_finished(), "{:?}", flood.await);
    bystander.unharmed(&mut hub).await;
    flood.abort();
}

#[tokio::test]
async fn agent_reporting_too_many_workloads_is_disconnected() {
    let mut hub = Loopback::open(calm()).await;
    let mut bystander = Bystander::connected(&mut hub).await;
    let east = hub.enrolled("east").await;
    let mut session = RawSession::open(&hub, shown(&east)).await.unwrap();
    let making = tokio::spawn(async move {
        let mut made = 0;
        loop {
            let batch = (made..made + 20_000)
                .map(|number| running(&format!("made-up-{number}"), 1))
                .collect();
            made += 20_000;
            if !session.observe(batch).await {
                return made;
            }
        }
    });
    let down = |event: &SessionEvent| matches!(event, SessionEvent::Down { cluster, .. } if cluster == "east");
    let SessionEvent::Down { reason, .. } = hub.until("the cut", down).await else {
        unreachable!()
    };
    assert_eq!(
        reason,
        format!("it speaks of more than {} workloads", switchyard_hub::limits::MAX_WORKLOADS)
    );
    soon("its end", making).await.unwrap();
    bystander.unharmed(&mut hub).await;
}

#[tokio::test]
async fn flapping_agent_health_is_rate_limited() {
    let mut hub = Loopback::open(calm()).await;
    let mut bystander = Bystander::connected(&mut hub).await;
    let east = hub.enrolled("east").await;
    let mut session = RawSession::open(&hub, shown(&east)).await.unwrap();
    let began = tokio::time::Instant::now();
    for nonce in 0..500 {
        assert!(
            session.say(agent_message::Kind::Ping(Ping { nonce, unable: nonce % 2 == 0 })).await
        );
    }
    assert!(session.observe(vec![running("last", 1)]).await);
    let mut heard = 0;
    let last = |event: &SessionEvent| matches!(event, SessionEvent::Observed { cluster, .. } if cluster == "east");
    loop {
        let event = hub.event().await;
        heard +=
            u64::from(matches!(&event, SessionEvent::Able { cluster, .. } if cluster == "east"));
        if last(&event) {
            break;
        }
    }
    assert!(
        (1..=began.elapsed().as_secs() + 1).contains(&heard),
        "{heard} times in {:?}",
        began.elapsed()
    );
    bystander.unharmed(&mut hub).await;
}
