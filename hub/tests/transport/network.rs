//! Sessions over a network that loses, delays and cuts, simulated by turmoil in virtual time. TLS,
//! HTTP/2 and gRPC of both programs are the real ones.
//!
//! A printed seed draws the faults. Keys and handshakes are random, so a seed repeats the faults
//! and their times, not the bytes.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use futures::future::BoxFuture;
use jiff::Timestamp;
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use switchyard_agent::enrol::{self, Join};
use switchyard_agent::route::{Dial, Io};
use switchyard_agent::session::SessionState;
use switchyard_hub::cluster_channel::ClusterChannels;
use switchyard_hub::server::{Listen, Registry, ServerSettings, SessionEvent};
use switchyard_proto::v1::{Assignment, Phase};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::watch;
use tokio::time::{Instant, Sleep, sleep, timeout};

use crate::test_server::{Agent, ManualClock, TestServer, over};

const PORT: u16 = 7443;
/// Default number of seeds. `TRANSPORT_SEEDS` sets another.
const SEEDS: u64 = 4;
const FIRST_SEED: u64 = 7;
/// Deadline of a cluster's answer while its own network works, whatever happens to other networks.
const PROMPT: Duration = Duration::from_secs(2);
/// Pings go every 10 s and wait 5 s. The rest is for the network.
const NOTICED: Duration = Duration::from_secs(17);
/// Until a session exists again: the longest pause between attempts, and one failed attempt.
const MENDED: Duration = Duration::from_secs(60);
/// Latency and time resolution of the network.
const LATENCY: (Duration, Duration) = (Duration::from_millis(5), Duration::from_millis(50));
const TICK: Duration = Duration::from_millis(5);

struct Listener(turmoil::net::TcpListener);

impl Listen for Listener {
    type Io = turmoil::net::TcpStream;

    async fn accept(&mut self) -> io::Result<(Self::Io, SocketAddr)> {
        self.0.accept().await
    }
}

/// Simulated TCP. With a value, at most this many bytes are read in a tenth of a second.
#[derive(Clone, Copy)]
struct Wire(Option<usize>);

impl Dial for Wire {
    fn dial<'a>(&'a self, host: &'a str, port: u16) -> BoxFuture<'a, io::Result<Box<dyn Io>>> {
        Box::pin(async move {
            let stream = turmoil::net::TcpStream::connect((host, port)).await?;
            Ok(match self.0 {
                None => Box::new(stream) as Box<dyn Io>,
                Some(pace) => Box::new(Slow { stream, pace, left: pace, pause: None }),
            })
        })
    }
}

/// Limits the rate of reads.
struct Slow {
    stream: turmoil::net::TcpStream,
    pace: usize,
    left: usize,
    pause: Option<Pin<Box<Sleep>>>,
}

impl AsyncRead for Slow {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.left == 0 {
            let pause =
                self.pause.get_or_insert_with(|| Box::pin(sleep(Duration::from_millis(100))));
            futures::ready!(pause.as_mut().poll(cx));
            (self.pause, self.left) = (None, self.pace);
        }
        let mut part = buf.take(self.left);
        futures::ready!(Pin::new(&mut self.stream).poll_read(cx, &mut part))?;
        let read = part.filled().len();
        self.left -= read;
        // The bytes are initialized: `part` is a slice of the same buffer.
        let filled = buf.filled().len() + read;
        buf.initialize_unfilled_to(read);
        buf.set_filled(filled);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Slow {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// State that the hosts share with the test.
#[derive(Clone, Default)]
struct World(Arc<Mutex<Seen>>);

#[derive(Default)]
struct Seen {
    tokens: BTreeMap<String, Join>,
    hub: Option<(Arc<ClusterChannels>, Arc<Registry>)>,
    agents: BTreeMap<String, watch::Receiver<SessionState>>,
    /// The last probe that each cluster answered.
    answered: BTreeMap<String, u64>,
    /// The last probe sent to each cluster.
    asked: BTreeMap<String, u64>,
    /// Sessions that have started and not ended.
    open: BTreeMap<String, usize>,
}

impl World {
    fn with<T>(&self, act: impl FnOnce(&mut Seen) -> T) -> T {
        act(&mut self.0.lock().unwrap())
    }

    /// Waits until a condition holds.
    async fn until(&self, what: &str, within: Duration, is: impl Fn(&mut Seen) -> bool) {
        let waited = timeout(within, async {
            while !self.with(&is) {
                sleep(TICK).await;
            }
        });
        if waited.await.is_err() {
            panic!(
                "{what}: not within {within:?}, at {:?} of the simulation",
                turmoil::sim_elapsed().unwrap_or_default()
            );
        }
    }

    /// Sends a probe to a cluster as new desired state.
    fn ask(&self, cluster: &str) -> u64 {
        self.with(|seen| {
            let asked = seen.asked.entry(cluster.to_owned()).or_default();
            *asked += 1;
            let (channels, _) = seen.hub.as_ref().expect("the hub runs");
            channels.of(cluster).set(tombstone("probe", *asked), None);
            *asked
        })
    }

    /// Sends a probe and waits for its answer.
    async fn answers(&self, cluster: &str, within: Duration) {
        let asked = self.ask(cluster);
        let what = format!("an answer of {cluster}");
        self.until(&what, within, |seen| {
            seen.answered.get(cluster).is_some_and(|answered| *answered >= asked)
        })
        .await;
    }

    fn connected(&self, cluster: &str) -> bool {
        self.with(|seen| {
            let there =
                seen.hub.as_ref().is_some_and(|(_, registry)| registry.get(cluster).is_some());
            there && seen.agents.get(cluster).is_some_and(|state| state.borrow().is_up())
        })
    }

    /// Whether neither end has a session.
    fn cut(&self, cluster: &str) -> bool {
        self.with(|seen| {
            let gone =
                seen.hub.as_ref().is_some_and(|(_, registry)| registry.get(cluster).is_none());
            gone && seen.agents.get(cluster).is_some_and(|state| !state.borrow().is_up())
        })
    }
}

fn tombstone(uid: &str, attempt: u64) -> Assignment {
    Assignment {
        workload_uid: uid.into(),
        namespace: "ns".into(),
        name: uid.into(),
        attempt,
        phase: Phase::Absent.into(),
        ..Assignment::default()
    }
}

async fn hub(world: World, clock: ManualClock) -> turmoil::Result {
    let listener = Listener(turmoil::net::TcpListener::bind(("0.0.0.0", PORT)).await?);
    let (server, mut events) = TestServer::open(listener, ServerSettings::default(), clock);
    world.with(|seen| {
        seen.tokens = ["east", "west"].map(|name| (name.to_owned(), server.token(name))).into();
        seen.hub = Some((server.channels.clone(), server.registry.clone()));
    });
    while let Some(event) = events.recv().await {
        world.with(|seen| match &event {
            SessionEvent::Up(info) => *seen.open.entry(info.cluster.clone()).or_default() += 1,
            SessionEvent::Down { cluster, .. } => {
                *seen.open.entry(cluster.clone()).or_default() -= 1
            }
            SessionEvent::Observed { cluster, observations, .. } => {
                let probes = observations
                    .iter()
                    .filter(|it| it.workload_uid == "probe")
                    .map(|it| it.attempt);
                let answered = seen.answered.entry(cluster.clone()).or_default();
                *answered = probes.fold(*answered, u64::max);
            }
            SessionEvent::Able { .. } | SessionEvent::Capacity { .. } => {}
        });
    }
    Ok(())
}

async fn agent(
    world: World,
    name: &'static str,
    wire: Wire,
    clock: ManualClock,
) -> turmoil::Result {
    let route = over(wire, &format!("https://hub:{PORT}"), &clock);
    let join = loop {
        match world.with(|seen| seen.tokens.get(name).cloned()) {
            Some(join) => break join,
            None => sleep(TICK).await,
        }
    };
    let agent = Agent::start(route.clone(), enrol::enrol(&route, &join).await?);
    world.with(|seen| seen.agents.insert(name.to_owned(), agent.state.clone()));
    std::future::pending().await
}

/// Runs a scenario with a hub and two agents, once for each seed.
fn play<Story>(easts: Wire, story: impl Fn(World, StdRng) -> Story)
where
    Story: Future<Output = ()> + 'static,
{
    let seeds = std::env::var("TRANSPORT_SEEDS").map_or(SEEDS, |count| count.parse().unwrap());
    for seed in FIRST_SEED..FIRST_SEED + seeds {
        println!("seed {seed}");
        let mut sim = turmoil::Builder::new()
            .rng_seed(seed)
            .simulation_duration(Duration::from_secs(3600))
            .tick_duration(TICK)
            .min_message_latency(LATENCY.0)
            .max_message_latency(LATENCY.1)
            .build();
        let (world, clock) = (World::default(), ManualClock::new(Timestamp::now()));
        let (shared, time) = (world.clone(), clock.clone());
        sim.host("hub", move || hub(shared.clone(), time.clone()));
        for (name, wire) in [("east", easts), ("west", Wire(None))] {
            let (world, clock) = (world.clone(), clock.clone());
            sim.host(name, move || agent(world.clone(), name, wire, clock.clone()));
        }
        let story = story(world.clone(), StdRng::seed_from_u64(seed));
        sim.client("story", async move {
            for name in ["east", "west"] {
                world.until("the agents", MENDED, |seen| seen.agents.contains_key(name)).await;
                timeout(MENDED, async {
                    while !world.connected(name) {
                        sleep(TICK).await
                    }
                })
                .await?;
            }
            story.await;
            Ok(())
        });
        sim.run().unwrap();
    }
}

/// Faults of the network between east and the hub.
#[derive(Debug, Clone, Copy)]
enum Fault {
    Cut,
    NothingToHub,
    NothingToEast,
    Held,
}

impl Fault {
    const ALL: [Self; 4] = [Self::Cut, Self::NothingToHub, Self::NothingToEast, Self::Held];

    fn begin(self) {
        match self {
            Self::Cut => turmoil::partition("east", "hub"),
            Self::NothingToHub => turmoil::partition_oneway("east", "hub"),
            Self::NothingToEast => turmoil::partition_oneway("hub", "east"),
            Self::Held => turmoil::hold("east", "hub"),
        }
    }

    fn end(self) {
        match self {
            Self::Cut | Self::NothingToHub | Self::NothingToEast => turmoil::repair("east", "hub"),
            Self::Held => turmoil::release("east", "hub"),
        }
    }
}

#[test]
fn network_fault_is_repaired_and_delays_no_other_cluster() {
    play(Wire(None), |world, mut random| async move {
        for round in 0..6 {
            let fault = Fault::ALL[random.random_range(0..Fault::ALL.len())];
            let lasts = Duration::from_millis(random.random_range(500..40_000));
            println!("  round {round}: {fault:?} for {lasts:?}");
            fault.begin();
            let (began, mut cut) = (Instant::now(), false);
            world.ask("east");
            while began.elapsed() < lasts {
                world.answers("west", PROMPT).await;
                sleep(Duration::from_millis(random.random_range(50..1000))).await;
                cut |= world.cut("east");
                assert!(
                    cut || began.elapsed() < NOTICED + PROMPT,
                    "{fault:?} not noticed by both ends"
                );
            }
            fault.end();
            // A present or later session sends what the cluster missed.
            let asked = world.ask("east");
            let answered = |seen: &mut Seen| {
                seen.answered.get("east").is_some_and(|answered| *answered >= asked)
            };
            world.until("east's answer after the fault", NOTICED + MENDED, answered).await;
            world.answers("west", PROMPT).await;
            // All ended sessions were reported as ended. Nothing is left of them.
            world
                .until("one session of each", NOTICED, |seen| {
                    seen.open.values().all(|open| *open == 1)
                })
                .await;
        }
        let connections = || turmoil::established_tcp_stream_count_on("hub");
        let waited = timeout(MENDED, async {
            while connections() > 2 {
                sleep(TICK).await
            }
        })
        .await;
        assert!(waited.is_ok(), "{} connections are left on the hub", connections());
    });
}

#[test]
fn slow_reader_delays_no_other_cluster() {
    // 5 KiB a second, with some hundred assignments waiting.
    play(Wire(Some(512)), |world, mut random| async move {
        for round in 1..=40 {
            world.with(|seen| {
                let (channels, _) = seen.hub.as_ref().expect("the hub runs");
                for number in 0..400 {
                    channels.of("east").set(tombstone(&format!("many-{number}"), round), None);
                }
            });
            world.answers("west", PROMPT).await;
            sleep(Duration::from_millis(random.random_range(50..1500))).await;
        }
        // Superseded states are not sent: the cluster is up to date once nothing new is desired.
        let asked = world.ask("east");
        let answered =
            |seen: &mut Seen| seen.answered.get("east").is_some_and(|answered| *answered >= asked);
        world.until("east's answer", 4 * MENDED, answered).await;
        world.answers("west", PROMPT).await;
    });
}
