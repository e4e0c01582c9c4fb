//! What goes into the dispatcher and what comes out.

use super::capacity::Queue;
use super::{ClusterRules, Facts, Name, Observation, Phase, Reserved, Uid, Uids};
use std::collections::BTreeMap;

/// Something happened.
#[derive(Debug, Clone)]
pub enum Event {
    /// The clusters behind a MultiKueue check, in the order of its MultiKueueConfig.
    Check {
        /// The AdmissionCheck.
        name: Name,
        /// Its clusters; empty if the check is gone or its parameters cannot be read.
        clusters: Vec<Name>,
    },
    /// A MultiKueueCluster exists.
    Cluster {
        /// Its name.
        name: Name,
        /// What people want of it.
        rules: ClusterRules,
    },
    /// A MultiKueueCluster is gone.
    ClusterGone {
        /// Its name.
        name: Name,
    },
    /// A session that is about to open says which cluster this is.
    ClusterIs {
        /// The cluster's name.
        name: Name,
        /// The uid of its namespace `kube-system`.
        uid: Name,
    },
    /// A session is open; its inventory follows.
    ClusterUp {
        /// The cluster.
        name: Name,
    },
    /// The session ended.
    ClusterDown {
        /// The cluster.
        name: Name,
    },
    /// The agent of an open session says that it can act on its cluster, or cannot: see `Ping.unable`.
    ClusterAble {
        /// The cluster.
        name: Name,
        /// Whether it can.
        able: bool,
    },
    /// The API says that the agent of a cluster could not act when it was last connected, to this process or to one before.
    ClusterUnable {
        /// The cluster.
        name: Name,
    },
    /// All workloads of ours that are on a cluster. The observations came before.
    Inventory {
        /// The cluster.
        cluster: Name,
        /// Their uids.
        uids: Uids,
    },
    /// A cluster's report.
    Capacity {
        /// The cluster.
        cluster: Name,
        /// By namespace and LocalQueue.
        queues: BTreeMap<(Name, Name), Queue>,
    },
    /// The engine reserved quota in memory.
    Reserved {
        /// The workload as it was then.
        facts: Facts,
        /// The reservation.
        reserved: Reserved,
    },
    /// The engine gives quota that it reserved in memory to another workload. Answered by [`Action::GiveBack`], or by
    /// [`Action::Recorded`].
    Withdraw {
        /// The workload.
        uid: Uid,
    },
    /// A Workload exists, or changed.
    Workload(Facts),
    /// A Workload is gone.
    WorkloadGone {
        /// Its uid.
        uid: Uid,
    },
    /// A cluster observed something.
    Observed {
        /// The cluster.
        cluster: Name,
        /// What.
        observation: Observation,
    },
    /// A write that an action asked for has ended.
    Written(Written),
    /// Time passed.
    Tick,
}

/// How a write ended.
#[derive(Debug, Clone)]
pub struct Written {
    /// The workload.
    pub uid: Uid,
    /// How.
    pub outcome: Outcome,
    /// The Workload after it, as far as known.
    pub facts: Option<Facts>,
}

/// How a write ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It is in the API.
    Done,
    /// It is not: the Workload changed meanwhile, or is gone. To be decided anew.
    Superseded,
    /// It is not: the API refused or could not be reached. To be tried again later.
    Failed,
}

/// What is to be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Tell a cluster what should be.
    Desire {
        /// The cluster.
        cluster: Name,
        /// The workload, by the uid by which clusters know it.
        uid: Uid,
        /// Where it lies.
        namespace: Name,
        /// Where it lies.
        name: Name,
        /// The attempt.
        attempt: u64,
        /// What should be.
        phase: Phase,
    },
    /// A tombstone has done its work.
    Forget {
        /// The cluster.
        cluster: Name,
        /// The workload, by the uid by which clusters know it.
        uid: Uid,
        /// Nothing is left of this and lower attempts.
        attempt: u64,
    },
    /// Write quota, cluster and attempt in one go. Answered by [`Event::Written`].
    Commit {
        /// The workload.
        uid: Uid,
        /// The cluster.
        cluster: Name,
        /// The attempt.
        attempt: u64,
        /// It runs there already, and clusters know it by this uid from now on.
        adopts: Option<Uid>,
    },
    /// Write the name under which the cluster goes on that has the attempt. Answered by [`Event::Written`].
    Rename {
        /// The workload.
        uid: Uid,
        /// The name that the API has, unless it was taken away already.
        from: Option<Name>,
        /// The cluster's name now.
        cluster: Name,
        /// The attempt.
        attempt: u64,
    },
    /// Write the reservation, the check's message and the nominated clusters. Answered by [`Event::Written`].
    Record {
        /// The workload.
        uid: Uid,
        /// For the check; none leaves it as it is.
        message: Option<String>,
        /// The nominated clusters; none leaves them as they are.
        nominated: Option<Vec<Name>>,
    },
    /// Give a reservation back that is only in memory.
    GiveBack {
        /// The workload.
        uid: Uid,
        /// Why, per cluster.
        message: String,
        /// Not before, milliseconds since the epoch.
        retry_at: i64,
    },
    /// A cluster may now take a workload that was given back: let the engine look again.
    Wake {
        /// The workload.
        uid: Uid,
    },
    /// Set the check to Retry, which evicts; or, of an attempt that was [`super::TIMED_OUT`], ask for the workload's
    /// deactivation, which evicts as well. Answered by [`Event::Written`].
    Retry {
        /// The workload.
        uid: Uid,
        /// Why.
        message: String,
        /// The attempt that ends with it; none if it had no cluster.
        left: Option<Left>,
    },
    /// The reservation that was to be withdrawn is, or may be, in the API: the engine decides anew.
    Recorded {
        /// The workload.
        uid: Uid,
    },
    /// No cluster runs the workload: show that, and complete its eviction, which gives its quota back. Answered by
    /// [`Event::Written`].
    Release {
        /// The workload.
        uid: Uid,
    },
    /// Copy the job's status from where it runs.
    Mirror {
        /// The workload.
        uid: Uid,
        /// From there.
        cluster: Name,
        /// The attempt.
        attempt: u64,
    },
    /// Persist a terminal state: the job's status, then Finished. Answered by [`Event::Written`].
    Finish {
        /// The workload.
        uid: Uid,
        /// Where it ended.
        cluster: Name,
        /// The attempt.
        attempt: u64,
        /// Whether it succeeded.
        success: bool,
    },
    /// A terminal state is persisted, or nobody needs it.
    Ack {
        /// The cluster.
        cluster: Name,
        /// The workload, by the uid by which clusters know it.
        uid: Uid,
        /// The attempt.
        attempt: u64,
    },
    /// A workload that carries our id and that we do not know is on a cluster. Reported only, for now.
    Orphan {
        /// The cluster.
        cluster: Name,
        /// The workload.
        uid: Uid,
        /// The attempt.
        attempt: u64,
    },
    /// A cluster speaks of an attempt that no hub can have given out. Nothing follows; for the log.
    Disbelieve {
        /// The cluster.
        cluster: Name,
        /// The workload.
        uid: Uid,
        /// The attempt.
        attempt: u64,
    },
    /// The circuit breaker has opened, for this reason, or closed.
    Breaker {
        /// Why nothing is given up any more; none: it is again.
        open: Option<String>,
    },
}

/// An attempt that ended without an end of its job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Left {
    /// Where it was.
    pub cluster: Name,
    /// Which.
    pub attempt: u64,
    /// CamelCase, stable.
    pub reason: &'static str,
    /// The reason of the worker's eviction, if the worker evicted it.
    pub evicted_for: Option<String>,
}
