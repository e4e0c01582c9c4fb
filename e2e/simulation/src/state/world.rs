//! The simulated world: its state, virtual time, and scheduled events.

use std::collections::{BTreeMap, BTreeSet};

use switchyard_flags::simulate::Mutation;

use super::{Api, Cluster, Event, Hub, LostStore, Network};
use crate::dice::Dice;
use crate::plan::Plan;
use crate::reached::Reached;
use crate::time::Ms;
use crate::violation::{Law, Violation};

pub(crate) struct World {
    pub(crate) plan: Plan,
    pub(crate) mutation: Option<Mutation>,
    pub(crate) now: Ms,
    pub(crate) order: u64,
    pub(crate) queue: BTreeMap<(Ms, u64), Event>,
    pub(crate) dice: Vec<Dice>,
    pub(crate) api: Api,
    pub(crate) hubs: Vec<Hub>,
    pub(crate) clusters: Vec<Cluster>,
    pub(crate) network: Network,
    pub(crate) violation: Option<Violation>,
    /// A state changed that the laws cover.
    pub(crate) moved: bool,
    pub(crate) faults_open: usize,
    /// The end of the last fault.
    pub(crate) quiet_since: Ms,
    /// When operators last released the circuit breaker.
    pub(crate) released: Option<Ms>,
    /// The state at the last loss of the hub's store.
    pub(crate) lost_store: LostStore,
    pub(crate) settled: bool,
    pub(crate) steps: u64,
    pub(crate) reached: Reached,
    /// Needed excuses by workload, attempt and cluster. Each counts once.
    pub(crate) needed: BTreeSet<(&'static str, usize, usize, u64)>,
    pub(crate) trace: Option<Vec<String>>,
}

impl World {
    /// Schedules an event.
    pub(crate) fn at(&mut self, at: Ms, event: Event) {
        self.order += 1;
        self.queue.insert((at.max(self.now), self.order), event);
    }

    /// Schedules an event after a delay.
    pub(crate) fn after(&mut self, delay: Ms, event: Event) {
        self.at(self.now + delay, event);
    }

    /// A random stream: 0 is the hub's, the clusters' follow.
    pub(crate) fn dice(&mut self, stream: usize) -> &mut Dice {
        &mut self.dice[stream]
    }

    /// A line of the trace, made only if the run is traced.
    pub(crate) fn note(&mut self, line: impl FnOnce() -> String) {
        if let Some(trace) = &mut self.trace {
            let seconds = self.now / 1000;
            trace.push(format!("{seconds:>5}.{:03} {}", self.now % 1000, line()));
        }
    }

    /// Reports a violation. The first one ends the run.
    pub(crate) fn report_violation(&mut self, law: Law, what: String) {
        if self.plan.only.is_some_and(|only| only != law) {
            return;
        }
        self.note(|| format!("BROKEN {law:?}: {what}"));
        if self.violation.is_none() {
            self.violation = Some(Violation { law, what, at: self.now });
        }
    }

    pub(crate) fn reached(&mut self, what: &'static str) {
        self.reached.count(what);
    }

    /// Records that a law needed this excuse for an attempt of a workload on a cluster.
    pub(crate) fn count_excuse(
        &mut self,
        excuse: &'static str,
        cluster: usize,
        workload: usize,
        attempt: u64,
    ) {
        if self.needed.insert((excuse, cluster, workload, attempt)) {
            self.reached.count(excuse);
        }
    }

    /// Whether the code is mutated in this way.
    pub(crate) fn mutated(&self, mutation: Mutation) -> bool {
        self.mutation == Some(mutation)
    }
}
