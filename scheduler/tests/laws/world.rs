//! A world around an engine: the objects of an API server, and controllers that perform decisions.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use switchyard_scheduler::{
    Admission, AdmissionCheck, AdmissionFairSharing, Amount, ClusterQueue, ClusterQueueView,
    Cohort, Decision, Engine, EngineGates, EngineSettings, Event, LocalQueue, LocalQueueKey,
    LocalQueueView, Name, PreemptionSettings, QueueingStrategy, RefusedReason, ResourceFlavor,
    Time, Workload, WorkloadKey, record,
};

use crate::oracle::QuotaOracle;
use crate::script::{Answer, EngineKind, Step};

/// A flavor and a resource.
pub(crate) type Pair = (Name, Name);

/// An engine and the objects in its events.
pub(crate) struct World {
    pub(crate) engine: Engine,
    /// Every decision as text.
    pub(crate) log: Vec<String>,
    /// The preemptors of the last step.
    pub(crate) preemptors: Vec<WorkloadKey>,
    /// The victims of the last step.
    pub(crate) victims: Vec<Victim>,
    /// Running recordings.
    pub(crate) recordings: Vec<String>,
    /// Victims leave at once.
    pub(crate) victims_leave_at_once: bool,
    pub(crate) kind: EngineKind,
    pub(crate) now: Time,
    pub(crate) namespaces: BTreeMap<Name, bool>,
    pub(crate) flavors: BTreeMap<Name, ResourceFlavor>,
    pub(crate) queues: BTreeMap<Name, ClusterQueue>,
    pub(crate) cohorts: BTreeMap<Name, Cohort>,
    pub(crate) local_queues: BTreeMap<LocalQueueKey, LocalQueue>,
    pub(crate) checks: BTreeMap<Name, bool>,
    pub(crate) workloads: BTreeMap<WorkloadKey, Workload>,
    /// Decided reservations without an answer.
    pub(crate) open: BTreeMap<WorkloadKey, (u64, Admission)>,
    /// The last refusal of each workload since its last reservation.
    refusals: BTreeMap<WorkloadKey, Event>,
    /// Victims that still have their quota.
    pub(crate) issued: BTreeSet<WorkloadKey>,
    /// `issued` at the time of the last step's decisions.
    pub(crate) victims_at_decision: BTreeSet<WorkloadKey>,
    /// Workloads that no worker cluster took, and the end of their wait.
    pub(crate) undispatched: BTreeMap<WorkloadKey, Time>,
    /// The queues that were not strict at some time.
    pub(crate) ever_not_strict: BTreeSet<Name>,
}

/// A victim and its preemptor.
pub(crate) struct Victim {
    pub(crate) key: WorkloadKey,
    /// The queue that had admitted it.
    pub(crate) queue: Name,
    pub(crate) preemptor: WorkloadKey,
}

fn fair_admission_config() -> AdmissionFairSharing {
    AdmissionFairSharing {
        half_life: Duration::from_secs(5),
        sampling_interval: Duration::from_secs(2),
        resource_weights: [("memory".into(), 0.1), ("gpu".into(), f64::INFINITY)].into(),
    }
}

fn namespace(name: &Name, labelled: bool) -> Event {
    let labels =
        if labelled { BTreeMap::from([("team".into(), "a".into())]) } else { BTreeMap::new() };
    Event::Namespace { name: name.clone(), labels }
}

fn check(name: &Name, active: bool) -> Event {
    Event::AdmissionCheck(AdmissionCheck {
        name: name.clone(),
        controller: "example.com/check".into(),
        active,
    })
}

impl World {
    pub(crate) fn new(kind: EngineKind) -> Self {
        Self::with_gates(kind, EngineGates::default())
    }

    pub(crate) fn with_gates(kind: EngineKind, gates: EngineGates) -> Self {
        let settings = EngineSettings {
            fair_sharing: matches!(kind, EngineKind::Fair),
            gates,
            ..EngineSettings::default()
        };
        Self {
            engine: match kind {
                EngineKind::Plain => Engine::new(settings),
                EngineKind::Classical | EngineKind::Fair => {
                    Engine::with_preemption(settings, PreemptionSettings::default())
                }
                EngineKind::Sharing => {
                    Engine::with_preemption(settings, PreemptionSettings::default())
                        .with_admission_fair_sharing(fair_admission_config())
                }
            },
            log: Vec::new(),
            preemptors: Vec::new(),
            victims: Vec::new(),
            recordings: Vec::new(),
            victims_leave_at_once: false,
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
            refusals: BTreeMap::new(),
            issued: BTreeSet::new(),
            victims_at_decision: BTreeSet::new(),
            undispatched: BTreeMap::new(),
            ever_not_strict: BTreeSet::new(),
        }
    }

    fn apply(&mut self, event: Event) {
        self.record(|now| record::event(&event, now));
        self.engine.apply(event, self.now);
    }

    /// Starts one more recording.
    #[expect(clippy::expect_used, reason = "everything can be recorded, or the law is broken")]
    pub(crate) fn begin_recording(&mut self) {
        self.recordings
            .push(record::header(&self.engine, self.now).expect("a state can be written"));
    }

    #[expect(clippy::expect_used, reason = "everything can be recorded, or the law is broken")]
    fn record(&mut self, line: impl FnOnce(Time) -> serde_json::Result<String>) {
        if !self.recordings.is_empty() {
            let line = line(self.now).expect("what happens can be written");
            self.recordings.iter_mut().for_each(|recording| recording.push_str(&line));
        }
    }

    /// The controller's flush when something is due.
    pub(crate) fn flush(&mut self) {
        self.record(record::flush);
        self.engine.flush_inadmissible(self.now);
    }

    /// Performs a step. Returns the admitted workloads.
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
                if queue.strategy != QueueingStrategy::StrictFIFO {
                    self.ever_not_strict.insert(queue.name.clone());
                }
                self.queues.insert(queue.name.clone(), queue.clone());
            }
            Step::QueueDeleted(name) => {
                self.queues.remove(name);
                self.ever_not_strict.remove(name);
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
                self.issued.remove(key);
                self.undispatched.remove(key);
            }
            Step::Finished(key) => {
                self.edit(key, |workload| workload.finished = workload.reservation.is_some())
            }
            Step::Evicted(key) => {
                self.issued.remove(key);
                self.edit(key, |workload| {
                    workload.evicted |= workload.reservation.is_some();
                    workload.reservation = None;
                    workload.admitted = false;
                });
            }
            Step::Reprioritised(key, priority) => {
                self.edit(key, |workload| workload.priority = *priority)
            }
            Step::Reclaimed(key, pods) => self.edit(key, |workload| {
                workload.reclaimable =
                    workload.pod_sets.iter().map(|set| (set.name.clone(), *pods)).collect();
            }),
            Step::Retried(_) | Step::PastUsage(..) => {}
            Step::Cycle(answers) => return self.cycle_with(answers),
            Step::Wait(millis) => self.now = self.now.plus(Duration::from_millis(*millis)),
        }
        self.send_event(step);
        Vec::new()
    }

    /// An existing workload keeps the fields that users cannot change.
    fn submit(&mut self, workload: &Workload) {
        let same = self.workloads.get(&workload.key).filter(|known| known.uid == workload.uid);
        let known = same.map(|known| {
            (known.reservation.clone(), known.reserved_at, known.admitted, known.finished)
        });
        let (reservation, reserved_at, admitted, finished) = known.unwrap_or_default();
        if same.is_none() || !workload.active {
            // Another workload, or one without a claim to quota: no answer is due.
            self.open.remove(&workload.key);
        }
        let workload =
            Workload { reservation, reserved_at, admitted, finished, ..workload.clone() };
        self.workloads.insert(workload.key.clone(), workload);
    }

    fn edit(&mut self, key: &WorkloadKey, change: impl FnOnce(&mut Workload)) {
        if let Some(workload) = self.workloads.get_mut(key) {
            change(workload);
        }
    }

    /// Sends the event of a step's change.
    fn send_event(&mut self, step: &Step) {
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
            Step::PastUsage(queue, cores) => Event::PastUsage {
                queue: queue.clone(),
                consumed: [("cpu".into(), i128::from(*cores) * 1_000_000_000)].into(),
            },
            Step::Submit(workload) => return self.send_workload(&workload.key),
            Step::Finished(key)
            | Step::Evicted(key)
            | Step::Reprioritised(key, _)
            | Step::Reclaimed(key, _) => {
                return self.send_workload(key);
            }
            Step::Cycle(_) | Step::Wait(_) => return,
        };
        self.apply(event);
    }

    fn send_workload(&mut self, key: &WorkloadKey) {
        if let Some(workload) = self.workloads.get(key) {
            let event = Event::Workload(Box::new(workload.clone()));
            self.apply(event);
        }
    }

    /// Repeats the event of a step. Requests are no facts and are not repeated.
    pub(crate) fn repeat_event(&mut self, step: &Step) {
        if !matches!(step, Step::Retried(_)) {
            self.send_event(step);
        }
    }

    /// A cycle whose reservations are all confirmed.
    pub(crate) fn cycle(&mut self) {
        self.now = self.now.plus(Duration::from_secs(1));
        self.cycle_with(&[Answer::Confirm]);
    }

    fn cycle_with(&mut self, answers: &[Answer]) -> Vec<WorkloadKey> {
        let cycle = self.engine.cycle(self.now);
        self.record(|now| record::cycle(&cycle, now));
        self.log.extend(cycle.decisions.iter().map(|decision| format!("{decision:?}")));
        let earlier: Vec<_> = self.issued.iter().cloned().collect();
        let mut admitted = Vec::new();
        for decision in cycle.decisions {
            match decision {
                Decision::Reserve { key, cycle, admission, .. } => {
                    self.undispatched.remove(&key);
                    self.open.insert(key.clone(), (cycle, admission));
                    admitted.push(key);
                }
                Decision::Preempt { key, preemptor, .. } => self.issue_preemption(key, preemptor),
                Decision::Migrate { .. }
                | Decision::Pending { .. }
                | Decision::Reassign { .. }
                | Decision::SecondPassFailed { .. }
                | Decision::Evict { .. } => {}
            }
        }
        // A refusal that comes late, or twice, must not end the next reservation.
        for key in &admitted {
            if let Some(refusal) = self.refusals.remove(key) {
                self.apply(refusal);
            }
        }
        self.victims_at_decision.clone_from(&self.issued);
        for (key, answer) in admitted.iter().zip(answers.iter().cycle()) {
            self.answer(key, *answer);
        }
        // Victims of this cycle still have their quota in the next one, unless all leave at once.
        let waiting = if self.victims_leave_at_once {
            self.issued.iter().cloned().collect()
        } else {
            earlier
        };
        for (key, answer) in waiting.into_iter().zip(answers.iter().cycle()) {
            self.answer_eviction(
                &key,
                if self.victims_leave_at_once { Answer::Confirm } else { *answer },
            );
        }
        admitted
    }

    fn issue_preemption(&mut self, key: WorkloadKey, preemptor: WorkloadKey) {
        let queue = self
            .admission(&key)
            .map(|admission| admission.cluster_queue.clone())
            .unwrap_or_default();
        self.issued.insert(key.clone());
        self.preemptors.push(preemptor.clone());
        self.victims.push(Victim { key, queue, preemptor });
    }

    /// The answer of a victim.
    fn answer_eviction(&mut self, key: &WorkloadKey, answer: Answer) {
        match answer {
            Answer::Leave => {}
            Answer::Confirm => {
                self.perform(&Step::Evicted(key.clone()));
            }
            Answer::Refuse | Answer::NotDispatched => {
                self.issued.remove(key);
                self.apply(Event::PreemptionFailed { key: key.clone() });
            }
        }
    }

    fn answer(&mut self, key: &WorkloadKey, answer: Answer) {
        let Some((cycle, admission)) = self.open.get(key).cloned() else { return };
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
                return self.send_workload(key);
            }
            Answer::Refuse => RefusedReason::WriteFailed { message: "conflict".into() },
            Answer::NotDispatched => {
                let retry_at = self.now.plus(Duration::from_secs(3));
                self.undispatched.insert(key.clone(), retry_at);
                RefusedReason::DispatchFailed {
                    message: "no cluster took it".into(),
                    retry_at: Some(retry_at),
                }
            }
        };
        self.open.remove(key);
        let refusal = Event::AdmissionRefused { key: key.clone(), cycle: Some(cycle), reason };
        self.refusals.insert(key.clone(), refusal.clone());
        self.apply(refusal);
    }

    pub(crate) fn delete_all_workloads(&mut self) {
        for key in std::mem::take(&mut self.workloads).into_keys() {
            self.apply(Event::WorkloadDeleted { key });
        }
    }

    /// A new engine with events of the same objects, in either order. Reservations without an
    /// answer count as confirmed.
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
            if let Some((_, admission)) =
                self.open.get(&workload.key).filter(|_| workload.reservation.is_none())
            {
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

    /// Where a queue exceeds its quota, and by how much (negative); else zero.
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
        let quota =
            quotas.into_iter().find(|quota| (&quota.flavor, &quota.resource) == (&pair.0, &pair.1));
        quota.map_or(Amount::ZERO, |quota| quota.available)
    }

    /// The queues and pairs that these admissions use.
    pub(crate) fn used_by(&self, admitted: &[WorkloadKey]) -> Vec<(Name, Pair)> {
        let mut used = Vec::new();
        for admission in admitted.iter().filter_map(|key| self.admission(key)) {
            for pod_set in &admission.pod_sets {
                let some = pod_set
                    .flavors
                    .iter()
                    .filter(|(resource, _)| pod_set.usage[*resource] > Amount::ZERO);
                used.extend(some.map(|(resource, flavor)| {
                    (admission.cluster_queue.clone(), (flavor.clone(), resource.clone()))
                }));
            }
        }
        used
    }

    pub(crate) fn admission(&self, key: &WorkloadKey) -> Option<&Admission> {
        self.workloads
            .get(key)
            .and_then(|workload| workload.reservation.as_ref())
            .or_else(|| self.open.get(key).map(|(_, admission)| admission))
    }

    /// The admissions by queue.
    pub(crate) fn admissions_of(&self, admitted: &[WorkloadKey]) -> Vec<(Name, WorkloadKey)> {
        let of =
            |key: &WorkloadKey| Some((self.admission(key)?.cluster_queue.clone(), key.clone()));
        admitted.iter().filter_map(of).collect()
    }

    /// Unfinished workloads without quota.
    pub(crate) fn without_quota(&self) -> Vec<WorkloadKey> {
        let waits = |workload: &&Workload| {
            !workload.finished
                && workload.reservation.is_none()
                && !self.open.contains_key(&workload.key)
        };
        self.workloads.values().filter(waits).map(|workload| workload.key.clone()).collect()
    }

    /// The free quota of a queue, computed from the objects; `None` if undecidable. A deactivated
    /// workload counts until its reservation is gone.
    pub(crate) fn left(&self, queue: &Name, pair: &Pair) -> Option<i128> {
        let mut used: BTreeMap<Name, i128> = BTreeMap::new();
        for (key, workload) in self.workloads.iter().filter(|(_, workload)| !workload.finished) {
            let Some(admission) = self.admission(key) else { continue };
            for assigned in admission
                .pod_sets
                .iter()
                .filter(|assigned| assigned.flavors.get(&pair.1) == Some(&pair.0))
            {
                let total = assigned.usage.get(&pair.1).map_or(0, |amount| amount.get());
                let set = workload.pod_sets.iter().find(|set| set.name == assigned.name);
                let gone = workload.reclaimable.get(&assigned.name).copied().unwrap_or(0);
                let left =
                    set.map_or(assigned.count, |set| (set.count - gone).max(0)).min(assigned.count);
                let pods = i64::from(assigned.count).max(1);
                let held =
                    if left < assigned.count { total / pods * i64::from(left) } else { total };
                *used.entry(admission.cluster_queue.clone()).or_default() += i128::from(held);
            }
        }
        QuotaOracle { queues: &self.queues, cohorts: &self.cohorts, pair, used }
            .left(self.queues.get_key_value(queue)?.0)
    }
}
