//! The agent's process: the production ledger and session protocol, inside a modelled shell.

use std::time::Duration;

use switchyard_flags::simulate::Mutation;
use switchyard_ledger::{
    Action, ObjectKind, Outcome, Outgoing, SessionError, SessionProtocol, Time, WatchEvent,
};
use switchyard_proto::v1::{self, AgentMessage, HubMessage, agent_message, hub_message};

use super::brief::{brief_down, brief_up};
use crate::names::NAMESPACE;
use crate::state::{Agent, Event, LinkId, Packet, World};
use crate::violation::Law;

/// The agent's clock at its first start.
const BOOT: Duration = Duration::from_secs(100_000);

impl World {
    /// Starts the agent's process.
    pub(crate) fn agent_boot(&mut self, cluster: usize) {
        let now = self.now;
        let agent = &mut self.clusters[cluster].agent;
        let boot = agent.boot + 1;
        *agent = Agent { up: true, boot, started: now, ..Agent::default() };
        self.recall(cluster);
        self.note(|| format!("c{cluster}: agent begins"));
        for kind in [ObjectKind::Workload, ObjectKind::Job] {
            let delay = self.dice(1 + cluster).between(1, 200);
            self.after(delay, Event::List { cluster, boot, kind });
        }
        let delay = self.dice(1 + cluster).between(1, 300);
        self.after(delay, Event::Dial { cluster, boot });
        self.after(5_000, Event::Examine { cluster, boot });
    }

    /// The agent's process crashes.
    pub(crate) fn crash_agent(&mut self, cluster: usize, fin: bool) {
        self.note(|| format!("c{cluster}: agent dies"));
        self.drop_requests(cluster);
        let agent = &mut self.clusters[cluster].agent;
        agent.up = false;
        agent.boot += 1;
        agent.frozen = None;
        if let Some(link) = agent.link.take() {
            self.close_agent_end(link, fin);
        }
    }

    fn alive(&self, cluster: usize, boot: u32) -> bool {
        let agent = &self.clusters[cluster].agent;
        agent.up && agent.boot == boot
    }

    /// The agent's own clock.
    fn agent_now(&self, cluster: usize) -> Time {
        let since = self.now - self.clusters[cluster].agent.started;
        BOOT + Duration::from_millis(since * self.plan.clusters[cluster].clock / 1000)
    }

    /// Restores the state that an earlier process stored.
    fn recall(&mut self, cluster: usize) {
        let (epoch, until) = self.clusters[cluster].memory;
        let clock = self.plan.clusters[cluster].clock;
        let (now, own) = (self.now, self.agent_now(cluster));
        let lease = until.map(|until| match until.checked_sub(now) {
            Some(left) => own + Duration::from_millis(left * clock / 1000),
            None => own.saturating_sub(Duration::from_millis((now - until) * clock / 1000)),
        });
        if epoch > 0 {
            self.clusters[cluster].agent.ledger.restore(epoch, lease.unwrap_or_default());
        }
    }

    /// Stores the state that the next process needs.
    fn remember(&mut self, cluster: usize) {
        let own = self.agent_now(cluster);
        let ledger = &self.clusters[cluster].agent.ledger;
        let left = ledger
            .lease_end()
            .map(|lease| lease.saturating_sub(own))
            .filter(|left| !left.is_zero());
        let left = left.map(|left| {
            u64::try_from(left.as_millis()).unwrap_or(0) * 1000 / self.plan.clusters[cluster].clock
        });
        let (epoch, now) = (ledger.last_session().epoch, self.now);
        let memory = &mut self.clusters[cluster].memory;
        *memory = (epoch.max(memory.0), left.map(|left| now + left).or(memory.1));
    }

    // === connections

    pub(crate) fn dial(&mut self, cluster: usize, boot: u32) {
        if !self.alive(cluster, boot) || self.clusters[cluster].agent.link.is_some() {
            return;
        }
        let count = self.hubs.len();
        let first = self.dice(1 + cluster).index(count);
        let refused = self.network.is_cut(cluster, true)
            || self.network.is_cut(cluster, false)
            || self.clusters[cluster].expired > 0
            // The replica may have lost its lease.
            || self.clusters[cluster].outage > 0;
        let takes = |hub: &usize| {
            let it = &self.hubs[*hub];
            it.up && it.frozen.is_none() && it.term.is_some()
        };
        let hub = (0..count).map(|step| (first + step) % count).find(takes).filter(|_| !refused);
        let Some(hub) = hub else {
            let agent = &mut self.clusters[cluster].agent;
            agent.failures = (agent.failures + 1).min(4);
            let longest = 500 << agent.failures;
            let delay = self.dice(1 + cluster).between(50, longest);
            return self.after(delay, Event::Dial { cluster, boot });
        };
        let link = self.network.connect(cluster, hub, boot, self.hubs[hub].boot);
        self.note(|| format!("c{cluster}: connects to hub {hub}, link {link}"));
        let now = self.agent_now(cluster);
        let agent = &mut self.clusters[cluster].agent;
        agent.failures = 0;
        agent.link = Some(link);
        agent.protocol = SessionProtocol::open(&mut agent.ledger, now);
        self.agent_turn(cluster);
    }

    pub(crate) fn drop_session(&mut self, cluster: usize) {
        let agent = &mut self.clusters[cluster].agent;
        agent.protocol.close(&mut agent.ledger);
        let Some(link) = agent.link.take() else { return };
        let boot = agent.boot;
        self.close_agent_end(link, true);
        let delay = self.dice(1 + cluster).between(10, 2_000);
        self.after(delay, Event::Dial { cluster, boot });
    }

    fn session_error(&mut self, cluster: usize, error: &SessionError) {
        self.note(|| format!("c{cluster}: session ended: {error}"));
        self.drop_session(cluster);
    }

    /// Receives a packet from the hub.
    pub(crate) fn agent_receives(&mut self, link: LinkId, packet: Packet<HubMessage>) {
        let Some(cluster) = self.network.links.get(&link).map(|link| link.cluster) else { return };
        if self.clusters[cluster].agent.link != Some(link) {
            return;
        }
        match packet {
            Packet::Fin => self.drop_session(cluster),
            Packet::Message(message) => self.agent_handles(cluster, message),
        }
    }

    /// Handles a message of any session.
    pub(crate) fn agent_handles(&mut self, cluster: usize, message: HubMessage) {
        let now = self.agent_now(cluster);
        let deposed = message.epoch < self.clusters[cluster].agent.epoch;
        let message = self.mutate_down(cluster, message);
        self.note(|| format!("c{cluster}: hears {}", brief_down(&message)));
        let agent = &mut self.clusters[cluster].agent;
        let was = agent.ledger.session_id();
        let current = message.session_id == was.unwrap_or_default();
        if current || was.is_none() {
            agent.epoch = agent.epoch.max(message.epoch);
        }
        let before = agent.ledger.last_session();
        match agent.protocol.on_message(&mut agent.ledger, message, true, now) {
            Ok(actions) => {
                if deposed && (!actions.is_empty() || agent.ledger.last_session() != before) {
                    let what =
                        format!("cluster {cluster} did what a deposed leader said: {actions:?}");
                    self.report_violation(Law::Deposed, what);
                }
                self.start(cluster, actions);
                self.agent_turn(cluster);
            }
            Err(error) => self.session_error(cluster, &error),
        }
    }

    // === watches

    pub(crate) fn list(&mut self, cluster: usize, boot: u32, kind: ObjectKind) {
        if !self.alive(cluster, boot) {
            return;
        }
        let it = &self.clusters[cluster];
        // A running watch may be silent. The list at a process start is an ordinary request.
        if it.outage > 0 || it.gap > 0 && it.agent.listed.contains(&kind) {
            return self.after(1_000, Event::List { cluster, boot, kind });
        }
        let it = &mut self.clusters[cluster];
        let all: Vec<WatchEvent> = it
            .objects
            .iter()
            .filter(|((of, _), stored)| *of == kind && !stored.foreign)
            .map(|(_, stored)| WatchEvent::Applied(Box::new(stored.object.clone())))
            .collect();
        let uids = it.uids(kind);
        let gvk = if kind == ObjectKind::Workload { super::WORKLOAD } else { super::JOB }.into();
        let first = it.agent.listed.insert(kind);
        // Events of the earlier watch arrive before the list, or never.
        for seen in all {
            self.agent_sees(cluster, boot, seen);
        }
        self.agent_sees(cluster, boot, WatchEvent::Listed { kind, gvk, uids });
        if first && self.clusters[cluster].agent.listed.len() == 2 {
            self.agent_sees(cluster, boot, WatchEvent::Synced);
        }
    }

    pub(crate) fn agent_sees(&mut self, cluster: usize, boot: u32, seen: WatchEvent) {
        if !self.alive(cluster, boot) {
            return;
        }
        let now = self.agent_now(cluster);
        let agent = &mut self.clusters[cluster].agent;
        let actions = agent.ledger.on_watch_event(seen, now);
        self.start(cluster, actions);
        self.agent_turn(cluster);
    }

    pub(crate) fn capacity_changed(&mut self, cluster: usize, boot: u32) {
        if !self.alive(cluster, boot) {
            return;
        }
        let now = self.agent_now(cluster);
        let agent = &mut self.clusters[cluster].agent;
        agent.protocol.capacity_changed(&agent.ledger, now);
        self.agent_turn(cluster);
    }

    pub(crate) fn agent_done(&mut self, cluster: usize, boot: u32, id: u64, outcome: Outcome) {
        if !self.alive(cluster, boot) {
            return;
        }
        let now = self.agent_now(cluster);
        let agent = &mut self.clusters[cluster].agent;
        let Some(action) = agent.asked.remove(&id) else { return };
        let actions = agent.ledger.on_outcome(&action, outcome, now);
        self.start(cluster, actions);
        self.agent_turn(cluster);
    }

    fn start(&mut self, cluster: usize, actions: Vec<Action>) {
        for action in actions {
            self.request(cluster, action);
        }
    }

    pub(crate) fn agent_tick(&mut self, cluster: usize, boot: u32) {
        if self.alive(cluster, boot) {
            self.clusters[cluster].agent.tick = None;
            self.agent_turn(cluster);
        }
    }

    /// One round of the agent's loop: timers, then outgoing messages.
    pub(crate) fn agent_turn(&mut self, cluster: usize) {
        let agent = &self.clusters[cluster].agent;
        if !agent.up || agent.frozen.is_some() {
            return;
        }
        let now = self.agent_now(cluster);
        self.remember(cluster);
        let agent = &mut self.clusters[cluster].agent;
        let actions = agent.ledger.tick(now);
        self.start(cluster, actions);
        let agent = &self.clusters[cluster].agent;
        if let Err(error) = agent.protocol.check(&agent.ledger, now) {
            self.session_error(cluster, &error);
        }
        let mut full = false;
        while let Some(link) = self.clusters[cluster].agent.link {
            full = !self.network.links.get(&link).is_some_and(|link| link.up.has_room());
            if full || self.wakeup(cluster, now).is_none_or(|at| at > now) {
                break;
            }
            let agent = &mut self.clusters[cluster].agent;
            let Some(say) = agent.protocol.next(&mut agent.ledger, now) else { break };
            self.say(cluster, link, say);
        }
        self.plan_tick(cluster, now, full);
    }

    fn say(&mut self, cluster: usize, link: LinkId, say: Outgoing) {
        let kind = match say {
            Outgoing::Hello => agent_message::Kind::Hello(self.hello(cluster)),
            Outgoing::Capacity => agent_message::Kind::Capacity(self.capacity(cluster)),
            // Its Lease, which the agent cannot renew, carries this.
            Outgoing::Message(agent_message::Kind::Ping(ping)) => {
                agent_message::Kind::Ping(v1::Ping {
                    unable: self.clusters[cluster].outage > 0,
                    ..ping
                })
            }
            Outgoing::Message(kind) => kind,
        };
        let session_id = self.clusters[cluster].agent.ledger.session_id().unwrap_or_default();
        self.note(|| format!("c{cluster}: says {}", brief_up(&kind)));
        self.send_up(link, Packet::Message(AgentMessage { session_id, kind: Some(kind) }));
    }

    fn hello(&self, cluster: usize) -> v1::Hello {
        let memory = self.clusters[cluster].agent.ledger.last_session();
        v1::Hello {
            boot_id: self.clusters[cluster].agent.boot.to_string(),
            min_version: *switchyard_proto::VERSIONS.start(),
            max_version: *switchyard_proto::VERSIONS.end(),
            last_hub_id: memory.hub_id,
            last_epoch: memory.epoch,
            last_revision: memory.revision,
            ..v1::Hello::default()
        }
    }

    pub(super) fn capacity(&self, cluster: usize) -> v1::Capacity {
        let (used, nominal) = (self.used(cluster) as i64, self.clusters[cluster].capacity as i64);
        let flavor = |name: &&'static str| v1::FlavorCapacity {
            flavor: (*name).to_owned(),
            resource: "cpu".to_owned(),
            nominal,
            used,
            available: (nominal - used).max(0),
            potential: nominal,
            ..v1::FlavorCapacity::default()
        };
        let queue = v1::QueueCapacity {
            namespace: NAMESPACE.to_owned(),
            local_queue: "lq".to_owned(),
            cluster_queue: "cq".to_owned(),
            active: true,
            flavors: self.plan.clusters[cluster].flavors.iter().map(flavor).collect(),
            ..v1::QueueCapacity::default()
        };
        v1::Capacity {
            queues: vec![queue],
            enforces_pins: !self.plan.clusters[cluster].adopts,
            rooms: self.rooms(cluster, nominal - used),
        }
    }

    /// Room on nodes: unknown on the first cluster, nothing on each third one, and elsewhere the
    /// unused quota.
    fn rooms(&self, cluster: usize, unused: i64) -> Vec<v1::FlavorRoom> {
        let free = if cluster % 3 == 2 { 0 } else { unused.max(0) };
        let bin =
            v1::NodeBin { nodes: 1, free: [("cpu".to_owned(), free)].into(), taints: Vec::new() };
        let room = |flavor: &&'static str| v1::FlavorRoom {
            flavor: (*flavor).to_owned(),
            bins: vec![bin.clone()],
            shared: true,
            coarse: false,
        };
        let flavors = self.plan.clusters[cluster].flavors.iter().filter(|_| cluster > 0);
        flavors.map(room).collect()
    }

    fn wakeup(&self, cluster: usize, now: Time) -> Option<Time> {
        let agent = &self.clusters[cluster].agent;
        [agent.protocol.wakeup(&agent.ledger, now), agent.ledger.next_wakeup()]
            .into_iter()
            .flatten()
            .min()
    }

    /// Schedules the next round without other events. While a message waits for window space, only
    /// deadlines count.
    fn plan_tick(&mut self, cluster: usize, now: Time, full: bool) {
        let agent = &self.clusters[cluster].agent;
        let at = if full { Some(agent.protocol.deadline()) } else { self.wakeup(cluster, now) };
        let Some(at) = at else { return };
        let left = u64::try_from(at.saturating_sub(now).as_millis()).unwrap_or(0);
        let due = self.now + 1 + left * 1000 / self.plan.clusters[cluster].clock;
        let agent = &mut self.clusters[cluster].agent;
        if agent.tick.is_some_and(|tick| tick <= due && tick > self.now) {
            return;
        }
        agent.tick = Some(due);
        let boot = agent.boot;
        self.at(due, Event::AgentTick { cluster, boot });
    }

    /// Messages as a mutated agent accepts them.
    fn mutate_down(&self, cluster: usize, mut message: HubMessage) -> HubMessage {
        let agent = &self.clusters[cluster].agent;
        let Some(session) =
            agent.ledger.session_id().filter(|_| self.mutated(Mutation::IgnoreEpoch))
        else {
            return message;
        };
        message.epoch = message.epoch.max(agent.epoch);
        if message.session_id == session {
            return message;
        }
        // A mutated agent that accepts messages of any session must ignore revisions too.
        message.session_id = session;
        if let Some(hub_message::Kind::Desired(desired)) = &mut message.kind {
            let revision = agent.ledger.last_session().revision;
            (desired.snapshot, desired.more) = (false, false);
            (desired.base_revision, desired.revision) = (revision, revision + 1);
            desired.assignments.retain(|assignment| !assignment.payload_hash.is_empty());
            desired.payloads =
                desired.assignments.iter().map(|it| payload(&it.workload_uid)).collect();
        }
        message
    }
}

/// The hub's payload for a workload.
fn payload(uid: &str) -> v1::Payload {
    v1::Payload::new(uid.as_bytes().to_vec(), b"job".to_vec())
}
