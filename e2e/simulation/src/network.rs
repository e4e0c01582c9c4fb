//! Connections between agents and hub replicas: ordered and reliable in each direction, like TCP,
//! until an end closes. A cut direction keeps its packets and delivers them when it heals.

use std::collections::{BTreeMap, VecDeque};

use switchyard_proto::v1::{AgentMessage, HubMessage};

use crate::event::Event;
use crate::plan::Ms;
use crate::world::World;

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
    packets: VecDeque<(Ms, Packet<M>)>,
    last: Ms,
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
    next: LinkId,
    /// By cluster, the number of faults that cut each direction: from the cluster, to the cluster.
    cut: BTreeMap<usize, (u32, u32)>,
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

    fn remember(&mut self, cluster: usize, up: Option<&AgentMessage>, down: Option<&HubMessage>) {
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

impl World {
    pub(crate) fn send_up(&mut self, id: LinkId, packet: Packet<AgentMessage>) {
        let delay = self.delay(id);
        let now = self.now;
        let Some(link) = self.network.links.get_mut(&id) else { return };
        let at = link.up.last.max(now + delay);
        link.up.last = at;
        link.up.packets.push_back((at, packet));
        self.at(at, Event::Packet { link: id, up: true });
    }

    pub(crate) fn send_down(&mut self, id: LinkId, packet: Packet<HubMessage>) {
        let delay = self.delay(id);
        let now = self.now;
        let Some(link) = self.network.links.get_mut(&id) else { return };
        let at = link.down.last.max(now + delay);
        link.down.last = at;
        link.down.packets.push_back((at, packet));
        self.at(at, Event::Packet { link: id, up: false });
    }

    fn delay(&mut self, id: LinkId) -> Ms {
        let longest = self.plan.noise.delay;
        let cluster = self.network.links.get(&id).map_or(0, |link| link.cluster);
        let slow = self.clusters[cluster].slow > 0;
        self.dice(1 + cluster).between(1, if slow { longest * 20 } else { longest })
    }

    /// A packet is due: the first one in line arrives, unless the direction is cut.
    pub(crate) fn packet(&mut self, id: LinkId, up: bool) {
        let now = self.now;
        let Some(link) = self.network.links.get_mut(&id) else { return };
        let (cluster, hub) = (link.cluster, link.hub);
        let first = if up {
            link.up.packets.front().map(|it| it.0)
        } else {
            link.down.packets.front().map(|it| it.0)
        };
        if first.is_none_or(|at| at > now) || self.network.is_cut(cluster, up) {
            return;
        }
        let twice = {
            let permille = self.plan.noise.twice;
            self.dice(1 + cluster).chance(permille)
        };
        let Some(link) = self.network.links.get_mut(&id) else { return };
        if up {
            let Some((_, packet)) = link.up.packets.pop_front() else { return };
            let taken = link.hub_open && link.hub_boot == self.hubs[hub].boot && self.hubs[hub].up;
            if let Packet::Message(message) = &packet {
                self.network.remember(cluster, Some(message), None);
            }
            if taken {
                if twice && let Packet::Message(message) = &packet {
                    self.hub_receives(id, Packet::Message(message.clone()));
                }
                self.hub_receives(id, packet);
            }
            self.agent_turn(cluster);
        } else {
            let Some((_, packet)) = link.down.packets.pop_front() else { return };
            let taken = link.agent_open && link.agent_boot == self.clusters[cluster].agent.boot;
            if let Packet::Message(message) = &packet {
                self.network.remember(cluster, None, Some(message));
            }
            if taken && self.clusters[cluster].agent.up {
                if twice && let Packet::Message(message) = &packet {
                    self.agent_receives(id, Packet::Message(message.clone()));
                }
                self.agent_receives(id, packet);
            }
            self.pump(hub);
        }
        self.sweep(id);
    }

    /// Adds a cut of a cluster (`by` is 1) or ends one. Waiting packets then arrive.
    pub(crate) fn cut(&mut self, cluster: usize, uplink: bool, downlink: bool, by: i32) {
        let cut = self.network.cut.entry(cluster).or_default();
        if uplink {
            cut.0 = cut.0.saturating_add_signed(by);
        }
        if downlink {
            cut.1 = cut.1.saturating_add_signed(by);
        }
        for up in [true, false] {
            if self.network.is_cut(cluster, up) {
                continue;
            }
            let waiting: Vec<(LinkId, usize)> = self
                .network
                .links
                .iter()
                .filter(|(_, link)| link.cluster == cluster)
                .map(|(id, link)| {
                    (*id, if up { link.up.packets.len() } else { link.down.packets.len() })
                })
                .collect();
            for (link, packets) in waiting {
                for index in 0..packets {
                    self.at(self.now + 1 + index as Ms, Event::Packet { link, up });
                }
            }
        }
    }

    pub(crate) fn close_agent_end(&mut self, id: LinkId, fin: bool) {
        let Some(link) = self.network.links.get_mut(&id).filter(|link| link.agent_open) else {
            return;
        };
        link.agent_open = false;
        if fin {
            self.send_up(id, Packet::Fin);
        }
        self.sweep(id);
    }

    pub(crate) fn close_hub_end(&mut self, id: LinkId, fin: bool) {
        let Some(link) = self.network.links.get_mut(&id).filter(|link| link.hub_open) else {
            return;
        };
        link.hub_open = false;
        if fin {
            self.send_down(id, Packet::Fin);
        }
        self.sweep(id);
    }

    fn sweep(&mut self, id: LinkId) {
        let links = &mut self.network.links;
        if links.get(&id).is_some_and(|link| !link.agent_open && !link.hub_open) {
            links.remove(&id);
        }
    }
}
