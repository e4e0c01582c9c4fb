//! Plays a scenario: the engine decides, and this does what controllers would do about it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::Value;
use switchyard_scheduler::{
    Admission, CheckPhase, CheckState, Decision, Engine, Event, LocalQueue, LocalQueueKey, Name, Preemption,
    RefusedReason, Settings, StopPolicy, Time, Workload,
};

use crate::compare::{Admitted, CycleOutcome, Outcome};
use crate::edits::{self, Away};
use crate::{objects, quantity};

/// A cluster with only the engine in it.
pub(crate) struct Player {
    pub(crate) engine: Engine,
    pub(crate) workloads: BTreeMap<String, Workload>,
    /// Those with quota. As in Kueue's unit tests, no watch event tells the engine that its decisions were written.
    pub(crate) reserved: BTreeMap<String, Admission>,
    /// Those that must not be queued.
    pub(crate) away: BTreeMap<String, Away>,
    pub(crate) cluster_queues: BTreeMap<String, StopPolicy>,
    pub(crate) local_queues: BTreeMap<LocalQueueKey, LocalQueue>,
    pub(crate) now: Time,
    /// Past use counts: watch events tell the engine of its reservations, as only admitted workloads use anything.
    sharing: bool,
}

/// What the engine decides in each step.
pub(crate) fn play(scenario: &Value) -> Result<Vec<Outcome>, String> {
    let start = quantity::time(scenario["start"].as_str().unwrap_or_default())?;
    let settings = Settings {
        requeue_window: Duration::ZERO,
        fair_sharing: scenario["fairSharing"].as_bool().unwrap_or(false),
        ..Settings::default()
    };
    let preemption = Preemption { recompute_overlaps: recomputes_overlaps(scenario), ..Preemption::default() };
    let engine = Engine::preempting(settings, preemption);
    let sharing = objects::admission_fair_sharing(&scenario["admissionFairSharing"])?;
    let mut player = Player {
        sharing: sharing.is_some(),
        engine: match sharing {
            Some(sharing) => engine.sharing_admission(sharing),
            None => engine,
        },
        workloads: BTreeMap::new(),
        reserved: BTreeMap::new(),
        away: BTreeMap::new(),
        cluster_queues: BTreeMap::new(),
        local_queues: BTreeMap::new(),
        now: start,
    };
    player.set_up(scenario)?;
    let mut outcomes = Vec::new();
    for (number, step) in (1..).zip(objects::list(&scenario["steps"])) {
        player.now = start.plus(Duration::from_secs(number * 1000));
        player.edit(step)?;
        outcomes.push(player.settle());
    }
    Ok(outcomes)
}

/// Whether Kueue's `RecomputeAssignmentUponPreemptionTargetsOverlap` was on when the scenario was recorded: its `gates`
/// say so, else its name. Those with edits were recorded with the defaults of Kueue 0.19, the others with those of 0.20.
fn recomputes_overlaps(scenario: &Value) -> bool {
    let edited = scenario["name"].as_str().is_some_and(|name| name.starts_with("dyn-"));
    scenario["gates"]["RecomputeAssignmentUponPreemptionTargetsOverlap"].as_bool().unwrap_or(!edited)
}

impl Player {
    pub(crate) fn apply(&mut self, event: Event) {
        self.engine.apply(event, self.now);
    }

    fn set_up(&mut self, scenario: &Value) -> Result<(), String> {
        for object in objects::list(&scenario["namespaces"]) {
            let labels = objects::labels(&object["metadata"]["labels"])?;
            self.apply(Event::Namespace { name: objects::name(object)?, labels });
        }
        for object in objects::list(&scenario["resourceFlavors"]) {
            self.apply(Event::ResourceFlavor(objects::resource_flavor(object)?));
        }
        for object in objects::list(&scenario["admissionChecks"]) {
            self.apply(Event::AdmissionCheck(objects::admission_check(object)?));
        }
        for object in objects::list(&scenario["cohorts"]) {
            self.apply(Event::Cohort(objects::cohort(object)?));
        }
        for object in objects::list(&scenario["clusterQueues"]) {
            let queue = objects::cluster_queue(object)?;
            self.cluster_queues.insert(queue.name.to_string(), queue.stop_policy);
            self.apply(Event::ClusterQueue(queue));
        }
        for object in objects::list(&scenario["localQueues"]) {
            let queue = objects::local_queue(object)?;
            let key = queue.key.clone();
            self.local_queues.insert(key.clone(), queue.clone());
            self.apply(Event::LocalQueue(queue));
            if let Some(consumed) = objects::past_use(object)? {
                self.apply(Event::PastUse { queue: key, consumed });
            }
        }
        self.engine.flush_inadmissible(self.now);
        Ok(())
    }

    /// Step 6: cycles until nothing moves.
    fn settle(&mut self) -> Outcome {
        let mut outcome = Outcome::default();
        let mut unmoved = 0;
        for _ in 0..200 {
            if !self.engine.has_heads(self.now) || unmoved == 3 {
                break;
            }
            let before = self.queued(false);
            self.now = self.now.plus(Duration::from_secs(1));
            let cycle = self.cycle();
            let moved = !cycle.admitted.is_empty() || !cycle.preempted.is_empty();
            unmoved = if moved || before != self.queued(false) { 0 } else { unmoved + 1 };
            if moved {
                outcome.cycles.push(cycle);
            }
        }
        outcome.pending = self.queued(false);
        outcome.inadmissible = self.queued(true);
        outcome
    }

    fn cycle(&mut self) -> CycleOutcome {
        let mut outcome = CycleOutcome { time: self.now, ..CycleOutcome::default() };
        let decisions = self.engine.cycle(self.now).decisions;
        let (mut victims, mut fresh) = (BTreeMap::new(), Vec::new());
        for decision in decisions {
            match decision {
                Decision::Reserve { key, admission, checks, .. } => {
                    outcome.admitted.insert(key.to_string(), Admitted::of(&admission, &checks));
                    self.workloads.entry(key.to_string()).and_modify(|workload| written(workload, &checks));
                    self.reserved.insert(key.to_string(), admission.clone());
                    fresh.push((key.to_string(), admission));
                }
                Decision::Preempt { key, reason, .. } => {
                    victims.insert(key.to_string(), reason.to_owned());
                }
                Decision::Migrate { .. } | Decision::Pending { .. } => {}
            }
        }
        if !self.sharing {
            fresh.clear();
        }
        for (name, admission) in fresh {
            let now = self.now;
            self.change(&name, |workload| {
                (workload.reservation, workload.reserved_at) = (Some(admission), Some(now));
            });
        }
        for name in victims.keys() {
            self.evict(name);
        }
        outcome.preempted = victims;
        self.engine.flush_inadmissible(self.now);
        outcome
    }

    /// Takes the quota back and queues the workload again.
    fn evict(&mut self, name: &str) {
        self.reserved.remove(name);
        let Some(workload) = self.workloads.get(name) else { return };
        let (key, uid) = (workload.key.clone(), workload.uid.clone());
        let reason = RefusedReason::WriteFailed { message: "preempted".to_owned() };
        self.apply(Event::AdmissionRefused { key, uid, reason });
        self.change(name, |workload| {
            edits::reset(workload);
            workload.reservation = None;
            workload.evicted = true;
            workload.requeued = Some(true);
        });
    }

    /// The queued workloads by ClusterQueue: those to be tried, or the parked ones.
    fn queued(&self, inadmissible: bool) -> BTreeMap<String, BTreeSet<String>> {
        let of = |queue: &String| -> BTreeSet<String> {
            let pending = self.engine.pending(queue);
            pending.filter(|entry| entry.inadmissible == inadmissible).map(|entry| entry.key.to_string()).collect()
        };
        let all = self.cluster_queues.keys().map(|queue| (queue.clone(), of(queue)));
        all.filter(|(_, workloads)| !workloads.is_empty()).collect()
    }
}

/// What the write of a reservation changes: it ends an earlier eviction, and the checks that apply are listed.
fn written(workload: &mut Workload, checks: &[Name]) {
    let state = |name: &Name| {
        let listed = workload.checks.iter().find(|check| check.name == *name);
        CheckState { name: name.clone(), state: listed.map_or(CheckPhase::Pending, |check| check.state) }
    };
    workload.checks = checks.iter().map(state).collect();
    workload.admitted = edits::all_ready(&workload.checks);
    workload.evicted = false;
    workload.queue_time = workload.created;
}
