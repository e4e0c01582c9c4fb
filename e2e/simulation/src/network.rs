//! Connections between agents and hub replicas: ordered and reliable in each direction, like TCP,
//! until an end closes. A cut direction keeps its packets and delivers them when it heals.

use switchyard_proto::v1::{AgentMessage, HubMessage};

use crate::state::{Event, LinkId, Packet, World};
use crate::time::Ms;

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
