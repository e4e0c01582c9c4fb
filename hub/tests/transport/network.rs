//! Sessions over a network that loses, delays and cuts, played by turmoil in virtual time: TLS, HTTP/2 and gRPC of both
//! programs as they are. Faults are drawn from a seed, which is printed; keys and handshakes are not, so that a seed gives
//! the same faults at the same times and not the same bytes.

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
use switchyard_hub::cluster_channel::Ports;
use switchyard_hub::server::{Listen, Registry, SessionEvent, Settings};
use switchyard_proto::v1::{Assignment, Phase};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::watch;
use tokio::time::{Instant, Sleep, sleep, timeout};

use crate::door::{Agent, Door, HandClock, over};

const PORT: u16 = 7443;
/// How many seeds are played; `TRANSPORT_SEEDS` says otherwise.
const SEEDS: u64 = 4;
const FIRST_SEED: u64 = 7;
/// What is asked of a cluster is answered within this while its own network is well, whatever happens to others'.
const PROMPT: Duration = Duration::from_secs(2);
/// A ping is sent every 10 s and waited for during 5 s; the rest is for the network.
const NOTICED: Duration = Duration::from_secs(17);
/// Until a session stands again: the longest pause between two tries, and a try that has just begun in vain.
const MENDED: Duration = Duration::from_secs(60);
/// The network's latency, and the grain of its time.
const LATENCY: (Duration, Duration) = (Duration::from_millis(5), Duration::from_millis(50));
const TICK: Duration = Duration::from_millis(5);

struct Listener(turmoil::net::TcpListener);

impl Listen for Listener {
    type Io = turmoil::net::TcpStream;

    async fn accept(&mut self) -> io::Result<(Self::Io, SocketAddr)> {
        self.0.accept().await
    }
}

/// TCP of the simulation. With a pace, so many bytes are read in a tenth of a second and no more.
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

/// Reads slowly.
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
        // They are initialized: `part` is a piece of the same memory.
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

/// What the hosts share with the one that plays the faults.
#[derive(Clone, Default)]
struct World(Arc<Mutex<Seen>>);

#[derive(Default)]
struct Seen {
    tokens: BTreeMap<String, Join>,
    hub: Option<(Arc<Ports>, Arc<Registry>)>,
    agents: BTreeMap<String, watch::Receiver<SessionState>>,
    /// The last probe that a cluster has answered.
    answered: BTreeMap<String, u64>,
    /// The last probe that it was sent.
    asked: BTreeMap<String, u64>,
    /// Sessions that have begun and not ended.
    open: BTreeMap<String, usize>,
}

impl World {
    fn with<T>(&self, act: impl FnOnce(&mut Seen) -> T) -> T {
        act(&mut self.0.lock().unwrap())
    }

    /// Waits until it is so.
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

    /// Desires something new of a cluster.
    fn ask(&self, cluster: &str) -> u64 {
        self.with(|seen| {
            let asked = seen.asked.entry(cluster.to_owned()).or_default();
            *asked += 1;
            let (ports, _) = seen.hub.as_ref().expect("the hub runs");
            ports.of(cluster).set(tombstone("probe", *asked), None);
            *asked
        })
    }

    /// Asks a cluster, and waits for its answer.
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

    /// Both ends know that there is no session.
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

async fn hub(world: World, clock: HandClock) -> turmoil::Result {
    let listener = Listener(turmoil::net::TcpListener::bind(("0.0.0.0", PORT)).await?);
    let (door, mut events) = Door::open(listener, Settings::default(), clock);
    world.with(|seen| {
        seen.tokens = ["east", "west"].map(|name| (name.to_owned(), door.token(name))).into();
        seen.hub = Some((door.ports.clone(), door.registry.clone()));
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

async fn agent(world: World, name: &'static str, wire: Wire, clock: HandClock) -> turmoil::Result {
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

/// Plays a story with a hub and two agents, once for each seed.
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
        let (world, clock) = (World::default(), HandClock::new(Timestamp::now()));
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

/// What can happen to the way between east and the hub.
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
fn a_fault_of_one_network_is_noticed_and_mended_and_delays_nobody_else() {
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
            // It is told what it has missed, by the session that stands or the next.
            let asked = world.ask("east");
            let answered = |seen: &mut Seen| {
                seen.answered.get("east").is_some_and(|answered| *answered >= asked)
            };
            world.until("east's answer after the fault", NOTICED + MENDED, answered).await;
            world.answers("west", PROMPT).await;
            // What has ended was said to have ended; nothing of it is left.
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
fn an_agent_that_reads_slowly_delays_nobody_else() {
    // 5 KiB a second, while there are some hundred to be told.
    play(Wire(Some(512)), |world, mut random| async move {
        for round in 1..=40 {
            world.with(|seen| {
                let (ports, _) = seen.hub.as_ref().expect("the hub runs");
                for number in 0..400 {
                    ports.of("east").set(tombstone(&format!("many-{number}"), round), None);
                }
            });
            world.answers("west", PROMPT).await;
            sleep(Duration::from_millis(random.random_range(50..1500))).await;
        }
        // What was overtaken is not sent: it comes up as soon as nothing new is desired.
        let asked = world.ask("east");
        let answered =
            |seen: &mut Seen| seen.answered.get("east").is_some_and(|answered| *answered >= asked);
        world.until("east's answer", 4 * MENDED, answered).await;
        world.answers("west", PROMPT).await;
    });
}
