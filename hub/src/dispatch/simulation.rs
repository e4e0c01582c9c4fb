//! The dispatcher against model clusters and a model API, driven by a seed.
//!
//! Faults: observations late and repeated, sessions that break and come back with an inventory, the dispatcher's
//! process ending and starting anew at any step, writes whose answer is lost, evictions by either side, deletions.
//! After every step: at most one attempt may run, and only one that the API names and for which it holds quota; at the
//! end: every workload that was not deleted is finished, none ended twice, and nothing is left on any cluster.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::tests::{START, facts, queues};
use super::*;

const CLUSTERS: [&str; 3] = ["a", "b", "c"];
const CAPACITY: i64 = 3000;
const WORKLOADS: usize = 8;

/// The API's Workload.
#[derive(Debug, Clone)]
struct Object {
    facts: Facts,
    ends: u32,
    deleted: bool,
}

/// What is on a cluster for one workload.
#[derive(Debug, Clone, PartialEq)]
struct Remote {
    attempt: u64,
    phase: Phase,
    state: State,
    acked: bool,
}

#[derive(Debug, Default)]
struct Cluster {
    connected: bool,
    remotes: BTreeMap<Uid, Remote>,
    /// Attempts that ever ran here.
    ran: BTreeSet<(Uid, u64)>,
    up: VecDeque<Observation>,
    down: VecDeque<(Uid, u64, Phase)>,
    /// The outbox: what is desired, kept over sessions but not over restarts of the hub.
    outbox: BTreeMap<Uid, (u64, Phase)>,
}

struct World {
    random: StdRng,
    now: Time,
    dispatcher: Dispatcher,
    mode: Mode,
    api: BTreeMap<Uid, Object>,
    version: u64,
    clusters: BTreeMap<&'static str, Cluster>,
    /// Quota in the engine's memory.
    engine: BTreeSet<Uid>,
    /// Writes asked for and not yet performed.
    writes: VecDeque<Action>,
    /// Writes performed, their answers under way.
    answers: VecDeque<Written>,
    faults: bool,
    trace: Vec<String>,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut random = StdRng::seed_from_u64(seed);
        let mode = match random.random_range(0..4) {
            0 => Mode::AllAtOnce,
            1 => Mode::Incremental { step: 1, round: 5_000 },
            _ => Mode::BestFit,
        };
        let mut world = Self {
            random,
            now: START,
            dispatcher: Dispatcher::new(Settings::default(), START),
            mode,
            api: BTreeMap::new(),
            version: 1,
            clusters: CLUSTERS.iter().map(|name| (*name, Cluster::default())).collect(),
            engine: BTreeSet::new(),
            writes: VecDeque::new(),
            answers: VecDeque::new(),
            faults: true,
            trace: Vec::new(),
        };
        for index in 0..WORKLOADS {
            let uid: Uid = format!("w{index}").into();
            let object = Object { facts: Facts { version: 1, ..facts(&uid) }, ends: 0, deleted: false };
            world.api.insert(uid, object);
        }
        world.restart();
        world
    }

    /// The hub's process begins anew: only the API and the clusters remember.
    fn restart(&mut self) {
        self.trace.push("restart".into());
        let settings =
            Settings { mode: self.mode, orphan_after: 20_000, worker_lost_timeout: 40_000, ..Settings::default() };
        self.dispatcher = Dispatcher::new(settings, self.now);
        self.engine.clear();
        // A write may be on its way to the API when the process dies: each happens or not.
        for write in std::mem::take(&mut self.writes) {
            if self.random.random_bool(0.5) {
                self.write(&write);
            }
        }
        self.answers.clear();
        for cluster in self.clusters.values_mut() {
            cluster.connected = false;
            cluster.up.clear();
            cluster.down.clear();
            cluster.outbox.clear();
        }
        self.apply(Event::Check { name: "mk".into(), clusters: CLUSTERS.iter().map(|c| Name::from(*c)).collect() });
        for name in CLUSTERS {
            self.apply(Event::Cluster { name: name.into(), hold: true });
        }
        let all: Vec<Facts> = self.api.values().filter(|o| !o.deleted).map(|o| o.facts.clone()).collect();
        for facts in all {
            self.apply(Event::Workload(facts));
        }
    }

    fn apply(&mut self, event: Event) {
        self.trace.push(format!("{} {}", self.now, brief(&event)));
        let actions = self.dispatcher.apply(event, self.now);
        for action in actions {
            self.trace.push(format!("  -> {action:?}"));
            self.act(action);
        }
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::Desire { cluster, uid, attempt, phase, .. } => {
                let Some(cluster) = self.clusters.get_mut(&*cluster) else { return };
                if cluster.outbox.get(&uid).is_some_and(|(at, _)| *at > attempt) {
                    return;
                }
                cluster.outbox.insert(uid.clone(), (attempt, phase));
                if cluster.connected {
                    cluster.down.push_back((uid, attempt, phase));
                }
            }
            Action::Forget { cluster, uid, attempt } => {
                let Some(cluster) = self.clusters.get_mut(&*cluster) else { return };
                if cluster.outbox.get(&uid).is_some_and(|(at, phase)| *at <= attempt && *phase == Phase::Absent) {
                    cluster.outbox.remove(&uid);
                }
            }
            Action::Commit { .. }
            | Action::Record { .. }
            | Action::Retry { .. }
            | Action::Release { .. }
            | Action::Finish { .. } => {
                self.writes.push_back(action);
            }
            Action::GiveBack { uid, .. } => {
                self.engine.remove(&uid);
            }
            Action::Ack { cluster, uid, attempt } => {
                let object = self.api.get(&uid);
                let needed = object.is_some_and(|object| {
                    let facts = &object.facts;
                    let current = facts.cluster.as_ref().is_none_or(|c| *c == cluster) && facts.attempt == attempt;
                    !object.deleted && !facts.finished && current
                });
                assert!(!needed, "acknowledged before it was persisted: {uid}/{attempt} on {cluster}");
                let remote = self.clusters.get_mut(&*cluster).and_then(|cluster| cluster.remotes.get_mut(&uid));
                if let Some(remote) = remote.filter(|remote| remote.attempt == attempt) {
                    remote.acked = true;
                }
            }
            Action::Wake { .. } | Action::Recorded { .. } | Action::Mirror { .. } | Action::Orphan { .. } => {}
        }
    }

    /// The lifecycle: a check that says Retry evicts; and an evicted workload that was never committed gives its quota
    /// up by itself.
    fn lifecycle(&mut self, uid: &Uid) {
        let Some(object) = self.api.get_mut(uid).filter(|object| !object.deleted && !object.facts.finished) else {
            return;
        };
        if object.facts.deleting && !object.facts.reserved {
            // The job's reconciler lets it go, whatever is still on a cluster.
            object.deleted = true;
            self.tell(uid);
        } else if object.facts.check.as_ref().is_some_and(|(_, check)| *check == Check::Retry) {
            self.evict_on_hub(uid);
        } else if object.facts.evicted && object.facts.reserved && object.facts.attempt == 0 {
            self.version += 1;
            object.facts.version = self.version;
            object.facts.reserved = false;
            self.tell(uid);
        }
    }

    /// Performs a write at the API, under its precondition.
    fn write(&mut self, action: &Action) -> (Outcome, Option<Facts>) {
        let uid = subject(action);
        let Some(object) = self.api.get_mut(uid).filter(|object| !object.deleted) else {
            return (Outcome::Superseded, None);
        };
        let facts = &mut object.facts;
        let going = facts.deleting || facts.finished || (facts.evicted && facts.reserved);
        let free = facts.active && !going;
        let done = match action {
            Action::Commit { cluster, attempt, .. }
                if facts.cluster.as_ref() == Some(cluster) && facts.attempt == *attempt =>
            {
                true
            }
            Action::Commit { cluster, attempt, .. } if free && facts.cluster.is_none() => {
                assert!(*attempt > facts.attempt, "attempts grow");
                facts.reserved = true;
                facts.evicted = false;
                facts.cluster = Some(cluster.clone());
                facts.attempt = *attempt;
                facts.nominated = Vec::new();
                facts.check = Some(("mk".into(), Check::Ready));
                true
            }
            Action::Record { nominated, .. } if free && facts.cluster.is_none() => {
                facts.reserved = true;
                facts.evicted = false;
                if let Some(nominated) = nominated {
                    facts.nominated = nominated.clone();
                }
                true
            }
            Action::Release { .. } if facts.deleting => {
                // The job's reconciler lets it go now that nothing runs.
                object.deleted = true;
                true
            }
            Action::Release { .. } if facts.evicted && facts.reserved => {
                facts.reserved = false;
                true
            }
            Action::Retry { .. } if free => {
                facts.check = Some(("mk".into(), Check::Retry));
                true
            }
            Action::Finish { cluster, attempt, .. }
                if !facts.finished
                    && facts.cluster.as_ref().is_none_or(|c| c == cluster)
                    && facts.attempt == *attempt =>
            {
                facts.finished = true;
                object.ends += 1;
                true
            }
            _ => false,
        };
        if !done {
            return (Outcome::Superseded, Some(facts.clone()));
        }
        self.version += 1;
        facts.version = self.version;
        if facts.reserved {
            self.engine.remove(uid);
        }
        (Outcome::Done, Some(facts.clone()))
    }

    // === what may happen in a step

    fn step(&mut self) {
        let name = CLUSTERS[self.random.random_range(0..CLUSTERS.len())];
        let uid: Uid = format!("w{}", self.random.random_range(0..WORKLOADS)).into();
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
        self.check();
    }

    fn reserve(&mut self, uid: &Uid) {
        let Some(object) = self.api.get(uid).filter(|object| !object.deleted) else { return };
        let facts = object.facts.clone();
        let may = facts.active && !facts.finished && !facts.deleting && !facts.reserved && facts.cluster.is_none();
        if may && self.engine.insert(uid.clone()) {
            let reserved = Reserved { check: "mk".into(), other_checks: false };
            self.apply(Event::Reserved { facts, reserved });
        }
    }

    /// The engine gives quota in its memory to another workload.
    fn withdraw(&mut self, uid: &Uid) {
        if self.engine.contains(uid) {
            self.apply(Event::Withdraw { uid: uid.clone() });
        }
    }

    fn deliver_down(&mut self, name: &'static str) {
        let Some(cluster) = self.clusters.get_mut(name) else { return };
        let Some((uid, attempt, phase)) = cluster.down.pop_front() else { return };
        cluster.take(&uid, attempt, phase);
    }

    fn deliver_up(&mut self, name: &'static str) {
        let Some(cluster) = self.clusters.get_mut(name) else { return };
        let Some(observation) = cluster.up.pop_front() else { return };
        self.observed(name, observation);
    }

    fn observed(&mut self, name: &'static str, observation: Observation) {
        if !self.dispatcher.knows(&observation.uid)
            && let Some(object) = self.api.get(&observation.uid).filter(|object| !object.deleted)
        {
            self.dispatcher.learn(object.facts.clone());
        }
        self.apply(Event::Observed { cluster: name.into(), observation });
    }

    fn perform(&mut self) {
        let Some(action) = self.writes.pop_front() else { return };
        let (outcome, facts) = self.write(&action);
        let uid = subject(&action).clone();
        self.answers.push_back(Written { uid, outcome, facts });
    }

    fn answer(&mut self) {
        if let Some(written) = self.answers.pop_front() {
            self.apply(Event::Written(written));
        }
    }

    fn admit(&mut self, name: &'static str, uid: &Uid) {
        let refuse = self.random.random_bool(0.1);
        let Some(cluster) = self.clusters.get_mut(name) else { return };
        let used =
            cluster.remotes.values().filter(|remote| matches!(remote.state, State::Reserved | State::Running)).count();
        let Some(remote) = cluster.remotes.get_mut(uid).filter(|remote| remote.state == State::Waiting) else { return };
        if refuse && remote.phase == Phase::Reserve {
            remote.state = State::Unfit;
        } else if (used as i64 + 1) * 1000 <= CAPACITY {
            remote.state = if remote.phase == Phase::Run { State::Running } else { State::Reserved };
        }
        if remote.state == State::Running {
            cluster.ran.insert((uid.clone(), remote.attempt));
        }
        cluster.say(uid);
    }

    fn progress(&mut self, name: &'static str, uid: &Uid) {
        let Some(cluster) = self.clusters.get_mut(name) else { return };
        if let Some(remote) = cluster.remotes.get_mut(uid).filter(|remote| remote.state == State::Running) {
            remote.state = State::Succeeded;
            cluster.say(uid);
        }
        self.report(name);
    }

    fn report(&mut self, name: &'static str) {
        let cluster = &self.clusters[name];
        if cluster.connected {
            let used = cluster
                .remotes
                .values()
                .filter(|remote| matches!(remote.state, State::Reserved | State::Running))
                .count();
            let free = CAPACITY - used as i64 * 1000;
            self.apply(Event::Capacity { cluster: name.into(), queues: queues(free, CAPACITY) });
        }
    }

    fn tick(&mut self) {
        self.now += self.random.random_range(1..4_000);
        self.apply(Event::Tick);
        let keys: Vec<Uid> = self.api.keys().cloned().collect();
        let uid = keys[self.random.random_range(0..keys.len())].clone();
        self.tell(&uid);
    }

    /// The watch tells what the API holds.
    fn tell(&mut self, uid: &Uid) {
        match self.api.get(uid).cloned() {
            Some(object) if object.deleted => self.apply(Event::WorkloadGone { uid: uid.clone() }),
            Some(object) => self.apply(Event::Workload(object.facts)),
            None => {}
        }
    }

    fn connect(&mut self, name: &'static str) {
        let Some(cluster) = self.clusters.get_mut(name).filter(|cluster| !cluster.connected) else { return };
        cluster.connected = true;
        cluster.up.clear();
        cluster.down = cluster.outbox.iter().map(|(uid, (attempt, phase))| (uid.clone(), *attempt, *phase)).collect();
        let inventory: Vec<Observation> =
            cluster.remotes.iter().map(|(uid, remote)| observation(uid, remote)).collect();
        let uids = cluster.remotes.keys().cloned().collect();
        self.apply(Event::ClusterUp { name: name.into() });
        for observation in inventory {
            self.observed(name, observation);
        }
        self.apply(Event::Inventory { cluster: name.into(), uids });
        self.report(name);
    }

    fn disconnect(&mut self, name: &'static str) {
        let Some(cluster) = self.clusters.get_mut(name).filter(|cluster| cluster.connected) else { return };
        cluster.connected = false;
        cluster.up.clear();
        cluster.down.clear();
        self.apply(Event::ClusterDown { name: name.into() });
    }

    fn evict_on_worker(&mut self, name: &'static str, uid: &Uid) {
        let Some(cluster) = self.clusters.get_mut(name) else { return };
        if let Some(remote) =
            cluster.remotes.get_mut(uid).filter(|r| matches!(r.state, State::Running | State::Reserved))
        {
            remote.state = State::Evicted;
            cluster.say(uid);
        }
    }

    fn evict_on_hub(&mut self, uid: &Uid) {
        let Some(object) = self.api.get_mut(uid) else { return };
        if object.facts.reserved && !object.facts.finished && !object.deleted {
            self.version += 1;
            object.facts.version = self.version;
            object.facts.evicted = true;
            object.facts.cluster = None;
            object.facts.nominated = Vec::new();
            object.facts.check = Some(("mk".into(), Check::Pending));
            self.tell(uid);
        }
    }

    fn repeat(&mut self, name: &'static str) {
        let Some(cluster) = self.clusters.get_mut(name) else { return };
        if let Some(first) = cluster.up.front().cloned() {
            cluster.up.push_front(first);
        }
    }

    fn delete(&mut self, uid: &Uid) {
        if !self.random.random_bool(0.2) {
            return;
        }
        let Some(object) = self.api.get_mut(uid).filter(|object| !object.deleted) else { return };
        self.version += 1;
        object.facts.version = self.version;
        object.facts.deleting = true;
        // What holds nothing goes at once; the rest when it is released.
        if !object.facts.reserved && object.facts.cluster.is_none() || object.facts.finished {
            object.deleted = true;
            self.engine.remove(uid);
        }
        self.tell(uid);
    }

    // === what must hold

    fn check(&self) {
        for uid in self.api.keys() {
            let running: Vec<(&str, u64)> = self
                .clusters
                .iter()
                .filter_map(|(name, cluster)| {
                    let remote = cluster.remotes.get(uid)?;
                    (remote.phase == Phase::Run && remote.state == State::Running).then_some((*name, remote.attempt))
                })
                .collect();
            assert!(running.len() <= 1, "{uid} runs twice: {running:?}");
            let facts = &self.api[uid].facts;
            for (name, attempt) in running {
                assert!(attempt <= facts.attempt, "{uid}/{attempt} runs on {name}, the API knows {}", facts.attempt);
                let held = facts.reserved || facts.finished || self.api[uid].deleted;
                assert!(held, "{uid}/{attempt} runs on {name} although its quota was given away");
            }
            assert!(self.api[uid].ends <= 1, "{uid} ended twice");
        }
    }

    /// No more faults: everything has to come to its end.
    fn settle(&mut self) {
        self.faults = false;
        for _ in 0..20_000 {
            self.step();
            let done = self.api.values().all(|object| object.deleted || object.facts.finished);
            let clean = self.clusters.values().all(|cluster| cluster.remotes.is_empty());
            if done && clean {
                return;
            }
        }
        let open: Vec<_> = self.api.values().filter(|object| !object.deleted && !object.facts.finished).collect();
        let left: Vec<_> = self.clusters.iter().map(|(name, cluster)| (name, &cluster.remotes)).collect();
        panic!("lost: {open:#?}, left behind: {left:#?}");
    }
}

impl Cluster {
    /// The agent's rules: never a lower attempt; within one attempt only from Reserve over Run to Absent.
    fn take(&mut self, uid: &Uid, attempt: u64, phase: Phase) {
        let there = self.remotes.get(uid);
        let step = |phase| match phase {
            Phase::Reserve => 1,
            Phase::Run => 2,
            _ => 3,
        };
        if there.is_some_and(|r| r.attempt > attempt || (r.attempt == attempt && step(r.phase) > step(phase))) {
            return;
        }
        if phase == Phase::Absent {
            let held = there.is_some_and(|r| terminal(r.state) && !r.acked && r.attempt == attempt);
            if held {
                // The end goes before everything: it is said again until it is acknowledged.
                self.say(uid);
                self.down.push_back((uid.clone(), attempt, phase));
                return;
            }
            self.remotes.remove(uid);
            let gone = Remote { attempt, phase, state: State::Gone, acked: false };
            self.up.push_back(observation(uid, &gone));
            return;
        }
        match self.remotes.get_mut(uid) {
            Some(remote) if remote.attempt == attempt => {
                remote.phase = phase;
                if phase == Phase::Run && remote.state == State::Reserved {
                    remote.state = State::Running;
                    self.ran.insert((uid.clone(), attempt));
                }
            }
            _ => {
                self.remotes.insert(uid.clone(), Remote { attempt, phase, state: State::Waiting, acked: false });
            }
        }
        self.say(uid);
    }

    fn say(&mut self, uid: &Uid) {
        if self.connected
            && let Some(remote) = self.remotes.get(uid)
        {
            self.up.push_back(observation(uid, remote));
        }
    }
}

fn brief(event: &Event) -> String {
    let facts = |facts: &Facts| {
        format!(
            "{} v{} reserved={} evicted={} finished={} deleting={} cluster={:?} attempt={} check={:?}",
            facts.uid,
            facts.version,
            facts.reserved,
            facts.evicted,
            facts.finished,
            facts.deleting,
            facts.cluster,
            facts.attempt,
            facts.check.as_ref().map(|(_, check)| check)
        )
    };
    match event {
        Event::Workload(it) => format!("Workload {}", facts(it)),
        Event::Reserved { facts: it, .. } => format!("Reserved {}", facts(it)),
        Event::Written(written) => {
            let after = written.facts.as_ref().map(facts).unwrap_or_default();
            format!("Written {} {:?} {after}", written.uid, written.outcome)
        }
        other => format!("{other:?}"),
    }
}

fn subject(write: &Action) -> &Uid {
    match write {
        Action::Commit { uid, .. }
        | Action::Record { uid, .. }
        | Action::Retry { uid, .. }
        | Action::Release { uid }
        | Action::Finish { uid, .. } => uid,
        other => panic!("{other:?} is no write"),
    }
}

fn observation(uid: &Uid, remote: &Remote) -> Observation {
    Observation {
        uid: uid.clone(),
        namespace: "ns".into(),
        name: format!("job-{uid}").into(),
        attempt: remote.attempt,
        state: remote.state,
        reasons: Vec::new(),
        job_status: false,
    }
}

fn run(seed: u64) {
    let mut world = World::new(seed);
    let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let steps = world.random.random_range(200..1500);
        for _ in 0..steps {
            world.step();
        }
        world.settle();
    }));
    if let Err(panic) = outcome {
        // SWITCHYARD_ONLY=w3 shows what concerns one workload.
        let only = std::env::var("SWITCHYARD_ONLY").unwrap_or_default();
        let concerns =
            |line: &&String| !line.contains("Capacity") && (line.contains(&only) || line.contains("restart"));
        let trace: Vec<&String> = world.trace.iter().filter(concerns).collect();
        let from = trace.len().saturating_sub(150);
        let lines: Vec<String> = trace[from..].iter().map(|line| line.chars().take(400).collect()).collect();
        eprintln!("seed {seed}, {:?}:\n{}", world.mode, lines.join("\n"));
        std::panic::resume_unwind(panic);
    }
}

/// `SWITCHYARD_SEED=n` replays one, `SWITCHYARD_SEEDS=n` runs that many.
#[test]
fn at_most_one_runs_and_none_is_lost() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    if let Some(seed) = number("SWITCHYARD_SEED") {
        run(seed);
        return;
    }
    let seeds = number("SWITCHYARD_SEEDS").unwrap_or(200);
    println!("seeds 0..{seeds}");
    for seed in 0..seeds {
        run(seed);
    }
}
