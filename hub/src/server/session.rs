//! One session of a cluster, over a gRPC stream or a link to an agent in this process.

mod reading;

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures::{Stream, StreamExt as _};
use jiff::Timestamp;
use parking_lot::Mutex;
use switchyard_platform::clock::{Clock, SystemClock};
use switchyard_platform::lease::EpochFloor;
use switchyard_platform::log_limit::LogLimit;
use switchyard_proto::VERSIONS;
use switchyard_proto::v1::{
    AgentMessage, Capacity, Goodbye, Hello, HubMessage, Lease, Observation, Ping, Pong, Resend,
    Welcome, agent_message, hub_message,
};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until, timeout};

use super::ServerSettings;
use super::clock_skew;
use super::cluster_rate::ClusterRateLimiter;
use super::epochs::{BEHIND_RETRY, RememberedEpochs};
use super::registry::{LiveSession, Registry};
use super::session_limits::BudgetPermit;
use crate::cluster_channel::outbox::MessageLimits;
use crate::cluster_channel::{ClusterChannel, ClusterChannels, Outgoing};

/// An event for the dispatcher's task.
#[derive(Debug)]
pub enum SessionEvent {
    /// A session has started. The one with the highest id counts for its cluster.
    Up(SessionInfo),
    /// A session has ended.
    Down { cluster: String, session_id: u64, reason: String },
    /// Observations, in order and once each.
    Observed {
        cluster: String,
        session_id: u64,
        observations: Vec<Observation>,
        /// All workloads on the cluster. Present when these observations complete the inventory.
        inventory: Option<switchyard_dispatcher::Uids>,
        /// Held until the dispatcher's task has taken the event.
        weight: BudgetPermit,
    },
    /// Whether the agent can write to its own API server has changed. A session starts with true.
    Able { cluster: String, session_id: u64, able: bool },
    /// A capacity report.
    Capacity {
        cluster: String,
        session_id: u64,
        capacity: Capacity,
        /// Held until the dispatcher's task has taken the event.
        weight: BudgetPermit,
    },
}

impl SessionEvent {
    pub fn cluster(&self) -> &str {
        match self {
            Self::Up(info) => &info.cluster,
            Self::Down { cluster, .. }
            | Self::Observed { cluster, .. }
            | Self::Able { cluster, .. }
            | Self::Capacity { cluster, .. } => cluster,
        }
    }
}

#[derive(Debug, Clone)]
pub struct SessionInfo {
    pub cluster: String,
    pub live: LiveSession,
}

/// The term in which sessions may run. None while this replica does not dispatch.
pub type Term = watch::Receiver<Option<u64>>;

/// Retry time of a cluster that is a duplicate, and of an agent in the wrong cluster.
const DUPLICATE_RETRY: Duration = Duration::from_secs(15);

/// The reason for a cluster that starts too many sessions.
const TOO_OFTEN: &str = "the cluster begins sessions too often";

pub struct Sessions {
    hub_id: String,
    settings: ServerSettings,
    registry: Arc<Registry>,
    channels: Arc<ClusterChannels>,
    term: Term,
    events: mpsc::Sender<SessionEvent>,
    last_id: AtomicU64,
    /// Held from a session's id to its registration.
    entering: Mutex<()>,
    epochs: RememberedEpochs,
    session_rate: Mutex<ClusterRateLimiter>,
    /// Limits the log lines about refused sessions.
    log: LogLimit,
    has_jobs: HasJobs,
    clock: Arc<dyn Clock>,
}

/// Whether unfinished jobs are on a cluster.
type HasJobs = Arc<dyn Fn(&str) -> bool + Send + Sync>;

/// From the session's reader to its writer.
enum PingSignal {
    /// The agent sent a ping with this nonce.
    Asked(u64),
    /// The agent answered the ping with this nonce.
    Answered(u64),
}

impl Sessions {
    pub fn new(
        hub_id: &str,
        settings: ServerSettings,
        registry: Arc<Registry>,
        channels: Arc<ClusterChannels>,
        term: Term,
        events: mpsc::Sender<SessionEvent>,
    ) -> Self {
        Self {
            hub_id: hub_id.into(),
            session_rate: Mutex::new(ClusterRateLimiter::new(
                settings.session_burst,
                settings.session_every,
            )),
            log: LogLimit::default(),
            settings,
            registry,
            channels,
            term,
            events,
            last_id: AtomicU64::new(0),
            entering: Mutex::new(()),
            epochs: RememberedEpochs::default(),
            has_jobs: Arc::new(|_| false),
            clock: Arc::new(SystemClock),
        }
    }

    /// Replaces the system clock, with which agents' clocks are compared.
    #[must_use]
    pub fn with_clock(self, clock: Arc<dyn Clock>) -> Self {
        Self { clock, ..self }
    }

    /// Refuses an agent in another worker cluster than the one that has its cluster's unfinished
    /// jobs.
    #[must_use]
    pub fn with_job_guard(self, has_jobs: impl Fn(&str) -> bool + Send + Sync + 'static) -> Self {
        Self { has_jobs: Arc::new(has_jobs), ..self }
    }

    /// Raises the election's epoch to what agents remember.
    #[must_use]
    pub fn with_epoch_floor(self, floor: EpochFloor) -> Self {
        Self { epochs: RememberedEpochs::raising(floor), ..self }
    }

    /// The term in which sessions may start now.
    pub fn epoch(&self) -> Option<u64> {
        *self.term.borrow()
    }

    /// The other MultiKueueCluster that leads to this worker cluster.
    pub fn holder(&self, cluster: &str, worker: &str) -> Option<String> {
        self.registry.holder(cluster, worker)
    }

    /// Runs a session to its end. `still` is awaited after registration: whether the cluster still
    /// exists.
    pub async fn run(
        &self,
        cluster: &str,
        address: &str,
        epoch: u64,
        inbound: impl Stream<Item = Result<AgentMessage, String>> + Send,
        outbound: mpsc::Sender<HubMessage>,
        still: impl Future<Output = bool> + Send,
    ) {
        let mut inbound = pin!(inbound);
        let mut sender = AgentSender {
            session_id: self.next_id(),
            epoch,
            outbound,
            patience: self.settings.ping_timeout,
        };
        if let Err(wait) = self.admit(cluster, address) {
            return sender.goodbye(TOO_OFTEN, wait).await;
        }
        let hello = match timeout(self.settings.hello, first(&mut inbound)).await {
            Ok(Ok(hello)) => hello,
            Ok(Err(why)) => return tracing::info!(cluster, peer = address, why, "no session"),
            Err(_) => {
                return tracing::info!(cluster, peer = address, "no Hello in time, no session");
            }
        };
        // Before any wait for a lock.
        let now = self.clock.now();
        let Some(version) = agreed(&hello) else {
            let ours = format!("{} to {}", VERSIONS.start(), VERSIONS.end());
            let reason = format!(
                "no common protocol version: the agent speaks {} to {}, the hub {ours}",
                hello.min_version, hello.max_version
            );
            tracing::warn!(cluster, peer = address, reason, "session refused");
            return sender.goodbye(&reason, Duration::from_secs(60)).await;
        };
        let remembered = if hello.last_hub_id == self.hub_id { hello.last_epoch } else { 0 };
        if let Some(reason) = self.epochs.is_behind(cluster, remembered, epoch, Instant::now()) {
            tracing::warn!(cluster, peer = address, reason, "no session yet");
            return sender.goodbye(&reason, BEHIND_RETRY).await;
        }
        let worker = Some(hello.cluster_uid.chars().take(64).collect::<String>())
            .filter(|uid| !uid.is_empty());
        if let Some(found) = &worker
            && let Some(known) = self.jobs_elsewhere(cluster, found)
        {
            let reason = format!(
                "the agent is in the cluster {found}, and the jobs are on the cluster {known}"
            );
            tracing::warn!(cluster, peer = address, reason, "session refused");
            self.registry.record_wrong_worker(cluster, &known, found);
            return sender.goodbye(&reason, DUPLICATE_RETRY).await;
        }
        let (live, entered) = {
            // Ids follow the order of registration: the highest counts as the newest.
            let _entering = self.entering.lock();
            sender.session_id = self.next_id();
            let live = LiveSession {
                session_id: sender.session_id,
                since: now,
                software: hello.software.chars().take(128).collect(),
                version,
                address: address.to_owned(),
                worker,
                unable: None,
                proves: hello.proves,
                skew: clock_skew::measure(hello.clock, now),
            };
            let entered = self.registry.enter(cluster, live.clone());
            (live, entered)
        };
        let closer = match entered {
            Ok(closer) => closer,
            Err(holder) => {
                let reason = format!("MultiKueueCluster \"{holder}\" leads to the same cluster");
                tracing::warn!(cluster, peer = address, reason, "session refused");
                return sender.goodbye(&reason, DUPLICATE_RETRY).await;
            }
        };
        let channel = self.channels.of(cluster);
        let reason = if still.await && self.epoch() == Some(epoch) {
            tokio::select! {
                biased;
                reason = closer.closed() => reason,
                reason = self.converse(cluster, &hello, &live, &channel, &sender, &mut inbound) => reason,
            }
        } else {
            "the cluster was deleted or the hub's term ended".to_owned()
        };
        channel.close(sender.session_id);
        self.registry.leave(cluster, sender.session_id);
        tracing::info!(
            cluster,
            peer = address,
            session = sender.session_id,
            reason,
            "session ended"
        );
        let down = SessionEvent::Down {
            cluster: cluster.to_owned(),
            session_id: sender.session_id,
            reason: reason.clone(),
        };
        let told = self.events.send(down).await.is_ok();
        if told {
            sender.goodbye(&reason, self.settings.retry_after).await;
        }
    }

    /// The worker cluster that has the jobs, if not this one. This one would not report those jobs,
    /// and the hub would take that for their end.
    fn jobs_elsewhere(&self, cluster: &str, worker: &str) -> Option<String> {
        self.registry.known_elsewhere(cluster, worker).filter(|_| (self.has_jobs)(cluster))
    }

    /// Whether a cluster may start a session now. The error is the time to wait.
    fn admit(&self, cluster: &str, address: &str) -> Result<(), Duration> {
        let now = Instant::now();
        let admitted = self.session_rate.lock().admit(cluster, now);
        let wait = match admitted {
            Ok(()) => return Ok(()),
            Err(wait) => wait.max(self.settings.retry_after),
        };
        if let Some(left_out) = self.log.admit(now) {
            tracing::warn!(
                cluster,
                peer = address,
                ?wait,
                left_out,
                reason = TOO_OFTEN,
                "session refused"
            );
        }
        Err(wait)
    }

    async fn converse(
        &self,
        cluster: &str,
        hello: &Hello,
        live: &LiveSession,
        channel: &ClusterChannel,
        sender: &AgentSender,
        inbound: &mut (impl Stream<Item = Result<AgentMessage, String>> + Unpin),
    ) -> String {
        // A revision of another term or another hub means nothing here.
        let ours = hello.last_hub_id == self.hub_id
            && hello.last_epoch == sender.epoch
            && hello.last_revision > 0;
        let snapshot = channel.open(sender.session_id, ours.then_some(hello.last_revision));
        if let Err(reason) =
            sender.send(hub_message::Kind::Welcome(self.welcome(live, snapshot))).await
        {
            return reason;
        }
        tracing::info!(
            cluster,
            peer = live.address,
            session = sender.session_id,
            software = live.software,
            snapshot,
            "session begun"
        );
        if let Some(message) = live.skew.and_then(clock_skew::report) {
            tracing::warn!(cluster, peer = live.address, skew_seconds = live.skew, "{message}");
        }
        let up = SessionEvent::Up(SessionInfo { cluster: cluster.to_owned(), live: live.clone() });
        if self.events.send(up).await.is_err() {
            return "the hub is shutting down".into();
        }
        let (control, signals) = mpsc::channel(8);
        tokio::select! {
            reason = self.read(cluster, channel, sender.session_id, inbound, control) => reason,
            reason = self.write(channel, sender, signals) => reason,
        }
    }

    fn welcome(&self, live: &LiveSession, snapshot: bool) -> Welcome {
        let duration = |duration: Duration| prost_types::Duration::try_from(duration).ok();
        Welcome {
            version: live.version,
            hub_id: self.hub_id.clone(),
            session_id: live.session_id,
            lease: Some(Lease {
                duration: duration(self.settings.lease),
                ping_interval: duration(self.settings.ping_interval),
                ping_timeout: duration(self.settings.ping_timeout),
            }),
            snapshot,
        }
    }

    /// Writes desired state and acknowledgements, answers pings, and sends pings.
    async fn write(
        &self,
        channel: &ClusterChannel,
        sender: &AgentSender,
        mut signals: mpsc::Receiver<PingSignal>,
    ) -> String {
        let limits = MessageLimits::default();
        let mut changed = channel.listen();
        let mut nonce = 0;
        let mut asked: Option<Instant> = None;
        let mut next_ping = Instant::now() + self.settings.ping_interval;
        loop {
            changed.mark_unchanged();
            let next = channel.next(sender.session_id, limits);
            let more = next.is_some();
            if let Some(outgoing) = next {
                let kind = match outgoing {
                    Outgoing::Desired(desired) => hub_message::Kind::Desired(desired),
                    Outgoing::Ack(through) => hub_message::Kind::ObservedAck(through),
                    Outgoing::Resend(buckets) => hub_message::Kind::Resend(Resend { buckets }),
                };
                if let Err(reason) = sender.send(kind).await {
                    return reason;
                }
            }
            let due = asked.map_or(next_ping, |asked| asked + self.settings.ping_timeout);
            let said = tokio::select! {
                biased;
                control = signals.recv() => match control {
                    Some(PingSignal::Asked(theirs)) => sender.send(hub_message::Kind::Pong(Pong { nonce: theirs })).await,
                    Some(PingSignal::Answered(theirs)) => {
                        if theirs == nonce {
                            asked = None;
                        }
                        Ok(())
                    }
                    None => return "the agent ended it".into(),
                },
                () = sleep_until(due) => {
                    if asked.is_some() {
                        return format!("a ping was not answered within {:?}", self.settings.ping_timeout);
                    }
                    nonce += 1;
                    asked = Some(Instant::now());
                    next_ping = Instant::now() + self.settings.ping_interval;
                    sender.send(hub_message::Kind::Ping(Ping { nonce, unable: false })).await
                }
                () = std::future::ready(()), if more => Ok(()),
                changed = changed.changed() => changed.map_err(|_| "the hub ended it".to_owned()),
            };
            if let Err(reason) = said {
                return reason;
            }
        }
    }

    /// Session ids grow, also across restarts.
    fn next_id(&self) -> u64 {
        let now = u64::try_from(Timestamp::now().as_microsecond()).unwrap_or(0);
        let step = |last: u64| Some(now.max(last + 1));
        match self.last_id.fetch_update(Ordering::Relaxed, Ordering::Relaxed, step) {
            Ok(last) | Err(last) => now.max(last + 1),
        }
    }
}

/// Sends to the agent of one session.
struct AgentSender {
    session_id: u64,
    epoch: u64,
    outbound: mpsc::Sender<HubMessage>,
    patience: Duration,
}

impl AgentSender {
    async fn send(&self, kind: hub_message::Kind) -> Result<(), String> {
        let message =
            HubMessage { session_id: self.session_id, epoch: self.epoch, kind: Some(kind) };
        match timeout(self.patience, self.outbound.send(message)).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) => Err("the connection is gone".into()),
            Err(_) => Err(format!("the agent took nothing for {:?}", self.patience)),
        }
    }

    async fn goodbye(&self, reason: &str, retry_after: Duration) {
        let retry_after = prost_types::Duration::try_from(retry_after).ok();
        let goodbye = Goodbye { reason: reason.to_owned(), retry_after };
        // Best effort: the connection may be gone.
        let _ = self.send(hub_message::Kind::Goodbye(goodbye)).await;
    }
}

async fn first(
    inbound: &mut (impl Stream<Item = Result<AgentMessage, String>> + Unpin),
) -> Result<Hello, String> {
    match inbound.next().await {
        Some(Ok(AgentMessage { kind: Some(agent_message::Kind::Hello(hello)), .. })) => Ok(hello),
        Some(Ok(_)) => Err("the first message was no Hello".into()),
        Some(Err(error)) => Err(error),
        None => Err("it ended before Hello".into()),
    }
}

/// The highest protocol version that both ends speak.
fn agreed(hello: &Hello) -> Option<u32> {
    let highest = hello.max_version.min(*VERSIONS.end());
    (highest >= hello.min_version.max(*VERSIONS.start())).then_some(highest)
}
