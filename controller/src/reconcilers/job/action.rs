//! Effects of the job reconciler, as data.

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use serde_json::Value;
use switchyard_api::v1beta2::{Workload, WorkloadStatus};

use crate::workload::{Edit, ReasonDetail};

/// A write or an event. The writes of one decision go to different objects, and each triggers
/// another reconcile. So no decision builds on a write that has not happened.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Action {
    /// Writes the difference between the job that was read and this one, with its resourceVersion
    /// as precondition. For a composed job, writes the members that this one has.
    UpdateJob(Box<Value>),
    /// As [`Action::UpdateJob`] for the status.
    UpdateJobStatus(Box<Value>),
    CreateWorkload(Box<Workload>),
    /// Writes the difference in metadata and spec, with the resourceVersion as precondition.
    UpdateWorkload {
        /// The workload as it was read.
        old: Arc<Workload>,
        /// The desired workload.
        new: Box<Workload>,
    },
    /// Writes the difference in status, with the resourceVersion as precondition.
    UpdateWorkloadStatus {
        /// The workload as it was read.
        old: Arc<Workload>,
        /// The desired status.
        status: Box<WorkloadStatus>,
    },
    /// Removes the finalizer and deletes the workload with this uid.
    DeleteWorkload(Arc<Workload>),
    /// Deletes the job with this uid.
    DeleteJob,
    /// Deletes members of the job with these uids.
    Terminate {
        members: Vec<Value>,
        /// Reason and message of the condition that they get first, if any.
        why: Option<(String, String)>,
    },
    /// Publishes an event about the job after the writes before it.
    Event {
        /// A Warning instead of a Normal event.
        warning: bool,
        /// One of Kueue's reasons.
        reason: &'static str,
        /// Kueue's note.
        note: String,
    },
    /// Publishes a Normal event about each of these members of the job. A pod group has no object
    /// of its own.
    MemberEvents {
        members: Vec<Value>,
        /// One of Kueue's reasons.
        reason: &'static str,
        /// Kueue's note.
        note: String,
    },
    /// Publishes a Normal event about a workload.
    WorkloadEvent {
        workload: Arc<Workload>,
        /// One of Kueue's reasons.
        reason: &'static str,
        /// Kueue's note.
        note: String,
    },
}

impl Action {
    pub(super) fn normal(reason: &'static str, note: impl Into<String>) -> Self {
        Self::Event { warning: false, reason, note: note.into() }
    }

    pub(super) fn warning(reason: &'static str, note: impl Into<String>) -> Self {
        Self::Event { warning: true, reason, note: note.into() }
    }

    /// Edits a workload's metadata or spec.
    pub(super) fn edit(workload: &Arc<Workload>, edit: impl FnOnce(&mut Workload)) -> Self {
        let mut new = Box::new(Workload::clone(workload));
        edit(&mut new);
        Self::UpdateWorkload { old: workload.clone(), new }
    }

    /// Edits a workload's status except for quota and admission.
    pub(super) fn edit_status(
        workload: &Arc<Workload>,
        now: Timestamp,
        edit: impl FnOnce(&mut Edit),
    ) -> Self {
        Self::edit_quota(workload, ReasonDetail::default(), now, edit)
    }

    /// Edits a workload's status, quota included.
    pub(super) fn edit_quota(
        workload: &Arc<Workload>,
        reasons: ReasonDetail,
        now: Timestamp,
        edit: impl FnOnce(&mut Edit),
    ) -> Self {
        let mut changed = Edit::new(workload, reasons, now);
        edit(&mut changed);
        Self::UpdateWorkloadStatus { old: workload.clone(), status: Box::new(changed.status) }
    }
}

/// Reason of the event on a job of a dispatching queue that cannot be dispatched. Switchyard's own;
/// the others are in [`switchyard_api::conditions::reasons::events`].
pub(super) const NOT_DISPATCHABLE: &str = "NotDispatchable";

/// The outcome of deciding about a job.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Decision {
    /// In this order.
    pub actions: Vec<Action>,
    pub next: Next,
}

/// When to reconcile the job again.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) enum Next {
    /// On the next change of the job, of its workloads, or of objects that it waits for.
    #[default]
    OnChange,
    /// After this delay at the latest.
    After(Duration),
    /// With backoff, because something is missing.
    Retry(String),
}

impl Decision {
    pub(super) fn act(actions: impl IntoIterator<Item = Action>) -> Self {
        Self { actions: actions.into_iter().collect(), next: Next::OnChange }
    }

    pub(super) fn wait() -> Self {
        Self::default()
    }

    /// Waits for a change, or for `left` if it is not [`Duration::MAX`].
    pub(super) fn wait_at_most(left: Duration) -> Self {
        let next = if left == Duration::MAX { Next::OnChange } else { Next::After(left) };
        Self { actions: Vec::new(), next }
    }

    pub(super) fn retry(actions: impl IntoIterator<Item = Action>, why: impl Into<String>) -> Self {
        Self { actions: actions.into_iter().collect(), next: Next::Retry(why.into()) }
    }
}
