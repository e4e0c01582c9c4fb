//! The agent's process: it always runs the admission controller, and a session while it leads.

use std::net::TcpListener;
use std::sync::Arc;

use anyhow::Context as _;
use arc_swap::ArcSwap;
use parking_lot::Mutex;
use switchyard_controller::engine::capacity::Capacity;
use switchyard_ledger::AllowedNamespaces;
use switchyard_platform::lease::Leadership;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::admissions::{Admissions, admissions};
use crate::allow::Allowed;
use crate::capacity::{CapacitySource, RoomSource, from_controller};
use crate::cluster_uid::cluster_uid;
use crate::core::run_core_with;
use crate::dry_run_counts::DryRunCounts;
use crate::enrol::{self, EnrolError, Join};
use crate::foreign::ForeignMarks;
use crate::health;
use crate::hub_address::HubAddress;
use crate::identity::{Identity, IdentityStore};
use crate::join::{self, JoinSource};
use crate::keyring::Keyring;
use crate::proof::Keys;
use crate::proxy::ProxyFlag;
use crate::route::Route;
use crate::session::{Dialler, SessionState};
use crate::settings::Settings;

/// The build's version.
pub const SOFTWARE: &str = env!("CARGO_PKG_VERSION");

/// The caller's inputs.
pub struct Options {
    /// The cluster's admission controller, as a worker. The agent serves its health endpoints.
    pub controller: switchyard_controller::Options,
    /// The client for the hub's workloads. It must send each request only once; see
    /// [`run_core`](crate::run_core).
    pub client: kube::Client,
    /// The hub's address at the start. `join` may lead elsewhere later.
    pub hub: HubAddress,
    /// Which proxy leads to the hub. The hub's address decides, too.
    pub proxy: ProxyFlag,
    /// The tokens for the first start, and for later, if the hub refuses this cluster; and the
    /// hub's newest address.
    pub join: JoinSource,
    /// The namespaces that the hub may use.
    pub namespaces: AllowedNamespaces,
    /// The kinds of jobs and service accounts that it may use.
    pub allowed: Allowed,
    /// Counts dry runs; none: the agent accepts jobs without one.
    pub dry_runs: Option<DryRunCounts>,
    /// Serves `/healthz`, `/readyz`, `/sessionz` and `/metrics`, if set.
    pub health: Option<TcpListener>,
    /// Concurrent writes to the cluster's API server for the hub's workloads.
    pub concurrency: usize,
}

/// The inputs of the agent's session, leading or not.
struct Agent {
    leadership: watch::Receiver<Leadership>,
    capacity: watch::Receiver<Arc<Capacity>>,
    rooms: RoomSource,
    admissions: Arc<dyn Admissions>,
    client: kube::Client,
    store: IdentityStore,
    hub: Route,
    proxy: ProxyFlag,
    join: JoinSource,
    namespaces: AllowedNamespaces,
    frameworks: Vec<String>,
    allowed: Allowed,
    dry_runs: Option<DryRunCounts>,
    /// The agent's own namespace.
    namespace: String,
    origin: String,
    concurrency: usize,
    state: watch::Sender<SessionState>,
    foreign: ForeignMarks,
}

/// Runs an agent until `shutdown`.
///
/// # Errors
///
/// A part failed, or the cluster has no identity and cannot get one. The message names the next
/// step.
pub async fn run(options: Options, shutdown: CancellationToken) -> anyhow::Result<()> {
    let store =
        IdentityStore::new(options.controller.client.clone(), &options.controller.namespace);
    let origin = options.controller.config.multi_kueue.origin.clone();
    let namespace = options.controller.namespace.clone();
    let frameworks = options.controller.config.all_frameworks();
    let proxy = options.proxy.select(&options.hub)?;
    if let Some(proxy) = &proxy {
        tracing::info!(hub = %options.hub, %proxy, "hub dialled through a proxy");
    }
    let handle = switchyard_controller::start(options.controller)?;
    if let Some(counts) = &options.dry_runs {
        handle
            .context
            .metrics
            .register(|registry| counts.register(registry.sub_registry_with_prefix("switchyard")));
    }
    let (state, watched) = watch::channel(SessionState::initial());
    let agent = Agent {
        leadership: handle.leadership(),
        capacity: handle.capacity.clone(),
        rooms: RoomSource::beside_controller(options.client.clone(), handle.stores().clone()),
        admissions: admissions(handle.context.clone()),
        client: options.client,
        store,
        hub: Route::new(options.hub, proxy),
        proxy: options.proxy,
        join: options.join,
        namespaces: options.namespaces,
        frameworks,
        allowed: options.allowed,
        dry_runs: options.dry_runs,
        namespace,
        origin,
        concurrency: options.concurrency,
        state,
        foreign: ForeignMarks::default(),
    };
    handle.context.metrics.register(|shown| agent.foreign.show(shown));
    let stop = CancellationToken::new();
    let _stop = stop.clone().drop_guard();
    let mut parts = JoinSet::new();
    if let Some(listener) = options.health {
        parts.spawn(health::serve(handle.context.clone(), watched, listener, stop.clone()));
    }
    parts.spawn(agent.follow_leadership(stop.clone()));
    let stop_controller = handle.stopper();
    let controller = handle.ended();
    tokio::pin!(controller);
    let (result, controller_ended) = tokio::select! {
        () = shutdown.cancelled() => (Ok(()), false),
        Some(ended) = parts.join_next() => {
            let ended = ended.context("a part of the agent panicked").flatten();
            (ended.and_then(|()| Err(anyhow::anyhow!("a part of the agent ended by itself"))), false)
        }
        ended = &mut controller => (ended.and_then(|()| Err(anyhow::anyhow!("the admission controller ended"))), true),
    };
    // First stop the users of the controller, then the controller.
    stop.cancel();
    while parts.join_next().await.is_some() {}
    stop_controller.cancel();
    if controller_ended {
        return result;
    }
    result.and(controller.await)
}

/// The next step after the parts of a session ended.
enum Next {
    /// The process ends.
    Over,
    /// A session with another identity, or at another address of the hub.
    Identity,
    /// A session with other keys.
    Keys,
}

impl Agent {
    /// Keeps a session while this replica leads: two replicas would supersede each other for ever.
    ///
    /// A leader that could not renew its Lease, and sees no other holder, keeps its session. The
    /// hub then learns that this cluster's jobs cannot be stopped.
    async fn follow_leadership(self, shutdown: CancellationToken) -> anyhow::Result<()> {
        let mut leadership = self.leadership.clone();
        loop {
            if !until(&mut leadership, |it| it.leading, &shutdown).await {
                return Ok(());
            }
            let begun = leadership.borrow().begun;
            let term = shutdown.child_token();
            let _term = term.clone().drop_guard();
            let mut watched = leadership.clone();
            tokio::select! {
                result = self.lead(term) => {
                    result?;
                    if shutdown.is_cancelled() {
                        return Ok(());
                    }
                }
                _ = until(&mut watched, |it| !it.leading && !it.unsure || it.begun != begun, &shutdown) => {
                    tracing::info!("leadership lost, session given up");
                    let reason = "another replica leads".to_owned();
                    self.state.send_replace(SessionState::Down { since: jiff::Timestamp::now(), reason });
                }
            }
        }
    }

    async fn lead(&self, term: CancellationToken) -> anyhow::Result<()> {
        let mut hub = self.hub.clone();
        // A new token or address ends the parts of the session. They restart with it.
        while !term.is_cancelled() {
            self.follow_address(&mut hub);
            let known = self.store.load().await;
            let join = match self.join.current() {
                // A malformed file must not stop a cluster that has its identity.
                Err(error) if matches!(known, Ok(Some(_))) => {
                    tracing::warn!(
                        error = format!("{error:#}"),
                        "join token not read; stored identity used"
                    );
                    None
                }
                join => join?,
            };
            let identity = tokio::select! {
                () = term.cancelled() => return Ok(()),
                identity = self.identity(&hub, join.as_ref()) => identity?,
                // The hub of the first address may never answer.
                () = self.join.changed(&hub.hub, join.as_ref()) => continue,
            };
            let session = term.child_token();
            let _session = session.clone().drop_guard();
            if !self.keep_session(&hub, identity, matches!(known, Ok(None)), session).await? {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Changes the way to the hub to the newest address of the join directory.
    fn follow_address(&self, hub: &mut Route) {
        match self.join.hub() {
            Ok(Some(address)) if address != hub.hub => {
                tracing::info!(from = %hub.hub, to = %address, "the join directory leads to another address of the hub");
                match self.proxy.select(&address) {
                    Ok(proxy) => hub.lead_to(address, proxy),
                    Err(error) => {
                        tracing::warn!(%error, "the hub is dialled as before");
                        hub.hub = address;
                    }
                }
            }
            Ok(_) => {}
            Err(error) => tracing::warn!(
                error = format!("{error:#}"),
                hub = %hub.hub,
                "the hub's address is not read; the last one is used"
            ),
        }
    }

    async fn identity(&self, hub: &Route, join: Option<&Join>) -> Result<Identity, EnrolError> {
        match join {
            Some(join) => {
                enrol::obtain_with(&self.store, hub, Some(join), &*self.join.request(join)?).await
            }
            None => enrol::obtain(&self.store, hub, None).await,
        }
    }

    /// Runs core, session and renewal until one of them ends, and restarts them when the key of
    /// copies changes. `is_new`: this process got the cluster's first identity. Returns whether a
    /// new token gave the cluster a new identity, or the hub has a new address.
    async fn keep_session(
        &self,
        hub: &Route,
        identity: Identity,
        is_new: bool,
        term: CancellationToken,
    ) -> anyhow::Result<bool> {
        let cluster_uid = tokio::select! {
            () = term.cancelled() => return Ok(false),
            uid = cluster_uid(&self.client) => uid,
        };
        let keyring = Keyring {
            client: self.client.clone(),
            store: self.store.clone(),
            hub: hub.clone(),
            identity: Arc::new(ArcSwap::from_pointee(identity)),
            cluster_uid,
            frameworks: self.frameworks.clone(),
            last_obstacle: Mutex::default(),
        };
        let mut is_new = is_new;
        loop {
            let keys = tokio::select! {
                () = term.cancelled() => return Ok(false),
                keys = keyring.begin(is_new) => keys,
            };
            match self.keep_session_with(&keyring, keys, term.child_token()).await? {
                Next::Over => return Ok(false),
                Next::Identity => return Ok(true),
                Next::Keys => is_new = false,
            }
        }
    }

    /// As [`Self::keep_session`], with these keys. Returns the next step.
    async fn keep_session_with(
        &self,
        keyring: &Keyring,
        keys: Keys,
        term: CancellationToken,
    ) -> anyhow::Result<Next> {
        let identity = keyring.identity.clone();
        let settings = self.settings(&identity.load(), keyring.cluster_uid.clone(), keys.clone());
        let (links, incoming) = mpsc::channel(1);
        let dialler = Dialler {
            hub: keyring.hub.clone(),
            identity: identity.clone(),
            links,
            state: self.state.clone(),
            leadership: Some(self.leadership.clone()),
            random: Box::new(rand::random),
        };
        let (capacity, _capacity_task) =
            from_controller(self.capacity.clone(), self.rooms.subscribe());
        let source = CapacitySource::Embedded(capacity);
        let mut parts: JoinSet<anyhow::Result<()>> = JoinSet::new();
        let started = Some(self.admissions.clone());
        parts.spawn(run_core_with(
            self.client.clone(),
            incoming,
            source,
            settings,
            started,
            term.clone(),
        ));
        parts.spawn(ok(dialler.run(term.clone())));
        let (hub, store, leadership) =
            (keyring.hub.clone(), self.store.clone(), self.leadership.clone());
        let current = identity.clone();
        parts.spawn(ok(renew(hub, store, identity, leadership, term.clone())));
        let (source, store, hub) = (self.join.clone(), self.store.clone(), keyring.hub.clone());
        let joined = join::renewed(
            source,
            store,
            hub,
            move || current.load_full(),
            self.state.subscribe(),
            term.clone(),
        );
        let (first, next) = tokio::select! {
            first = parts.join_next() => (first, Next::Over),
            () = joined => (None, if term.is_cancelled() { Next::Over } else { Next::Identity }),
            () = keyring.changed(&keys) => (None, Next::Keys),
        };
        term.cancel();
        while parts.join_next().await.is_some() {}
        match first {
            Some(ended) => ended.context("a part of the session panicked")?.map(|()| Next::Over),
            None => Ok(next),
        }
    }

    fn settings(&self, identity: &Identity, cluster_uid: String, keys: Keys) -> Settings {
        Settings {
            cluster: identity.cluster.clone(),
            cluster_uid,
            hub_id: identity.hub_id.clone(),
            origin: self.origin.clone(),
            boot_id: format!("{:032x}", rand::random::<u128>()),
            software: SOFTWARE.to_owned(),
            namespaces: self.namespaces.clone(),
            frameworks: self.frameworks.clone(),
            allowed: self.allowed.clone(),
            dry_runs: self.dry_runs.clone(),
            keys,
            foreign: self.foreign.of(&identity.cluster),
            concurrency: self.concurrency,
            memory: Some(self.namespace.clone()),
        }
    }
}

async fn ok(task: impl Future<Output = ()>) -> anyhow::Result<()> {
    task.await;
    Ok(())
}

/// Renews the identity while this replica is certain to lead. Otherwise the leader writes the same
/// Secret.
async fn renew(
    hub: Route,
    store: IdentityStore,
    identity: Arc<ArcSwap<Identity>>,
    mut leadership: watch::Receiver<Leadership>,
    term: CancellationToken,
) {
    let mut watched = leadership.clone();
    while until(&mut leadership, |it| it.leading, &term).await {
        tokio::select! {
            () = enrol::keep(&hub, &store, &identity, &term) => return,
            _ = until(&mut watched, |it| !it.leading, &term) => {}
        }
    }
}

/// Waits for this state of leadership. Returns false at shutdown.
async fn until(
    leadership: &mut watch::Receiver<Leadership>,
    so: impl Fn(&Leadership) -> bool,
    shutdown: &CancellationToken,
) -> bool {
    let wanted = async {
        if leadership.wait_for(so).await.is_err() {
            // The sender is gone, so the state stays.
            std::future::pending::<()>().await;
        }
    };
    tokio::select! {
        () = shutdown.cancelled() => false,
        () = wanted => true,
    }
}
