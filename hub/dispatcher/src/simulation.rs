//! The dispatcher against model clusters and a model API, driven by a seed.
//!
//! Faults: late and repeated observations, lost sessions that return with an inventory, restarts of
//! the dispatcher at any step, lost answers of writes, evictions by either side, deletions. With
//! Kueue's dispatchers, several clusters keep copies and preempt one after the other. Jobs grow
//! while they run, so that another slice takes over their copy. Clusters lack flavors, and
//! administrators change the rules for pins. In every third world no job grows; there, one workload
//! is a later replica of another one's object, and some pods never become ready (`onStuck`).
//!
//! Checked after every step: at most one attempt may run, and only the one that the API names, with
//! quota, and in the flavor that it is charged to. A workload is withdrawn as stuck only after
//! reports without a ready pod, and only as often as its policy allows. A later replica is never
//! offered.
//!
//! Checked at the end: every workload that still exists has finished once, and the clusters are
//! empty.

mod cluster;
mod pins;
mod readiness;
mod replicas;
mod slices;
mod steps;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::tests::{START, facts};
use super::*;
use cluster::{Cluster, Sent};

const CLUSTERS: [&str; 3] = ["a", "b", "c"];
const CAPACITY: i64 = 3000;
const WORKLOADS: usize = 8;
const PREEMPTION: i64 = 15_000;

/// A Workload of the model API.
#[derive(Debug, Clone)]
struct Object {
    facts: WorkloadFacts,
    ends: u32,
    deleted: bool,
}

struct World {
    random: StdRng,
    /// Choices of flavors, and of their rules.
    pin_dice: StdRng,
    pins_are_off: bool,
    /// Attempts that were on a cluster while nothing was pinned: any flavor may be committed.
    unpinned: BTreeSet<(Uid, u64)>,
    has_replicas: bool,
    /// The first replica's place, as the dispatcher knows it.
    told_place: Option<Replica>,
    /// Choices about replicas and ready pods.
    readiness_dice: StdRng,
    /// By cluster and workload.
    stalled: BTreeMap<(&'static str, Uid), readiness::Stalled>,
    /// How many workloads were withdrawn as stuck: first replicas, and others.
    withdrawn_as_stuck: [u32; 2],
    now: UnixMillis,
    dispatcher: Dispatcher,
    mode: DispatchMode,
    preemption_timeout: Option<i64>,
    api: BTreeMap<Uid, Object>,
    version: u64,
    clusters: BTreeMap<&'static str, Cluster>,
    /// Workloads with quota in the engine's memory.
    engine: BTreeSet<Uid>,
    /// Writes that are not performed yet.
    writes: VecDeque<(Uid, Arc<WorkloadWrite>)>,
    /// Answers of performed writes, under way.
    answers: VecDeque<WriteResult>,
    faults: bool,
    trace: Vec<String>,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut random = StdRng::seed_from_u64(seed);
        let mode = match random.random_range(0..4) {
            0 => DispatchMode::AllAtOnce,
            1 => DispatchMode::Incremental { step: 1, round: 5_000 },
            _ => DispatchMode::BestFit,
        };
        let mut world = Self {
            random,
            pin_dice: StdRng::seed_from_u64(!seed),
            pins_are_off: false,
            unpinned: BTreeSet::new(),
            has_replicas: seed % 3 == 1,
            told_place: None,
            readiness_dice: StdRng::seed_from_u64(seed.rotate_left(32)),
            stalled: BTreeMap::new(),
            withdrawn_as_stuck: [0; 2],
            now: START,
            dispatcher: Dispatcher::new(DispatcherSettings::default(), START),
            mode,
            preemption_timeout: (mode.keeps_copies() && !seed.is_multiple_of(3))
                .then_some(PREEMPTION),
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
            let object = Object {
                facts: WorkloadFacts { version: 1, ..facts(&uid) },
                ends: 0,
                deleted: false,
            };
            world.api.insert(uid, object);
        }
        if world.has_replicas {
            world.set_policies();
        }
        world.restart();
        world
    }

    /// Restarts the hub's process: only the API and the clusters keep their state.
    fn restart(&mut self) {
        self.trace.push("restart".into());
        let settings = DispatcherSettings {
            mode: self.mode,
            preemption_timeout: self.preemption_timeout,
            orphan_grace: 20_000,
            worker_lost_timeout: 40_000,
            ..DispatcherSettings::default()
        };
        self.dispatcher = Dispatcher::new(settings, self.now);
        self.engine.clear();
        // A write may be under way when the process ends: it is performed or lost.
        for (uid, write) in std::mem::take(&mut self.writes) {
            if self.random.random_bool(0.5) {
                self.write(&uid, &write);
            }
        }
        self.answers.clear();
        self.stalled.clear();
        self.told_place = None;
        for cluster in self.clusters.values_mut() {
            cluster.connected = false;
            cluster.up.clear();
            cluster.down.clear();
            cluster.outbox.clear();
        }
        self.configure_pins();
        self.apply(DispatchEvent::CheckConfigured {
            name: "mk".into(),
            clusters: CLUSTERS.iter().map(|c| Name::from(*c)).collect(),
        });
        for name in CLUSTERS {
            self.apply(DispatchEvent::ClusterConfigured {
                name: name.into(),
                config: ClusterConfig::default(),
            });
        }
        self.learn_all();
    }

    fn apply(&mut self, event: DispatchEvent) {
        self.trace.push(format!("{} {}", self.now, brief(&event)));
        let actions = self.dispatcher.apply(event, self.now);
        self.dispatcher.check_index();
        for action in actions {
            self.trace.push(format!("  -> {action:?}"));
            self.check_offer(&action);
            self.check_withdrawal(&action);
            self.act(action);
        }
    }

    fn act(&mut self, action: DispatchAction) {
        match action {
            DispatchAction::Assign(RequestedAssignment {
                cluster, uid, attempt, phase, ..
            }) => {
                let gate = self
                    .dispatcher
                    .gate(&self.dispatcher.hub_uid(&uid), &cluster)
                    .filter(|_| phase != Phase::Absent);
                let pins = self.dispatcher.flavor_pins(&self.dispatcher.hub_uid(&uid), &cluster);
                let pin = pins.get("main", "cpu").filter(|_| phase != Phase::Absent);
                // A later replica is created by the order to run.
                let creates = phase == Phase::Reserve
                    || (phase == Phase::Run && self.has_replicas && replicas::is_later(&uid));
                if self.pins_are_off && creates {
                    self.unpinned.insert((uid.clone(), attempt));
                }
                let sent = Sent { attempt, phase, gate, pin: pin.map(ToOwned::to_owned) };
                let Some(cluster) = self.clusters.get_mut(&*cluster) else { return };
                if cluster.outbox.get(&uid).is_some_and(|there| there.attempt > attempt) {
                    return;
                }
                cluster.outbox.insert(uid.clone(), sent.clone());
                if cluster.connected {
                    cluster.down.push_back((uid, sent));
                }
            }
            DispatchAction::ForgetTombstone { cluster, uid, attempt } => {
                let Some(cluster) = self.clusters.get_mut(&*cluster) else { return };
                if cluster
                    .outbox
                    .get(&uid)
                    .is_some_and(|there| there.attempt <= attempt && there.phase == Phase::Absent)
                {
                    cluster.outbox.remove(&uid);
                }
            }
            DispatchAction::Write { uid, write } => self.writes.push_back((uid, write)),
            DispatchAction::ReturnReservation { uid, .. } => {
                self.engine.remove(&uid);
            }
            DispatchAction::AcknowledgeEnd { cluster, uid, attempt } => {
                let object = self.api.get(&self.owner(&uid));
                let needed = object.is_some_and(|object| {
                    let facts = &object.facts;
                    let current = facts.state.cluster.as_ref().is_none_or(|c| *c == cluster)
                        && facts.state.attempt == attempt;
                    !object.deleted && !facts.state.finished && current
                });
                assert!(
                    !needed,
                    "acknowledged before it was persisted: {uid}/{attempt} on {cluster}"
                );
                let remote = self
                    .clusters
                    .get_mut(&*cluster)
                    .and_then(|cluster| cluster.remotes.get_mut(&uid));
                if let Some(remote) = remote.filter(|remote| remote.attempt == attempt) {
                    remote.acked = true;
                }
            }
            DispatchAction::Requeue { .. }
            | DispatchAction::ReservationPersisted { .. }
            | DispatchAction::MirrorStatus { .. }
            | DispatchAction::OrphanFound { .. }
            | DispatchAction::RejectAttempt { .. }
            | DispatchAction::BreakerChanged { .. } => {}
        }
    }

    /// The Workload's reconciler: Retry evicts, and an evicted workload without an attempt loses
    /// its quota.
    fn lifecycle(&mut self, uid: &Uid) {
        let Some(object) =
            self.api.get_mut(uid).filter(|object| !object.deleted && !object.facts.state.finished)
        else {
            return;
        };
        if object.facts.job_ended == Some(true) {
            self.end(uid);
        } else if object.facts.state.deleting && !object.facts.state.reserved {
            // The job's reconciler removes the finalizer, even if copies are left.
            object.deleted = true;
            self.tell(uid);
        } else if object
            .facts
            .state
            .check
            .as_ref()
            .is_some_and(|(_, check)| *check == CheckStatus::Retry)
        {
            self.evict_on_hub(uid);
        } else if object.facts.state.evicted
            && object.facts.state.reserved
            && object.facts.state.attempt == 0
        {
            self.version += 1;
            object.facts.version = self.version;
            object.facts.state.reserved = false;
            self.tell(uid);
        }
    }

    /// Performs a write at the API if its precondition holds.
    fn write(&mut self, uid: &Uid, write: &WorkloadWrite) -> (WriteOutcome, Option<WorkloadFacts>) {
        let Some(object) = self.api.get_mut(uid).filter(|object| !object.deleted) else {
            return (WriteOutcome::Superseded, None);
        };
        let facts = &mut object.facts;
        let going = facts.state.deleting
            || facts.state.finished
            || (facts.state.evicted && facts.state.reserved);
        let free = facts.state.active && !going;
        let done = match write {
            WorkloadWrite::Commit { cluster, attempt, .. }
                if facts.state.cluster.as_ref() == Some(cluster)
                    && facts.state.attempt == *attempt =>
            {
                true
            }
            WorkloadWrite::Commit { cluster, attempt, adopts, .. }
                if free && facts.state.cluster.is_none() =>
            {
                assert!(*attempt > facts.state.attempt, "attempts grow");
                facts.state.cluster_uid = adopts
                    .clone()
                    .filter(|cluster_uid| cluster_uid != uid)
                    .or(facts.state.cluster_uid.take());
                facts.state.reserved = true;
                facts.state.evicted = false;
                facts.state.cluster = Some(cluster.clone());
                facts.state.attempt = *attempt;
                facts.nominated = Vec::new();
                facts.state.check = Some(("mk".into(), CheckStatus::Ready));
                true
            }
            WorkloadWrite::Record { nominated, .. } if free && facts.state.cluster.is_none() => {
                facts.state.reserved = true;
                facts.state.evicted = false;
                if let Some(nominated) = nominated {
                    facts.nominated = nominated.clone();
                }
                true
            }
            WorkloadWrite::Release if facts.state.deleting => {
                // The job's reconciler removes the finalizer now that nothing runs.
                object.deleted = true;
                true
            }
            WorkloadWrite::Release if facts.state.evicted && facts.state.reserved => {
                facts.state.reserved = false;
                true
            }
            WorkloadWrite::Retry { .. } if free => {
                facts.state.check = Some(("mk".into(), CheckStatus::Retry));
                true
            }
            WorkloadWrite::Finish { cluster, attempt, .. }
                if !facts.state.finished
                    && facts.state.cluster.as_ref().is_none_or(|c| c == cluster)
                    && facts.state.attempt == *attempt =>
            {
                facts.state.finished = true;
                object.ends += 1;
                true
            }
            _ => false,
        };
        if done {
            self.count_move(uid, write);
        }
        let Some(Object { facts, .. }) = self.api.get_mut(uid) else {
            return (WriteOutcome::Superseded, None);
        };
        let ends = done && matches!(write, WorkloadWrite::Finish { .. });
        if !done {
            return (WriteOutcome::Superseded, Some(facts.clone()));
        }
        self.version += 1;
        facts.version = self.version;
        let facts = facts.clone();
        if facts.state.reserved {
            self.engine.remove(uid);
        }
        if ends {
            self.show_end(uid);
        }
        (WriteOutcome::Done, Some(facts))
    }

    fn check(&self) {
        for uid in self.api.keys() {
            self.check_chain(uid);
            let running: Vec<(&str, u64)> = self
                .clusters
                .iter()
                .filter(|(_, cluster)| cluster.runs(uid))
                .map(|(name, cluster)| (*name, cluster.remotes[uid].attempt))
                .collect();
            let owner = &self.api[&self.owner(uid)];
            let facts = &owner.facts;
            for (name, attempt) in running {
                assert!(
                    attempt <= facts.state.attempt,
                    "{uid}/{attempt} runs on {name}, the API knows {}",
                    facts.state.attempt
                );
                let held = facts.state.reserved || facts.state.finished || owner.deleted;
                assert!(held, "{uid}/{attempt} runs on {name} although its quota was given away");
            }
            assert!(self.api[uid].ends <= 1, "{uid} ended twice");
            self.check_gates(uid);
            self.check_pins(uid);
        }
    }

    /// The timeout lies between two openings for a workload, while both copies exist.
    fn check_gates(&self, uid: &Uid) {
        let Some(timeout) = self.preemption_timeout else { return };
        let opened = |cluster: &Cluster| cluster.remotes.get(uid)?.gate?.opened;
        let mut opened: Vec<UnixMillis> = self.clusters.values().filter_map(opened).collect();
        opened.sort_unstable();
        for pair in opened.windows(2) {
            assert!(pair[1] - pair[0] >= timeout, "two clusters may preempt for {uid}: {opened:?}");
        }
    }

    /// Without further faults, everything must end.
    fn settle(&mut self) {
        self.faults = false;
        for _ in 0..20_000 {
            self.step();
            let done =
                self.api.values().all(|object| object.deleted || object.facts.state.finished);
            let clean = self.clusters.values().all(|cluster| cluster.remotes.is_empty());
            if done && clean {
                return;
            }
        }
        let open: Vec<_> = self
            .api
            .values()
            .filter(|object| !object.deleted && !object.facts.state.finished)
            .collect();
        let left: Vec<_> =
            self.clusters.iter().map(|(name, cluster)| (name, &cluster.remotes)).collect();
        panic!("lost: {open:#?}, left behind: {left:#?}");
    }
}

fn brief(event: &DispatchEvent) -> String {
    let facts = |facts: &WorkloadFacts| {
        format!(
            "{} v{} reserved={} evicted={} finished={} deleting={} cluster={:?} attempt={} check={:?}",
            facts.uid,
            facts.version,
            facts.state.reserved,
            facts.state.evicted,
            facts.state.finished,
            facts.state.deleting,
            facts.state.cluster,
            facts.state.attempt,
            facts.state.check.as_ref().map(|(_, check)| check)
        )
    };
    match event {
        DispatchEvent::WorkloadChanged(it) => format!("Workload {}", facts(it)),
        DispatchEvent::QuotaReserved { facts: it, .. } => {
            format!("MemoryReservation {}", facts(it))
        }
        DispatchEvent::WriteEnded(written) => {
            let after = written.facts.as_ref().map(facts).unwrap_or_default();
            format!("WriteResult {} {:?} {after}", written.uid, written.outcome)
        }
        other => format!("{other:?}"),
    }
}

/// Returns how many workloads were withdrawn as stuck.
fn run(seed: u64) -> [u32; 2] {
    let mut world = World::new(seed);
    let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let steps = world.random.random_range(200..1500);
        for _ in 0..steps {
            world.step();
        }
        world.settle();
    }));
    if let Err(panic) = outcome {
        // `SWITCHYARD_ONLY=w3` prints the lines of one workload.
        let only = std::env::var("SWITCHYARD_ONLY").unwrap_or_default();
        let concerns = |line: &&String| {
            !line.contains("ClusterCapacity") && (line.contains(&only) || line.contains("restart"))
        };
        let trace: Vec<&String> = world.trace.iter().filter(concerns).collect();
        let from = trace.len().saturating_sub(150);
        let lines: Vec<String> =
            trace[from..].iter().map(|line| line.chars().take(400).collect()).collect();
        eprintln!("seed {seed}, {:?}:\n{}", world.mode, lines.join("\n"));
        std::panic::resume_unwind(panic);
    }
    world.withdrawn_as_stuck
}

/// `SWITCHYARD_SEED=n` replays one seed, `SWITCHYARD_SEEDS=n` runs that many.
#[test]
fn at_most_one_runs_and_none_is_lost() {
    let number = |name: &str| {
        let text = std::env::var(name).ok()?;
        Some(text.parse::<u64>().unwrap_or_else(|error| panic!("{name}={text}: {error}")))
    };
    if let Some(seed) = number("SWITCHYARD_SEED") {
        run(seed);
        return;
    }
    let seeds = number("SWITCHYARD_SEEDS").unwrap_or(200);
    let mut withdrawn = [0; 2];
    for seed in 0..seeds {
        let of_seed = run(seed);
        withdrawn.iter_mut().zip(of_seed).for_each(|(all, one)| *all += one);
    }
    println!("seeds 0..{seeds}, withdrawn as stuck: first replicas and others {withdrawn:?}");
    assert!(seeds < 200 || withdrawn.iter().all(|count| *count > 0), "{withdrawn:?}");
}
