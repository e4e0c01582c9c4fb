//! Plays a scenario: the engine decides, and the player reacts like controllers.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::Value;
use switchyard_scheduler::{
    Admission, CheckPhase, CheckState, Decision, Engine, EngineGates, EngineSettings, Event,
    LocalQueue, LocalQueueKey, Name, PodSetUpdate, PreemptionSettings, RefusedReason, StopPolicy,
    Time, Workload,
};

use crate::compare::{Admitted, CycleOutcome, Outcome};
use crate::edits::{self, EvictionHold};
use crate::topology::Nodes;
use crate::{objects, quantity, topology};

/// A cluster that consists of the engine.
pub(crate) struct Player {
    pub(crate) engine: Engine,
    pub(crate) workloads: BTreeMap<String, Workload>,
    /// Workloads with quota. As in Kueue's unit tests, no watch event confirms the engine's
    /// decisions.
    pub(crate) reserved: BTreeMap<String, Admission>,
    /// The cycles that decided these reservations.
    pub(crate) cycles: BTreeMap<String, u64>,
    /// Workloads that must not be queued.
    pub(crate) eviction_holds: BTreeMap<String, EvictionHold>,
    pub(crate) cluster_queues: BTreeMap<String, StopPolicy>,
    pub(crate) local_queues: BTreeMap<LocalQueueKey, LocalQueue>,
    pub(crate) now: Time,
    /// Watch events confirm reservations.
    confirms: bool,
    pub(crate) nodes: Nodes,
    /// `podSetUpdates` by workload and admission check.
    pub(crate) updates: BTreeMap<String, BTreeMap<String, Vec<PodSetUpdate>>>,
    keeps_single_pods: bool,
    /// The last message of each pending workload.
    messages: BTreeMap<String, String>,
    /// The engine's time for each cycle.
    times: Vec<Duration>,
}

/// The engine's decisions in each step.
pub(crate) fn play(scenario: &Value) -> Result<Vec<Outcome>, String> {
    play_timed(scenario).map(|(outcomes, _)| outcomes)
}

/// The engine's decisions in each step, and its time for each cycle.
pub(crate) fn play_timed(scenario: &Value) -> Result<(Vec<Outcome>, Vec<Duration>), String> {
    let start = quantity::time(scenario["start"].as_str().unwrap_or_default())?;
    let settings = EngineSettings {
        requeue_window: Duration::ZERO,
        fair_sharing: scenario["fairSharing"].as_bool().unwrap_or(false),
        gates: EngineGates {
            preserve_scan_progress: scenario["gates"]["FlavorFungibilityPreserveScanProgress"]
                .as_bool()
                .unwrap_or(true),
            ..EngineGates::default()
        },
        topology: topology::gates(scenario),
        ..EngineSettings::default()
    };
    let preemption = PreemptionSettings {
        recompute_overlaps: recomputes_overlaps(scenario),
        ..PreemptionSettings::default()
    };
    let topology = settings.topology;
    let engine = Engine::with_preemption(settings, preemption);
    let sharing = objects::admission_fair_sharing(&scenario["admissionFairSharing"])?;
    let mut player = Player {
        // Past usage counts for admitted workloads only.
        confirms: sharing.is_some() || topology.is_some(),
        nodes: Nodes::default(),
        updates: BTreeMap::new(),
        keeps_single_pods: topology.is_some_and(|gates| gates.keep_single_pods),
        messages: BTreeMap::new(),
        times: Vec::new(),
        engine: match sharing {
            Some(sharing) => engine.with_admission_fair_sharing(sharing),
            None => engine,
        },
        workloads: BTreeMap::new(),
        reserved: BTreeMap::new(),
        cycles: BTreeMap::new(),
        eviction_holds: BTreeMap::new(),
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
    Ok((outcomes, player.times))
}

/// Whether the scenario was recorded with Kueue's gate
/// `RecomputeAssignmentUponPreemptionTargetsOverlap`. Its `gates` decide, else its name: scenarios
/// with edits have the defaults of Kueue 0.19, the others those of 0.20.
fn recomputes_overlaps(scenario: &Value) -> bool {
    let edited = scenario["name"].as_str().is_some_and(|name| name.starts_with("dyn-"));
    scenario["gates"]["RecomputeAssignmentUponPreemptionTargetsOverlap"]
        .as_bool()
        .unwrap_or(!edited)
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
        self.set_up_topologies(scenario)?;
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
            if let Some(consumed) = objects::past_usage(object)? {
                self.apply(Event::PastUsage { queue: key, consumed });
            }
        }
        self.engine.flush_inadmissible(self.now);
        Ok(())
    }

    /// Step 6: cycles until nothing changes.
    fn settle(&mut self) -> Outcome {
        let mut outcome = Outcome::default();
        let mut unmoved = 0;
        for _ in 0..200 {
            let second_pass = self.engine.next_second_pass();
            let patience = if second_pass.is_some() { 40 } else { 3 };
            if !(self.engine.has_heads(self.now) || second_pass.is_some()) || unmoved >= patience {
                break;
            }
            let before = self.queued(false);
            self.now = self.now.plus(Duration::from_secs(1));
            let cycle = self.cycle();
            let moved = cycle.decides();
            unmoved = if moved || before != self.queued(false) { 0 } else { unmoved + 1 };
            if moved {
                outcome.cycles.push(cycle);
            }
        }
        outcome.pending = self.queued(false);
        outcome.inadmissible = self.queued(true);
        outcome.second_pass = self.engine.second_pass().map(ToString::to_string).collect();
        outcome.messages = self.messages.clone();
        outcome
    }

    fn cycle(&mut self) -> CycleOutcome {
        let mut outcome = CycleOutcome { time: self.now, ..CycleOutcome::default() };
        let decisions = self.timed_cycle();
        let (mut victims, mut fresh, mut evicted) = (BTreeMap::new(), Vec::new(), Vec::new());
        for decision in decisions {
            match decision {
                Decision::Reserve { key, cycle, admission, checks, .. } => {
                    self.cycles.insert(key.to_string(), cycle);
                    outcome.admitted.insert(key.to_string(), Admitted::of(&admission, &checks));
                    self.workloads.entry(key.to_string()).and_modify(|workload| {
                        written(workload, &checks);
                        workload.admitted &= !topology::is_pending(&admission);
                    });
                    self.messages.remove(&key.to_string());
                    self.reserved.insert(key.to_string(), admission.clone());
                    fresh.push((key.to_string(), admission));
                }
                Decision::Preempt { key, reason, .. } => {
                    victims.insert(key.to_string(), reason.to_owned());
                }
                Decision::Reassign { key, admission, .. } => {
                    let name = key.to_string();
                    outcome.reassigned.insert(name.clone(), Admitted::second_pass(&admission));
                    self.reserved.insert(name.clone(), admission.clone());
                    if let Some(workload) = self.workloads.get_mut(&name) {
                        workload.unhealthy_nodes.clear();
                        workload.admitted =
                            edits::all_ready(&workload.checks) && !topology::is_pending(&admission);
                    }
                    fresh.push((name, admission));
                }
                Decision::Evict { key, .. } => {
                    evicted.push(key.to_string());
                }
                Decision::Pending { key, reason, .. }
                | Decision::SecondPassFailed { key, reason, .. } => {
                    self.messages.insert(key.to_string(), reason.message());
                }
                Decision::Migrate { .. } => {}
            }
        }
        if !self.confirms {
            fresh.clear();
        }
        for (name, admission) in fresh {
            let now = self.now;
            self.change(&name, |workload| {
                workload.reservation = Some(admission);
                // A new topology assignment is no new reservation.
                workload.reserved_at.get_or_insert(now);
            });
        }
        for name in victims.keys() {
            self.evict(name, true);
        }
        for name in evicted {
            // A workload that is a single pod ends with it.
            let requeued = !(self.keeps_single_pods
                && self.workloads.get(&name).is_some_and(|wl| wl.owned_by_pod));
            if !requeued {
                self.eviction_holds.insert(name.clone(), EvictionHold::Check);
            }
            self.evict(&name, requeued);
            outcome.evicted.insert(name, "NodeFailures".to_owned());
        }
        // A workload that loses its quota in the cycle has no topology assignment.
        outcome.reassigned.retain(|name, _| !victims.contains_key(name));
        outcome.preempted = victims;
        self.engine.flush_inadmissible(self.now);
        outcome
    }

    #[expect(
        clippy::disallowed_types,
        clippy::disallowed_methods,
        reason = "the engine's time is measured; it decides by `now`"
    )]
    fn timed_cycle(&mut self) -> Vec<Decision> {
        let start = std::time::Instant::now();
        let decisions = self.engine.cycle(self.now).decisions;
        self.times.push(start.elapsed());
        decisions
    }

    /// Removes the quota and queues the workload again.
    fn evict(&mut self, name: &str, requeued: bool) {
        self.reserved.remove(name);
        self.updates.remove(name);
        let Some(workload) = self.workloads.get(name) else { return };
        let key = workload.key.clone();
        if let Some(cycle) = self.cycles.remove(name) {
            let reason = RefusedReason::WriteFailed { message: "preempted".to_owned() };
            self.apply(Event::AdmissionRefused { key, cycle: Some(cycle), reason });
        }
        self.change(name, |workload| {
            edits::reset(workload);
            (workload.reservation, workload.reserved_at) = (None, None);
            workload.evicted = true;
            workload.requeued = Some(requeued);
        });
    }

    /// The pending workloads by ClusterQueue: those that cycles try, or the parked ones.
    fn queued(&self, inadmissible: bool) -> BTreeMap<String, BTreeSet<String>> {
        let of = |queue: &String| -> BTreeSet<String> {
            let pending = self.engine.pending(queue);
            pending
                .filter(|entry| entry.inadmissible == inadmissible)
                .map(|entry| entry.key.to_string())
                .collect()
        };
        let all = self.cluster_queues.keys().map(|queue| (queue.clone(), of(queue)));
        all.filter(|(_, workloads)| !workloads.is_empty()).collect()
    }
}

/// Applies the write of a reservation: ends an earlier eviction and lists the admission checks.
fn written(workload: &mut Workload, checks: &[Name]) {
    let state = |name: &Name| {
        let listed = workload.checks.iter().find(|check| check.name == *name);
        CheckState {
            name: name.clone(),
            state: listed.map_or(CheckPhase::Pending, |check| check.state),
        }
    };
    workload.checks = checks.iter().map(state).collect();
    workload.admitted = edits::all_ready(&workload.checks);
    workload.evicted = false;
    workload.queue_time = workload.created;
}
