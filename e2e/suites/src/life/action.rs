//! The actions of a run, and how the log names them.

use std::fmt;
use std::time::Duration;

use super::subject::{Kind, Subject};

/// How an object is deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Deletion {
    Background,
    Foreground,
}

/// The stop policy of a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Policy {
    #[default]
    None,
    Hold,
    HoldAndDrain,
}

/// How a pod ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum PodEnd {
    #[default]
    Deleted,
    Failed,
    Succeeded,
}

/// The subcommand of `switchyard cluster`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Scheduling {
    #[default]
    Uncordon,
    Cordon,
    Drain,
}

/// One action. `pick` chooses among those Workloads or pods that a job has when the action is done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Create(Subject),
    /// Deletes what has the name, and makes something of that name.
    Recreate {
        kind: Kind,
        how: Deletion,
        subject: Subject,
    },
    Delete {
        name: &'static str,
        kind: Kind,
        how: Deletion,
    },
    Resize {
        name: &'static str,
        kind: Kind,
        size: u32,
    },
    Move {
        name: &'static str,
        pick: usize,
        to: &'static str,
    },
    Deactivate {
        name: &'static str,
        pick: usize,
    },
    /// All Workloads of the job.
    Activate {
        name: &'static str,
    },
    DeleteWorkload {
        name: &'static str,
        pick: usize,
    },
    /// Deactivates the Workload on the worker that it runs on.
    EvictOnWorker {
        name: &'static str,
        pick: usize,
    },
    Suspend {
        name: &'static str,
        kind: Kind,
    },
    ChangeQueue {
        name: &'static str,
        kind: Kind,
        queue: &'static str,
    },
    ChangePriority {
        name: &'static str,
        kind: Kind,
        class: &'static str,
    },
    /// A pod on a worker ends, or is deleted.
    EndPod {
        name: &'static str,
        pick: usize,
        end: PodEnd,
    },
    StopQueue {
        cluster: &'static str,
        queue: &'static str,
        policy: Policy,
    },
    StopLocalQueue {
        cluster: &'static str,
        queue: &'static str,
        policy: Policy,
    },
    SetQuota {
        cluster: &'static str,
        queue: &'static str,
        cpu: u32,
    },
    /// The LocalQueue `d` of the hub is deleted, and made again for this ClusterQueue.
    LeadQueue {
        to: &'static str,
    },
    Schedule {
        cluster: &'static str,
        how: Scheduling,
    },
    /// A program is killed, and started again.
    Restart {
        program: &'static str,
        away: Duration,
    },
}

impl Action {
    /// All names, in their order.
    #[cfg(test)]
    pub(crate) const NAMES: [&str; 19] = [
        "activate",
        "change-priority",
        "change-queue",
        "create",
        "deactivate",
        "delete",
        "delete-workload",
        "end-pod",
        "evict-on-worker",
        "lead-queue",
        "move",
        "recreate",
        "resize",
        "restart",
        "schedule",
        "set-quota",
        "stop-local-queue",
        "stop-queue",
        "suspend",
    ];

    /// The kind of action.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Create(_) => "create",
            Self::Recreate { .. } => "recreate",
            Self::Delete { .. } => "delete",
            Self::Resize { .. } => "resize",
            Self::Move { .. } => "move",
            Self::Deactivate { .. } => "deactivate",
            Self::Activate { .. } => "activate",
            Self::DeleteWorkload { .. } => "delete-workload",
            Self::EvictOnWorker { .. } => "evict-on-worker",
            Self::Suspend { .. } => "suspend",
            Self::ChangeQueue { .. } => "change-queue",
            Self::ChangePriority { .. } => "change-priority",
            Self::EndPod { .. } => "end-pod",
            Self::StopQueue { .. } => "stop-queue",
            Self::StopLocalQueue { .. } => "stop-local-queue",
            Self::SetQuota { .. } => "set-quota",
            Self::LeadQueue { .. } => "lead-queue",
            Self::Schedule { .. } => "schedule",
            Self::Restart { .. } => "restart",
        }
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ", self.name())?;
        match self {
            Self::Create(subject) => write!(f, "{subject}"),
            Self::Recreate { kind, how, subject } => write!(f, "{how:?} {kind:?} as {subject}"),
            Self::Delete { name, kind, how } => write!(f, "{how:?} {kind:?} {name}"),
            Self::Resize { name, kind, size } => write!(f, "{kind:?} {name} to {size}"),
            Self::Move { name, to, .. } => write!(f, "{name} to {to}"),
            Self::Deactivate { name, .. }
            | Self::Activate { name }
            | Self::DeleteWorkload { name, .. }
            | Self::EvictOnWorker { name, .. } => write!(f, "{name}"),
            Self::Suspend { name, kind } => write!(f, "{kind:?} {name}"),
            Self::ChangeQueue { name, kind, queue } => write!(f, "{kind:?} {name} to {queue}"),
            Self::ChangePriority { name, kind, class } => write!(f, "{kind:?} {name} to {class}"),
            Self::EndPod { name, end, .. } => write!(f, "of {name}: {end:?}"),
            Self::StopQueue { cluster, queue, policy }
            | Self::StopLocalQueue { cluster, queue, policy } => {
                write!(f, "{queue} on {cluster}: {policy:?}")
            }
            Self::SetQuota { cluster, queue, cpu } => {
                write!(f, "of {queue} on {cluster}: {cpu} cpu")
            }
            Self::LeadQueue { to } => write!(f, "d to {to}"),
            Self::Schedule { cluster, how } => write!(f, "{cluster}: {how:?}"),
            Self::Restart { program, away } => write!(f, "{program} after {away:?}"),
        }
    }
}
