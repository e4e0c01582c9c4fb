//! A hub's agent server around parts that the test controls: clusters, tokens, term, CAs and clock.
//! The test stands in for the dispatcher.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use futures::future::BoxFuture;
use jiff::{SignedDuration, Timestamp};
use switchyard_agent::enrol::{self, EnrolError, Join};
use switchyard_agent::identity::{Identity, IdentityStore};
use switchyard_agent::route::{Dial, Route, Tcp};
use switchyard_agent::session::{Dialler, SessionState};
use switchyard_agent::{AllowedNamespaces, CapacitySource, run_core};
use switchyard_hub::cluster_channel::ClusterChannels;
use switchyard_hub::server::{
    AgentService, Authorizer, ClusterLookup, EnrolmentService, Listen, ListenerTls, Registry,
    ServerSettings, SessionEvent, Sessions, Tokens, serve,
};
use switchyard_hub_pki::token::{Token, TokenBook};
use switchyard_hub_pki::token_store::RedeemError;
use switchyard_hub_pki::{Authority, Ca};
use switchyard_platform::clock::Clock;
use switchyard_platform::lease::EpochFloor;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::api::api;

/// Deadline of every wait.
pub(crate) const SOON: Duration = Duration::from_secs(60);

/// Waits for an event that must come.
pub(crate) async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(SOON, future).await {
        Ok(value) => value,
        Err(_) => panic!("{what} did not come within {SOON:?}"),
    }
}

/// A wall clock that follows tokio's. A test may advance it.
#[derive(Clone)]
pub(crate) struct ManualClock {
    base: Timestamp,
    began: tokio::time::Instant,
    ahead: Arc<Mutex<SignedDuration>>,
}

impl ManualClock {
    pub(crate) fn new(base: Timestamp) -> Self {
        Self { base, began: tokio::time::Instant::now(), ahead: Arc::default() }
    }

    pub(crate) fn forward(&self, by: Duration) {
        *self.ahead.lock().unwrap() += SignedDuration::try_from(by).unwrap();
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        self.base
            + SignedDuration::try_from(self.began.elapsed()).unwrap()
            + *self.ahead.lock().unwrap()
    }

    fn monotonic(&self) -> Instant {
        Instant::now()
    }
}

/// The MultiKueueClusters: name and uid.
#[derive(Default)]
struct FakeClusters {
    uids: Mutex<BTreeMap<String, String>>,
    looked_up: AtomicUsize,
}

impl ClusterLookup for FakeClusters {
    fn agent_cluster(&self, name: &str) -> Option<String> {
        self.looked_up.fetch_add(1, Ordering::Relaxed);
        self.uids.lock().unwrap().get(name).cloned()
    }
}

#[derive(Default)]
struct FakeTokens {
    book: Mutex<TokenBook>,
    /// Clusters whose next token is used up while its answer is lost.
    silent: Mutex<BTreeSet<String>>,
}

impl Tokens for FakeTokens {
    fn is_known<'a>(
        &'a self,
        token: &'a Token,
        csr: &'a [u8],
        now: Timestamp,
    ) -> BoxFuture<'a, Result<(), RedeemError>> {
        let known =
            self.book.lock().unwrap().check(token, csr, now.as_second()).map_err(RedeemError::from);
        Box::pin(async move { known })
    }

    fn redeem<'a>(
        &'a self,
        token: &'a Token,
        csr: &'a [u8],
        now: Timestamp,
    ) -> BoxFuture<'a, Result<(), RedeemError>> {
        let redeemed = self
            .book
            .lock()
            .unwrap()
            .redeem(token, csr, now.as_second())
            .map_err(RedeemError::from);
        let is_silent = self.silent.lock().unwrap().remove(&token.cluster);
        Box::pin(async move {
            if is_silent {
                std::future::pending::<()>().await;
            }
            redeemed.map(drop)
        })
    }
}

/// The parts of a hub that a test controls. Dropping it stops the hub.
pub(crate) struct TestServer {
    pub(crate) channels: Arc<ClusterChannels>,
    pub(crate) registry: Arc<Registry>,
    pub(crate) clock: ManualClock,
    pub(crate) authority: watch::Sender<Arc<Authority>>,
    /// Agents may connect while it holds a term.
    pub(crate) term: watch::Sender<Option<u64>>,
    /// The epochs that agents raised.
    pub(crate) floor: EpochFloor,
    clusters: Arc<FakeClusters>,
    book: Arc<FakeTokens>,
    shutdown: CancellationToken,
}

impl Drop for TestServer {
    fn drop(&mut self) {
        self.shutdown.cancel();
    }
}

/// Deadline of an enrolment.
const ANSWER: Duration = Duration::from_secs(2);

/// The epoch of the term.
pub(crate) const EPOCH: u64 = 7;

/// The clusters that exist at the start.
pub(crate) const CLUSTERS: [&str; 3] = ["east", "north", "west"];

impl TestServer {
    /// Opens the server on a listener. Returns the events of its sessions.
    pub(crate) fn open(
        listener: impl Listen + 'static,
        settings: ServerSettings,
        clock: ManualClock,
    ) -> (Self, mpsc::Receiver<SessionEvent>) {
        let (authority, authorities) = watch::channel(Arc::new(Authority::new(ca(&clock))));
        let clusters = Arc::new(FakeClusters::default());
        for name in CLUSTERS {
            clusters.uids.lock().unwrap().insert(name.into(), format!("{name}-uid"));
        }
        let book = Arc::new(FakeTokens::default());
        let (channels, registry) =
            (Arc::new(ClusterChannels::default()), Arc::new(Registry::default()));
        let (term, watched) = watch::channel(Some(EPOCH));
        let (sender, events) = mpsc::channel(switchyard_hub::dispatcher_task::SESSION_EVENTS);
        let floor = EpochFloor::default();
        let sessions = Sessions::new(
            "hub",
            settings.clone(),
            registry.clone(),
            channels.clone(),
            watched,
            sender,
        );
        let time: Arc<dyn Clock> = Arc::new(clock.clone());
        let sessions = sessions.with_epoch_floor(floor.clone()).with_clock(time.clone());
        let gate = Authorizer::new("hub", clusters.clone(), time.clone());
        let life = settings.agent_certificate_life;
        let services = switchyard_hub::server::AgentServices {
            enrolment: EnrolmentService::new(gate.clone(), authorities.clone(), book.clone(), life)
                .within(ANSWER),
            agent: AgentService::new(gate, Arc::new(sessions)),
        };
        let tls = Arc::new(ListenerTls::new(authorities, Vec::new(), time).unwrap());
        let shutdown = CancellationToken::new();
        tokio::spawn(serve(listener, tls, services, settings, shutdown.clone()));
        (
            Self { channels, registry, clock, authority, term, floor, clusters, book, shutdown },
            events,
        )
    }

    /// A join token as an administrator makes it.
    pub(crate) fn token(&self, cluster: &str) -> Join {
        Join::new(
            self.bare_token(cluster).to_string(),
            self.authority.borrow().signer().pin().parse().unwrap(),
        )
    }

    /// A token without the hub's address and CA pin.
    pub(crate) fn bare_token(&self, cluster: &str) -> Token {
        let token = Token::from_random(cluster, rand::random(), rand::random());
        self.book.book.lock().unwrap().add(&token, 3600, self.clock.now().as_second()).unwrap();
        token
    }

    /// Loses the answer to the next enrolment of this cluster.
    pub(crate) fn lose_the_next_answer(&self, cluster: &str) {
        self.book.silent.lock().unwrap().insert(cluster.to_owned());
    }

    /// How often MultiKueueClusters were looked up at the API server.
    pub(crate) fn looked_up(&self) -> usize {
        self.clusters.looked_up.load(Ordering::Relaxed)
    }

    /// Recreates a MultiKueueCluster with another uid.
    pub(crate) fn recreate(&self, cluster: &str) {
        self.clusters.uids.lock().unwrap().insert(cluster.to_owned(), "another-uid".to_owned());
    }

    pub(crate) fn delete(&self, cluster: &str) {
        self.clusters.uids.lock().unwrap().remove(cluster);
    }
}

/// A new CA.
pub(crate) fn ca(clock: &ManualClock) -> Ca {
    Ca::generate("hub", clock.now()).unwrap()
}

/// A server on a loopback address.
pub(crate) struct Loopback {
    pub(crate) server: TestServer,
    pub(crate) events: mpsc::Receiver<SessionEvent>,
    pub(crate) address: std::net::SocketAddr,
}

impl Loopback {
    pub(crate) async fn open(settings: ServerSettings) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (server, events) =
            TestServer::open(listener, settings, ManualClock::new(Timestamp::now()));
        Self { server, events, address }
    }

    /// The agents' route to the server.
    pub(crate) fn route(&self) -> Route {
        let hub = format!("https://{}", self.address).parse().unwrap();
        Route { hub, dial: Arc::new(Tcp), clock: Arc::new(self.server.clock.clone()) }
    }

    /// A new identity, enrolled as an agent is.
    pub(crate) async fn enrolled(&self, cluster: &str) -> Identity {
        self.enrol(&self.server.token(cluster)).await.unwrap()
    }

    pub(crate) async fn enrol(&self, join: &Join) -> Result<Identity, EnrolError> {
        soon("the identity", enrol::enrol(&self.route(), join)).await
    }

    pub(crate) async fn event(&mut self) -> SessionEvent {
        soon("an event", self.events.recv()).await.unwrap()
    }

    /// Waits until a session ends. Returns its cluster and the reason.
    pub(crate) async fn until_down(&mut self, what: &str) -> (String, String) {
        match self.until(what, |event| matches!(event, SessionEvent::Down { .. })).await {
            SessionEvent::Down { cluster, reason, .. } => (cluster, reason),
            _ => unreachable!(),
        }
    }

    /// Waits for a matching event and skips others.
    pub(crate) async fn until(
        &mut self,
        what: &str,
        right: impl Fn(&SessionEvent) -> bool,
    ) -> SessionEvent {
        loop {
            let event = soon(what, self.events.recv()).await.unwrap();
            if right(&event) {
                return event;
            }
        }
    }
}

/// An agent: core, session and renewal. Dropping it stops the agent.
pub(crate) struct Agent {
    pub(crate) state: watch::Receiver<SessionState>,
    pub(crate) identity: Arc<ArcSwap<Identity>>,
    _tasks: JoinSet<()>,
    shutdown: CancellationToken,
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.shutdown.cancel();
    }
}

impl Agent {
    pub(crate) fn start(route: Route, identity: Identity) -> Self {
        let client = api();
        let settings = switchyard_agent::Settings {
            cluster: identity.cluster.clone(),
            cluster_uid: String::new(),
            hub_id: "hub".to_owned(),
            origin: "multikueue".to_owned(),
            boot_id: "boot".to_owned(),
            software: "test".to_owned(),
            namespaces: AllowedNamespaces::All,
            frameworks: vec!["batch/job".to_owned()],
            allowed: switchyard_agent::Allowed::default(),
            dry_runs: None,
            keys: switchyard_agent::proof::Keys::none(),
            foreign: switchyard_agent::foreign::Foreign::default(),
            concurrency: 4,
            memory: None,
        };
        let identity = Arc::new(ArcSwap::from_pointee(identity));
        let (links, incoming) = mpsc::channel(1);
        let (state, watched) = watch::channel(SessionState::initial());
        let shutdown = CancellationToken::new();
        let random = Box::new(|| 0.5);
        let dialler = Dialler {
            hub: route.clone(),
            identity: identity.clone(),
            links,
            state,
            leadership: None,
            random,
        };
        let mut tasks = JoinSet::new();
        let (core, renewal) = (shutdown.clone(), shutdown.clone());
        let store = IdentityStore::new(client.clone(), "switchyard-system");
        let kept = identity.clone();
        tasks.spawn(async move {
            run_core(client, incoming, CapacitySource::None, settings, core).await.unwrap()
        });
        tasks.spawn(dialler.run(shutdown.clone()));
        tasks.spawn(async move { enrol::keep(&route, &store, &kept, &renewal).await });
        Self { state: watched, identity, _tasks: tasks, shutdown }
    }

    pub(crate) async fn until(
        &mut self,
        what: &str,
        is: impl Fn(&SessionState) -> bool,
    ) -> SessionState {
        if let Ok(state) = tokio::time::timeout(SOON, self.state.wait_for(|state| is(state))).await
        {
            return state.unwrap().clone();
        }
        panic!("{what} did not come within {SOON:?}: {:?}", self.state.borrow());
    }
}

/// A route over another network.
pub(crate) fn over(dial: impl Dial + 'static, hub: &str, clock: &ManualClock) -> Route {
    Route { hub: hub.parse().unwrap(), dial: Arc::new(dial), clock: Arc::new(clock.clone()) }
}
