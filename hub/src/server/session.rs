//! One session, whatever carries it: a gRPC stream, or a link to an agent in this process.

mod reading;

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures::{Stream, StreamExt as _};
use jiff::Timestamp;
use parking_lot::Mutex;
use switchyard_controller::EpochFloor;
use switchyard_controller::log_limit::LogLimit;
use switchyard_proto::VERSIONS;
use switchyard_proto::v1::{
    AgentMessage, Capacity, Goodbye, Hello, HubMessage, Lease, Observation, Ping, Pong, Resend,
    Welcome, agent_message, hub_message,
};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until, timeout};

use super::Settings;
use super::arrivals::Arrivals;
use super::epochs::{BEHIND_RETRY, Epochs};
use super::registry::{Live, Registry};
use super::session_limits::Weight;
use crate::cluster_channel::outbox::Limits;
use crate::cluster_channel::{Outgoing, Port, Ports};

/// What sessions tell the dispatcher's task.
#[derive(Debug)]
pub enum SessionEvent {
    /// A session has begun. Of one cluster, the one with the highest id counts.
    Up(SessionInfo),
    /// It has ended.
    Down {
        /// The cluster.
        cluster: String,
        /// Which session.
        session_id: u64,
        /// Why.
        reason: String,
    },
    /// Observations, in order and once each.
    Observed {
        /// The cluster.
        cluster: String,
        /// Which session.
        session_id: u64,
        /// What.
        observations: Vec<Observation>,
        /// They end the inventory: all workloads on the cluster.
        inventory: Option<switchyard_dispatcher::Uids>,
        /// Of the session's share of what waits.
        weight: Weight,
    },
    /// Its agent can act on its cluster again, or cannot; it begins by being able to.
    Able {
        /// The cluster.
        cluster: String,
        /// Which session.
        session_id: u64,
        /// Whether it can.
        able: bool,
    },
    /// A report.
    Capacity {
        /// The cluster.
        cluster: String,
        /// Which session.
        session_id: u64,
        /// What.
        capacity: Capacity,
        /// Of the session's share of what waits.
        weight: Weight,
    },
}

impl SessionEvent {
    /// Of which cluster it tells.
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

/// A session that has begun.
#[derive(Debug, Clone)]
pub struct SessionInfo {
    /// The cluster.
    pub cluster: String,
    /// For people.
    pub live: Live,
}

/// Who leads, as far as sessions care: the term, or none while this process may not dispatch.
pub type Term = watch::Receiver<Option<u64>>;

/// After this long, a cluster that another one leads to may try again, and so may an agent in another cluster than before.
const TWIN_RETRY: Duration = Duration::from_secs(15);

/// What a cluster is told that begins too many sessions.
const TOO_OFTEN: &str = "the cluster begins sessions too often";

/// Runs sessions.
pub struct Sessions {
    hub_id: String,
    settings: Settings,
    registry: Arc<Registry>,
    ports: Arc<Ports>,
    term: Term,
    events: mpsc::Sender<SessionEvent>,
    last_id: AtomicU64,
    epochs: Epochs,
    arrivals: Mutex<Arrivals>,
    /// Of sessions that did not begin.
    log: LogLimit,
    /// Whether a cluster has jobs.
    has_jobs: HasJobs,
}

/// Whether jobs that have not ended are on a cluster.
type HasJobs = Arc<dyn Fn(&str) -> bool + Send + Sync>;

/// Between the reading and the writing half.
enum Control {
    /// The agent asks whether we are there.
    Asked(u64),
    /// The agent has answered.
    Answered(u64),
}

impl Sessions {
    /// Sessions that tell `events` what happens.
    pub fn new(
        hub_id: &str,
        settings: Settings,
        registry: Arc<Registry>,
        ports: Arc<Ports>,
        term: Term,
        events: mpsc::Sender<SessionEvent>,
    ) -> Self {
        Self {
            hub_id: hub_id.into(),
            arrivals: Mutex::new(Arrivals::new(settings.session_burst, settings.session_every)),
            log: LogLimit::default(),
            settings,
            registry,
            ports,
            term,
            events,
            last_id: AtomicU64::new(0),
            epochs: Epochs::default(),
            has_jobs: Arc::new(|_| false),
        }
    }

    /// Sessions that no agent begins in another worker cluster than the one that has the jobs of its cluster.
    #[must_use]
    pub fn guarding(self, has_jobs: impl Fn(&str) -> bool + Send + Sync + 'static) -> Self {
        Self { has_jobs: Arc::new(has_jobs), ..self }
    }

    /// Sessions that tell the election of epochs that agents remember.
    #[must_use]
    pub fn raising(self, floor: EpochFloor) -> Self {
        Self { epochs: Epochs::telling(floor), ..self }
    }

    /// The term in which sessions may begin now.
    pub fn epoch(&self) -> Option<u64> {
        *self.term.borrow()
    }

    /// Which other cluster leads to this worker cluster, if one does.
    pub fn holder(&self, cluster: &str, worker: &str) -> Option<String> {
        self.registry.holder(cluster, worker)
    }

    /// Runs a session to its end. `still` is awaited once the session can be cut: whether it may be.
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
        let line = Line {
            session_id: self.next_id(),
            epoch,
            outbound,
            patience: self.settings.ping_timeout,
        };
        if let Err(wait) = self.admit(cluster, address) {
            return line.goodbye(TOO_OFTEN, wait).await;
        }
        let hello = match timeout(self.settings.hello, first(&mut inbound)).await {
            Ok(Ok(hello)) => hello,
            Ok(Err(why)) => return tracing::info!(cluster, peer = address, why, "no session"),
            Err(_) => {
                return tracing::info!(cluster, peer = address, "no Hello in time, no session");
            }
        };
        let Some(version) = agreed(&hello) else {
            let ours = format!("{} to {}", VERSIONS.start(), VERSIONS.end());
            let reason = format!(
                "no common protocol version: the agent speaks {} to {}, the hub {ours}",
                hello.min_version, hello.max_version
            );
            tracing::warn!(cluster, peer = address, reason, "session refused");
            return line.goodbye(&reason, Duration::from_secs(60)).await;
        };
        let remembered = if hello.last_hub_id == self.hub_id { hello.last_epoch } else { 0 };
        if let Some(reason) = self.epochs.behind(cluster, remembered, epoch, Instant::now()) {
            tracing::warn!(cluster, peer = address, reason, "no session yet");
            return line.goodbye(&reason, BEHIND_RETRY).await;
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
            self.registry.note_strange(cluster, &known, found);
            return line.goodbye(&reason, TWIN_RETRY).await;
        }
        let live = Live {
            session_id: line.session_id,
            since: Timestamp::now(),
            software: hello.software.chars().take(128).collect(),
            version,
            address: address.to_owned(),
            worker,
            unable: None,
            proves: hello.proves,
        };
        let cut = match self.registry.enter(cluster, live.clone()) {
            Ok(cut) => cut,
            Err(twin) => {
                let reason = format!("MultiKueueCluster \"{twin}\" leads to the same cluster");
                tracing::warn!(cluster, peer = address, reason, "session refused");
                return line.goodbye(&reason, TWIN_RETRY).await;
            }
        };
        let port = self.ports.of(cluster);
        let reason = if still.await && self.epoch() == Some(epoch) {
            tokio::select! {
                biased;
                reason = cut.happened() => reason,
                reason = self.converse(cluster, &hello, &live, &port, &line, &mut inbound) => reason,
            }
        } else {
            "the cluster was deleted or the hub's term ended".to_owned()
        };
        port.close(line.session_id);
        self.registry.leave(cluster, line.session_id);
        tracing::info!(cluster, peer = address, session = line.session_id, reason, "session ended");
        let down = SessionEvent::Down {
            cluster: cluster.to_owned(),
            session_id: line.session_id,
            reason: reason.clone(),
        };
        let told = self.events.send(down).await.is_ok();
        if told {
            line.goodbye(&reason, self.settings.retry_after).await;
        }
    }

    /// The worker cluster that has the jobs of a cluster, if that is not this one: its silence about them would be taken for
    /// their end.
    fn jobs_elsewhere(&self, cluster: &str, worker: &str) -> Option<String> {
        self.registry.known_elsewhere(cluster, worker).filter(|_| (self.has_jobs)(cluster))
    }

    /// Whether a cluster may begin a session now; if not, after which time it may.
    fn admit(&self, cluster: &str, address: &str) -> Result<(), Duration> {
        let now = Instant::now();
        let admitted = self.arrivals.lock().admit(cluster, now);
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
        live: &Live,
        port: &Port,
        line: &Line,
        inbound: &mut (impl Stream<Item = Result<AgentMessage, String>> + Unpin),
    ) -> String {
        // What another term, or another hub, gave out means nothing here.
        let ours = hello.last_hub_id == self.hub_id
            && hello.last_epoch == line.epoch
            && hello.last_revision > 0;
        let snapshot = port.open(line.session_id, ours.then_some(hello.last_revision));
        if let Err(reason) =
            line.send(hub_message::Kind::Welcome(self.welcome(live, snapshot))).await
        {
            return reason;
        }
        tracing::info!(
            cluster,
            peer = live.address,
            session = line.session_id,
            software = live.software,
            snapshot,
            "session begun"
        );
        let up = SessionEvent::Up(SessionInfo { cluster: cluster.to_owned(), live: live.clone() });
        if self.events.send(up).await.is_err() {
            return "the hub is shutting down".into();
        }
        let (control, heard) = mpsc::channel(8);
        tokio::select! {
            reason = self.read(cluster, port, line.session_id, inbound, control) => reason,
            reason = self.write(port, line, heard) => reason,
        }
    }

    fn welcome(&self, live: &Live, snapshot: bool) -> Welcome {
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

    /// Writes what the port has, answers pings, and asks for itself.
    async fn write(&self, port: &Port, line: &Line, mut heard: mpsc::Receiver<Control>) -> String {
        let limits = Limits::default();
        let mut bell = port.listen();
        let mut nonce = 0;
        let mut asked: Option<Instant> = None;
        let mut next_ping = Instant::now() + self.settings.ping_interval;
        loop {
            bell.mark_unchanged();
            let next = port.next(line.session_id, limits);
            let more = next.is_some();
            if let Some(outgoing) = next {
                let kind = match outgoing {
                    Outgoing::Desired(desired) => hub_message::Kind::Desired(desired),
                    Outgoing::Ack(through) => hub_message::Kind::ObservedAck(through),
                    Outgoing::Resend(buckets) => hub_message::Kind::Resend(Resend { buckets }),
                };
                if let Err(reason) = line.send(kind).await {
                    return reason;
                }
            }
            let due = asked.map_or(next_ping, |asked| asked + self.settings.ping_timeout);
            let said = tokio::select! {
                biased;
                control = heard.recv() => match control {
                    Some(Control::Asked(theirs)) => line.send(hub_message::Kind::Pong(Pong { nonce: theirs })).await,
                    Some(Control::Answered(theirs)) => {
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
                    line.send(hub_message::Kind::Ping(Ping { nonce, unable: false })).await
                }
                () = std::future::ready(()), if more => Ok(()),
                changed = bell.changed() => changed.map_err(|_| "the hub ended it".to_owned()),
            };
            if let Err(reason) = said {
                return reason;
            }
        }
    }

    /// Grows with each session and over restarts.
    fn next_id(&self) -> u64 {
        let now = u64::try_from(Timestamp::now().as_microsecond()).unwrap_or(0);
        let step = |last: u64| Some(now.max(last + 1));
        match self.last_id.fetch_update(Ordering::Relaxed, Ordering::Relaxed, step) {
            Ok(last) | Err(last) => now.max(last + 1),
        }
    }
}

/// The way to the agent.
struct Line {
    session_id: u64,
    epoch: u64,
    outbound: mpsc::Sender<HubMessage>,
    patience: Duration,
}

impl Line {
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
        // Best effort: it may be gone, or deaf.
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

/// The highest version that both speak.
fn agreed(hello: &Hello) -> Option<u32> {
    let highest = hello.max_version.min(*VERSIONS.end());
    (highest >= hello.min_version.max(*VERSIONS.start())).then_some(highest)
}
