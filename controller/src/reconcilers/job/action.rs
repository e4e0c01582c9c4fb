//! What the reconciler of jobs does to the cluster, as data.

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use serde_json::Value;
use switchyard_api::v1beta2::{Workload, WorkloadStatus};

use crate::workload::{Edit, ReasonDetail};

/// One write or event. The writes of one decision go to different objects, and each is followed by another look at the
/// job, so a decision never builds on a write that has not happened.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// Writes the difference between the job that was looked at and this one, with its resourceVersion as precondition. Of a
    /// job that has several members, those that this one has.
    UpdateJob(Box<Value>),
    /// As [`Action::UpdateJob`] for the status.
    UpdateJobStatus(Box<Value>),
    /// Creates the workload of the job.
    CreateWorkload(Box<Workload>),
    /// Writes the difference in metadata and spec, with the resourceVersion as precondition.
    UpdateWorkload {
        /// As it was looked at.
        old: Arc<Workload>,
        /// As it should be.
        new: Box<Workload>,
    },
    /// Writes the difference in status, with the resourceVersion as precondition.
    UpdateWorkloadStatus {
        /// As it was looked at.
        old: Arc<Workload>,
        /// As its status should be.
        status: Box<WorkloadStatus>,
    },
    /// Drops our finalizer and deletes, this uid only.
    DeleteWorkload(Arc<Workload>),
    /// Deletes the job, this uid only.
    DeleteJob,
    /// Deletes members of the job, these uids only.
    Terminate {
        /// Which.
        members: Vec<Value>,
        /// Reason and message of the condition that they get before, if they get one.
        why: Option<(String, String)>,
    },
    /// Publishes an event about the job, once the writes before it are done.
    Event {
        /// Whether it is a Warning.
        warning: bool,
        /// One of Kueue's reasons.
        reason: &'static str,
        /// Kueue's text.
        note: String,
    },
    /// As [`Action::Event`], a Normal one about each of these members of the job: of a group, each pod is told.
    TellMembers {
        /// Which.
        members: Vec<Value>,
        /// One of Kueue's reasons.
        reason: &'static str,
        /// Kueue's text.
        note: String,
    },
    /// As [`Action::Event`], a Normal one about a workload.
    TellWorkload {
        /// Which.
        workload: Arc<Workload>,
        /// One of Kueue's reasons.
        reason: &'static str,
        /// Kueue's text.
        note: String,
    },
}

impl Action {
    /// A Normal event.
    pub(super) fn normal(reason: &'static str, note: impl Into<String>) -> Self {
        Self::Event { warning: false, reason, note: note.into() }
    }

    /// A Warning event.
    pub(super) fn warning(reason: &'static str, note: impl Into<String>) -> Self {
        Self::Event { warning: true, reason, note: note.into() }
    }

    /// An edit of a workload's metadata or spec.
    pub(super) fn edit(workload: &Arc<Workload>, edit: impl FnOnce(&mut Workload)) -> Self {
        let mut new = Box::new(Workload::clone(workload));
        edit(&mut new);
        Self::UpdateWorkload { old: workload.clone(), new }
    }

    /// An edit of a workload's status that says nothing of quota or admission.
    pub(super) fn edit_status(
        workload: &Arc<Workload>,
        now: Timestamp,
        edit: impl FnOnce(&mut Edit),
    ) -> Self {
        Self::edit_quota(workload, ReasonDetail::default(), now, edit)
    }

    /// An edit of a workload's status, quota included.
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

/// Reason of the event on a job of a dispatching queue that cannot be handed to another cluster. Ours; the others are in
/// [`switchyard_api::conditions::reasons::events`].
pub(super) const NOT_DISPATCHABLE: &str = "NotDispatchable";

/// What a look at a job ended in.
#[derive(Debug, Default, PartialEq)]
pub struct Decision {
    /// What to do, in order.
    pub actions: Vec<Action>,
    /// When to look again even if nothing changes.
    pub next: Next,
}

/// When to look at the job again.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Next {
    /// On the next change of the job, a workload of it, or what it waits for.
    #[default]
    OnChange,
    /// After this long at the latest.
    After(Duration),
    /// Something is missing: with back-off, for the reason given.
    Retry(String),
}

impl Decision {
    pub(super) fn act(actions: impl IntoIterator<Item = Action>) -> Self {
        Self { actions: actions.into_iter().collect(), next: Next::OnChange }
    }

    pub(super) fn wait() -> Self {
        Self::default()
    }

    /// Waits for a change, or for this long where it is not [`Duration::MAX`].
    pub(super) fn wait_at_most(left: Duration) -> Self {
        let next = if left == Duration::MAX { Next::OnChange } else { Next::After(left) };
        Self { actions: Vec::new(), next }
    }

    pub(super) fn retry(actions: impl IntoIterator<Item = Action>, why: impl Into<String>) -> Self {
        Self { actions: actions.into_iter().collect(), next: Next::Retry(why.into()) }
    }
}
