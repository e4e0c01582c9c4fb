//! What the ledger knows of the cluster's objects, and what it wants done. No client, no clock.

use std::sync::Arc;
use std::time::Duration;

use switchyard_proto::v1;

/// Time on a clock that never goes back. Where it begins does not matter, as long as what an earlier process knew can be
/// told in it, too: later than zero.
pub type Time = Duration;

/// Which of a workload's two objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// The `kueue.x-k8s.io` Workload.
    Workload,
    /// The job, of whatever kind.
    Job,
}

/// One object on the cluster, by the uid that no other ever has.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Target {
    /// Its group, version and kind, such as `batch/v1, Kind=Job`.
    pub gvk: Arc<str>,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its own uid.
    pub uid: String,
}

/// What both kinds of objects have. Only objects that carry this hub's id are ever made into one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Meta {
    /// The object.
    pub target: Target,
    /// Its resourceVersion as a number; of two states of one object the greater is the newer.
    pub version: u64,
    /// The hub's workload that it stands for.
    pub workload_uid: String,
    /// The attempt that it was made for.
    pub attempt: u64,
    /// Whether its deletion has begun.
    pub deleting: bool,
    /// Where our finalizer is among its finalizers, if it is.
    pub held: Option<usize>,
    /// Uids of its owners.
    pub owners: Vec<String>,
}

/// A condition of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Condition {
    /// Status is `True`.
    pub is_true: bool,
    /// CamelCase.
    pub reason: String,
    /// For people.
    pub message: String,
}

/// An admission check of the worker that is not ready.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UnreadyCheck {
    /// The AdmissionCheck.
    pub name: String,
    /// `Pending`, `Retry` or `Rejected`.
    pub state: String,
    /// For people.
    pub message: String,
}

/// The priority of a Workload that has a WorkloadPriorityClass. Only such a one may change while its job runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Priority {
    /// The class, as `spec.priorityClassRef.name` says.
    pub class: String,
    /// `spec.priority`.
    pub value: i32,
}

/// How the hub's preemption gate on a Workload stands. In seconds since the Unix epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gate {
    /// Since when it is open, by the hub's clock; none: it is closed.
    pub opened: Option<i64>,
    /// Since when it has been in the way of a preemption; none: it is not.
    pub blocked: Option<i64>,
}

/// What a Workload was made of: by that a hub that has forgotten it knows the job again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Origin {
    /// The job's kind, such as `batch/v1, Kind=Job`; empty if the Workload does not say.
    pub kind: String,
    /// The job's name.
    pub job_name: String,
    /// See [`switchyard_proto::pod_sets_hash`].
    pub pod_sets: Vec<u8>,
    /// When it was made, in seconds since the Unix epoch by the API server's clock.
    pub created: i64,
}

/// The worker's Workload, as far as it matters here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoteWorkload {
    /// Identity.
    pub meta: Meta,
    /// `spec.active`.
    pub active: bool,
    /// Whether it was us who made it inactive.
    pub suspended_by_us: bool,
    /// Whether its pods are those of another Workload's job: none is made for it, and they run once it has quota.
    pub follows: bool,
    /// For how long after the lease lapsed its job may run on, as recorded on it; none: as long as it likes.
    pub fence_after: Option<Duration>,
    /// Its priority, if that comes from a WorkloadPriorityClass.
    pub priority: Option<Priority>,
    /// The hub's preemption gate, if it has one.
    pub gate: Option<Gate>,
    /// Condition `QuotaReserved`.
    pub quota_reserved: Option<Condition>,
    /// Condition `Admitted`.
    pub admitted: Option<Condition>,
    /// Condition `Evicted`.
    pub evicted: Option<Condition>,
    /// Condition `Finished`.
    pub finished: Option<Condition>,
    /// Those of its checks that are not `Ready`.
    pub unready_checks: Vec<UnreadyCheck>,
    /// JSON: what the hub mirrors.
    pub status: Vec<u8>,
    /// What it was made of.
    pub origin: Origin,
    /// Of an elastic job's: which of several it is.
    pub slice: Option<Slice>,
}

/// Which of the Workloads of an elastic job one is. The worker's admission makes another as the job grows, which takes the
/// place of the one before once it has quota.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slice {
    /// What they have in common: the name of the first.
    pub chain: String,
    /// The name of the one that it replaces.
    pub replaces: Option<String>,
}

/// How a job ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobEnd {
    /// It did what it should.
    pub success: bool,
    /// CamelCase.
    pub reason: String,
    /// For people.
    pub message: String,
}

/// The job on the worker, as far as it matters here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoteJob {
    /// Identity.
    pub meta: Meta,
    /// Whether its spec says suspended.
    pub suspended: bool,
    /// Whether pods of it run.
    pub active: bool,
    /// Whether `end` will say how it ends; if not, only its Workload does.
    pub tells_its_end: bool,
    /// Whether it may become other than it was made: a group of objects, or one object with replicas or with fields that
    /// follow the hub's.
    pub several: bool,
    /// Whether an object of it was taken away before it had ended: it does not go on without.
    pub broken: bool,
    /// How it ended, if it has.
    pub end: Option<JobEnd>,
    /// JSON: its status.
    pub status: Vec<u8>,
}

/// An object of either kind.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::large_enum_variant, reason = "it travels in a box")]
pub enum Object {
    /// A Workload.
    Workload(RemoteWorkload),
    /// A job.
    Job(RemoteJob),
}

impl Object {
    /// What both kinds have.
    pub fn meta(&self) -> &Meta {
        match self {
            Self::Workload(workload) => &workload.meta,
            Self::Job(job) => &job.meta,
        }
    }

    /// Which kind it is.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Workload(_) => Kind::Workload,
            Self::Job(_) => Kind::Job,
        }
    }
}

/// The Workload and job to create.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Payload {
    /// JSON.
    pub workload: Vec<u8>,
    /// JSON.
    pub job: Vec<u8>,
}

/// What the cluster's watches tell.
#[derive(Clone, Debug)]
pub enum Seen {
    /// An object is there, in this state.
    Applied(Box<Object>),
    /// The object of this uid is not there any more.
    Deleted {
        /// Which of the two.
        kind: Kind,
        /// The hub's workload that it stood for.
        workload_uid: String,
        /// The object.
        target: Target,
    },
    /// The object of this uid does not say any more that it is this hub's: whoever took the marks off took it over.
    Disowned {
        /// Which of the two.
        kind: Kind,
        /// The object.
        target: Target,
    },
    /// What the pods say that the job's own controller has made for it. They count where its copy is alone.
    Parts {
        /// Where they are.
        namespace: String,
        /// The hub's workload.
        workload_uid: String,
        /// The attempt that they were made for.
        attempt: u64,
        /// JSON: their statuses; empty when there are none.
        status: Vec<u8>,
    },
    /// All that is known now to keep an attempt's job from starting.
    Troubles {
        /// The hub's workload.
        workload_uid: String,
        /// The attempt.
        attempt: u64,
        /// Within the bounds of the protocol; empty when there is none any more.
        troubles: Vec<v1::JobTrouble>,
    },
    /// A complete list of one kind of objects (by gvk) has been delivered as `Applied`; these were in it.
    Listed {
        /// Which kind of objects was listed.
        kind: Kind,
        /// Its group, version and kind.
        gvk: Arc<str>,
        /// The uids of the objects in the list.
        uids: std::collections::BTreeSet<String>,
    },
    /// Every kind has been listed once: from now on what is not known does not exist.
    Synced,
}

/// A write (or a re-read) on the cluster, of which a workload has at most one at a time for each of its objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Action {
    /// The hub's workload.
    pub workload_uid: String,
    /// Which object.
    pub kind: Kind,
    /// What to do.
    pub verb: Verb,
    /// Not to be begun at or after this: it makes a job run that has to be stopped then.
    pub until: Option<Time>,
}

impl Action {
    /// Whether it removes a job that has ended. At most a later attempt, or a job of the same name, waits for that.
    pub fn tidies(&self) -> bool {
        self.kind == Kind::Job && matches!(self.verb, Verb::Delete { foreground: false, .. })
    }
}

/// What to do with an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verb {
    /// Create it from the payload, with our marks.
    Create {
        /// The namespace of the assignment; the payload's must be the same.
        namespace: String,
        /// The name of the hub's Workload.
        name: String,
        /// The attempt to stamp.
        attempt: u64,
        /// What to create.
        payload: Arc<Payload>,
        /// For a Workload: what to record as [`RemoteWorkload::fence_after`].
        fence_after: Option<Duration>,
        /// For a Workload: whether it has the hub's preemption gate.
        gated: bool,
    },
    /// Look whether an unanswered creation of it happened. The fields are the creation's.
    Find {
        /// The namespace of the assignment.
        namespace: String,
        /// The name of the hub's Workload.
        name: String,
        /// The attempt that was stamped.
        attempt: u64,
        /// What was to be created.
        payload: Arc<Payload>,
    },
    /// Delete it, if it still is the object meant. In the foreground it stays until its pods are gone.
    Delete {
        /// The object.
        target: Target,
        /// Whether it stays until what it owns is gone.
        foreground: bool,
    },
    /// Take our finalizer off.
    Release {
        /// The object.
        target: Target,
        /// Where among its finalizers ours was seen.
        index: usize,
    },
    /// Set the Workload's `spec.active`, which makes the worker's admission stop its job, or queue it again.
    SetActive {
        /// The object.
        target: Target,
        /// What to set.
        active: bool,
    },
    /// Record on the Workload for how long after the lease lapsed its job may run on.
    SetFence {
        /// The object.
        target: Target,
        /// What to record.
        after: Option<Duration>,
    },
    /// Set the Workload's priority, and the class that it comes from.
    SetPriority {
        /// The object.
        target: Target,
        /// What to set.
        priority: Priority,
    },
    /// Open the hub's preemption gate on the Workload.
    OpenGate {
        /// The object.
        target: Target,
        /// Since when it counts as open, in seconds since the Unix epoch.
        at: i64,
    },
    /// Read it again: a list did not have it.
    Reread {
        /// The object.
        target: Target,
    },
}

/// How an action went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Done; this is the object now.
    Object(Box<Object>),
    /// Accepted; the watch will tell.
    Accepted,
    /// There is no such object.
    Gone,
    /// The name is taken by an object of this hub's that stands for another workload.
    Occupied {
        /// That workload's uid.
        by: String,
    },
    /// It cannot be done as things are.
    Refused(Trouble),
    /// It has not happened, and will not by itself; another try may go through.
    Rejected(String),
    /// It did not go through; it may have happened all the same.
    Failed(String),
}

/// Why an assignment cannot be followed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    /// What is reported: `REFUSED`, `UNFIT` or `WAITING`.
    pub state: v1::State,
    /// CamelCase, stable.
    pub code: String,
    /// For people: what is wrong and what mends it.
    pub message: String,
}

impl Trouble {
    /// The agent may not or cannot.
    pub fn refused(code: &str, message: impl Into<String>) -> Self {
        Self { state: v1::State::Refused, code: code.to_owned(), message: message.into() }
    }

    /// It can never run here as things are.
    pub fn unfit(code: &str, message: impl Into<String>) -> Self {
        Self { state: v1::State::Unfit, code: code.to_owned(), message: message.into() }
    }

    /// It will pass.
    pub fn waiting(code: &str, message: impl Into<String>) -> Self {
        Self { state: v1::State::Waiting, code: code.to_owned(), message: message.into() }
    }

    /// As it goes on the wire.
    pub fn reason(&self) -> v1::Reason {
        v1::Reason { code: self.code.clone(), message: self.message.clone() }
    }
}
