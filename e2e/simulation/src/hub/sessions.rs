//! Sessions at the hub's end: the production cluster channel inside a modelled connection task, and
//! the task's reports to the dispatcher.

use jiff::Timestamp;
use switchyard_dispatcher::{DispatchEvent, Uids, capacity};
use switchyard_flags::simulate::Mutation;
use switchyard_hub::cluster_channel::Outgoing;
use switchyard_hub::cluster_channel::inbound::Accepted;
use switchyard_hub::server::LiveSession;
use switchyard_proto::v1::{
    AgentMessage, Goodbye, Hello, Lease, Ping, Pong, Resend, Welcome, agent_message, hub_message,
};

use crate::names::name;
use crate::state::{Event, LinkId, News, Packet, Session, World};

const PING_INTERVAL: i64 = 10_000;
const PING_TIMEOUT: i64 = 5_000;
const LEASE: i64 = crate::time::LEASE as i64;
/// The delay of a session's report.
const NEWS: u64 = 40;

impl World {
    /// Receives a packet from an agent.
    pub(crate) fn hub_receives(&mut self, id: LinkId, packet: Packet<AgentMessage>) {
        let Some(link) = self.network.links.get(&id) else { return };
        let (hub, cluster) = (link.hub, link.cluster);
        let message = match packet {
            Packet::Fin => return self.session_ends(id, "the agent ended it", false),
            Packet::Message(message) => message,
        };
        if self.network.links.get(&id).is_some_and(|link| link.session.is_none()) {
            return match message.kind {
                Some(agent_message::Kind::Hello(hello)) => self.greet(id, hub, cluster, &hello),
                _ => self.close_hub_end(id, true),
            };
        }
        self.hub_handles(id, hub, cluster, message);
    }

    /// Starts a session and ends an older one of the cluster.
    fn greet(&mut self, id: LinkId, hub: usize, cluster: usize, hello: &Hello) {
        let now = self.hub_now(hub);
        let Some(term) = &self.hubs[hub].term else { return self.close_hub_end(id, true) };
        let epoch = term.epoch;
        if hello.last_hub_id == crate::names::HUB_ID && hello.last_epoch > epoch {
            // A term with a higher epoch is about to begin.
            let floor = &mut self.hubs[hub].floor;
            *floor = hello.last_epoch.max(*floor);
            return self.close_hub_end(id, true);
        }
        if let Some(old) = term.sessions.get(&cluster).copied() {
            self.session_ends(old, "superseded by a new session", true);
        }
        let wall = u64::try_from(now).unwrap_or(0) * 1000;
        let it = &mut self.hubs[hub];
        it.last_session = wall.max(it.last_session + 1);
        let session = it.last_session;
        if let Some(link) = self.network.links.get_mut(&id) {
            let next_ping = now + PING_INTERVAL;
            link.session = Some(Session { id: session, epoch, nonce: 0, asked: None, next_ping });
        }
        if let Some(term) = &mut self.hubs[hub].term {
            term.sessions.insert(cluster, id);
        }
        // No two clusters of the simulation are the same one.
        let _cut = self.hubs[hub].registry.enter(&name(cluster), live(session));
        self.statuses_soon(hub);
        let ours = hello.last_hub_id == crate::names::HUB_ID
            && hello.last_epoch == epoch
            && hello.last_revision > 0;
        let snapshot = self.port(hub, cluster).open(session, ours.then_some(hello.last_revision));
        let seconds = |ms: i64| Some(prost_types::Duration { seconds: ms / 1000, nanos: 0 });
        let lease = Lease {
            duration: seconds(LEASE),
            ping_interval: seconds(PING_INTERVAL),
            ping_timeout: seconds(PING_TIMEOUT),
        };
        let welcome = Welcome {
            version: *switchyard_proto::VERSIONS.end(),
            hub_id: crate::names::HUB_ID.to_owned(),
            session_id: session,
            lease: Some(lease),
            snapshot,
        };
        self.tell(id, hub_message::Kind::Welcome(welcome));
        self.notify_task(hub, News::Up { cluster, session });
        let boot = self.hubs[hub].boot;
        let wait = self.hub_until(hub, now + PING_INTERVAL);
        self.after(wait, Event::SessionTick { hub, boot, link: id });
        self.pump(hub);
    }

    /// Handles an agent's message of any session.
    pub(crate) fn hub_handles(
        &mut self,
        id: LinkId,
        hub: usize,
        cluster: usize,
        message: AgentMessage,
    ) {
        let Some(session) = self.network.links.get(&id).and_then(|link| link.session.as_ref())
        else {
            return;
        };
        let session = session.id;
        if self.hubs[hub].term.is_none() {
            return;
        }
        if message.session_id != session {
            return;
        }
        self.note_message_of(cluster);
        match message.kind {
            Some(agent_message::Kind::Observed(observed)) => {
                match self.port(hub, cluster).accept(session, &observed) {
                    Some(Accepted::Take { inventory }) => {
                        let inventory =
                            inventory.as_ref().map(switchyard_hub::cluster_channel::channel::uids);
                        let observations = observed.observations;
                        self.notify_task(
                            hub,
                            News::Observed { cluster, session, observations, inventory },
                        );
                    }
                    Some(Accepted::Repeated) => {}
                    Some(Accepted::Gap { .. }) => {
                        self.session_ends(id, "observations are missing", true)
                    }
                    Some(Accepted::TooMany) => {
                        self.session_ends(id, "more than a session may report", true)
                    }
                    None => self.session_ends(id, "superseded", true),
                }
            }
            Some(agent_message::Kind::Capacity(capacity)) => {
                self.notify_task(hub, News::Capacity { cluster, session, capacity });
            }
            Some(agent_message::Kind::DesiredAck(revision)) => {
                self.port(hub, cluster).acked(session, revision)
            }
            Some(agent_message::Kind::Digest(digest)) => {
                self.port(hub, cluster).digest(session, &digest);
            }
            Some(agent_message::Kind::Ping(ping)) => {
                self.tell(id, hub_message::Kind::Pong(Pong { nonce: ping.nonce }));
                if self.says_able(hub, cluster, session, !ping.unable) {
                    self.notify_task(hub, News::Able { cluster, session, able: !ping.unable });
                }
            }
            Some(agent_message::Kind::Pong(pong)) => {
                if let Some(session) =
                    self.network.links.get_mut(&id).and_then(|link| link.session.as_mut())
                    && session.nonce == pong.nonce
                {
                    session.asked = None;
                }
            }
            Some(agent_message::Kind::Hello(_)) => self.session_ends(id, "a second Hello", true),
            None => {}
        }
        self.pump(hub);
    }

    /// The hub pings the agent, or detects its silence.
    pub(crate) fn session_tick(&mut self, hub: usize, boot: u32, id: LinkId) {
        if !self.hub_is(hub, boot) {
            return;
        }
        let now = self.hub_now(hub);
        let Some(link) = self.network.links.get_mut(&id).filter(|link| link.hub_open) else {
            return;
        };
        let Some(session) = &mut link.session else { return };
        let due = session.asked.map_or(session.next_ping, |asked| asked + PING_TIMEOUT);
        if now >= due {
            if session.asked.is_some() {
                return self.session_ends(id, "a ping was not answered", true);
            }
            session.nonce += 1;
            session.asked = Some(now);
            session.next_ping = now + PING_INTERVAL;
            let nonce = session.nonce;
            self.tell(id, hub_message::Kind::Ping(Ping { nonce, unable: false }));
        }
        let Some(session) = self.network.links.get(&id).and_then(|link| link.session.as_ref())
        else {
            return;
        };
        let due = session.asked.map_or(session.next_ping, |asked| asked + PING_TIMEOUT);
        let wait = self.hub_until(hub, due);
        self.after(wait, Event::SessionTick { hub, boot, link: id });
    }

    fn session_ends(&mut self, id: LinkId, why: &str, goodbye: bool) {
        let Some(link) = self.network.links.get(&id).filter(|link| link.hub_open) else { return };
        let (hub, cluster) = (link.hub, link.cluster);
        let session = link.session.as_ref().map(|session| session.id);
        self.note(|| format!("hub {hub}: session of c{cluster} ends: {why}"));
        if let Some(session) = session
            && self.hubs[hub].term.is_some()
        {
            self.port(hub, cluster).close(session);
            if let Some(term) = &mut self.hubs[hub].term
                && term.sessions.get(&cluster) == Some(&id)
            {
                term.sessions.remove(&cluster);
            }
            self.hubs[hub].registry.leave(&name(cluster), session);
            self.statuses_soon(hub);
            self.notify_task(hub, News::Down { cluster, session });
        }
        if goodbye {
            self.goodbye(id, why);
        } else {
            self.close_hub_end(id, true);
        }
    }

    /// Sends a goodbye and closes the session.
    pub(super) fn goodbye(&mut self, id: LinkId, reason: &str) {
        let goodbye = Goodbye { reason: reason.to_owned(), retry_after: None };
        self.tell(id, hub_message::Kind::Goodbye(goodbye));
        self.close_hub_end(id, true);
    }

    pub(super) fn send_outgoing(&mut self, id: LinkId, outgoing: Outgoing) {
        let kind = match outgoing {
            Outgoing::Desired(desired) => hub_message::Kind::Desired(desired),
            Outgoing::Ack(through) => hub_message::Kind::ObservedAck(through),
            Outgoing::Resend(buckets) => hub_message::Kind::Resend(Resend { buckets }),
        };
        self.tell(id, kind);
    }

    // === the dispatcher's task

    fn notify_task(&mut self, hub: usize, news: News) {
        let delay = self.dice(0).between(0, NEWS);
        let now = self.now;
        let boot = self.hubs[hub].boot;
        let Some(term) = &mut self.hubs[hub].term else { return };
        term.news_at = term.news_at.max(now + delay);
        let (at, epoch) = (term.news_at, term.epoch);
        self.at(at, Event::News { hub, boot, epoch, news: Box::new(news) });
    }

    /// Only the newest session of each cluster counts.
    pub(crate) fn news(&mut self, hub: usize, boot: u32, epoch: u64, news: News) {
        let now = self.now;
        for cluster in 0..self.clusters.len() {
            self.update_excuses(cluster);
        }
        let Some(term) = self.term(hub, boot, epoch) else { return };
        match news {
            News::Up { cluster, session } => {
                let events = term.live.open(&name(cluster).into(), session);
                if events.is_empty() {
                    return;
                }
                term.lost.remove(&cluster);
                term.away.remove(&cluster);
                term.unable.remove(&cluster);
                for event in events {
                    self.dispatch(hub, event);
                }
                self.is_back(cluster);
                self.counts_as_able(cluster);
                if self.mutated(Mutation::NoInventory) {
                    self.dispatch(
                        hub,
                        DispatchEvent::InventoryComplete {
                            cluster: name(cluster).into(),
                            uids: Uids::new(),
                        },
                    );
                }
            }
            News::Down { cluster, session } => {
                if let Some(event) = term.live.close(&name(cluster).into(), session) {
                    term.lost.insert(cluster, now);
                    term.away.insert(cluster, now);
                    self.dispatch(hub, event);
                    self.prune(hub, cluster);
                }
            }
            News::Observed { cluster, session, observations, inventory } => {
                if !term.live.is_live(&name(cluster), session) {
                    return;
                }
                for observation in &observations {
                    self.observed(hub, cluster, observation);
                }
                if self.mutated(Mutation::SayLost) && inventory.is_none() {
                    self.dispatch(hub, DispatchEvent::SessionClosed { name: name(cluster).into() });
                }
                if let Some(uids) = inventory {
                    self.dispatch(
                        hub,
                        DispatchEvent::InventoryComplete { cluster: name(cluster).into(), uids },
                    );
                    self.prune(hub, cluster);
                }
            }
            News::Able { cluster, session, able } => {
                if term.live.is_live(&name(cluster), session) {
                    match able {
                        true => drop(term.unable.remove(&cluster)),
                        false => drop(term.unable.entry(cluster).or_insert(now)),
                    }
                    self.dispatch(
                        hub,
                        DispatchEvent::AgentReadiness { name: name(cluster).into(), ready: able },
                    );
                    if able {
                        self.counts_as_able(cluster);
                    }
                }
            }
            News::Capacity { cluster, session, capacity } => {
                if term.live.is_live(&name(cluster), session) {
                    let report = capacity::from_wire(capacity);
                    self.dispatch(
                        hub,
                        DispatchEvent::CapacityReported { cluster: name(cluster).into(), report },
                    );
                }
            }
        }
    }
}

/// A session as users see it.
fn live(session_id: u64) -> LiveSession {
    LiveSession {
        session_id,
        since: Timestamp::UNIX_EPOCH,
        software: "switchyard-agent".to_owned(),
        version: *switchyard_proto::VERSIONS.end(),
        address: String::new(),
        worker: None,
        unable: None,
        proves: false,
        skew: None,
    }
}
