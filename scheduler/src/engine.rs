//! The engine: events in, decisions out.

use crate::{
    Changed, ClusterQueueView, Cycle, Event, LocalQueueKey, LocalQueueView, PendingEntry, Settings, Time, Why,
    WorkloadKey,
};

/// The quota engine of one cluster.
#[derive(Debug)]
pub struct Engine {
    settings: Settings,
    cycles: u64,
}

impl Engine {
    /// An engine that knows nothing yet.
    pub fn new(settings: Settings) -> Self {
        Self { settings, cycles: 0 }
    }

    /// Takes notice of a fact. Decides nothing; never fails, whatever the event says.
    pub fn apply(&mut self, event: Event, now: Time) {
        let _ = (event, now, &self.settings);
    }

    /// One scheduling cycle: the head of every active ClusterQueue is admitted or told why not.
    pub fn cycle(&mut self, _now: Time) -> Cycle {
        self.cycles += 1;
        Cycle { number: self.cycles, decisions: Vec::new(), idle: true }
    }

    /// Whether a cycle would have a workload to look at.
    pub fn has_heads(&self, _now: Time) -> bool {
        false
    }

    /// When something becomes due without an event: gathered triggers, or the end of a back-off.
    pub fn next_wakeup(&self, _now: Time) -> Option<Time> {
        None
    }

    /// Moves parked workloads whose triggers are due back into their queues. `cycle` does it too.
    pub fn flush_inadmissible(&mut self, _now: Time) {}

    /// A ClusterQueue as it is now.
    pub fn cluster_queue(&self, _name: &str) -> Option<ClusterQueueView<'_>> {
        None
    }

    /// A LocalQueue as it is now.
    pub fn local_queue(&self, _key: &LocalQueueKey) -> Option<LocalQueueView<'_>> {
        None
    }

    /// The pending workloads of a ClusterQueue in its order, parked ones included.
    pub fn pending(&self, _cluster_queue: &str) -> Vec<PendingEntry<'_>> {
        Vec::new()
    }

    /// Why a workload has no quota; `None` if it has, or is not known.
    pub fn why(&self, _key: &WorkloadKey) -> Option<Why<'_>> {
        None
    }

    /// The queues that look different since the last call.
    pub fn changed(&mut self) -> Changed {
        Changed::default()
    }
}
