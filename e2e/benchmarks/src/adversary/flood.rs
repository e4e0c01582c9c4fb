//! Agents that are enrolled and flood the hub with what their certificate allows.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use switchyard::join_token::JoinToken;
use switchyard_agent::Link;
use switchyard_proto::v1::{
    AgentMessage, Capacity, FlavorCapacity, Hello, HubMessage, Observation, Observed, Pong,
    QueueCapacity, State, agent_message, hub_message,
};
use tokio::sync::{mpsc, watch};
use tokio::time::MissedTickBehavior;

use crate::sessions::Connection;

/// Held ends of which the flood with observations speaks, one after the other.
const ENDS: u64 = 10_000;

/// The endless activity of an agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Flood {
    /// Reports of capacity whose values alternate.
    Capacity,
    /// Inventories of one workload that the hub does not know.
    Inventories,
    /// Ends of workloads that the hub does not know, and their being gone.
    Ends,
    /// Sessions that it ends as soon as they have begun.
    Sessions,
}

impl Flood {
    pub(super) const ALL: [Self; 4] =
        [Self::Capacity, Self::Inventories, Self::Ends, Self::Sessions];

    /// Also the name of its cluster.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Capacity => "capacity",
            Self::Inventories => "inventories",
            Self::Ends => "ends",
            Self::Sessions => "sessions",
        }
    }
}

/// Messages sent, by flood.
#[derive(Debug, Clone, Default)]
pub(super) struct Sent(Arc<BTreeMap<Flood, AtomicU64>>);

impl Sent {
    pub(super) fn new() -> Self {
        Self(Arc::new(Flood::ALL.into_iter().map(|flood| (flood, AtomicU64::new(0))).collect()))
    }

    fn count(&self, flood: Flood) {
        if let Some(count) = self.0.get(&flood) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(super) fn of(&self, flood: Flood) -> u64 {
        self.0.get(&flood).map_or(0, |count| count.load(Ordering::Relaxed))
    }
}

/// One agent. It floods while `on` is true. Dropping it ends it.
pub(super) struct Agent {
    _connection: Connection,
}

impl Agent {
    /// Enrols and connects.
    ///
    /// # Errors
    /// When the hub does not let it in.
    pub(super) async fn start(
        token: &JoinToken,
        script: Script,
        on: watch::Receiver<bool>,
    ) -> anyhow::Result<Self> {
        let (mut connection, incoming) = Connection::open(token, 0.0).await?;
        connection.play(script.play(incoming, on));
        Ok(Self { _connection: connection })
    }
}

/// The activity of an agent.
pub(super) struct Script {
    pub(super) flood: Flood,
    /// Messages in a second.
    pub(super) rate: u64,
    /// The namespace of its LocalQueue.
    pub(super) namespace: String,
    pub(super) queue: String,
    pub(super) sent: Sent,
}

impl Script {
    async fn play(self, mut links: mpsc::Receiver<Link>, on: watch::Receiver<bool>) {
        while let Some(link) = links.recv().await {
            self.session(link, &on).await;
        }
    }

    /// One session, until it ends.
    async fn session(&self, mut link: Link, on: &watch::Receiver<bool>) {
        let hello =
            Hello { boot_id: "b".into(), min_version: 1, max_version: 1, ..Hello::default() };
        if say(&link, 0, agent_message::Kind::Hello(hello)).await.is_err() {
            return;
        }
        let (mut id, mut sequence, mut number) = (0, 0, 0);
        let mut ticks =
            tokio::time::interval(Duration::from_secs(1) / u32::try_from(self.rate).unwrap_or(1));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
        loop {
            let floods = *on.borrow();
            let said = tokio::select! {
                message = link.to_agent.recv() => match message {
                    Some(HubMessage { kind: Some(hub_message::Kind::Welcome(welcome)), .. }) => {
                        id = welcome.session_id;
                        self.sent.count(Flood::Sessions);
                        if self.flood == Flood::Sessions && floods {
                            return;
                        }
                        sequence += 1;
                        let empty = observed(sequence, true, Vec::new());
                        match say(&link, id, empty).await {
                            Ok(()) => say(&link, id, agent_message::Kind::Capacity(self.capacity(0))).await,
                            error => error,
                        }
                    }
                    Some(HubMessage { kind: Some(hub_message::Kind::Ping(ping)), .. }) => {
                        say(&link, id, agent_message::Kind::Pong(Pong { nonce: ping.nonce })).await
                    }
                    Some(_) => Ok(()),
                    None => return,
                },
                _ = ticks.tick(), if id > 0 && floods => {
                    number += 1;
                    match self.message(number, &mut sequence) {
                        Some(message) => {
                            self.sent.count(self.flood);
                            say(&link, id, message).await
                        }
                        // A session that began before the flood.
                        None => return,
                    }
                }
            };
            if said.is_err() {
                return;
            }
        }
    }

    fn message(&self, number: u64, sequence: &mut u64) -> Option<agent_message::Kind> {
        Some(match self.flood {
            Flood::Capacity => {
                agent_message::Kind::Capacity(self.capacity(i64::from(number.is_multiple_of(2))))
            }
            Flood::Inventories => {
                *sequence += 1;
                observed(*sequence, true, vec![self.observation(number % 2, State::Running)])
            }
            Flood::Ends => {
                *sequence += 1;
                let state =
                    if (number / ENDS).is_multiple_of(2) { State::Succeeded } else { State::Gone };
                observed(*sequence, false, vec![self.observation(number % ENDS, state)])
            }
            Flood::Sessions => return None,
        })
    }

    fn observation(&self, number: u64, state: State) -> Observation {
        Observation {
            workload_uid: format!("00000000-0000-0000-0000-{number:012}"),
            namespace: self.namespace.clone(),
            name: format!("made-up-{number}"),
            attempt: 1,
            state: state.into(),
            ..Observation::default()
        }
    }

    /// A queue in which so many thousandths of a CPU are free: no job fits, and each may at the next report.
    fn capacity(&self, available: i64) -> Capacity {
        let flavor = FlavorCapacity {
            flavor: "any".to_owned(),
            resource: "cpu".to_owned(),
            nominal: 1_000_000,
            used: 1_000_000 - available,
            available,
            potential: 1_000_000,
            ..FlavorCapacity::default()
        };
        let queue = QueueCapacity {
            namespace: self.namespace.clone(),
            local_queue: self.queue.clone(),
            cluster_queue: self.namespace.clone(),
            active: true,
            flavors: vec![flavor],
            ..QueueCapacity::default()
        };
        Capacity { queues: vec![queue], ..Capacity::default() }
    }
}

fn observed(sequence: u64, inventory: bool, observations: Vec<Observation>) -> agent_message::Kind {
    agent_message::Kind::Observed(Observed { sequence, inventory, observations, more: false })
}

async fn say(link: &Link, session_id: u64, kind: agent_message::Kind) -> Result<(), ()> {
    link.to_hub.send(AgentMessage { session_id, kind: Some(kind) }).await.map_err(drop)
}
