//! A world around an engine: the objects as an API would hold them, and what controllers do about decisions.

use std::collections::BTreeMap;
use std::time::Duration;

use switchyard_scheduler::{
    Admission, AdmissionCheck, Amount, ClusterQueue, ClusterQueueView, Cohort, Decision, Engine, Event, LocalQueue,
    LocalQueueKey, LocalQueueView, Name, Preemption, QueueingStrategy, RefusedReason, ResourceFlavor, Settings, Time,
    Workload, WorkloadKey, record,
};

use crate::oracle::Oracle;
use crate::script::{Answer, Kind, Step};

/// A flavor and a resource.
pub(crate) type Pair = (Name, Name);

/// An engine and the objects that it was told of.
pub(crate) struct World {
    pub(crate) engine: Engine,
    /// Every decision, in words.
    pub(crate) log: Vec<String>,
    /// For whom others were told to go in the last step.
    pub(crate) preemptors: Vec<WorkloadKey>,
    /// Who was told to go in the last step.
    victims: Vec<WorkloadKey>,
    /// Recordings that are under way.
    pub(crate) recordings: Vec<String>,
    kind: Kind,
    now: Time,
    namespaces: BTreeMap<Name, bool>,
    flavors: BTreeMap<Name, ResourceFlavor>,
    queues: BTreeMap<Name, ClusterQueue>,
    cohorts: BTreeMap<Name, Cohort>,
    local_queues: BTreeMap<LocalQueueKey, LocalQueue>,
    checks: BTreeMap<Name, bool>,
    workloads: BTreeMap<WorkloadKey, Workload>,
    /// Decided and neither confirmed nor refused yet.
    open: BTreeMap<WorkloadKey, Admission>,
}

fn namespace(name: &Name, labelled: bool) -> Event {
    let labels = if labelled { BTreeMap::from([("team".into(), "a".into())]) } else { BTreeMap::new() };
    Event::Namespace { name: name.clone(), labels }
}

fn check(name: &Name, active: bool) -> Event {
    Event::AdmissionCheck(AdmissionCheck { name: name.clone(), controller: "example.com/check".into(), active })
}

impl World {
    pub(crate) fn new(kind: Kind) -> Self {
        let settings = Settings { fair_sharing: matches!(kind, Kind::Fair), ..Settings::default() };
        Self {
            engine: match kind {
                Kind::Plain => Engine::new(settings),
                Kind::Classical | Kind::Fair => Engine::preempting(settings, Preemption::default()),
            },
            log: Vec::new(),
            preemptors: Vec::new(),
            victims: Vec::new(),
            recordings: Vec::new(),
            kind,
            now: Time::from_secs(1000),
            namespaces: BTreeMap::new(),
            flavors: BTreeMap::new(),
            queues: BTreeMap::new(),
            cohorts: BTreeMap::new(),
            local_queues: BTreeMap::new(),
            checks: BTreeMap::new(),
            workloads: BTreeMap::new(),
            open: BTreeMap::new(),
        }
    }

    fn apply(&mut self, event: Event) {
        self.record(|now| record::event(&event, now));
        self.engine.apply(event, self.now);
    }

    /// Begins one more recording.
    #[expect(clippy::expect_used, reason = "everything can be recorded, or the law is broken")]
    pub(crate) fn begin_recording(&mut self) {
        self.recordings.push(record::header(&self.engine, self.now).expect("a state can be written"));
    }

    #[expect(clippy::expect_used, reason = "everything can be recorded, or the law is broken")]
    fn record(&mut self, line: impl FnOnce(Time) -> serde_json::Result<String>) {
        if !self.recordings.is_empty() {
            let line = line(self.now).expect("what happens can be written");
            self.recordings.iter_mut().for_each(|recording| recording.push_str(&line));
        }
    }

    /// What the controller does when something becomes due.
    pub(crate) fn flush(&mut self) {
        self.record(record::flush);
        self.engine.flush_inadmissible(self.now);
    }

    /// Does a step; who was admitted by it.
    pub(crate) fn step(&mut self, step: &Step) -> Vec<WorkloadKey> {
        self.preemptors.clear();
        self.victims.clear();
        self.perform(step)
    }

    fn perform(&mut self, step: &Step) -> Vec<WorkloadKey> {
        match step {
            Step::Namespace { name, labelled } => {
                self.namespaces.insert(name.clone(), *labelled);
            }
            Step::Flavor(flavor) => {
                self.flavors.insert(flavor.name.clone(), flavor.clone());
            }
            Step::FlavorDeleted(name) => {
                self.flavors.remove(name);
            }
            Step::Queue(queue) => {
                self.queues.insert(queue.name.clone(), queue.clone());
            }
            Step::QueueDeleted(name) => {
                self.queues.remove(name);
            }
            Step::Cohort(cohort) => {
                self.cohorts.insert(cohort.name.clone(), cohort.clone());
            }
            Step::CohortDeleted(name) => {
                self.cohorts.remove(name);
            }
            Step::LocalQueue(queue) => {
                self.local_queues.insert(queue.key.clone(), queue.clone());
            }
            Step::LocalQueueDeleted(key) => {
                self.local_queues.remove(key);
            }
            Step::Check { name, active } => {
                self.checks.insert(name.clone(), *active);
            }
            Step::Submit(workload) => self.submit(workload),
            Step::Deleted(key) => {
                self.workloads.remove(key);
                self.open.remove(key);
            }
            Step::Finished(key) => self.edit(key, |workload| workload.finished = workload.reservation.is_some()),
            Step::Evicted(key) => self.edit(key, |workload| {
                workload.evicted |= workload.reservation.is_some();
                workload.reservation = None;
                workload.admitted = false;
            }),
            Step::Reprioritised(key, priority) => self.edit(key, |workload| workload.priority = *priority),
            Step::Reclaimed(key, pods) => self.edit(key, |workload| {
                workload.reclaimable = workload.pod_sets.iter().map(|set| (set.name.clone(), *pods)).collect();
            }),
            Step::Retried(_) => {}
            Step::Cycle(answers) => return self.cycle_with(answers),
            Step::Wait(millis) => self.now = self.now.plus(Duration::from_millis(*millis)),
        }
        self.say(step);
        Vec::new()
    }

    /// A workload that exists already keeps what the API does not let users change.
    fn submit(&mut self, workload: &Workload) {
        let same = self.workloads.get(&workload.key).filter(|known| known.uid == workload.uid);
        let known = same.map(|known| (known.reservation.clone(), known.reserved_at, known.admitted, known.finished));
        let (reservation, reserved_at, admitted, finished) = known.unwrap_or_default();
        if same.is_none() || !workload.active {
            // Another workload, or one that may not have quota any more: nothing is to be answered.
            self.open.remove(&workload.key);
        }
        let workload = Workload { reservation, reserved_at, admitted, finished, ..workload.clone() };
        self.workloads.insert(workload.key.clone(), workload);
    }

    fn edit(&mut self, key: &WorkloadKey, change: impl FnOnce(&mut Workload)) {
        if let Some(workload) = self.workloads.get_mut(key) {
            change(workload);
        }
    }

    /// Tells the engine what a step made of the objects.
    fn say(&mut self, step: &Step) {
        let event = match step {
            Step::Namespace { name, labelled } => namespace(name, *labelled),
            Step::Flavor(flavor) => Event::ResourceFlavor(flavor.clone()),
            Step::FlavorDeleted(name) => Event::ResourceFlavorDeleted { name: name.clone() },
            Step::Queue(queue) => Event::ClusterQueue(queue.clone()),
            Step::QueueDeleted(name) => Event::ClusterQueueDeleted { name: name.clone() },
            Step::Cohort(cohort) => Event::Cohort(cohort.clone()),
            Step::CohortDeleted(name) => Event::CohortDeleted { name: name.clone() },
            Step::LocalQueue(queue) => Event::LocalQueue(queue.clone()),
            Step::LocalQueueDeleted(key) => Event::LocalQueueDeleted { key: key.clone() },
            Step::Check { name, active } => check(name, *active),
            Step::Deleted(key) => Event::WorkloadDeleted { key: key.clone() },
            Step::Retried(key) => Event::Retry { key: key.clone() },
            Step::Submit(workload) => return self.say_workload(&workload.key),
            Step::Finished(key) | Step::Evicted(key) | Step::Reprioritised(key, _) | Step::Reclaimed(key, _) => {
                return self.say_workload(key);
            }
            Step::Cycle(_) | Step::Wait(_) => return,
        };
        self.apply(event);
    }

    fn say_workload(&mut self, key: &WorkloadKey) {
        if let Some(workload) = self.workloads.get(key) {
            let event = Event::Workload(Box::new(workload.clone()));
            self.apply(event);
        }
    }

    /// The same event once more. Requests are not facts, and are not repeated.
    pub(crate) fn say_again(&mut self, step: &Step) {
        if !matches!(step, Step::Retried(_)) {
            self.say(step);
        }
    }

    /// A cycle of which everything is confirmed.
    pub(crate) fn cycle(&mut self) {
        self.now = self.now.plus(Duration::from_secs(1));
        self.cycle_with(&[Answer::Confirm]);
    }

    fn cycle_with(&mut self, answers: &[Answer]) -> Vec<WorkloadKey> {
        let cycle = self.engine.cycle(self.now);
        self.record(|now| record::cycle(&cycle, now));
        self.log.extend(cycle.decisions.iter().map(|decision| format!("{decision:?}")));
        let mut admitted = Vec::new();
        for decision in cycle.decisions {
            match decision {
                Decision::Reserve { key, admission, .. } => {
                    self.open.insert(key.clone(), admission);
                    admitted.push(key);
                }
                Decision::Preempt { key, preemptor, .. } => {
                    self.perform(&Step::Evicted(key.clone()));
                    self.victims.push(key);
                    self.preemptors.push(preemptor);
                }
                Decision::Pending { .. } => {}
            }
        }
        for (key, answer) in admitted.iter().zip(answers.iter().cycle()) {
            self.answer(key, *answer);
        }
        admitted
    }

    fn answer(&mut self, key: &WorkloadKey, answer: Answer) {
        let Some((admission, workload)) = self.open.get(key).cloned().zip(self.workloads.get(key)) else { return };
        let reason = match answer {
            Answer::Leave => return,
            Answer::Confirm => {
                let now = self.now;
                self.edit(key, |workload| {
                    workload.reservation = Some(admission);
                    workload.reserved_at = Some(now);
                    workload.admitted = true;
                    workload.evicted = false;
                });
                self.open.remove(key);
                return self.say_workload(key);
            }
            Answer::Refuse => RefusedReason::WriteFailed { message: "conflict".into() },
            Answer::GiveBack => {
                let retry_at = Some(self.now.plus(Duration::from_secs(3)));
                RefusedReason::GivenBack { message: "no cluster took it".into(), retry_at }
            }
        };
        let event = Event::AdmissionRefused { key: key.clone(), uid: workload.uid.clone(), reason };
        self.open.remove(key);
        self.apply(event);
    }

    pub(crate) fn delete_all_workloads(&mut self) {
        for key in std::mem::take(&mut self.workloads).into_keys() {
            self.apply(Event::WorkloadDeleted { key });
        }
    }

    /// A new engine that is told of the same objects, from the first to the last or the other way round. What is
    /// still open counts as confirmed.
    pub(crate) fn restarted(&self, backwards: bool) -> Self {
        let mut events: Vec<Event> = Vec::new();
        events.extend(self.namespaces.iter().map(|(name, labelled)| namespace(name, *labelled)));
        events.extend(self.flavors.values().cloned().map(Event::ResourceFlavor));
        events.extend(self.checks.iter().map(|(name, active)| check(name, *active)));
        events.extend(self.cohorts.values().cloned().map(Event::Cohort));
        events.extend(self.queues.values().cloned().map(Event::ClusterQueue));
        events.extend(self.local_queues.values().cloned().map(Event::LocalQueue));
        let mut fresh = Self::new(self.kind);
        fresh.now = self.now;
        for workload in self.workloads.values() {
            let mut workload = workload.clone();
            if let Some(admission) = self.open.get(&workload.key).filter(|_| workload.reservation.is_none()) {
                workload.reservation = Some(admission.clone());
            }
            fresh.workloads.insert(workload.key.clone(), workload.clone());
            events.push(Event::Workload(Box::new(workload)));
        }
        if backwards {
            events.reverse();
        }
        for event in events {
            fresh.apply(event);
        }
        fresh.queues = self.queues.clone();
        fresh.local_queues = self.local_queues.clone();
        fresh
    }

    pub(crate) fn queues(&self) -> impl Iterator<Item = ClusterQueueView<'_>> {
        self.queues.keys().filter_map(|name| self.engine.cluster_queue(name))
    }

    pub(crate) fn local_queues(&self) -> impl Iterator<Item = LocalQueueView<'_>> {
        self.local_queues.keys().filter_map(|key| self.engine.local_queue(key))
    }

    /// Where a queue is over what the tree allows, and by how much (below zero); zero elsewhere.
    pub(crate) fn debts(&self) -> Vec<(Name, Pair, Amount)> {
        let of = |view: ClusterQueueView<'_>| {
            let name = view.name.clone();
            let debt = |quota: switchyard_scheduler::ResourceQuota| {
                (name.clone(), (quota.flavor, quota.resource), quota.available.min(Amount::ZERO))
            };
            view.quota.into_iter().map(debt).collect::<Vec<_>>()
        };
        self.queues().flat_map(of).collect()
    }

    pub(crate) fn available(&self, queue: &str, pair: &Pair) -> Amount {
        let quotas = self.engine.cluster_queue(queue).into_iter().flat_map(|view| view.quota);
        let quota = quotas.into_iter().find(|quota| (&quota.flavor, &quota.resource) == (&pair.0, &pair.1));
        quota.map_or(Amount::ZERO, |quota| quota.available)
    }

    /// The queues and pairs of which these admissions use something.
    pub(crate) fn used_by(&self, admitted: &[WorkloadKey]) -> Vec<(Name, Pair)> {
        let mut used = Vec::new();
        for admission in admitted.iter().filter_map(|key| self.admission(key)) {
            for pod_set in &admission.pod_sets {
                let some = pod_set.flavors.iter().filter(|(resource, _)| pod_set.usage[*resource] > Amount::ZERO);
                used.extend(
                    some.map(|(resource, flavor)| {
                        (admission.cluster_queue.clone(), (flavor.clone(), resource.clone()))
                    }),
                );
            }
        }
        used
    }

    fn admission(&self, key: &WorkloadKey) -> Option<&Admission> {
        self.workloads.get(key).and_then(|workload| workload.reservation.as_ref()).or_else(|| self.open.get(key))
    }

    /// Who was admitted by which queue.
    pub(crate) fn admissions_of(&self, admitted: &[WorkloadKey]) -> Vec<(Name, WorkloadKey)> {
        let of = |key: &WorkloadKey| Some((self.admission(key)?.cluster_queue.clone(), key.clone()));
        admitted.iter().filter_map(of).collect()
    }

    /// The first workload of each strict queue that is neither parked nor about to come back.
    pub(crate) fn strict_heads(&mut self) -> BTreeMap<Name, WorkloadKey> {
        self.flush();
        let strict = self.queues.values().filter(|queue| queue.strategy == QueueingStrategy::StrictFIFO);
        let head = |queue: &ClusterQueue| {
            let pending = self.engine.pending(&queue.name);
            let head = pending.into_iter().find(|entry| !entry.inadmissible)?;
            Some((queue.name.clone(), head.key.clone()))
        };
        strict.filter_map(head).collect()
    }

    /// The workloads that neither finished nor have quota.
    pub(crate) fn without_quota(&self) -> Vec<WorkloadKey> {
        let waits = |workload: &&Workload| {
            !workload.finished && workload.reservation.is_none() && !self.open.contains_key(&workload.key)
        };
        self.workloads.values().filter(waits).map(|workload| workload.key.clone()).collect()
    }

    /// What a queue may still use of a pair, worked out from the objects; `None` where that is not to be said.
    pub(crate) fn left(&self, queue: &Name, pair: &Pair) -> Option<i128> {
        let mut used: BTreeMap<Name, i128> = BTreeMap::new();
        for (key, workload) in self.workloads.iter().filter(|(_, workload)| workload.active && !workload.finished) {
            let Some(admission) = self.admission(key) else { continue };
            for assigned in admission.pod_sets.iter().filter(|assigned| assigned.flavors.get(&pair.1) == Some(&pair.0))
            {
                let total = assigned.usage.get(&pair.1).map_or(0, |amount| amount.get());
                let set = workload.pod_sets.iter().find(|set| set.name == assigned.name);
                let gone = workload.reclaimable.get(&assigned.name).copied().unwrap_or(0);
                let left = set.map_or(assigned.count, |set| (set.count - gone).max(0)).min(assigned.count);
                let pods = i64::from(assigned.count).max(1);
                let held = if left < assigned.count { total / pods * i64::from(left) } else { total };
                *used.entry(admission.cluster_queue.clone()).or_default() += i128::from(held);
            }
        }
        Oracle { queues: &self.queues, cohorts: &self.cohorts, pair, used }.left(self.queues.get_key_value(queue)?.0)
    }

    /// Whether the objects show all that the engine reserved, so that they alone tell what is free.
    pub(crate) fn everything_is_written(&self) -> bool {
        self.open.keys().all(|key| self.victims.contains(key))
    }

    pub(crate) fn has_one_pod_set(&self, key: &WorkloadKey) -> bool {
        self.workloads.get(key).is_some_and(|workload| workload.pod_sets.len() == 1)
    }

    /// Whether a workload is admitted if nobody else waits, and nobody else goes.
    pub(crate) fn fits_alone(&self, key: &WorkloadKey) -> bool {
        let mut others = Self::new(Kind::Plain);
        others.now = self.now;
        others.namespaces = self.namespaces.clone();
        others.flavors = self.flavors.clone();
        others.queues = self.queues.clone();
        others.cohorts = self.cohorts.clone();
        others.local_queues = self.local_queues.clone();
        others.checks = self.checks.clone();
        others.open = self.open.clone();
        let stays = |known: &WorkloadKey, workload: &Workload| {
            // A victim whose reservation was not written yet still goes.
            let holds = workload.reservation.is_some() || self.open.contains_key(known);
            known == key || (holds && !self.victims.contains(known))
        };
        let all = self.workloads.iter().filter(|(known, workload)| stays(known, workload));
        others.workloads = all.map(|(known, workload)| (known.clone(), workload.clone())).collect();
        if let Some(workload) = others.workloads.get_mut(key) {
            // It was tried, whatever its status has said since it was queued.
            (workload.requeued, workload.requeue_at) = (None, None);
        }
        let mut alone = others.restarted(false);
        (0..3).any(|_| {
            alone.cycle();
            alone.workloads.get(key).is_some_and(|workload| workload.reservation.is_some())
        })
    }

    /// Why an admission should not have been, as far as the objects tell.
    pub(crate) fn objection(&self, key: &WorkloadKey) -> Option<String> {
        let admission = self.admission(key)?;
        let workload = self.workloads.get(key)?;
        if !workload.active || workload.finished || workload.held || workload.deleting {
            return Some("it must not be queued".into());
        }
        let door = LocalQueueKey::new(key.namespace.clone(), workload.queue_name.as_str());
        let queue = self.local_queues.get(&door).map(|door| &door.cluster_queue);
        if queue != Some(&admission.cluster_queue) {
            return Some(format!("its LocalQueue is of {queue:?}"));
        }
        let Some(queue) = self.queues.get(&admission.cluster_queue) else {
            return Some("there is no such queue".into());
        };
        if queue.deleting || queue.stop_policy != switchyard_scheduler::StopPolicy::None {
            return Some("the queue admits nobody".into());
        }
        let flavors = |resource: &Name, flavor: &Name| {
            let groups = queue.resource_groups.iter().filter(|group| group.covered_resources.contains(resource));
            groups.flat_map(|group| &group.flavors).any(|offered| offered.name == *flavor)
        };
        for (pod_set, assigned) in workload.pod_sets.iter().zip(&admission.pod_sets) {
            for (resource, amount) in &pod_set.requests {
                let flavor = assigned.flavors.get(resource);
                let given = flavor.is_some_and(|flavor| flavors(resource, flavor) && self.flavors.contains_key(flavor));
                if !given && *amount > Amount::ZERO && assigned.count > 0 {
                    return Some(format!("{resource} has the flavor {flavor:?}"));
                }
            }
        }
        (workload.pod_sets.len() != admission.pod_sets.len()).then(|| "not all pod sets are admitted".into())
    }
}
