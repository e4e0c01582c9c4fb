//! State of the hub: its API server, its replicas, the leader's term, and writes on their way.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::{Value, json};
use switchyard_api::flavor_pins::FlavorPins;
use switchyard_api::v1beta2::AgentStatus;
use switchyard_dispatcher::{
    Dispatcher, LiveSessions, LossPolicy, ObservationCache, Uid, Uids, WorkloadFacts,
    WorkloadWrite, WriteRetries,
};
use switchyard_hub::cluster_channel::ClusterChannel;
use switchyard_hub::server::Registry;
use switchyard_platform::lease::step::{ObservedLease, State as Election};
use switchyard_proto::v1::{Capacity, Observation};

use super::{Event, LinkId};
use crate::names::name;
use crate::time::Ms;

/// A Workload on the hub, with its job.
#[derive(Debug, Clone)]
pub(crate) struct Object {
    pub(crate) facts: WorkloadFacts,
    pub(crate) deleted: bool,
    /// Its owner deleted the job.
    pub(crate) owner_gone: bool,
    /// When the job's status first showed an end.
    pub(crate) job_ended: Option<Ms>,
    // === known to the laws only
    pub(crate) finished_at: Option<Ms>,
    /// Writes of an end.
    pub(crate) ends: u32,
    /// Writes that withdrew it for lack of a ready pod.
    pub(crate) stuck_moves: u32,
    /// Every cluster and attempt that was ever written, in this order. After a restored store, an
    /// attempt's number is given out again.
    pub(crate) committed: Vec<(usize, u64)>,
    /// When a hub decided on the last of them.
    pub(crate) commit_decided: Ms,
    /// When the first cluster last took another workload while it had this one's open offer.
    pub(crate) first_progressed: Ms,
    /// Every policy that it ever had.
    pub(crate) losses: BTreeSet<Option<LossPolicy>>,
    /// When its owner last changed the policy.
    pub(crate) changed: Ms,
    /// Where, and as which attempt, its job really ended.
    pub(crate) ended: Vec<(usize, u64)>,
}

impl Object {
    pub(crate) fn note_commit(&mut self, cluster: usize, attempt: u64) {
        if self.committed.last() != Some(&(cluster, attempt)) {
            self.committed.push((cluster, attempt));
        }
    }

    /// Whether another attempt was committed after this one.
    pub(crate) fn has_later_commit(&self, cluster: usize, attempt: u64) -> bool {
        let last = self.committed.iter().rposition(|it| *it == (cluster, attempt));
        last.is_some_and(|last| last + 1 < self.committed.len())
    }
}

#[derive(Debug, Default)]
pub(crate) struct Api {
    pub(crate) objects: BTreeMap<Uid, Object>,
    pub(crate) version: u64,
    pub(crate) lease: Option<ObservedLease>,
    pub(crate) lease_version: u64,
    /// The agents' states in the statuses of MultiKueueClusters.
    pub(crate) agents: BTreeMap<usize, AgentStatus>,
}

/// A watch event of the hub.
#[derive(Debug, Clone)]
pub(crate) enum Change {
    Is(Box<WorkloadFacts>),
    Gone(Uid),
}

#[derive(Default)]
pub(crate) struct Hub {
    pub(crate) up: bool,
    pub(crate) boot: u32,
    /// Events that wait while the process is frozen.
    pub(crate) frozen: Option<Vec<Event>>,
    /// Faults that cut it off its API server.
    pub(crate) cut: u32,
    /// Error of its wall clock.
    pub(crate) skew: i64,
    pub(crate) started: Ms,
    pub(crate) election: Election,
    pub(crate) round: u64,
    /// Its cache of Workloads.
    pub(crate) store: BTreeMap<Uid, WorkloadFacts>,
    pub(crate) watched: Ms,
    /// Number of lists of Workloads. A later list supersedes the watch of an earlier one.
    pub(crate) lists: u32,
    pub(crate) last_session: u64,
    /// LiveSessions, and the agents' own states.
    pub(crate) registry: Registry,
    /// The highest epoch that an agent remembers.
    pub(crate) floor: u64,
    /// Assignments by cluster; emptied with each term.
    pub(crate) ports: BTreeMap<usize, ClusterChannel>,
    pub(crate) term: Option<Term>,
}

/// One term of leadership, with all state of the term.
pub(crate) struct Term {
    pub(crate) epoch: u64,
    pub(crate) dispatcher: Dispatcher,
    /// Connections after their Hello, by cluster.
    pub(crate) sessions: BTreeMap<usize, LinkId>,
    /// The valid session by cluster, for the dispatcher's task.
    pub(crate) live: LiveSessions,
    /// Clusters that disconnected in this term, and when.
    pub(crate) lost: BTreeMap<usize, Ms>,
    pub(crate) begun: Ms,
    /// Disconnected clusters by the dispatcher's knowledge, and since when; at first all.
    pub(crate) away: BTreeMap<usize, Ms>,
    /// Clusters whose agents cannot act, by the dispatcher's knowledge.
    pub(crate) unable: BTreeMap<usize, Ms>,
    /// Quota reserved in the engine's memory, and the version of its Workload.
    pub(crate) memory: BTreeMap<Uid, u64>,
    /// The flavors of each workload's last reservation, and how many reservations it had.
    pub(crate) charges: BTreeMap<Uid, Arc<FlavorPins>>,
    pub(crate) turns: BTreeMap<Uid, usize>,
    /// Not queued again before this.
    pub(crate) parked: BTreeMap<Uid, Ms>,
    pub(crate) told: ObservationCache,
    pub(crate) slots: BTreeMap<Uid, Slot>,
    pub(crate) tick: Option<Ms>,
    pub(crate) news_at: Ms,
    pub(crate) engine_due: bool,
}

impl Term {
    /// Whether the dispatcher's task counts a cluster as connected.
    pub(crate) fn is_live(&self, cluster: usize) -> bool {
        self.live.has_session(&name(cluster))
    }
}

/// The state at the last loss of the hub's store.
#[derive(Debug, Default)]
pub(crate) struct LostStore {
    /// Losses so far.
    pub(crate) times: u32,
    /// UnixMillis of the last loss.
    pub(crate) at: Option<Ms>,
    /// The lost workloads, for owners who apply them again and for the laws.
    pub(crate) past: BTreeMap<usize, Object>,
    pub(crate) backup: Option<BTreeMap<Uid, Object>>,
}

/// Reports of sessions to the dispatcher's task.
#[derive(Debug)]
pub(crate) enum News {
    Up {
        cluster: usize,
        session: u64,
    },
    Down {
        cluster: usize,
        session: u64,
    },
    Observed {
        cluster: usize,
        session: u64,
        observations: Vec<Observation>,
        inventory: Option<Uids>,
    },
    Capacity {
        cluster: usize,
        session: u64,
        capacity: Capacity,
    },
    Able {
        cluster: usize,
        session: u64,
        able: bool,
    },
}

/// A job's status, as far as the simulation models it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Status {
    Idle,
    Active,
    Ended,
}

impl Status {
    /// As an agent sends it.
    pub(crate) fn to_json(self) -> Vec<u8> {
        let word = match self {
            Self::Idle => "idle",
            Self::Active => "active",
            Self::Ended => "ended",
        };
        json!({ "is": word }).to_string().into_bytes()
    }

    /// As the hub stores it.
    pub(crate) fn of(json: &Value) -> Option<Self> {
        match json["is"].as_str()? {
            "idle" => Some(Self::Idle),
            "active" => Some(Self::Active),
            "ended" => Some(Self::Ended),
            _ => None,
        }
    }
}

/// The status to mirror.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Show {
    Status(Status),
    /// Nothing runs any more.
    Nothing,
}

/// The pending mirror writes of one job.
#[derive(Debug, Default)]
pub(crate) struct Slot {
    pub(crate) show: Option<Show>,
    pub(crate) finish: Option<Arc<WorkloadWrite>>,
    pub(crate) busy: bool,
    pub(crate) finishing: bool,
}

/// A write on its way.
#[derive(Debug, Clone)]
pub(crate) struct WriteJob {
    pub(crate) hub: usize,
    pub(crate) boot: u32,
    pub(crate) epoch: u64,
    pub(crate) uid: Uid,
    pub(crate) write: Arc<WorkloadWrite>,
    pub(crate) base: WorkloadFacts,
    /// The reservation was in memory at the request.
    pub(crate) memory: bool,
    /// The flavors of that reservation.
    pub(crate) charged: Arc<FlavorPins>,
    pub(crate) tries: WriteRetries,
    /// When the dispatcher requested it.
    pub(crate) asked: Ms,
}

/// The reply to a write.
#[derive(Debug, Clone)]
pub(crate) enum WriteReply {
    Done(Box<WorkloadFacts>),
    Conflict,
    Gone,
    /// No answer: the write may have happened.
    Unknown,
}
