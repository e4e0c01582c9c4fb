//! The core of the agent: the task that owns the ledger, for any transport.
//!
//! The agent's binary runs it over gRPC sessions. The hub runs the same core for kubeconfig
//! workers.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use jiff::{SignedDuration, Timestamp};
use switchyard_api::flavor_pins::MAX_PINS;
use switchyard_jobs::{JobKind, enabled_kinds, owner_gvk};
use switchyard_ledger::{
    Action, Ledger, Outcome, Outgoing, Rules, SessionError, SessionProtocol, Time, WatchEvent,
};
use switchyard_proto::v1::{self, AgentMessage, HubMessage, agent_message, hub_message};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::admissions::Admissions;
use crate::capacity::{CapacityReceiver, CapacitySource};
use crate::clock::Clock;
use crate::executor::{self, Executor};
use crate::link::{Link, Links};
use crate::memory::{EpochAndLease, Memory};
use crate::proof::Seal;
use crate::settings::Settings;

/// Runs the core until `shutdown`, or until the last link is closed and no other can come.
///
/// The client must send each request only once (`kube::Config::default_retry` off): an unanswered
/// creation may still take effect, even if its repetition was refused.
///
/// # Errors
///
/// Only errors that a retry cannot correct. The core waits for an unavailable API server.
pub async fn run_core(
    client: kube::Client,
    links: Links,
    source: CapacitySource,
    settings: Settings,
    shutdown: CancellationToken,
) -> anyhow::Result<()> {
    run_core_with(client, links, source, settings, None, shutdown).await
}

/// As [`run_core`], with the cluster's admission controller in this process: the agent creates jobs
/// already started.
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

/// The task that owns the ledger.
struct Core {
    settings: Settings,
    ledger: Ledger,
    executor: Executor,
    clock: Clock,
    memory: Option<Memory>,
    remember: watch::Sender<EpochAndLease>,
    watch_events: mpsc::Receiver<WatchEvent>,
    /// Dropped, and so ended, with the core.
    watches: JoinSet<()>,
    actions: JoinSet<(Action, Outcome)>,
    capacity: Option<CapacityReceiver>,
    _capacity_watch: Option<JoinSet<()>>,
    to_agent: Option<mpsc::Receiver<HubMessage>>,
    to_hub: Option<mpsc::Sender<AgentMessage>>,
    protocol: SessionProtocol,
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
        let (watch_events, watches) =
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
            remember: watch::channel(EpochAndLease::default()).0,
            watch_events,
            watches,
            actions: JoinSet::new(),
            capacity,
            _capacity_watch: capacity_watch,
            to_agent: None,
            to_hub: None,
            protocol: SessionProtocol::default(),
            settings,
        }
    }

    async fn run(&mut self, mut links: Links, shutdown: CancellationToken) -> anyhow::Result<()> {
        let _keeper = tokio::select! {
            () = shutdown.cancelled() => return Ok(()),
            keeper = self.restore_memory() => keeper,
        };
        let mut reviews = JoinSet::new();
        reviews.spawn(self.executor.clone().log_missing_rights());
        let mut more_links = true;
        while more_links || self.to_agent.is_some() {
            let now = self.now();
            let actions = self.ledger.tick(now);
            self.start(actions);
            if let Err(error) = self.protocol.check(&self.ledger, now) {
                self.end_session(&error);
            }
            let wake = self.wakeup(now);
            let has_message = self.to_hub.is_some() && wake.is_some_and(|at| at <= now);
            tokio::select! {
                () = shutdown.cancelled() => break,
                link = links.recv(), if more_links => match link {
                    Some(link) => self.open_session(link),
                    None => more_links = false,
                },
                message = receive(&mut self.to_agent) => self.on_message(message),
                event = self.watch_events.recv() => match event {
                    Some(event) => self.on_watch_event(event),
                    None => anyhow::bail!("the watches of cluster {} ended", self.settings.cluster),
                },
                Some(done) = self.actions.join_next() => {
                    let (action, outcome) = done.context("an action was lost")?;
                    self.on_outcome(&action, outcome);
                }
                // One of them ends once every kind has been listed. The others never end.
                Some(ended) = self.watches.join_next() => ended.context("a watch ended")?,
                permit = reserve(self.to_hub.clone()), if has_message => self.send_next(permit),
                fresh = changed(&mut self.capacity) => self.on_capacity(fresh),
                // While a message waits for room, only deadlines count.
                () = self.clock.until(if has_message { Some(self.protocol.deadline()) } else { wake }) => {}
            }
        }
        Ok(())
    }

    fn now(&self) -> Time {
        self.clock.now()
    }

    /// Restores what an earlier process knew. The returned task persists changes from now on.
    async fn restore_memory(&mut self) -> JoinSet<()> {
        let mut keeper = JoinSet::new();
        let Some(memory) = self.memory.take() else { return keeper };
        let remembered = memory.recall().await;
        if remembered != EpochAndLease::default() {
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
            self.ledger.restore(remembered.epoch, lease.unwrap_or_default());
        }
        self.remember.send_replace(remembered);
        let executor = self.executor.clone();
        keeper.spawn(memory.keep(self.remember.subscribe(), move || executor.may_write()));
        keeper
    }

    /// Publishes what a later process must know.
    fn persist_memory(&self) {
        // The ledger's time and the wall clock drift a little, which is no reason to write.
        const SAME: SignedDuration = SignedDuration::from_millis(50);
        let now = self.now();
        let left = self
            .ledger
            .lease_end()
            .map(|lease| lease.saturating_sub(now))
            .filter(|left| !left.is_zero());
        let until = left.and_then(|left| Timestamp::now().checked_add(left).ok());
        let epoch = self.ledger.last_session().epoch;
        self.remember.send_if_modified(|known| {
            let later = until
                .filter(|until| known.until.is_none_or(|known| until.duration_since(known) > SAME));
            let news = later.is_some() || known.epoch != epoch;
            *known = EpochAndLease { epoch, until: later.or(known.until) };
            news
        });
    }

    fn open_session(&mut self, link: Link) {
        if self.to_hub.is_some() {
            tracing::info!(cluster = self.settings.cluster, "session superseded by a new one");
        }
        let now = self.now();
        self.protocol = SessionProtocol::open(&mut self.ledger, now);
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
        self.protocol.close(&mut self.ledger);
    }

    fn on_message(&mut self, message: Option<HubMessage>) {
        let Some(mut message) = message else {
            tracing::info!(cluster = self.settings.cluster, "session closed by the other end");
            return self.close();
        };
        bound_pins(&mut message);
        let now = self.now();
        let capacity = self.capacity.as_ref().is_some_and(|it| it.borrow().is_some());
        let (session, was_open) = (message.session_id, self.ledger.session_id().is_some());
        match self.protocol.on_message(&mut self.ledger, message, capacity, now) {
            Ok(actions) => {
                if !was_open && self.ledger.session_id().is_some() {
                    tracing::info!(session, "session open");
                }
                self.start(actions);
                self.persist_memory();
            }
            Err(error) => self.end_session(&error),
        }
    }

    fn on_watch_event(&mut self, event: WatchEvent) {
        let now = self.now();
        let mut actions = self.ledger.on_watch_event(event, now);
        // Bounded, so that events which arrive meanwhile do not prolong the round for ever.
        for _ in 0..self.watch_events.len() {
            let Ok(event) = self.watch_events.try_recv() else { break };
            actions.extend(self.ledger.on_watch_event(event, now));
        }
        self.start(actions);
    }

    fn on_outcome(&mut self, action: &Action, outcome: Outcome) {
        let now = self.now();
        let actions = self.ledger.on_outcome(action, outcome, now);
        self.start(actions);
    }

    fn on_capacity(&mut self, fresh: bool) {
        if !fresh {
            self.capacity = None;
        } else {
            self.protocol.capacity_changed(&self.ledger, self.now());
        }
    }

    fn start(&mut self, actions: Vec<Action>) {
        for action in actions {
            tracing::debug!(workload = action.workload_uid, kind = ?action.kind, verb = action.verb.name(), "action");
            self.actions.spawn(self.executor.clone().perform(action));
        }
    }

    /// Sends the most urgent message, for which there is room.
    fn send_next(&mut self, permit: Option<mpsc::OwnedPermit<AgentMessage>>) {
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
        match self.protocol.next(&mut self.ledger, now)? {
            Outgoing::Hello => Some(agent_message::Kind::Hello(self.hello())),
            Outgoing::Capacity => {
                let capacity = self.capacity.as_mut().and_then(|it| it.borrow_and_update().clone());
                capacity.map(|it| agent_message::Kind::Capacity((*it).clone()))
            }
            Outgoing::Message(agent_message::Kind::Ping(ping)) => {
                Some(agent_message::Kind::Ping(v1::Ping {
                    unable: !self.executor.may_write(),
                    ..ping
                }))
            }
            Outgoing::Message(kind) => Some(kind),
        }
    }

    fn hello(&self) -> v1::Hello {
        let memory = self.ledger.last_session();
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
        let runs =
            |kind: &&&dyn JobKind| kind.remote().is_some() && self.settings.allowed.kind(**kind);
        kinds.iter().filter(runs).map(|kind| owner_gvk(kind.id())).collect()
    }

    /// When there is something to do or send, if nothing happens before.
    fn wakeup(&self, now: Time) -> Option<Time> {
        [self.protocol.wakeup(&self.ledger, now), self.ledger.next_wakeup()]
            .into_iter()
            .flatten()
            .min()
    }
}

/// The next message of an open session; pending for ever without one.
async fn receive(receiver: &mut Option<mpsc::Receiver<HubMessage>>) -> Option<HubMessage> {
    match receiver {
        Some(receiver) => receiver.recv().await,
        None => std::future::pending().await,
    }
}

/// Room for one message to the hub; none if the session is over.
async fn reserve(
    sender: Option<mpsc::Sender<AgentMessage>>,
) -> Option<mpsc::OwnedPermit<AgentMessage>> {
    match sender {
        Some(sender) => sender.reserve_owned().await.ok(),
        None => std::future::pending().await,
    }
}

/// Waits for a change. Returns whether the capacity changed, or false if its source is gone.
async fn changed(capacity: &mut Option<CapacityReceiver>) -> bool {
    match capacity {
        Some(capacity) => capacity.changed().await.is_ok(),
        None => std::future::pending().await,
    }
}

/// Keeps no more flavor pins of an assignment than the executor needs to refuse them.
fn bound_pins(message: &mut HubMessage) {
    let Some(hub_message::Kind::Desired(desired)) = &mut message.kind else { return };
    for assignment in &mut desired.assignments {
        assignment.flavor_pins.truncate(MAX_PINS + 1);
    }
}
