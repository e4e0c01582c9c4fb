//! The agent proper, without a transport: ledger, executor, capacity and heartbeat of one cluster.
//!
//! The agent's binary runs it over gRPC sessions; the hub runs the same against a kubeconfig worker.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use jiff::{SignedDuration, Timestamp};
use switchyard_jobs::{JobKind, enabled_kinds, owner_gvk};
use switchyard_ledger::{
    Action, AllowedNamespaces, Ledger, Outcome, Rules, Seen, SessionError, Time,
};
use switchyard_proto::v1::{self, AgentMessage, Capacity, HubMessage, agent_message};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::admissions::Admissions;
use crate::allow::Allowed;
use crate::clock::Clock;
use crate::executor::{self, DryRunCounts, Executor};
use crate::foreign::Foreign;
use crate::link::{Link, Links};
use crate::memory::{Memory, Remembered};
use crate::proof::{Keys, Seal};
use crate::talk::{Say, Talk};

/// The newest capacity; none until it is known.
pub type CapacityReceiver = watch::Receiver<Option<Arc<Capacity>>>;

/// Where the capacity comes from that is reported to the hub.
#[derive(Clone)]
pub enum CapacitySource {
    /// The admission controller inside this process knows it exactly.
    Embedded(CapacityReceiver),
    /// Computed from the ClusterQueues, LocalQueues, Cohorts and ResourceFlavors of the cluster, whoever manages them.
    Watch(kube::Client),
    /// Not reported.
    None,
}

/// What an agent's core has to know.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The cluster's name on the hub, for the log.
    pub cluster: String,
    /// The cluster's own uid, from [`cluster_uid`](crate::cluster_uid); empty if it is not known.
    pub cluster_uid: String,
    /// The hub's id: what remote objects are labelled with, and the only hub whose `Welcome` is accepted.
    pub hub_id: String,
    /// The value of `kueue.x-k8s.io/multikueue-origin` on remote objects.
    pub origin: String,
    /// Drawn anew at each start of the process.
    pub boot_id: String,
    /// The build, for people.
    pub software: String,
    /// Which namespaces the hub may use.
    pub namespaces: AllowedNamespaces,
    /// The kinds of jobs that are managed here (`integrations.frameworks`, external frameworks); others are not created.
    pub frameworks: Vec<String>,
    /// Which kinds of jobs and which service accounts it may use.
    pub allowed: Allowed,
    /// Counts the dry runs of jobs' pods; none: jobs are taken untried.
    pub dry_runs: Option<DryRunCounts>,
    /// How its copies are known from objects of others.
    pub keys: Keys,
    /// Counts objects of others that carry the hub's label.
    pub foreign: Foreign,
    /// Writes to the cluster's API server in flight.
    pub concurrency: usize,
    /// The namespace in which to remember what must outlive this process; none: nothing is, and jobs with a fence are
    /// stopped by an agent that begins anew and has not heard of its hub.
    pub memory: Option<String>,
}

/// Runs until `shutdown`, or until the last link has closed and no further can come. The client must send each request once
/// (`kube::Config::default_retry` off): a creation that was not answered may yet happen, also if a repetition was refused.
///
/// # Errors
///
/// Only what no retry can mend: the cluster's API server being away is waited for.
pub async fn run_core(
    client: kube::Client,
    links: Links,
    source: CapacitySource,
    settings: Settings,
    shutdown: CancellationToken,
) -> anyhow::Result<()> {
    run_core_with(client, links, source, settings, None, shutdown).await
}

/// As [`run_core`], where the cluster's admission controller runs in this process: jobs are created already started.
///
/// # Errors
///
/// As [`run_core`].
pub async fn run_core_with(
    client: kube::Client,
    links: Links,
    source: CapacitySource,
    settings: Settings,
    admissions: Option<Arc<dyn Admissions>>,
    shutdown: CancellationToken,
) -> anyhow::Result<()> {
    let mut core = Core::new(client, source, settings, admissions);
    core.run(links, shutdown).await
}

/// The one task that owns the ledger.
struct Core {
    settings: Settings,
    ledger: Ledger,
    executor: Executor,
    clock: Clock,
    memory: Option<Memory>,
    /// What is to be remembered.
    remember: watch::Sender<Remembered>,
    seen: mpsc::Receiver<Seen>,
    /// They end with this.
    watches: JoinSet<()>,
    actions: JoinSet<(Action, Outcome)>,
    capacity: Option<CapacityReceiver>,
    _capacity_watch: Option<JoinSet<()>>,
    to_agent: Option<mpsc::Receiver<HubMessage>>,
    to_hub: Option<mpsc::Sender<AgentMessage>>,
    talk: Talk,
}

impl Core {
    fn new(
        client: kube::Client,
        source: CapacitySource,
        settings: Settings,
        admissions: Option<Arc<dyn Admissions>>,
    ) -> Self {
        let clock = Clock::new();
        let memory = settings
            .memory
            .as_ref()
            .map(|namespace| Memory::new(client.clone(), namespace, &settings.hub_id));
        let rules =
            Rules { hub_id: settings.hub_id.clone(), namespaces: settings.namespaces.clone() };
        let seal = Seal::new(&settings.hub_id, settings.keys.clone());
        let (seen, watches) =
            executor::watch(&client, &seal, &settings.foreign, &settings.frameworks);
        let (capacity, capacity_watch) = match source {
            CapacitySource::Embedded(receiver) => (Some(receiver), None),
            CapacitySource::Watch(client) => {
                let (receiver, task) = crate::capacity::watch(&client);
                (Some(receiver), Some(task))
            }
            CapacitySource::None => (None, None),
        };
        Self {
            ledger: Ledger::new(rules),
            executor: Executor::new(client, &settings, seal, admissions, clock),
            clock,
            memory,
            remember: watch::channel(Remembered::default()).0,
            seen,
            watches,
            actions: JoinSet::new(),
            capacity,
            _capacity_watch: capacity_watch,
            to_agent: None,
            to_hub: None,
            talk: Talk::default(),
            settings,
        }
    }

    async fn run(&mut self, mut links: Links, shutdown: CancellationToken) -> anyhow::Result<()> {
        let _keeper = tokio::select! {
            () = shutdown.cancelled() => return Ok(()),
            keeper = self.recall() => keeper,
        };
        let mut reviews = JoinSet::new();
        reviews.spawn(self.executor.clone().say_rights());
        let mut more_links = true;
        while more_links || self.to_agent.is_some() {
            let now = self.now();
            let actions = self.ledger.tick(now);
            self.start(actions);
            if let Err(error) = self.talk.check(&self.ledger, now) {
                self.end_session(&error);
            }
            let wake = self.wakeup(now);
            let speak = self.to_hub.is_some() && wake.is_some_and(|at| at <= now);
            tokio::select! {
                () = shutdown.cancelled() => break,
                link = links.recv(), if more_links => match link {
                    Some(link) => self.open_session(link),
                    None => more_links = false,
                },
                message = receive(&mut self.to_agent) => self.on_message(message),
                seen = self.seen.recv() => match seen {
                    Some(seen) => self.on_seen(seen),
                    None => anyhow::bail!("the watches of cluster {} ended", self.settings.cluster),
                },
                Some(done) = self.actions.join_next() => {
                    let (action, outcome) = done.context("an action was lost")?;
                    self.on_done(&action, outcome);
                }
                // One of them is through once every kind has been listed; the others never are.
                Some(ended) = self.watches.join_next() => ended.context("a watch ended")?,
                permit = reserve(self.to_hub.clone()), if speak => self.speak(permit),
                fresh = changed(&mut self.capacity) => self.on_capacity(fresh),
                // While a message waits for room, only deadlines count.
                () = self.clock.until(if speak { Some(self.talk.deadline()) } else { wake }) => {}
            }
        }
        Ok(())
    }

    fn now(&self) -> Time {
        self.clock.now()
    }

    /// Takes over what an earlier process knew. The returned task writes down what is new from now on.
    async fn recall(&mut self) -> JoinSet<()> {
        let mut keeper = JoinSet::new();
        let Some(memory) = self.memory.take() else { return keeper };
        let remembered = memory.recall().await;
        if remembered != Remembered::default() {
            let left = remembered.until.map(|until| until.duration_since(Timestamp::now()));
            tracing::info!(
                epoch = remembered.epoch,
                ?left,
                "what an earlier process knew of the hub"
            );
            let lease = left.map(|left| match Duration::try_from(left) {
                Ok(left) => self.now() + left,
                Err(_) => self.now().saturating_sub(left.unsigned_abs()),
            });
            self.ledger.recall(remembered.epoch, lease.unwrap_or_default());
        }
        self.remember.send_replace(remembered);
        let executor = self.executor.clone();
        keeper.spawn(memory.keep(self.remember.subscribe(), move || executor.may_write()));
        keeper
    }

    /// Notes what a process after this one has to know.
    fn note(&self) {
        // The ledger's time and the wall clock drift a little: no reason to write.
        const SAME: SignedDuration = SignedDuration::from_millis(50);
        let now = self.now();
        let left = self
            .ledger
            .lease()
            .map(|lease| lease.saturating_sub(now))
            .filter(|left| !left.is_zero());
        let until = left.and_then(|left| Timestamp::now().checked_add(left).ok());
        let epoch = self.ledger.memory().epoch;
        self.remember.send_if_modified(|known| {
            let later = until
                .filter(|until| known.until.is_none_or(|known| until.duration_since(known) > SAME));
            let news = later.is_some() || known.epoch != epoch;
            *known = Remembered { epoch, until: later.or(known.until) };
            news
        });
    }

    fn open_session(&mut self, link: Link) {
        if self.to_hub.is_some() {
            tracing::info!(cluster = self.settings.cluster, "session superseded by a new one");
        }
        let now = self.now();
        self.talk = Talk::open(&mut self.ledger, now);
        self.to_agent = Some(link.to_agent);
        self.to_hub = Some(link.to_hub);
    }

    fn end_session(&mut self, error: &SessionError) {
        tracing::warn!(cluster = self.settings.cluster, %error, "session ended");
        self.close();
    }

    fn close(&mut self) {
        self.to_agent = None;
        self.to_hub = None;
        self.talk.close(&mut self.ledger);
    }

    fn on_message(&mut self, message: Option<HubMessage>) {
        let Some(message) = message else {
            tracing::info!(cluster = self.settings.cluster, "session closed by the other end");
            return self.close();
        };
        let now = self.now();
        let capacity = self.capacity.as_ref().is_some_and(|it| it.borrow().is_some());
        match self.talk.heard(&mut self.ledger, message, capacity, now) {
            Ok(actions) => {
                self.start(actions);
                self.note();
            }
            Err(error) => self.end_session(&error),
        }
    }

    fn on_seen(&mut self, seen: Seen) {
        let now = self.now();
        let mut actions = self.ledger.seen(seen, now);
        // What has come in the meantime goes into the same round; what comes meanwhile must not make it endless.
        for _ in 0..self.seen.len() {
            let Ok(seen) = self.seen.try_recv() else { break };
            actions.extend(self.ledger.seen(seen, now));
        }
        self.start(actions);
    }

    fn on_done(&mut self, action: &Action, outcome: Outcome) {
        let now = self.now();
        let actions = self.ledger.done(action, outcome, now);
        self.start(actions);
    }

    fn on_capacity(&mut self, fresh: bool) {
        if !fresh {
            self.capacity = None;
        } else {
            self.talk.capacity_changed(&self.ledger, self.now());
        }
    }

    fn start(&mut self, actions: Vec<Action>) {
        for action in actions {
            tracing::debug!(workload = action.workload_uid, kind = ?action.kind, verb = action.verb.name(), "action");
            self.actions.spawn(self.executor.clone().perform(action));
        }
    }

    /// There is room for one message: the most urgent goes.
    fn speak(&mut self, permit: Option<mpsc::OwnedPermit<AgentMessage>>) {
        let Some(permit) = permit else { return self.close() };
        let Some(kind) = self.next_message() else { return };
        let session_id = self.ledger.session_id().unwrap_or_default();
        if let agent_message::Kind::Observed(observed) = &kind {
            for it in &observed.observations {
                let codes: Vec<&str> =
                    it.reasons.iter().map(|reason| reason.code.as_str()).collect();
                tracing::debug!(workload = it.workload_uid, attempt = it.attempt, state = ?it.state(), ?codes, "told");
            }
        }
        permit.send(AgentMessage { session_id, kind: Some(kind) });
    }

    fn next_message(&mut self) -> Option<agent_message::Kind> {
        let now = self.now();
        match self.talk.next(&mut self.ledger, now)? {
            Say::Hello => Some(agent_message::Kind::Hello(self.hello())),
            Say::Capacity => {
                let capacity = self.capacity.as_mut().and_then(|it| it.borrow_and_update().clone());
                capacity.map(|it| agent_message::Kind::Capacity((*it).clone()))
            }
            Say::Message(agent_message::Kind::Ping(ping)) => {
                Some(agent_message::Kind::Ping(v1::Ping {
                    unable: !self.executor.may_write(),
                    ..ping
                }))
            }
            Say::Message(kind) => Some(kind),
        }
    }

    fn hello(&self) -> v1::Hello {
        let memory = self.ledger.memory();
        v1::Hello {
            boot_id: self.settings.boot_id.clone(),
            min_version: *switchyard_proto::VERSIONS.start(),
            max_version: *switchyard_proto::VERSIONS.end(),
            software: self.settings.software.clone(),
            kinds: self.kinds(),
            last_hub_id: memory.hub_id,
            last_epoch: memory.epoch,
            last_revision: memory.revision,
            clock: Some(std::time::SystemTime::now().into()),
            cluster_uid: self.settings.cluster_uid.clone(),
            proves: self.settings.keys.is_enforced(),
        }
    }

    fn kinds(&self) -> Vec<String> {
        let kinds = enabled_kinds(&self.settings.frameworks);
        let runs = |kind: &&&dyn JobKind| kind.is_sent() && self.settings.allowed.kind(**kind);
        kinds.iter().filter(runs).map(|kind| owner_gvk(kind.id())).collect()
    }

    /// When there is something to do or say, if nothing happens before.
    fn wakeup(&self, now: Time) -> Option<Time> {
        [self.talk.wakeup(&self.ledger, now), self.ledger.next_wakeup()].into_iter().flatten().min()
    }
}

/// The next message of an open session; never, without one.
async fn receive(receiver: &mut Option<mpsc::Receiver<HubMessage>>) -> Option<HubMessage> {
    match receiver {
        Some(receiver) => receiver.recv().await,
        None => std::future::pending().await,
    }
}

/// Room for one message to the hub; none when the session is over.
async fn reserve(
    sender: Option<mpsc::Sender<AgentMessage>>,
) -> Option<mpsc::OwnedPermit<AgentMessage>> {
    match sender {
        Some(sender) => sender.reserve_owned().await.ok(),
        None => std::future::pending().await,
    }
}

/// Whether the capacity changed (or its source is gone).
async fn changed(capacity: &mut Option<CapacityReceiver>) -> bool {
    match capacity {
        Some(capacity) => capacity.changed().await.is_ok(),
        None => std::future::pending().await,
    }
}
