//! State of the connections between agents and hub replicas.

use std::collections::{BTreeMap, VecDeque};

use switchyard_proto::v1::{AgentMessage, HubMessage};

use crate::time::Ms;

/// Identifies a connection; increases.
pub(crate) type LinkId = u64;

/// The packets on their way in one direction before the sender must wait.
pub(crate) const WINDOW: usize = 16;

/// Old messages that a replay may repeat.
const KEPT: usize = 12;

#[derive(Debug, Clone)]
pub(crate) enum Packet<M> {
    Message(M),
    Fin,
}

/// One direction of a connection.
#[derive(Debug)]
pub(crate) struct Pipe<M> {
    pub(crate) packets: VecDeque<(Ms, Packet<M>)>,
    pub(crate) last: Ms,
}

impl<M> Default for Pipe<M> {
    fn default() -> Self {
        Self { packets: VecDeque::new(), last: 0 }
    }
}

impl<M> Pipe<M> {
    /// Whether a packet is overdue.
    pub(crate) fn is_late(&self, now: Ms) -> bool {
        self.packets.front().is_some_and(|(at, _)| *at < now)
    }

    /// Whether the sender may send.
    pub(crate) fn has_room(&self) -> bool {
        self.packets.len() < WINDOW
    }
}

#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) cluster: usize,
    pub(crate) hub: usize,
    pub(crate) agent_boot: u32,
    pub(crate) hub_boot: u32,
    pub(crate) up: Pipe<AgentMessage>,
    pub(crate) down: Pipe<HubMessage>,
    pub(crate) agent_open: bool,
    pub(crate) hub_open: bool,
    /// The hub's session of the connection.
    pub(crate) session: Option<Session>,
}

impl Link {
    /// The session, if the hub may send now.
    pub(crate) fn ready(&self) -> Option<u64> {
        let open = self.hub_open && self.down.has_room();
        self.session.as_ref().filter(|_| open).map(|session| session.id)
    }
}

/// The hub's end of a session.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) id: u64,
    pub(crate) epoch: u64,
    pub(crate) nonce: u64,
    /// When the outstanding ping was sent, on the hub's clock.
    pub(crate) asked: Option<i64>,
    pub(crate) next_ping: i64,
}

/// All connections, and the cut directions.
#[derive(Debug, Default)]
pub(crate) struct Network {
    pub(crate) links: BTreeMap<LinkId, Link>,
    pub(crate) next: LinkId,
    /// By cluster, the number of faults that cut each direction: from the cluster, to the cluster.
    pub(crate) cut: BTreeMap<usize, (u32, u32)>,
    /// The last messages of earlier connections, by cluster.
    pub(crate) old_up: BTreeMap<usize, VecDeque<AgentMessage>>,
    pub(crate) old_down: BTreeMap<usize, VecDeque<HubMessage>>,
}

impl Network {
    /// Whether messages from a cluster (`up`) or to it are cut.
    pub(crate) fn is_cut(&self, cluster: usize, up: bool) -> bool {
        let (uplink, downlink) = self.cut.get(&cluster).copied().unwrap_or_default();
        if up { uplink > 0 } else { downlink > 0 }
    }

    pub(crate) fn connect(
        &mut self,
        cluster: usize,
        hub: usize,
        agent_boot: u32,
        hub_boot: u32,
    ) -> LinkId {
        self.next += 1;
        let link = Link {
            cluster,
            hub,
            agent_boot,
            hub_boot,
            up: Pipe::default(),
            down: Pipe::default(),
            agent_open: true,
            hub_open: true,
            session: None,
        };
        self.links.insert(self.next, link);
        self.next
    }

    pub(crate) fn remember(
        &mut self,
        cluster: usize,
        up: Option<&AgentMessage>,
        down: Option<&HubMessage>,
    ) {
        if let Some(message) = up {
            keep(self.old_up.entry(cluster).or_default(), message.clone());
        }
        if let Some(message) = down {
            keep(self.old_down.entry(cluster).or_default(), message.clone());
        }
    }
}

fn keep<M>(kept: &mut VecDeque<M>, message: M) {
    kept.push_back(message);
    if kept.len() > KEPT {
        kept.pop_front();
    }
}
