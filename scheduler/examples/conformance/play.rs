//! Plays a scenario: the engine decides, and this does what controllers would do about it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::Value;
use switchyard_scheduler::{
    Decision, Engine, Event, LocalQueueKey, Name, Preemption, RefusedReason, Settings, Time, Workload,
};

use crate::compare::{Admitted, CycleOutcome, Outcome};
use crate::{objects, quantity};

/// A cluster with only the engine in it.
struct Player {
    engine: Engine,
    workloads: BTreeMap<String, Workload>,
    /// Those with quota. As in Kueue's unit tests, no watch event tells the engine that its decisions were written.
    admitted: BTreeSet<String>,
    cluster_queues: BTreeSet<String>,
    local_queues: BTreeMap<LocalQueueKey, Name>,
    now: Time,
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
    let mut player = Player {
        engine: Engine::preempting(settings, preemption),
        workloads: BTreeMap::new(),
        admitted: BTreeSet::new(),
        cluster_queues: BTreeSet::new(),
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
    fn apply(&mut self, event: Event) {
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
        for object in objects::list(&scenario["cohorts"]) {
            self.apply(Event::Cohort(objects::cohort(object)?));
        }
        for object in objects::list(&scenario["clusterQueues"]) {
            self.cluster_queues.insert(objects::name(object)?.to_string());
            self.apply(Event::ClusterQueue(objects::cluster_queue(object)?));
        }
        for object in objects::list(&scenario["localQueues"]) {
            let queue = objects::local_queue(object)?;
            self.local_queues.insert(queue.key.clone(), queue.cluster_queue.clone());
            self.apply(Event::LocalQueue(queue));
        }
        Ok(())
    }

    /// Steps 2 to 5 of the scenarios' rules.
    fn edit(&mut self, step: &Value) -> Result<(), String> {
        for name in objects::list(&step["finish"]).iter().filter_map(Value::as_str) {
            if self.admitted.contains(name) {
                self.delete(name);
            }
        }
        for name in objects::list(&step["delete"]).iter().filter_map(Value::as_str) {
            self.delete(name);
        }
        for (name, pods) in step["reclaim"].as_object().into_iter().flatten() {
            let reclaimable = objects::reclaimable(pods)?;
            if self.admitted.contains(name) {
                self.change(name, |workload| workload.reclaimable = reclaimable);
                self.retry_beside(name);
            }
        }
        for (name, priority) in step["priority"].as_object().into_iter().flatten() {
            let priority = priority.as_i64().and_then(|p| i32::try_from(p).ok()).ok_or("a priority is a number")?;
            self.change(name, |workload| workload.priority = priority);
            if self.admitted.contains(name) {
                self.retry_beside(name);
            }
        }
        for object in objects::list(&step["apply"]) {
            match object["kind"].as_str() {
                Some("Cohort") => self.apply(Event::Cohort(objects::cohort(object)?)),
                Some("ClusterQueue") => {
                    let queue = objects::cluster_queue(object)?;
                    let cluster_queue = queue.name.clone();
                    self.apply(Event::ClusterQueue(queue));
                    // Applying what is there already is an event for Kueue's queues, though not for ours.
                    self.apply(Event::RetryAll { cluster_queue });
                }
                kind => return Err(format!("cannot apply a {kind:?}")),
            }
        }
        for object in objects::list(&step["submit"]) {
            let workload = objects::workload(object)?;
            self.workloads.insert(workload.key.to_string(), workload.clone());
            self.apply(Event::Workload(Box::new(workload)));
        }
        self.engine.flush_inadmissible(self.now);
        Ok(())
    }

    fn delete(&mut self, name: &str) {
        self.admitted.remove(name);
        if let Some(workload) = self.workloads.remove(name) {
            self.apply(Event::WorkloadDeleted { key: workload.key });
        }
    }

    fn change(&mut self, name: &str, change: impl FnOnce(&mut Workload)) {
        let Some(workload) = self.workloads.get_mut(name) else { return };
        change(workload);
        let event = Event::Workload(Box::new(workload.clone()));
        self.apply(event);
    }

    /// The scenarios' rules take any edit of a workload with quota for one that may let others in, even one that says
    /// what is there already. The engine does not: no controller would see such an edit.
    fn retry_beside(&mut self, name: &str) {
        let Some(workload) = self.workloads.get(name) else { return };
        let queue = LocalQueueKey::new(workload.key.namespace.clone(), workload.queue_name.as_str());
        if let Some(cluster_queue) = self.local_queues.get(&queue).cloned() {
            self.apply(Event::RetryAll { cluster_queue });
        }
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
        let mut victims = BTreeMap::new();
        for decision in decisions {
            match decision {
                Decision::Reserve { key, admission, .. } => {
                    outcome.admitted.insert(key.to_string(), Admitted::of(&admission));
                    // The write of the admission ends an earlier eviction.
                    self.workloads.entry(key.to_string()).and_modify(|workload| workload.evicted = false);
                    self.admitted.insert(key.to_string());
                }
                Decision::Preempt { key, reason, .. } => {
                    victims.insert(key.to_string(), reason.to_owned());
                }
                Decision::Pending { .. } => {}
            }
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
        self.admitted.remove(name);
        let Some(workload) = self.workloads.get(name) else { return };
        let (key, uid) = (workload.key.clone(), workload.uid.clone());
        let reason = RefusedReason::WriteFailed { message: "preempted".to_owned() };
        self.apply(Event::AdmissionRefused { key, uid, reason });
        self.change(name, |workload| {
            workload.evicted = true;
            workload.requeued = Some(true);
        });
    }

    /// The queued workloads by ClusterQueue: those to be tried, or the parked ones.
    fn queued(&self, inadmissible: bool) -> BTreeMap<String, BTreeSet<String>> {
        let of = |queue: &String| -> BTreeSet<String> {
            let pending = self.engine.pending(queue).into_iter();
            pending.filter(|entry| entry.inadmissible == inadmissible).map(|entry| entry.key.to_string()).collect()
        };
        let all = self.cluster_queues.iter().map(|queue| (queue.clone(), of(queue)));
        all.filter(|(_, workloads)| !workloads.is_empty()).collect()
    }
}
