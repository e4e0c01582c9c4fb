//! The actions that the ledger asks for, and their outcomes.

use std::sync::Arc;
use std::time::Duration;

use switchyard_proto::v1;

use switchyard_proto::v1::Payload;

use crate::objects::{Object, ObjectKind, Priority, Target, Time};

/// A request to the cluster's API server. A workload has at most one at a time for each of its two
/// objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Action {
    /// The uid of the hub's Workload.
    pub workload_uid: String,
    pub kind: ObjectKind,
    pub verb: Verb,
    /// The executor must not start the action at or after this time: the fence of the job that it
    /// starts is due then.
    pub deadline: Option<Time>,
}

impl Action {
    /// Whether it deletes a job that has ended. At most a later attempt, or a job of the same name,
    /// waits for that.
    pub fn is_cleanup(&self) -> bool {
        self.kind == ObjectKind::Job && matches!(self.verb, Verb::Delete { foreground: false, .. })
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verb {
    /// Create the object from the payload, with the agent's marks.
    Create {
        /// The assignment's namespace. The payload must have the same.
        namespace: String,
        /// The name of the hub's Workload.
        name: String,
        /// The attempt that the object is marked with.
        attempt: u64,
        payload: Arc<Payload>,
        /// For a Workload: see [`RemoteWorkload::fence_after`](crate::RemoteWorkload::fence_after).
        fence_after: Option<Duration>,
        /// For a Workload: whether it gets the hub's preemption gate.
        gated: bool,
        /// For a Workload: the only flavors that its pods may use.
        pins: Arc<[v1::FlavorPin]>,
    },
    /// Look whether an unanswered creation took effect. The fields are those of the creation.
    Find { namespace: String, name: String, attempt: u64, payload: Arc<Payload> },
    /// Delete the object if it still has the target's uid.
    Delete {
        target: Target,
        /// Whether the object stays until its dependents, such as pods, are deleted.
        foreground: bool,
    },
    /// Remove the agent's finalizer.
    RemoveFinalizer {
        target: Target,
        /// The position at which the finalizer was observed.
        index: usize,
    },
    /// Set the Workload's `spec.active`. The worker's admission then stops its job, or queues it
    /// again.
    SetActive { target: Target, active: bool },
    /// Record the fence on the Workload: how long its job may run after the lease expires.
    SetFence { target: Target, after: Option<Duration> },
    /// Set the Workload's priority and its WorkloadPriorityClass.
    SetPriority { target: Target, priority: Priority },
    /// Open the hub's preemption gate on the Workload.
    OpenGate {
        target: Target,
        /// When the hub opened the gate, in seconds since the Unix epoch.
        at: i64,
    },
    /// Read the object again because a list did not contain it.
    Reread { target: Target },
}

impl Verb {
    /// The name in log messages.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Create { .. } => "create",
            Self::Find { .. } => "find",
            Self::Delete { .. } => "delete",
            Self::RemoveFinalizer { .. } => "release",
            Self::SetActive { active: true, .. } => "activate",
            Self::SetActive { active: false, .. } => "deactivate",
            Self::SetFence { .. } => "record the fence of",
            Self::SetPriority { .. } => "set the priority of",
            Self::OpenGate { .. } => "open the preemption gate of",
            Self::Reread { .. } => "reread",
        }
    }

    /// The existing object that the action concerns, if any.
    pub fn target(&self) -> Option<&Target> {
        match self {
            Self::Create { .. } | Self::Find { .. } => None,
            Self::Delete { target, .. }
            | Self::RemoveFinalizer { target, .. }
            | Self::SetActive { target, .. }
            | Self::SetFence { target, .. }
            | Self::SetPriority { target, .. }
            | Self::OpenGate { target, .. }
            | Self::Reread { target } => Some(target),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Done, with the resulting object.
    Object(Box<Object>),
    /// The API server accepted the request. The watch reports its effect.
    Accepted,
    /// The object does not exist.
    Gone,
    /// The name belongs to an object of this hub for another workload.
    Occupied {
        /// The other workload's uid.
        by: String,
    },
    /// The cluster refuses, and will refuse until something changes there.
    Rejected(Rejection),
    /// It did not happen. Another try may succeed.
    NotApplied(String),
    /// It failed without a definite answer: it may have happened, or may still happen.
    Unknown(String),
}

/// Why an assignment cannot be carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    /// The state to report: `REFUSED`, `UNFIT` or `WAITING`.
    pub state: v1::State,
    /// CamelCase and stable.
    pub code: String,
    /// Says what is wrong and how to correct it.
    pub message: String,
}

impl Rejection {
    /// The agent may not or cannot carry it out.
    pub fn refused(code: &str, message: impl Into<String>) -> Self {
        Self { state: v1::State::Refused, code: code.to_owned(), message: message.into() }
    }

    /// The cluster can never run it as things are.
    pub fn unfit(code: &str, message: impl Into<String>) -> Self {
        Self { state: v1::State::Unfit, code: code.to_owned(), message: message.into() }
    }

    /// The cause is temporary.
    pub fn waiting(code: &str, message: impl Into<String>) -> Self {
        Self { state: v1::State::Waiting, code: code.to_owned(), message: message.into() }
    }

    pub fn reason(&self) -> v1::Reason {
        v1::Reason { code: self.code.clone(), message: self.message.clone() }
    }
}
