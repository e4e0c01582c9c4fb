//! Steps of the simulation: faults, watches, agents and users.

use rand::Rng;

use super::{CAPACITY, CLUSTERS, World, pins};
use crate::capacity::CapacityReport;
use crate::{
    CheckStatus, DispatchEvent, MemoryReservation, Observation, Phase, PreemptionGate, State, Uid,
    WorkloadFacts, WriteResult,
};

impl World {
    pub(super) fn step(&mut self) {
        let name = CLUSTERS[self.random.random_range(0..CLUSTERS.len())];
        let uid = self.any();
        match self.random.random_range(0..100) {
            0..=14 => self.reserve(&uid),
            15..=34 => self.deliver_down(name),
            35..=54 => self.deliver_up(name),
            55..=66 => self.perform(),
            67..=76 => self.answer(),
            77..=84 => self.admit(name, &uid),
            85..=88 => self.progress(name, &uid),
            89..=91 => self.tick(),
            92 => self.lifecycle(&uid),
            93 if self.random.random_bool(0.5) => self.grow(&uid),
            93 => self.connect(name),
            _ if !self.faults => self.connect(name),
            94 => self.disconnect(name),
            95 => self.evict_on_worker(name, &uid),
            96 => self.evict_on_hub(&uid),
            97 => self.repeat(name),
            98 => self.delete(&uid),
            99 if self.random.random_bool(0.5) => self.withdraw(&uid),
            _ if self.random.random_bool(0.3) => self.restart(),
            _ => self.report(name),
        }
        if self.faults && self.pin_dice.random_bool(0.005) {
            self.configure_pins();
        }
        self.change_readiness();
        self.tell_later_replica();
        self.note_unpinned();
        self.check();
    }

    fn any(&mut self) -> Uid {
        let index = self.random.random_range(0..self.api.len());
        self.api.keys().nth(index).cloned().unwrap_or_else(|| "w0".into())
    }

    pub(super) fn reserve(&mut self, uid: &Uid) {
        let Some(object) = self.api.get(uid).filter(|object| !object.deleted) else { return };
        let facts = self.as_seen(object.facts.clone());
        let may = facts.state.active
            && !facts.state.finished
            && !facts.state.deleting
            && !facts.state.reserved
            && facts.state.cluster.is_none();
        if may && self.engine.insert(uid.clone()) {
            let facts = self.charge(uid);
            let reserved = MemoryReservation { check: "mk".into(), needs_other_checks: false };
            self.apply(DispatchEvent::QuotaReserved { facts, reserved });
        }
    }

    /// The engine preempts a reservation in its memory.
    pub(super) fn withdraw(&mut self, uid: &Uid) {
        if self.engine.contains(uid) {
            self.apply(DispatchEvent::ReservationWithdrawn { uid: uid.clone() });
        }
    }

    pub(super) fn deliver_down(&mut self, name: &'static str) {
        let Some(cluster) = self.clusters.get_mut(name) else { return };
        let Some((uid, sent)) = cluster.down.pop_front() else { return };
        cluster.take(&uid, sent);
    }

    pub(super) fn deliver_up(&mut self, name: &'static str) {
        let Some(cluster) = self.clusters.get_mut(name) else { return };
        let Some(observation) = cluster.up.pop_front() else { return };
        self.observed(name, observation);
    }

    pub(super) fn observed(&mut self, name: &'static str, observation: Observation) {
        self.note_report(name, &observation);
        let hub_uid = self.dispatcher.hub_uid(&observation.uid);
        if !self.dispatcher.knows(&hub_uid)
            && let Some(object) = self.api.get(&hub_uid).filter(|object| !object.deleted)
        {
            self.dispatcher.track(self.as_seen(object.facts.clone()));
        }
        self.apply(DispatchEvent::Observed { cluster: name.into(), observation });
    }

    pub(super) fn perform(&mut self) {
        let Some((uid, write)) = self.writes.pop_front() else { return };
        let (outcome, facts) = self.write(&uid, &write);
        // The task that writes does not look at other replicas.
        let seen = facts.map(|facts| self.as_seen(facts));
        let facts = seen.map(|facts| WorkloadFacts { replica: None, ..facts });
        self.answers.push_back(WriteResult { uid: uid.clone(), outcome, facts });
        if self.random.random_bool(0.5) {
            self.end_replaced(&uid);
        }
    }

    pub(super) fn answer(&mut self) {
        if let Some(written) = self.answers.pop_front() {
            self.apply(DispatchEvent::WriteEnded(written));
        }
    }

    pub(super) fn admit(&mut self, name: &'static str, uid: &Uid) {
        let (refuse, later) = (self.random.random_bool(0.1), self.random.random_bool(0.3));
        let (keeps, now) = (self.mode.keeps_copies(), self.now);
        let Some(cluster) = self.clusters.get_mut(name) else { return };
        let used = cluster
            .remotes
            .values()
            .filter(|remote| matches!(remote.state, State::Reserved | State::Running))
            .count();
        let Some(remote) = cluster.remotes.get_mut(uid) else { return };
        // With Kueue's dispatchers, an evicted copy is queued again, and quota grows.
        let again = keeps && later && remote.phase == Phase::Reserve;
        if again && matches!(remote.state, State::Unfit | State::Evicted) {
            remote.state = State::Waiting;
            return cluster.say(uid);
        }
        if remote.state != State::Waiting {
            return;
        }
        let unlisted = remote.pin.as_ref().is_some_and(|pin| !pins::lists(name, pin));
        if (refuse || unlisted) && remote.phase == Phase::Reserve {
            remote.state = State::Unfit;
        } else if (used as i64 + 1) * 1000 <= CAPACITY {
            remote.state =
                if remote.phase == Phase::Run { State::Running } else { State::Reserved };
        } else if let Some(gate) = &mut remote.gate {
            gate.blocked = gate.blocked.or(Some(now));
        }
        if remote.state == State::Running {
            cluster.ran.insert((uid.clone(), remote.attempt));
        }
        cluster.say(uid);
    }

    pub(super) fn progress(&mut self, name: &'static str, uid: &Uid) {
        let may_end = self.may_end(uid);
        let Some(cluster) = self.clusters.get_mut(name) else { return };
        if let Some(remote) =
            cluster.remotes.get_mut(uid).filter(|remote| may_end && remote.state == State::Running)
        {
            remote.state = State::Succeeded;
            cluster.say(uid);
        }
        self.report(name);
    }

    pub(super) fn report(&mut self, name: &'static str) {
        let cluster = &self.clusters[name];
        if cluster.connected {
            let used = cluster
                .remotes
                .values()
                .filter(|remote| matches!(remote.state, State::Reserved | State::Running))
                .count();
            let free = CAPACITY - used as i64 * 1000;
            let rooms = self.rooms();
            let report = CapacityReport { rooms, ..pins::report(name, free) };
            self.apply(DispatchEvent::CapacityReported { cluster: name.into(), report });
        }
    }

    pub(super) fn tick(&mut self) {
        self.now += self.random.random_range(1..4_000);
        self.apply(DispatchEvent::Tick);
        let uid = self.any();
        self.end_replaced(&uid);
        self.tell(&uid);
    }

    /// The watch delivers the API's object.
    pub(super) fn tell(&mut self, uid: &Uid) {
        match self.api.get(uid).cloned() {
            Some(object) if object.deleted => {
                self.apply(DispatchEvent::WorkloadDeleted { uid: uid.clone() })
            }
            Some(object) => self.apply(DispatchEvent::WorkloadChanged(self.as_seen(object.facts))),
            None => {}
        }
    }

    pub(super) fn connect(&mut self, name: &'static str) {
        let Some(cluster) = self.clusters.get_mut(name).filter(|cluster| !cluster.connected) else {
            return;
        };
        cluster.connected = true;
        cluster.up.clear();
        cluster.down =
            cluster.outbox.iter().map(|(uid, sent)| (uid.clone(), sent.clone())).collect();
        let inventory: Vec<Observation> =
            cluster.remotes.iter().map(|(uid, remote)| cluster.observation(uid, remote)).collect();
        let uids = cluster.remotes.keys().cloned().collect();
        self.apply(DispatchEvent::SessionOpened { name: name.into() });
        for observation in inventory {
            self.observed(name, observation);
        }
        self.apply(DispatchEvent::InventoryComplete { cluster: name.into(), uids });
        self.report(name);
    }

    pub(super) fn disconnect(&mut self, name: &'static str) {
        let Some(cluster) = self.clusters.get_mut(name).filter(|cluster| cluster.connected) else {
            return;
        };
        cluster.connected = false;
        cluster.up.clear();
        cluster.down.clear();
        self.forget_reports(name);
        self.apply(DispatchEvent::SessionClosed { name: name.into() });
    }

    pub(super) fn evict_on_worker(&mut self, name: &'static str, uid: &Uid) {
        let Some(cluster) = self.clusters.get_mut(name) else { return };
        if let Some(remote) = cluster
            .remotes
            .get_mut(uid)
            .filter(|r| matches!(r.state, State::Running | State::Reserved))
        {
            remote.state = State::Evicted;
            remote.gate = remote.gate.map(|_| PreemptionGate::default());
            cluster.say(uid);
        }
    }

    pub(super) fn evict_on_hub(&mut self, uid: &Uid) {
        let Some(object) = self.api.get_mut(uid) else { return };
        if object.facts.state.reserved && !object.facts.state.finished && !object.deleted {
            self.version += 1;
            object.facts.version = self.version;
            object.facts.state.evicted = true;
            object.facts.state.cluster = None;
            object.facts.nominated = Vec::new();
            object.facts.state.check = Some(("mk".into(), CheckStatus::Pending));
            self.tell(uid);
        }
    }

    pub(super) fn repeat(&mut self, name: &'static str) {
        let Some(cluster) = self.clusters.get_mut(name) else { return };
        if let Some(first) = cluster.up.front().cloned() {
            cluster.up.push_front(first);
        }
    }

    pub(super) fn delete(&mut self, uid: &Uid) {
        if self.random.random_bool(0.2) {
            // A foreground deletion of a job deletes its Workloads one after the other.
            let at_once = self.random.random_bool(0.3);
            self.whole(uid).iter().for_each(|uid| self.delete_one(uid, at_once));
        }
    }

    fn delete_one(&mut self, uid: &Uid, at_once: bool) {
        let Some(object) = self.api.get_mut(uid).filter(|object| !object.deleted) else { return };
        self.version += 1;
        object.facts.version = self.version;
        object.facts.state.deleting = true;
        // A Workload without quota is deleted at once, the others when they are released.
        if at_once
            || !object.facts.state.reserved && object.facts.state.cluster.is_none()
            || object.facts.state.finished
        {
            object.deleted = true;
            self.engine.remove(uid);
        }
        self.tell(uid);
    }
}
