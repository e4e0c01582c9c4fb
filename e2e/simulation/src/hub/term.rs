//! One term: inputs of the dispatcher, and the effects of its actions.

use std::collections::BTreeMap;
use std::sync::Arc;

use switchyard_dispatcher::{
    BreakerLimits, DispatchAction, DispatchEvent, Dispatcher, DispatcherSettings, LiveSessions,
    Name, Observation, ObservationCache, Phase, PinRules, State, Uid, WorkloadFacts, WorkloadWrite,
    WriteOutcome, WriteResult, is_terminal,
};
use switchyard_flags::simulate::Mutation;
use switchyard_hub::cluster_channel::ClusterChannel;
use switchyard_hub::dispatcher_task::{assignment, with_flavor_pins, with_preemption_gate};
use switchyard_ledger::ObjectKind;
use switchyard_proto::v1::Payload;

use crate::names::{CHECK, name, number};
use crate::state::{Change, Event, Link, Packet, Show, Status, Term, World};
use crate::time::WORKER_LOST;

/// How far clusters' clocks may lag, for objects older than the hub's memory.
const CLOCKS: i64 = 60_000;

impl World {
    fn preemption_timeout(&self) -> Option<i64> {
        let timeout = i64::try_from(self.plan.preemption_timeout?).unwrap_or(i64::MAX);
        Some(if self.mutated(Mutation::OpenAll) { 0 } else { timeout })
    }

    fn settings(&self, hub: usize) -> DispatcherSettings {
        // Orphans are removed soon, so that runs stay short.
        let worker_lost_timeout = i64::try_from(WORKER_LOST).unwrap_or(0);
        let store_loss = self.store_loss(self.hub_now(hub));
        let settings = DispatcherSettings {
            mode: self.plan.mode,
            orphan_grace: 60_000,
            worker_lost_timeout,
            store_loss,
            preemption_timeout: self.preemption_timeout(),
            clock_skew: CLOCKS,
            ..DispatcherSettings::default()
        };
        if self.mutated(Mutation::NoBreaker) {
            let breaker_limits = BreakerLimits { clusters: 100, ..BreakerLimits::default() };
            return DispatcherSettings { breaker_limits, ..settings };
        }
        if self.mutated(Mutation::GiveUpEarly) {
            return DispatcherSettings { lease: 0, fence_margin: 0, ..settings };
        }
        settings
    }

    /// A term begins: the hub lists everything.
    pub(super) fn term_begins(&mut self, hub: usize, epoch: u64) {
        self.note(|| format!("hub {hub} leads, epoch {epoch}"));
        let dispatcher = Dispatcher::new(self.settings(hub), self.hub_now(hub));
        let forgetful = self.is_forgetful();
        self.hubs[hub].ports.clear();
        self.hubs[hub].term = Some(Term {
            epoch,
            dispatcher,
            sessions: BTreeMap::new(),
            live: LiveSessions::default(),
            lost: BTreeMap::new(),
            begun: self.now,
            away: (0..self.clusters.len()).map(|cluster| (cluster, self.now)).collect(),
            unable: BTreeMap::new(),
            memory: BTreeMap::new(),
            charges: BTreeMap::new(),
            turns: BTreeMap::new(),
            parked: BTreeMap::new(),
            told: ObservationCache::new(forgetful),
            slots: BTreeMap::new(),
            tick: None,
            news_at: 0,
            engine_due: false,
        });
        let clusters: Vec<Name> =
            (0..self.clusters.len()).map(|cluster| name(cluster).into()).collect();
        for (index, cluster) in clusters.iter().enumerate() {
            let config = self.rules(index);
            self.dispatch(hub, DispatchEvent::ClusterConfigured { name: cluster.clone(), config });
        }
        self.note_unheard();
        self.recall_unable(hub);
        self.statuses_soon(hub);
        if self.is_forgetful() && self.mutated(Mutation::CountSilent) {
            for cluster in &clusters {
                self.dispatch(hub, DispatchEvent::SessionOpened { name: cluster.clone() });
                self.dispatch(
                    hub,
                    DispatchEvent::InventoryComplete {
                        cluster: cluster.clone(),
                        uids: Default::default(),
                    },
                );
                self.dispatch(hub, DispatchEvent::SessionClosed { name: cluster.clone() });
            }
        }
        let rules = PinRules { is_off: !self.plan.pinned, ..PinRules::default() };
        self.dispatch(hub, DispatchEvent::PinsConfigured { check: CHECK.into(), rules });
        self.dispatch(hub, DispatchEvent::CheckConfigured { name: CHECK.into(), clusters });
        let all: Vec<WorkloadFacts> = self.hubs[hub].store.values().cloned().collect();
        for facts in all {
            self.take_workload(hub, facts);
        }
        self.engine_soon(hub);
    }

    /// A term ends: sessions are cut, and quota in memory is released.
    pub(super) fn term_ends(&mut self, hub: usize) {
        self.note(|| format!("hub {hub} no longer leads"));
        let links: Vec<u64> = self
            .network
            .links
            .iter()
            .filter(|(_, link)| link.hub == hub)
            .map(|(id, _)| *id)
            .collect();
        for link in links {
            if let Some(link) = self.network.links.get(&link)
                && let Some(session) = &link.session
            {
                self.hubs[hub].registry.leave(&name(link.cluster), session.id);
            }
            self.goodbye(link, "the hub's term has ended");
        }
        self.hubs[hub].term = None;
        self.moved = true;
    }

    // === inputs

    /// A watch event.
    pub(crate) fn hub_sees(&mut self, hub: usize, boot: u32, change: Change) {
        if !self.hub_is(hub, boot) {
            return;
        }
        match change {
            Change::Is(facts) => {
                self.watched(hub, &facts);
                if self.hubs[hub].term.is_some() {
                    // The store may be newer than the watch event.
                    let facts = self.hubs[hub].store.get(&facts.uid).cloned().unwrap_or(*facts);
                    self.take_workload(hub, facts);
                }
            }
            Change::Gone(uid) => {
                self.hubs[hub].store.remove(&uid);
                let Some(term) = &mut self.hubs[hub].term else { return };
                term.memory.remove(&uid);
                self.dispatch(hub, DispatchEvent::WorkloadDeleted { uid });
            }
        }
        self.engine_soon(hub);
    }

    /// Caches the result of a write or read, unless the cache is as new or the Workload is deleted.
    /// The job has its own watch.
    pub(super) fn observe(&mut self, hub: usize, facts: &WorkloadFacts) {
        let Some(known) = self.hubs[hub].store.get_mut(&facts.uid) else { return };
        if known.version < facts.version {
            *known = WorkloadFacts { job_ended: known.job_ended, ..facts.clone() };
        }
    }

    /// As the dispatcher's task gives it to the dispatcher: the end of a job matters after a store
    /// loss only.
    pub(super) fn gathered(&self, facts: WorkloadFacts) -> WorkloadFacts {
        let job_ended = facts.job_ended.filter(|_| self.is_forgetful());
        WorkloadFacts { job_ended, ..facts }
    }

    fn watched(&mut self, hub: usize, facts: &WorkloadFacts) {
        let store = &mut self.hubs[hub].store;
        if store.get(&facts.uid).is_none_or(|known| known.version <= facts.version) {
            store.insert(facts.uid.clone(), facts.clone());
        }
    }

    fn take_workload(&mut self, hub: usize, facts: WorkloadFacts) {
        let Some(term) = &mut self.hubs[hub].term else { return };
        term.dispatcher.register_uid_alias(
            &facts.uid,
            facts.state.cluster_uid.as_ref(),
            facts.replaces.as_ref(),
            facts.state.finished,
        );
        let concerns = facts.state.reserved || facts.state.cluster.is_some();
        if !concerns && !term.dispatcher.needs_changes(&facts.uid) {
            return;
        }
        self.confirm(hub, &facts);
        let facts = self.gathered(facts);
        self.dispatch(hub, DispatchEvent::WorkloadChanged(facts));
    }

    /// Once the API shows a reservation, it leaves the memory.
    fn confirm(&mut self, hub: usize, facts: &WorkloadFacts) {
        let Some(term) = &mut self.hubs[hub].term else { return };
        if term
            .memory
            .get(&facts.uid)
            .is_some_and(|version| facts.settles_reservation(Some(*version)))
        {
            term.memory.remove(&facts.uid);
        }
    }

    /// A write has ended.
    pub(super) fn written(&mut self, hub: usize, epoch: u64, written: WriteResult) {
        if self.hubs[hub].term.as_ref().is_none_or(|term| term.epoch != epoch) {
            return;
        }
        // An answer tells of the Workload alone.
        let alone = |facts: WorkloadFacts| WorkloadFacts { job_ended: None, ..facts };
        let written = WriteResult { facts: written.facts.map(alone), ..written };
        if let Some(facts) = &written.facts {
            self.confirm(hub, facts);
            if let Some(term) = &mut self.hubs[hub].term {
                term.told.move_to_adopter(facts);
            }
        }
        self.dispatch(hub, DispatchEvent::WriteEnded(written));
    }

    pub(crate) fn hub_tick(&mut self, hub: usize, boot: u32) {
        if !self.hub_is(hub, boot) {
            return;
        }
        let Some(term) = &mut self.hubs[hub].term else { return };
        term.tick = None;
        self.dispatch(hub, DispatchEvent::Tick);
    }

    // === outputs

    /// Feeds the dispatcher and performs its actions.
    pub(crate) fn dispatch(&mut self, hub: usize, input: DispatchEvent) {
        let now = self.hub_now(hub);
        let Some(term) = &mut self.hubs[hub].term else { return };
        let actions = term.dispatcher.apply(input, now);
        let mut refusals = Vec::new();
        for action in actions {
            self.note(|| format!("hub {hub}: {action:?}"));
            self.perform_action(hub, action, &mut refusals);
        }
        for (cluster, observation) in refusals {
            self.dispatch(hub, DispatchEvent::Observed { cluster, observation });
        }
        self.pump(hub);
        self.plan_hub_tick(hub);
    }

    fn plan_hub_tick(&mut self, hub: usize) {
        let Some(at) = self.hubs[hub].term.as_ref().and_then(|term| term.dispatcher.next_wakeup())
        else {
            return;
        };
        let due = self.now + self.hub_until(hub, at);
        let boot = self.hubs[hub].boot;
        let Some(term) = &mut self.hubs[hub].term else { return };
        if term.tick.is_some_and(|tick| tick <= due) {
            return;
        }
        term.tick = Some(due);
        self.at(due, Event::HubTick { hub, boot });
    }

    fn start_write(&mut self, hub: usize, uid: Uid, write: Arc<WorkloadWrite>) {
        match &*write {
            WorkloadWrite::Commit { cluster, attempt, .. } => {
                if self.mutated(Mutation::RunBeforeWritten) {
                    self.desire(hub, number(cluster), &uid, *attempt, Phase::Run);
                }
            }
            WorkloadWrite::Rename { .. }
            | WorkloadWrite::Record { .. }
            | WorkloadWrite::Retry { .. } => {}
            WorkloadWrite::Release => return self.release(hub, &uid, write),
            WorkloadWrite::Finish { cluster, .. } => {
                if self.mutated(Mutation::AckBeforeWritten) {
                    self.port(hub, number(cluster)).persisted(&uid, u64::MAX);
                }
                return self.finish(hub, &uid, write);
            }
        }
        self.write(hub, uid, write);
    }

    fn perform_action(
        &mut self,
        hub: usize,
        action: DispatchAction,
        refusals: &mut Vec<(Name, Observation)>,
    ) {
        match action {
            DispatchAction::Assign(wanted) => {
                let known = self.hubs[hub].store.contains_key(&self.ours(hub, &wanted.uid));
                if wanted.phase != Phase::Absent && !known {
                    let why = "the workload is gone".to_owned();
                    let observation = Observation::unsent(&wanted, why);
                    return refusals.push((wanted.cluster, observation));
                }
                let cluster = number(&wanted.cluster);
                self.desire(hub, cluster, &wanted.uid, wanted.attempt, wanted.phase);
            }
            DispatchAction::ForgetTombstone { cluster, uid, attempt } => {
                self.port(hub, number(&cluster)).forget(&uid, attempt);
                let uid = self.ours(hub, &uid);
                if let Some(term) = &mut self.hubs[hub].term {
                    term.told.forget(&cluster, &uid);
                }
            }
            DispatchAction::AcknowledgeEnd { cluster, uid, attempt } => {
                self.port(hub, number(&cluster)).persisted(&uid, attempt)
            }
            DispatchAction::Write { uid, write } => self.start_write(hub, uid, write),
            DispatchAction::ReturnReservation { uid, retry_at, .. } => {
                let at = self.now + self.hub_until(hub, retry_at);
                if let Some(term) = &mut self.hubs[hub].term {
                    term.memory.remove(&uid);
                    term.parked.insert(uid, at);
                }
                let boot = self.hubs[hub].boot;
                self.at(at, Event::Engine { hub, boot });
                self.moved = true;
            }
            DispatchAction::Requeue { uid } => {
                if let Some(term) = &mut self.hubs[hub].term {
                    term.parked.remove(&uid);
                }
                self.engine_soon(hub);
            }
            // The simulated engine never releases its memory.
            DispatchAction::ReservationPersisted { .. } => {}
            DispatchAction::MirrorStatus { uid, cluster, attempt } => {
                let term = self.hubs[hub].term.as_ref();
                let told = term
                    .and_then(|term| term.told.get(&cluster, &uid, attempt)?.job_status.clone());
                if let Some(status) = told.and_then(|status| Status::of(&status)) {
                    self.show(hub, &uid, Show::Status(status));
                }
            }
            DispatchAction::OrphanFound { .. }
            | DispatchAction::RejectAttempt { .. }
            | DispatchAction::BreakerChanged { .. } => {}
        }
    }

    /// The hub's uid of a workload, from the uid that clusters use.
    fn ours(&self, hub: usize, theirs: &Uid) -> Uid {
        self.hubs[hub]
            .term
            .as_ref()
            .map_or_else(|| theirs.clone(), |term| term.dispatcher.hub_uid(theirs))
    }

    /// Drops assignments that no write needs.
    pub(super) fn prune(&mut self, hub: usize, cluster: usize) {
        if let Some(term) = &mut self.hubs[hub].term {
            term.told.prune_cluster(&term.dispatcher, &name(cluster).into());
        }
    }

    /// The channel of a cluster, created on first use.
    pub(super) fn port(&mut self, hub: usize, cluster: usize) -> &ClusterChannel {
        let start = u64::try_from(self.hub_now(hub)).unwrap_or(0) * 1000;
        self.hubs[hub].ports.entry(cluster).or_insert_with(|| ClusterChannel::new(start))
    }

    /// `uid`: the one that clusters use.
    fn desire(&mut self, hub: usize, cluster: usize, uid: &Uid, attempt: u64, phase: Phase) {
        if phase == Phase::Absent && self.mutated(Mutation::ForgetTombstones) {
            return;
        }
        if phase == Phase::Absent {
            self.check_forgotten(cluster, uid, attempt);
            let removed = self.clusters[cluster].removed.entry(uid.clone()).or_default();
            *removed = attempt.max(*removed);
        }
        let ours = self.ours(hub, uid);
        let told = self.hubs[hub]
            .term
            .as_ref()
            .and_then(|term| term.dispatcher.fence(&ours, &name(cluster).into()));
        let fence = told.filter(|_| !self.mutated(Mutation::NoFence));
        let stored =
            self.hubs[hub].store.get(&ours).filter(|_| !self.mutated(Mutation::KeepPriority));
        let priority = stored
            .map(|facts| (facts.priority, facts.priority_class.as_deref().unwrap_or_default()));
        let name = format!("job-{ours}");
        let assignment =
            assignment(uid, crate::names::NAMESPACE, &name, attempt, phase, priority, fence);
        let dispatcher = self.hubs[hub].term.as_ref().map(|term| &term.dispatcher);
        let gate = dispatcher.and_then(|it| it.gate(&ours, &crate::names::name(cluster).into()));
        let assignment = with_preemption_gate(assignment, gate.filter(|_| phase != Phase::Absent));
        let pins = dispatcher
            .map(|it| it.flavor_pins(&ours, &crate::names::name(cluster)))
            .filter(|_| phase != Phase::Absent && !self.mutated(Mutation::DropPins));
        let assignment = with_flavor_pins(assignment, &pins.unwrap_or_default());
        let port = self.port(hub, cluster);
        let content = (phase != Phase::Absent).then(|| {
            let known = port.payload(uid);
            known
                .unwrap_or_else(|| Arc::new(Payload::new(uid.as_bytes().to_vec(), b"job".to_vec())))
        });
        port.set(assignment, content);
    }

    /// An observation of a cluster, for the dispatcher's task.
    pub(super) fn observed(
        &mut self,
        hub: usize,
        cluster: usize,
        told: &switchyard_proto::v1::Observation,
    ) {
        let theirs = Uid::from(told.workload_uid.as_str());
        let uid = self.ours(hub, &theirs);
        let stored = self.hubs[hub].store.get(&uid).cloned().map(|facts| self.gathered(facts));
        let key = Name::from(name(cluster));
        let Some(term) = &mut self.hubs[hub].term else { return };
        if !term.dispatcher.knows(&uid)
            && let Some(facts) = stored
        {
            term.dispatcher.track(facts);
        }
        let known = term.dispatcher.knows(&uid);
        let observation = term.told.record(&term.dispatcher, &key, told);
        let takes = matches!(observation.state, State::Reserved | State::Running);
        if cluster == 0 && (takes || is_terminal(observation.state)) {
            self.note_first_progressed();
        }
        if self.mutated(Mutation::AckBeforeWritten) && is_terminal(observation.state) {
            self.port(hub, cluster).persisted(&observation.uid, observation.attempt);
        }
        self.dispatch(hub, DispatchEvent::Observed { cluster: key.clone(), observation });
        if let Some(term) = self.hubs[hub].term.as_mut().filter(|_| !known) {
            term.told.prune(&term.dispatcher, &key, &uid);
        }
    }

    fn note_first_progressed(&mut self) {
        let offered = &self.clusters[0].objects;
        for (uid, object) in &mut self.api.objects {
            let is_open = offered.contains_key(&(ObjectKind::Workload, number(uid)));
            if is_open && object.committed.is_empty() {
                object.first_progressed = self.now;
            }
        }
    }

    /// Sends the outgoing messages of all sessions.
    pub(crate) fn pump(&mut self, hub: usize) {
        if self.hubs[hub].frozen.is_some() {
            return;
        }
        let Some(term) = &self.hubs[hub].term else { return };
        let sessions: Vec<(usize, u64)> =
            term.sessions.iter().map(|(cluster, link)| (*cluster, *link)).collect();
        let now = self.now;
        let late =
            |link: &u64| self.network.links.get(link).is_some_and(|link| link.down.is_late(now));
        if self.mutated(Mutation::WaitForAll) && sessions.iter().any(|(_, link)| late(link)) {
            return;
        }
        for (cluster, link) in sessions {
            while let Some(session) = self.network.links.get(&link).and_then(Link::ready) {
                let Some(outgoing) = self.port(hub, cluster).next(session, Default::default())
                else {
                    break;
                };
                self.send_outgoing(link, outgoing);
            }
        }
    }

    /// The reservation was refused or not written.
    pub(super) fn superseded(uid: Uid, facts: Option<WorkloadFacts>) -> WriteResult {
        WriteResult { uid, outcome: WriteOutcome::Superseded, facts }
    }

    /// Sends one message of a session.
    pub(super) fn tell(&mut self, link: u64, kind: switchyard_proto::v1::hub_message::Kind) {
        let Some(session) = self.network.links.get(&link).and_then(|link| link.session.as_ref())
        else {
            return;
        };
        let (session_id, epoch) = (session.id, session.epoch);
        let message = switchyard_proto::v1::HubMessage { session_id, epoch, kind: Some(kind) };
        self.send_down(link, Packet::Message(message));
    }
}
