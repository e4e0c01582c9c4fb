//! The dispatcher: which cluster runs which workload. Pure: events and the time in, actions out.
//!
//! One workload's way: quota reserved on the hub (in memory, or recorded) → *nominated* (one or more clusters are told
//! to hold local quota) → *committed* (one status write carries cluster and attempt) → *running* (only now a cluster
//! is told to run it) → *terminal* (persisted, then acknowledged) → *collected* (tombstones until nothing is left).
//!
//! # Guarantees
//! - A cluster is told to run an attempt only when the API has confirmed that cluster and that attempt.
//! - An attempt is never told to two clusters to run, and none to run while a lower one may still run elsewhere,
//!   unless that cluster was given up: by its policy ([`Loss`]), or because people declared it lost.
//! - A terminal state is acknowledged only when it is persisted, or when nobody needs it.
//! - What the API says is the truth: all else here can be rebuilt from Workloads and the clusters' inventories.
//!
//! # Assumptions
//! Observations of one cluster come in the order in which it made them; they may be late and repeated.

mod actions;
mod affinity;
mod breaker;
pub mod capacity;
mod cluster;
mod copies;
mod entry;
mod gates;
mod identities;
mod index;
mod intake;
mod looks;
mod loss;
mod machine;
mod nominate;
mod orphans;
mod policy;
mod refusals;
mod renamed;
mod replicas;
mod settle;
#[cfg(test)]
mod simulation;
mod slices;
pub mod standing;
#[cfg(test)]
mod tests;
mod told;
mod tries;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use switchyard_scheduler::PodSet;
use switchyard_syntax::affinity::Affinity;

pub use actions::{Action, Event, Left, Outcome, Written};
pub use breaker::{Caution, Open};
pub use cluster::{ClusterRules, Loss};
pub use gates::Gate;
pub use loss::Contact;
pub use machine::{ClusterView, Dispatcher};
pub use orphans::{MAX_WORKLOADS, OrphanView};
pub use replicas::Replica;
pub use settle::TIMED_OUT;
pub use told::{Memory, Sessions, Told};
pub use tries::Tries;

/// A shared name.
pub type Name = Arc<str>;
/// The uid of a Workload on the hub.
pub type Uid = Arc<str>;
/// Milliseconds since the Unix epoch.
pub type Time = i64;

/// How far a cluster's word may be ahead of the attempts and epochs that we know of: a store that was lost, or is an old one,
/// forgets some, and nobody gives out a million.
pub const MAX_LEAD: u64 = 1 << 20;

use switchyard_proto::v1 as proto;
pub use switchyard_proto::v1::{Phase, State};

/// The reason of [`State::Refused`] of what the hub itself could not send.
pub const CANNOT_SEND: &str = "CannotSend";

/// Why something is as it is: a stable word for programs, a sentence for people.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Reason {
    /// CamelCase, stable.
    pub code: String,
    /// A sentence, without a full stop.
    pub message: String,
}

impl Reason {
    /// A reason.
    pub fn new(code: impl Into<String>, message: impl Into<String>) -> Self {
        Self { code: code.into(), message: message.into() }
    }
}

/// Who chooses the clusters that a workload is offered to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// We: the cluster that it fits best, by reported capacity.
    BestFit,
    /// All connected ones at once, as Kueue does by default.
    AllAtOnce,
    /// `step` more each `round` milliseconds, in the order of the MultiKueueConfig.
    Incremental {
        /// Clusters a round.
        step: usize,
        /// Milliseconds.
        round: i64,
    },
    /// Another program, which writes `status.nominatedClusterNames`.
    External,
}

impl Mode {
    /// Whether a copy waits at each nominated cluster until one of them has admitted it, as in Kueue; if not, a cluster that
    /// says no is not asked again soon.
    pub fn keeps_copies(self) -> bool {
        match self {
            Self::BestFit => false,
            Self::AllAtOnce | Self::Incremental { .. } | Self::External => true,
        }
    }
}

/// What the dispatcher goes by. Times in milliseconds.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Who chooses.
    pub mode: Mode,
    /// After this long without its cluster, a workload may be given up there (`multiKueue.workerLostTimeout`).
    pub worker_lost_timeout: i64,
    /// A reservation that found no cluster for this long is recorded on the Workload, with the reasons.
    pub record_after: i64,
    /// A cluster that did not answer for this long is no reason not to ask the next.
    pub answer_within: i64,
    /// After a start, clusters have this long to connect before "no cluster can take it" is concluded.
    pub start_grace: i64,
    /// First and longest delay until a cluster that refused or evicted a workload is asked again, if nothing changes there.
    pub refused_for: (i64, i64),
    /// First and longest delay until a workload that no cluster can take is tried again.
    pub give_back: (i64, i64),
    /// How long a workload of ours that we do not know may stay on a cluster before it is removed.
    pub orphan_after: i64,
    /// What agents' leases last from the sending of the last answered ping.
    pub lease: i64,
    /// How long an agent may take to stop a job whose fence has come, besides the grace of its pods.
    pub fence_margin: i64,
    /// After a start, nothing is given up for this long.
    pub restart_grace: i64,
    /// When not to give up at all.
    pub caution: Caution,
    /// What the hub forgot when its store was lost or replaced by a backup; none: it remembers everything that it has done.
    pub store_loss: Option<StoreLoss>,
    /// Where several clusters are asked, their copies have a preemption gate, and once one is opened no other is for this long;
    /// none: copies have no gate.
    pub preemption_timeout: Option<i64>,
    /// Whether clusters are added to those that are asked by their names, and not in the order of the configuration.
    pub by_name: bool,
    /// By how much a cluster's clock may be behind the hub's: what it made within so long of the beginning of the hub's
    /// memory may be older.
    pub clocks: i64,
}

/// A hub lost its store, or got an older one back: its clusters may run what the hub does not know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoreLoss {
    /// Since when it remembers what it has done, by the clock of its API server: what clusters have from before is not removed
    /// as unknown.
    pub remembers_since: Time,
    /// Until when clusters that have not spoken are waited for, by the clock of this process.
    pub careful_until: Time,
}

impl StoreLoss {
    /// `api_now` is what the API server's clock shows when this process' own shows `now`.
    pub fn new(remembers_since: Time, api_now: Time, now: Time) -> Self {
        let age = api_now.saturating_sub(remembers_since);
        Self {
            remembers_since,
            careful_until: now.saturating_add(copies::CAREFUL).saturating_sub(age),
        }
    }
}

impl Settings {
    /// Until when what clusters have made, by their own clocks, may be older than the hub's memory; none: the hub remembers
    /// everything.
    pub(crate) fn forgotten_until(&self) -> Option<Time> {
        self.store_loss.map(|loss| loss.remembers_since.saturating_add(self.clocks))
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            mode: Mode::BestFit,
            worker_lost_timeout: 15 * 60_000,
            record_after: 1_000,
            answer_within: 3_000,
            start_grace: 10_000,
            refused_for: (10_000, 320_000),
            give_back: (10_000, 320_000),
            orphan_after: 15 * 60_000,
            lease: 30_000,
            fence_margin: 10_000,
            restart_grace: 60_000,
            caution: Caution::default(),
            store_loss: None,
            preemption_timeout: None,
            by_name: false,
            clocks: 5 * 60_000,
        }
    }
}

/// The state of the MultiKueue check on a Workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Check {
    /// Not decided.
    #[default]
    Pending,
    /// A cluster has it.
    Ready,
    /// To be evicted and tried again.
    Retry,
    /// Never.
    Rejected,
}

/// Which job a workload stands for, and what for: a workload that is alike in all of it stands for the same job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subject {
    /// The job's kind, such as `batch/v1, Kind=Job`.
    pub kind: Name,
    /// The job's name.
    pub job: Name,
    /// See [`switchyard_proto::pod_sets_hash`].
    pub pod_sets: Arc<[u8]>,
}

/// Namespace, kind and name of a job.
type JobKey = (Name, Name, Name);

impl Subject {
    /// What its job is found by.
    fn key(&self, namespace: &Name) -> JobKey {
        (namespace.clone(), self.kind.clone(), self.job.clone())
    }
}

/// Which copy on a cluster a workload is to adopt, by the word of people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Adopt {
    /// The one on that cluster of that uid, whatever the two differ in.
    Copy(Name, Uid),
    /// None: what there is does not count.
    Nothing,
}

impl Adopt {
    /// Whether it is this copy.
    fn is_copy(&self, cluster: &Name, uid: &Uid) -> bool {
        matches!(self, Self::Copy(at, theirs) if at == cluster && theirs == uid)
    }
}

/// What an object on a cluster was made of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    /// The job.
    pub subject: Subject,
    /// The job is there, and not only its Workload.
    pub has_job: bool,
    /// When the Workload was made, by the cluster's clock.
    pub created: Time,
}

impl From<&proto::Origin> for Origin {
    fn from(origin: &proto::Origin) -> Self {
        Self {
            subject: Subject {
                kind: origin.kind.as_str().into(),
                job: origin.job_name.as_str().into(),
                pod_sets: origin.pod_sets.as_slice().into(),
            },
            has_job: origin.has_job,
            created: origin.created.as_ref().map_or(0, |at| at.seconds.saturating_mul(1_000)),
        }
    }
}

/// What the API says of one Workload.
#[derive(Debug, Clone)]
pub struct Facts {
    /// Identity.
    pub uid: Uid,
    /// Namespace.
    pub namespace: Name,
    /// Name.
    pub name: Name,
    /// The resource version as a number; lower ones are older, zero if unknown.
    pub version: u64,
    /// Name of its LocalQueue.
    pub queue: Name,
    /// Effective priority.
    pub priority: i32,
    /// The WorkloadPriorityClass that it comes from, if it does.
    pub priority_class: Option<Name>,
    /// What it asks for.
    pub pod_sets: Arc<[PodSet]>,
    /// The MultiKueue check that applies, and its state.
    pub check: Option<(Name, Check)>,
    /// All other checks are Ready.
    pub others_ready: bool,
    /// `QuotaReserved` is True.
    pub reserved: bool,
    /// `Evicted` is True.
    pub evicted: bool,
    /// `Finished` is True.
    pub finished: bool,
    /// It is being deleted.
    pub deleting: bool,
    /// `spec.active`.
    pub active: bool,
    /// `status.clusterName`.
    pub cluster: Option<Name>,
    /// `status.dispatch.attempt`.
    pub attempt: u64,
    /// `status.nominatedClusterNames`.
    pub nominated: Vec<Name>,
    /// How long its pods may take to stop, in milliseconds.
    pub grace: i64,
    /// What the loss of its cluster means for it, by its own annotation or its queue; none: as the cluster has it.
    pub loss: Option<Loss>,
    /// The rules about its clusters, by its own annotations and its queue; none: there are none.
    pub affinity: Option<Arc<Affinity>>,
    /// Somebody wants this attempt to be moved to that cluster.
    pub moving: Option<(u64, Name)>,
    /// Its job; none where the hub has not forgotten anything, and needs not know it again.
    pub subject: Option<Subject>,
    /// The uid by which clusters know it, if that is not its own: it has adopted a copy.
    pub known_as: Option<Uid>,
    /// Somebody says which copy it is to adopt.
    pub adopt: Option<Adopt>,
    /// The workload of the same elastic job in whose place it comes.
    pub replaces: Option<Uid>,
    /// Which of several replicas of one object it is; none if it is all of its job, or where nobody has looked.
    pub replica: Option<Replica>,
    /// Nothing owns it yet, as a Workload that its user made before the job: there is nothing to send.
    pub waits_for_job: bool,
    /// Whether its job shows by itself that it has ended; none where nobody has looked, as the hub has not forgotten
    /// anything and it replaces nothing.
    pub job_ended: Option<bool>,
}

impl Facts {
    /// Whether the API says of nothing to be done for it: it has ended, or has neither quota nor a cluster.
    fn is_idle(&self) -> bool {
        self.finished || !(self.reserved || self.cluster.is_some())
    }

    /// Whether quota that was reserved in memory for the workload, as it was in that version, is in memory no longer: the
    /// API shows it, or that it is not needed. A late answer may speak of an earlier reservation, that was given up since.
    pub fn settles(&self, version: Option<u64>) -> bool {
        let shown = self.reserved || self.finished || self.cluster.is_some();
        shown && version.is_none_or(|version| version <= self.version)
    }

    /// Quota or cluster are to be given up.
    pub fn leaving(&self) -> bool {
        let held = self.reserved || self.cluster.is_some();
        let refused = self
            .check
            .as_ref()
            .is_some_and(|(_, check)| matches!(check, Check::Retry | Check::Rejected));
        self.deleting || !self.active || (held && (self.evicted || refused))
    }
}

/// Quota reserved in memory.
#[derive(Debug, Clone)]
pub struct Reserved {
    /// The MultiKueue check.
    pub check: Name,
    /// Other checks have to become Ready as well, before a cluster is asked.
    pub other_checks: bool,
}

/// What a cluster says of one workload.
#[derive(Debug, Clone)]
pub struct Observation {
    /// The hub's Workload, by the uid by which the cluster knows it.
    pub uid: Uid,
    /// Where it lies.
    pub namespace: Name,
    /// Where it lies.
    pub name: Name,
    /// Of which attempt.
    pub attempt: u64,
    /// What is.
    pub state: State,
    /// Why.
    pub reasons: Vec<Reason>,
    /// It carries a job status that differs from the one before.
    pub job_status: bool,
    /// What it was made of, where the cluster says so.
    pub origin: Option<Origin>,
    /// How its preemption gate stands, if it has one.
    pub gate: Option<Gate>,
}

/// Whether a state is the end of a job.
pub fn terminal(state: State) -> bool {
    matches!(state, State::Succeeded | State::Failed)
}

/// A set of workload uids.
pub type Uids = BTreeSet<Uid>;

/// Whether a cluster says that an attempt runs, and not only that its pods are not gone yet.
fn is_running(state: State, reasons: &[Reason]) -> bool {
    state == State::Running
        && !reasons.iter().any(|reason| reason.code == switchyard_proto::DELETED_ON_WORKER)
}

/// Removes a value from a set, and the set with its last one.
fn take_from<K: Ord, V: Ord>(sets: &mut BTreeMap<K, BTreeSet<V>>, key: &K, value: &V) {
    if let Some(set) = sets.get_mut(key) {
        set.remove(value);
        if set.is_empty() {
            sets.remove(key);
        }
    }
}
