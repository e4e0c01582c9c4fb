//! The laws by name, and what broke one.

use std::fmt;

use crate::time::Ms;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Law {
    /// At most one attempt of a workload runs at any time.
    OneRuns,
    /// Every workload finishes, is deleted by its owner, or continues.
    Liveness,
    /// An ended job never runs again, and its end reaches the hub once.
    EndedOnce,
    /// The hub's charge covers all running pods.
    Quota,
    /// Nothing remains on a worker of a workload that has ended or is gone on the hub.
    NoOrphans,
    /// Only objects with the hub's marks change.
    Foreign,
    /// A fault of one cluster delays no other cluster's jobs.
    Isolation,
    /// A deposed leader starts and stops nothing.
    Deposed,
    /// The hub's Workload names a cluster and attempt before they run.
    WrittenFirst,
    /// A fenced job resumes in place. Only a job that was evicted on a cluster moves as evicted.
    InPlace,
    /// If many clusters are lost at once, none is given up before operators act or all are back.
    Careful,
    /// A forgotten copy is removed only after its job was applied again.
    Forgotten,
    /// A running job has the priority that its owner last set.
    InStep,
    /// A workload is withdrawn as stuck only without a ready pod, and only as often as its policy
    /// says.
    Stuck,
    /// At most one cluster may preempt for a workload within one preemption timeout.
    OnePreempts,
    /// A cluster that enforces pins runs a workload in the flavor that the hub charges.
    Pinned,
    /// A program under test panicked.
    Panic,
}

#[derive(Debug, Clone)]
pub struct Violation {
    pub law: Law,
    pub what: String,
    pub at: Ms,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} at {}.{:03} s: {}", self.law, self.at / 1000, self.at % 1000, self.what)
    }
}
