//! Property test: the ledger with a small cluster and a small hub, under random interleavings.
//!
//! The cluster has an API server (unique names, effective finalizers, growing uids and versions),
//! lagging watches, and the worker's own controllers. Actions take time, fail, or fail after they
//! took effect. The agent restarts, sessions break, and messages arrive twice. The test checks the
//! laws after each step. At the end the faults stop, and everything must settle.

mod checks;
mod cluster;

use std::collections::VecDeque;

use proptest::prelude::*;
use switchyard_proto::v1::{self, HubMessage, Phase, State, agent_message, hub_message};

use self::checks::short;
use self::cluster::{Cluster, Stored};
use super::build::{assignment, payload};
use crate::*;

const WORKLOADS: usize = 3;
/// The workload whose name a foreign object occupies.
const BLOCKED: usize = 2;
/// The workload with a fence.
const FENCED: usize = 1;
const AFTER: Time = Time::from_secs(1);

/// The priority class of all workloads.
const CLASS: &str = "class";

/// The desired priority, which changes with every assignment.
fn priority((attempt, phase): (u64, Phase)) -> i32 {
    i32::try_from(attempt).unwrap_or(0) * 10 + phase as i32
}

fn uid(index: usize) -> String {
    format!("u{index}")
}

/// The hub's memory of one workload.
#[derive(Clone, Debug, Default)]
struct HubWorkload {
    assignment: Option<(u64, Phase)>,
    attempt: u64,
    /// The attempt whose end was reported.
    ended: Option<u64>,
    /// The attempt whose job another client deleted on the worker, by the last report.
    taken: Option<u64>,
}

struct World {
    cluster: Cluster,
    ledger: Ledger,
    now: Time,
    /// The end of the lease, as the agent wrote it down.
    lease: Time,
    hub: Vec<HubWorkload>,
    revision: u64,
    open: bool,
    /// Messages of this session that the hub has not read.
    up: VecDeque<v1::Observed>,
    actions: Vec<Action>,
    trace: Vec<String>,
}

fn fresh_ledger() -> Ledger {
    Ledger::new(Rules { hub_id: "hub".to_owned(), namespaces: AllowedNamespaces::All })
}

impl World {
    fn new() -> Self {
        let mut cluster = Cluster::default();
        let name = format!("job-{}", uid(BLOCKED));
        let meta = Meta {
            finalizer_index: None,
            ..cluster.meta(ObjectKind::Workload, &name, "nobody's", 0)
        };
        let object = Object::Workload(RemoteWorkload { meta, ..super::build::workload(0) });
        cluster.objects.insert((ObjectKind::Workload, name), Stored { object, foreign: true });
        let mut world = Self {
            cluster,
            ledger: fresh_ledger(),
            now: Time::from_secs(1000),
            lease: Time::ZERO,
            hub: vec![HubWorkload::default(); WORKLOADS],
            revision: 0,
            open: false,
            up: VecDeque::new(),
            actions: Vec::new(),
            trace: Vec::new(),
        };
        world.restart();
        world
    }

    /// Restarts the agent. Its running actions are lost, or took effect unnoticed.
    fn restart(&mut self) {
        self.ledger = fresh_ledger();
        self.ledger.restore(1, self.lease);
        self.disconnect();
        self.actions.clear();
        self.cluster.events.clear();
        let ours: Vec<Object> = self
            .cluster
            .objects
            .values()
            .filter(|it| !it.foreign)
            .map(|it| it.object.clone())
            .collect();
        for object in ours {
            self.observe(WatchEvent::Applied(Box::new(object)));
        }
        self.observe(WatchEvent::Synced);
    }

    fn observe(&mut self, seen: WatchEvent) {
        let actions = self.ledger.on_watch_event(seen, self.now);
        self.actions.extend(actions);
    }

    fn disconnect(&mut self) {
        self.open = false;
        self.up.clear();
        self.ledger.session_closed();
    }

    fn connect(&mut self) {
        self.disconnect();
        self.open = true;
        self.ledger.session_opened();
        let welcome = v1::Welcome {
            version: 1,
            hub_id: "hub".to_owned(),
            session_id: 1,
            lease: None,
            snapshot: true,
        };
        self.receive(hub_message::Kind::Welcome(welcome));
        self.send_all();
    }

    fn receive(&mut self, kind: hub_message::Kind) {
        let message = HubMessage { session_id: 1, epoch: 1, kind: Some(kind) };
        if self.open {
            let actions = self.ledger.on_hub_message(message, self.now).unwrap();
            self.actions.extend(actions);
        }
    }

    fn assignment(&self, index: usize) -> Option<v1::Assignment> {
        let (attempt, phase) = self.hub.get(index)?.assignment?;
        let mut assignment = assignment(&uid(index), attempt, phase);
        (assignment.priority, assignment.priority_class) =
            (priority((attempt, phase)), CLASS.to_owned());
        if index == FENCED {
            assignment.on_disconnect = super::build::fenced("", 0, AFTER).on_disconnect;
        }
        Some(assignment)
    }

    /// The hub answers a ping.
    fn renew(&mut self, lease: Time) {
        if self.open {
            self.trace.push("lease renewed".to_owned());
            self.lease = self.now + lease;
            let actions = self.ledger.lease_renewed(self.lease, self.now);
            self.actions.extend(actions);
        }
    }

    fn send_all(&mut self) {
        self.revision += 1;
        let assignments = (0..WORKLOADS).filter_map(|index| self.assignment(index)).collect();
        let payloads = vec![payload()];
        let revision = self.revision;
        self.receive(hub_message::Kind::Desired(v1::Desired {
            revision,
            snapshot: true,
            payloads,
            assignments,
            ..v1::Desired::default()
        }));
    }

    /// The hub changes one assignment.
    fn decide(&mut self, index: usize, choice: u8) {
        let Some(mut workload) = self.hub.get(index).cloned() else { return };
        let next = match (workload.assignment, choice) {
            (None, _) if workload.ended.is_some() => return,
            (None, _) => (workload.attempt + 1, Phase::Reserve),
            (Some((attempt, Phase::Reserve)), 0 | 1) => (attempt, Phase::Run),
            (Some((attempt, Phase::Run)), 2) => (attempt, Phase::Suspend),
            (Some((attempt, Phase::Suspend)), 0 | 1) => (attempt, Phase::Run),
            (Some((attempt, phase)), 3) if phase != Phase::Absent => (attempt, Phase::Absent),
            (Some((attempt, phase)), 4) if phase != Phase::Absent && workload.ended.is_none() => {
                (attempt + 1, Phase::Run)
            }
            _ => return,
        };
        self.trace.push(format!("hub wants {} {next:?}", uid(index)));
        workload.attempt = next.0;
        workload.assignment = Some(next);
        if let Some(slot) = self.hub.get_mut(index) {
            *slot = workload;
        }
        let base_revision = self.revision;
        if self.open {
            self.revision += 1;
            let revision = self.revision;
            let assignments = self.assignment(index).into_iter().collect();
            let payloads = vec![payload()];
            let desired = v1::Desired {
                revision,
                base_revision,
                payloads,
                assignments,
                ..v1::Desired::default()
            };
            self.receive(hub_message::Kind::Desired(desired.clone()));
            // A repeated message must change nothing.
            self.receive(hub_message::Kind::Desired(desired));
        }
    }

    fn listen(&mut self) {
        while let Some(kind) = self.ledger.next_message(self.now) {
            if let agent_message::Kind::Observed(observed) = kind {
                self.up.push_back(observed);
            }
        }
    }

    /// The hub reads one message and persists it.
    fn hub_reads(&mut self) {
        let Some(observed) = self.up.pop_front() else { return };
        for observation in &observed.observations {
            self.trace.push(format!(
                "hub reads {} {} {:?}",
                observation.workload_uid,
                observation.attempt,
                observation.state()
            ));
            let index =
                (0..WORKLOADS).find(|index| uid(*index) == observation.workload_uid).unwrap();
            let state = observation.state();
            let Some(workload) = self.hub.get_mut(index) else { continue };
            workload.taken =
                matches!(state, State::Evicted | State::Gone).then_some(observation.attempt);
            match state {
                State::Succeeded | State::Failed => {
                    if workload.ended.is_some_and(|attempt| attempt != observation.attempt) {
                        self.cluster
                            .violations
                            .push(format!("{} ended twice", observation.workload_uid));
                    }
                    workload.ended = Some(observation.attempt);
                    workload.assignment = Some((workload.attempt, Phase::Absent));
                }
                State::Gone
                    if workload.assignment == Some((observation.attempt, Phase::Absent)) =>
                {
                    if self
                        .cluster
                        .objects
                        .contains_key(&(ObjectKind::Job, format!("job-{}", uid(index))))
                    {
                        self.cluster
                            .violations
                            .push(format!("{} is said to be gone", observation.workload_uid));
                    }
                    workload.assignment = None;
                }
                _ => {}
            }
        }
        let ends: Vec<usize> = (0..WORKLOADS)
            .filter(|index| self.hub.get(*index).is_some_and(|it| it.ended.is_some()))
            .collect();
        if !ends.is_empty() {
            self.send_all();
        }
        self.receive(hub_message::Kind::ObservedAck(observed.sequence));
    }

    /// One action takes effect, or fails, or takes effect without an answer.
    fn act(&mut self, choice: usize, luck: u8) {
        if self.actions.is_empty() {
            return;
        }
        let action = self.actions.remove(choice % self.actions.len());
        let outcome = match luck {
            0 => Outcome::Unknown("never sent".to_owned()),
            1 => {
                self.cluster.perform(&action);
                Outcome::Unknown("no answer".to_owned())
            }
            _ => self.cluster.perform(&action),
        };
        let (verb, kind, uid) = (action.verb.name(), action.kind, &action.workload_uid);
        let came = match &outcome {
            Outcome::Object(object) => short(object),
            other => format!("{other:?}"),
        };
        self.trace.push(format!("{verb} {kind:?} of {uid} -> {came}"));
        let more = self.ledger.on_outcome(&action, outcome, self.now);
        self.actions.extend(more);
    }

    fn deliver(&mut self, kind: ObjectKind, twice: bool) {
        let Some(seen) = self.cluster.events.get_mut(&kind).and_then(VecDeque::pop_front) else {
            return;
        };
        self.trace.push(match &seen {
            WatchEvent::Applied(object) => format!("seen {}", short(object)),
            other => format!("seen {other:?}"),
        });
        if twice {
            self.observe(seen.clone());
        }
        self.observe(seen);
    }

    fn pass(&mut self, time: Time) {
        self.now += time;
        let actions = self.ledger.tick(self.now);
        self.actions.extend(actions);
    }

    fn step(&mut self, step: (u8, usize, u8)) {
        let (kind, index, choice) = step;
        match kind {
            0..=3 => self.decide(index, choice % 5),
            4..=7 => self.act(usize::from(choice), choice),
            8..=10 => self.deliver(ObjectKind::Workload, choice == 0),
            11..=13 => self.deliver(ObjectKind::Job, choice == 0),
            14..=17 => self.cluster.controllers(index, choice % 7),
            18 => self.cluster.finish(index, choice % 2 == 0),
            19 | 20 => self.hub_reads(),
            21 if choice < 2 => {
                self.trace.push("agent restarts".to_owned());
                self.restart();
            }
            22 if choice < 4 => {
                self.trace.push("connected".to_owned());
                self.connect();
            }
            23 if choice < 2 => {
                self.trace.push("disconnected".to_owned());
                self.disconnect();
            }
            24 if choice > 9 => self.renew(Time::from_secs(3)),
            24 if choice < 2 => {
                self.cluster.delete(ObjectKind::Job, &format!("job-{}", uid(index)))
            }
            _ => self.pass(Time::from_millis(300)),
        }
        self.listen();
        self.check();
    }

    /// Lets everything happen without a hub until long after the lease expired.
    fn apart(&mut self) {
        self.trace.push("apart".to_owned());
        self.disconnect();
        self.turns(12);
        let name = format!("job-{}", uid(FENCED));
        if let Some(Stored { object: Object::Job(job), foreign: false }) =
            self.cluster.objects.get(&(ObjectKind::Job, name))
        {
            assert!(!job.active, "runs beyond its fence: {job:?}\n{}", self.trace.join("\n"));
        }
    }

    /// Without faults, lets everything happen until nothing changes.
    fn settle(&mut self) {
        self.connect();
        self.turns(60);
    }

    fn turns(&mut self, turns: usize) {
        for _ in 0..turns {
            self.renew(Time::from_secs(100));
            self.listen();
            for _ in 0..20 {
                self.hub_reads();
                self.listen();
            }
            while !self.actions.is_empty() {
                self.act(0, 2);
            }
            for kind in [ObjectKind::Workload, ObjectKind::Job] {
                while self.cluster.events.get(&kind).is_some_and(|events| !events.is_empty()) {
                    self.deliver(kind, false);
                }
            }
            for index in 0..WORKLOADS {
                for choice in [0, 3, 4, 5, 6] {
                    self.cluster.controllers(index, choice);
                }
            }
            self.pass(Time::from_secs(31));
            self.check();
        }
    }
}

/// The number of cases: `PROPTEST_CASES`, or more than proptest's default, since a case is short.
fn cases() -> u32 {
    std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(600)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), max_shrink_iters: 20_000, ..ProptestConfig::default() })]

    #[test]
    fn laws_hold_and_everything_settles(
        steps in proptest::collection::vec((0_u8..26, 0_usize..WORKLOADS, 0_u8..20), 1..250),
        apart in any::<bool>(),
    ) {
        let mut world = World::new();
        world.connect();
        for step in steps {
            world.step(step);
        }
        if apart {
            world.apart();
        }
        world.settle();
        world.check_settled();
    }
}
