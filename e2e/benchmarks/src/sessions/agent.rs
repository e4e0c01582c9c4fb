//! An agent without a cluster: it accepts as many jobs at once as fit, and sends scripted reports.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use parking_lot::Mutex;
use serde_json::Value;
use switchyard::join_token::JoinToken;
use switchyard_agent::Link;
use switchyard_proto::v1::{
    AgentMessage, Assignment, Capacity, Desired, FlavorCapacity, Hello, HubMessage, Observation,
    Observed, Phase, Ping, Pong, QueueCapacity, State, agent_message, hub_message,
};
use tokio::sync::mpsc;

use super::Connection;

/// The LocalQueue of every namespace.
pub(crate) const QUEUE: &str = "main";
/// Between two pings.
const PING: Duration = Duration::from_secs(10);

/// Which agent runs which job.
#[derive(Clone, Default)]
pub(crate) struct Board(Arc<Mutex<BTreeMap<String, Running>>>);

#[derive(Clone)]
struct Running {
    observation: Observation,
    agent: mpsc::Sender<Observation>,
}

impl Board {
    /// The jobs that run, by name.
    pub(crate) fn jobs(&self) -> Vec<String> {
        self.0.lock().keys().cloned().collect()
    }

    /// How many run.
    pub(crate) fn count(&self) -> usize {
        self.0.lock().len()
    }

    /// Has its agent say that a job has so many failed pods.
    pub(crate) async fn say(&self, job: &str, failed: i32) -> anyhow::Result<()> {
        let running = self.0.lock().get(job).cloned();
        let Running { mut observation, agent } = running.context("the job does not run")?;
        observation.job_status = serde_json::to_vec(&super::status(failed))?;
        agent.send(observation).await.context("the agent has ended")
    }
}

/// The capacity of an agent's cluster: one queue.
#[derive(Debug, Clone)]
pub(crate) struct Room {
    /// The namespace of its LocalQueue.
    pub(crate) namespace: String,
    /// Jobs of one CPU that run at once.
    pub(crate) jobs: i64,
}

/// One agent. Dropping it ends it.
pub(crate) struct Agent {
    _connection: Connection,
}

impl Agent {
    pub(crate) async fn start(token: &JoinToken, room: Room, board: Board) -> anyhow::Result<Self> {
        let (mut connection, incoming) = Connection::open(token, 0.5).await?;
        connection.play(play(incoming, room, board));
        Ok(Self { _connection: connection })
    }
}

/// One session, and what it has said.
struct Session {
    link: Link,
    id: u64,
    sequence: u64,
}

impl Session {
    async fn say(&self, kind: agent_message::Kind) {
        // A session that has ended is followed by another.
        let _ = self.link.to_hub.send(AgentMessage { session_id: self.id, kind: Some(kind) }).await;
    }

    async fn observe(&mut self, inventory: bool, observations: Vec<Observation>) {
        self.sequence += 1;
        let observed = Observed { sequence: self.sequence, inventory, observations, more: false };
        self.say(agent_message::Kind::Observed(observed)).await;
    }
}

async fn play(mut links: mpsc::Receiver<Link>, room: Room, board: Board) {
    let (changes, mut said) = mpsc::channel(64);
    let mut session: Option<Session> = None;
    let mut pings = tokio::time::interval(PING);
    let mut nonce = 0;
    let mut local = Local { room, board, changes, names: BTreeMap::new(), taken: BTreeSet::new() };
    loop {
        tokio::select! {
            link = links.recv() => {
                let Some(link) = link else { return };
                let opened = Session { link, id: 0, sequence: 0 };
                let hello = Hello { boot_id: "b".into(), min_version: 1, max_version: 1, ..Hello::default() };
                opened.say(agent_message::Kind::Hello(hello)).await;
                session = Some(opened);
            }
            message = hear(&mut session) => match (message, &mut session) {
                (Some(message), Some(session)) => local.obey(session, message).await,
                _ => session = None,
            },
            Some(observation) = said.recv() => if let Some(session) = &mut session {
                session.observe(false, vec![observation]).await;
            },
            _ = pings.tick() => if let Some(session) = session.as_ref().filter(|session| session.id > 0) {
                nonce += 1;
                session.say(agent_message::Kind::Ping(Ping { nonce, unable: false })).await;
            },
        }
    }
}

async fn hear(session: &mut Option<Session>) -> Option<HubMessage> {
    match session {
        Some(session) => session.link.to_agent.recv().await,
        None => std::future::pending().await,
    }
}

/// The scripted local side: a queue that admits at once what fits.
struct Local {
    room: Room,
    board: Board,
    changes: mpsc::Sender<Observation>,
    /// Names of jobs by their payloads' hashes.
    names: BTreeMap<Vec<u8>, String>,
    /// The workloads that hold quota, by uid.
    taken: BTreeSet<String>,
}

impl Local {
    async fn obey(&mut self, session: &mut Session, message: HubMessage) {
        match message.kind {
            Some(hub_message::Kind::Welcome(welcome)) => {
                session.id = welcome.session_id;
                session.observe(true, Vec::new()).await;
                session.say(agent_message::Kind::Capacity(self.capacity())).await;
            }
            Some(hub_message::Kind::Ping(ping)) => {
                session.say(agent_message::Kind::Pong(Pong { nonce: ping.nonce })).await;
            }
            Some(hub_message::Kind::Desired(Desired {
                revision, payloads, assignments, ..
            })) => {
                for payload in payloads {
                    let job: Value = serde_json::from_slice(&payload.job).unwrap_or_default();
                    let name =
                        job.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
                    self.names.insert(payload.hash, name.to_owned());
                }
                session.say(agent_message::Kind::DesiredAck(revision)).await;
                let observations: Vec<Observation> =
                    assignments.iter().map(|assignment| self.take(assignment)).collect();
                if !observations.is_empty() {
                    session.observe(false, observations).await;
                    session.say(agent_message::Kind::Capacity(self.capacity())).await;
                }
            }
            _ => {}
        }
    }

    /// Does what an assignment says, and gives what becomes of it.
    fn take(&mut self, assignment: &Assignment) -> Observation {
        let observation = answer(assignment);
        let uid = assignment.workload_uid.clone();
        match assignment.phase() {
            Phase::Absent | Phase::Suspend => drop(self.taken.remove(&uid)),
            Phase::Run | Phase::Reserve | Phase::Unspecified => drop(self.taken.insert(uid)),
        }
        if assignment.phase() == Phase::Run {
            let name = self.names.get(&assignment.payload_hash).cloned().unwrap_or_default();
            let running = Running { observation: observation.clone(), agent: self.changes.clone() };
            self.board.0.lock().insert(name, running);
        }
        observation
    }

    /// In thousandths of a CPU.
    fn capacity(&self) -> Capacity {
        let Room { namespace, jobs } = &self.room;
        let taken = i64::try_from(self.taken.len()).unwrap_or(i64::MAX);
        let (nominal, used) = (jobs * 1000, taken.saturating_mul(1000));
        let flavor = FlavorCapacity {
            flavor: "any".to_owned(),
            resource: "cpu".to_owned(),
            nominal,
            used,
            available: (nominal - used).max(0),
            potential: nominal,
            ..FlavorCapacity::default()
        };
        let queue = QueueCapacity {
            namespace: namespace.clone(),
            local_queue: QUEUE.to_owned(),
            cluster_queue: namespace.clone(),
            active: true,
            flavors: vec![flavor],
            ..QueueCapacity::default()
        };
        Capacity { queues: vec![queue], ..Capacity::default() }
    }
}

fn answer(assignment: &Assignment) -> Observation {
    let (state, status) = match assignment.phase() {
        Phase::Run => (State::Running, super::status(0).to_string().into_bytes()),
        Phase::Suspend => (State::Suspended, Vec::new()),
        Phase::Absent => (State::Gone, Vec::new()),
        Phase::Reserve | Phase::Unspecified => (State::Reserved, Vec::new()),
    };
    Observation {
        workload_uid: assignment.workload_uid.clone(),
        namespace: assignment.namespace.clone(),
        name: assignment.name.clone(),
        attempt: assignment.attempt,
        state: state.into(),
        job_status: status,
        ..Observation::default()
    }
}
