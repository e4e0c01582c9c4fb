//! A cluster around an engine: decisions are written at once and return as events.

use std::collections::BTreeMap;
use std::time::Duration;

use switchyard_scheduler::{
    Admission, Cycle, Decision, Engine, EngineSettings, Event, PreemptionSettings, Time, Workload,
};

use crate::clock::Clock;
use crate::random::Random;
use crate::samples::Samples;
use crate::site::{START, number};

/// Makes the workload of a number.
type Maker<'a> = &'a dyn Fn(usize) -> Workload;

/// A cluster in which jobs start at their admission, and end at the bench's request.
pub(crate) struct Cluster<'a> {
    pub(crate) engine: Engine,
    pub(crate) now: Time,
    /// Cycles with heads.
    pub(crate) cycles: Samples,
    pub(crate) events: Samples,
    /// Runs cycles in [`counted_cycle`].
    pub(crate) counted: bool,
    make: Maker<'a>,
    /// Workloads with quota, and the order in which they got it.
    running: BTreeMap<usize, (usize, Admission)>,
    order: Vec<usize>,
}

/// A cycle in a function that callgrind finds by its name.
#[inline(never)]
fn counted_cycle(engine: &mut Engine, now: Time) -> Cycle {
    engine.cycle(now)
}

/// The outcome of a cycle, by numbers of workloads.
#[derive(Default)]
pub(crate) struct Done {
    pub(crate) admitted: Vec<usize>,
    pub(crate) preempted: Vec<usize>,
    pub(crate) postponed: usize,
}

impl<'a> Cluster<'a> {
    pub(crate) fn new(fair: bool, objects: Vec<Event>, make: Maker<'a>) -> Self {
        let settings = EngineSettings { fair_sharing: fair, ..EngineSettings::default() };
        Self::with_settings(settings, objects, make)
    }

    pub(crate) fn with_settings(
        settings: EngineSettings,
        objects: Vec<Event>,
        make: Maker<'a>,
    ) -> Self {
        let mut cluster = Self {
            engine: Engine::with_preemption(settings, PreemptionSettings::default()),
            now: START.plus(Duration::from_secs(3600)),
            cycles: Samples::default(),
            events: Samples::default(),
            counted: false,
            make,
            running: BTreeMap::new(),
            order: Vec::new(),
        };
        for event in objects {
            cluster.apply(event);
        }
        cluster
    }

    pub(crate) fn apply(&mut self, event: Event) {
        let start = Clock::start();
        self.engine.apply(event, self.now);
        self.events.add(start.elapsed());
    }

    pub(crate) fn submit(&mut self, number: usize) {
        let workload = (self.make)(number);
        self.apply(Event::Workload(Box::new(workload)));
    }

    /// A random workload with quota.
    pub(crate) fn any_running(&self, random: &mut Random) -> Option<usize> {
        self.order.get(random.below(self.order.len())).copied()
    }

    pub(crate) fn running(&self) -> usize {
        self.running.len()
    }

    pub(crate) fn finish(&mut self, number: usize) {
        let Some(admission) = self.forget(number) else { return };
        let workload = Workload { finished: true, ..self.admitted(number, admission) };
        let key = workload.key.clone();
        self.apply(Event::Workload(Box::new(workload)));
        self.apply(Event::WorkloadDeleted { key });
    }

    /// A status change that does not concern quota.
    pub(crate) fn update(&mut self, number: usize) {
        let Some((_, admission)) = self.running.get(&number).cloned() else { return };
        let workload = self.admitted(number, admission);
        self.apply(Event::Workload(Box::new(workload)));
    }

    /// Runs a cycle and performs its decisions. Only the engine's part is timed.
    pub(crate) fn cycle(&mut self) -> Done {
        let start = Clock::start();
        let cycle = match self.counted {
            true => counted_cycle(&mut self.engine, self.now),
            false => self.engine.cycle(self.now),
        };
        let took = start.elapsed();
        let mut done = Done::default();
        if !cycle.decisions.is_empty() {
            self.cycles.add(took);
        }
        for decision in cycle.decisions {
            match decision {
                Decision::Reserve { key, admission, .. } => {
                    let number = number(&key);
                    self.running.insert(number, (self.order.len(), admission.clone()));
                    self.order.push(number);
                    let workload = self.admitted(number, admission);
                    self.apply(Event::Workload(Box::new(workload)));
                    done.admitted.push(number);
                }
                Decision::Preempt { key, .. }
                | Decision::Migrate { key, .. }
                | Decision::Evict { key, .. } => {
                    done.preempted.push(number(&key));
                }
                Decision::Reassign { .. } => {}
                Decision::Pending { .. } | Decision::SecondPassFailed { .. } => done.postponed += 1,
            }
        }
        for number in &done.preempted {
            self.evict(*number);
        }
        done
    }

    fn evict(&mut self, number: usize) {
        self.forget(number);
        let workload = Workload { evicted: true, requeued: Some(true), ..(self.make)(number) };
        self.apply(Event::Workload(Box::new(workload)));
    }

    fn admitted(&self, number: usize, admission: Admission) -> Workload {
        Workload {
            reservation: Some(admission),
            reserved_at: Some(self.now),
            admitted: true,
            ..(self.make)(number)
        }
    }

    fn forget(&mut self, number: usize) -> Option<Admission> {
        let (at, admission) = self.running.remove(&number)?;
        self.order.swap_remove(at);
        if let Some(moved) = self.order.get(at)
            && let Some((place, _)) = self.running.get_mut(moved)
        {
            *place = at;
        }
        Some(admission)
    }

    pub(crate) fn wait(&mut self, millis: u64) {
        self.now = self.now.plus(Duration::from_millis(millis));
    }
}
