//! The ledger against a small cluster and a small hub, under random interleavings.
//!
//! The cluster has an API server (names are unique, finalizers hold, uids and versions grow), watches that lag, and the
//! worker's own controllers. Actions take their time, fail, and fail after they happened. The agent restarts, sessions
//! break, messages come twice. After each step the laws are checked; at the end faults stop and all must settle.

mod cluster;

use std::collections::VecDeque;

use proptest::prelude::*;
use switchyard_proto::v1::{self, Phase, State, agent_message, hub_message};

use self::cluster::{Cluster, Stored};
use super::super::*;
use super::build::{assignment, payload};

const WORKLOADS: usize = 3;
/// The workload in whose way a foreign object lies.
const BLOCKED: usize = 2;
/// The workload whose job is stopped so long after the lease lapsed.
const FENCED: usize = 1;
const AFTER: Time = Time::from_secs(1);

/// The priority class of all.
const CLASS: &str = "class";

/// The priority that the hub wants: another one whenever it changes its mind.
fn priority((attempt, phase): (u64, Phase)) -> i32 {
    i32::try_from(attempt).unwrap_or(0) * 10 + phase as i32
}

fn uid(index: usize) -> String {
    format!("u{index}")
}

/// What the hub remembers of one workload.
#[derive(Clone, Debug, Default)]
struct HubWorkload {
    assignment: Option<(u64, Phase)>,
    attempt: u64,
    /// The attempt that ended, as the hub was told.
    ended: Option<u64>,
    /// The attempt whose job, as the hub was told last, somebody took away on the worker.
    taken: Option<u64>,
}

struct World {
    cluster: Cluster,
    ledger: Ledger,
    now: Time,
    /// Until when the lease lasts, as the agent wrote it down.
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
        let meta = Meta { held: None, ..cluster.meta(Kind::Workload, &name, "nobody's", 0) };
        let object = Object::Workload(RemoteWorkload { meta, ..super::build::workload(0) });
        cluster.objects.insert((Kind::Workload, name), Stored { object, foreign: true });
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

    /// The agent's process dies and begins anew; what it had under way is lost, or has happened all the same.
    fn restart(&mut self) {
        self.ledger = fresh_ledger();
        self.ledger.recall(1, self.lease);
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
            self.see(Seen::Applied(Box::new(object)));
        }
        self.see(Seen::Synced);
    }

    fn see(&mut self, seen: Seen) {
        let actions = self.ledger.seen(seen, self.now);
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
        self.say(hub_message::Kind::Welcome(welcome));
        self.send_all();
    }

    fn say(&mut self, kind: hub_message::Kind) {
        let message = HubMessage { session_id: 1, epoch: 1, kind: Some(kind) };
        if self.open {
            let actions = self.ledger.hub(message, self.now).unwrap();
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
        self.say(hub_message::Kind::Desired(v1::Desired {
            revision,
            snapshot: true,
            payloads,
            assignments,
            ..v1::Desired::default()
        }));
    }

    /// The hub's mind changes about one workload.
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
            self.say(hub_message::Kind::Desired(desired.clone()));
            // Once more: it must change nothing.
            self.say(hub_message::Kind::Desired(desired));
        }
    }

    fn listen(&mut self) {
        while let Some(kind) = self.ledger.outgoing(self.now) {
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
                        .contains_key(&(Kind::Job, format!("job-{}", uid(index))))
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
        self.say(hub_message::Kind::ObservedAck(observed.sequence));
    }

    /// One action happens, or does not, or does and nobody hears of it.
    fn act(&mut self, choice: usize, luck: u8) {
        if self.actions.is_empty() {
            return;
        }
        let action = self.actions.remove(choice % self.actions.len());
        let outcome = match luck {
            0 => Outcome::Failed("never sent".to_owned()),
            1 => {
                self.cluster.perform(&action);
                Outcome::Failed("no answer".to_owned())
            }
            _ => self.cluster.perform(&action),
        };
        let (verb, kind, uid) = (action.verb.name(), action.kind, &action.workload_uid);
        let came = match &outcome {
            Outcome::Object(object) => short(object),
            other => format!("{other:?}"),
        };
        self.trace.push(format!("{verb} {kind:?} of {uid} -> {came}"));
        let more = self.ledger.done(&action, outcome, self.now);
        self.actions.extend(more);
    }

    fn deliver(&mut self, kind: Kind, twice: bool) {
        let Some(seen) = self.cluster.events.get_mut(&kind).and_then(VecDeque::pop_front) else {
            return;
        };
        self.trace.push(match &seen {
            Seen::Applied(object) => format!("seen {}", short(object)),
            other => format!("seen {other:?}"),
        });
        if twice {
            self.see(seen.clone());
        }
        self.see(seen);
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
            8..=10 => self.deliver(Kind::Workload, choice == 0),
            11..=13 => self.deliver(Kind::Job, choice == 0),
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
            24 if choice < 2 => self.cluster.delete(Kind::Job, &format!("job-{}", uid(index))),
            _ => self.pass(Time::from_millis(300)),
        }
        self.listen();
        self.check();
    }

    fn check(&self) {
        assert!(
            self.cluster.violations.is_empty(),
            "{:?}\n{}",
            self.cluster.violations,
            self.trace.join("\n")
        );
        for stored in self.cluster.objects.values() {
            let Object::Job(job) = &stored.object else { continue };
            // An end that the hub does not know is held.
            let known = self.hub.iter().enumerate().any(|(index, hub)| {
                uid(index) == job.meta.workload_uid
                    && hub.ended.is_some_and(|ended| ended >= job.meta.attempt)
            });
            let lost = job.end.is_some() && job.meta.held.is_none() && !known;
            assert!(
                !lost,
                "an end the hub does not know was released: {job:?}\n{}",
                self.trace.join("\n")
            );
        }
    }

    /// Everything that can happen does, without a hub, until long after the lease has lapsed.
    fn apart(&mut self) {
        self.trace.push("apart".to_owned());
        self.disconnect();
        self.turns(12);
        let name = format!("job-{}", uid(FENCED));
        if let Some(Stored { object: Object::Job(job), foreign: false }) =
            self.cluster.objects.get(&(Kind::Job, name))
        {
            assert!(!job.active, "runs beyond its fence: {job:?}\n{}", self.trace.join("\n"));
        }
    }

    /// Faults stop: everything that can happen does, until nothing changes.
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
            for kind in [Kind::Workload, Kind::Job] {
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

    fn check_settled(&self) {
        for (index, hub) in self.hub.iter().enumerate() {
            let name = format!("job-{}", uid(index));
            let mine = |kind| {
                let stored = self.cluster.objects.get(&(kind, name.clone()));
                stored.filter(|it| !it.foreign).map(|it| it.object.clone())
            };
            let (workload, job) = (mine(Kind::Workload), mine(Kind::Job));
            let text = format!(
                "{name} wants {:?}, has {workload:?} and {job:?}\n{}",
                hub,
                self.trace.join("\n")
            );
            match hub.assignment {
                None => assert!(workload.is_none() && job.is_none(), "left over: {text}"),
                Some((_, Phase::Absent)) => panic!("a tombstone stays: {text}"),
                Some(_) if index == BLOCKED => {
                    assert!(workload.is_none() && job.is_none(), "{text}")
                }
                Some((attempt, phase)) => {
                    // An attempt that was said to be deleted on the worker is over until the hub begins another, whatever a
                    // creation that was under way has made of it.
                    let Some(workload) = workload else { continue };
                    assert_eq!(workload.meta().attempt, attempt, "{text}");
                    let over = hub.taken == Some(attempt);
                    if let Object::Workload(workload) = &workload
                        && workload.finished.is_none()
                        && !over
                    {
                        let has = workload.priority.as_ref().map(|it| it.value);
                        assert_eq!(has, Some(priority((attempt, phase))), "{text}");
                    }
                    if let Some(Object::Job(job)) = job {
                        assert_eq!(job.meta.attempt, attempt, "{text}");
                        assert_eq!(job.active, phase == Phase::Run, "{text}");
                    }
                }
            }
        }
    }
}

/// An object in a line.
fn short(object: &Object) -> String {
    let meta = object.meta();
    let facts = match object {
        Object::Workload(it) => {
            format!(
                "active {} admitted {} owned {}",
                it.active,
                it.admitted.is_some(),
                !meta.owners.is_empty()
            )
        }
        Object::Job(it) => {
            format!("running {} ended {} held {}", it.active, it.end.is_some(), meta.held.is_some())
        }
    };
    let (kind, uid, attempt, deleting) =
        (object.kind(), &meta.workload_uid, meta.attempt, meta.deleting);
    format!("{kind:?} {} of {uid} attempt {attempt} deleting {deleting}: {facts}", meta.target.uid)
}

/// How many cases a run plays: `PROPTEST_CASES`, or more than proptest's default, since a case is short.
fn cases() -> u32 {
    std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(600)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), max_shrink_iters: 20_000, ..ProptestConfig::default() })]

    #[test]
    fn whatever_happens_the_laws_hold_and_all_settles(
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
