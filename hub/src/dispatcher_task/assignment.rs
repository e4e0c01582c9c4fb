//! The dispatcher's wish as the assignment that a cluster is sent.

use std::sync::Arc;
use std::time::Duration;

use switchyard_api::v1beta2::{Admission, Workload};
use switchyard_controller::Context;
use switchyard_dispatcher::PreemptionGate;
use switchyard_proto::MAX_PAYLOAD;
use switchyard_proto::v1::{Assignment, OnDisconnect, Phase, on_disconnect};

use super::facts::{priority_class, sized};
use super::mirror::job_of;
use super::payload::{PayloadError, content, owner, runs_elsewhere};
use super::replicas::follows;
use crate::cluster_channel::Content;

/// What a cluster is to create for a workload. A later replica of an object comes without it: it is there with the first. `held`:
/// the workload's quota, where that is in memory.
///
/// # Errors
/// Says why there is nothing to create.
pub(super) fn made_of(
    ctx: &Context,
    workload: &Workload,
    held: Option<&Admission>,
) -> Result<Arc<Content>, PayloadError> {
    let Some((kind, job)) = job_of(ctx, workload) else {
        let owned = owner(workload).ok_or(PayloadError::NoOwner)?;
        return Err(PayloadError::OwnerMissing {
            kind: owned.kind.id().kind.to_owned(),
            name: owned.name.to_owned(),
        });
    };
    let job = job.value();
    runs_elsewhere(kind, &job)?;
    let sized = sized(workload, held);
    let mut made = content(workload, sized.as_ref(), kind, &job, &ctx.config.multi_kueue.origin)?;
    if follows(workload) {
        made = Content::new(made.workload, Vec::new());
    }
    let bytes = made.workload.len() + made.job.len();
    if bytes > MAX_PAYLOAD {
        return Err(PayloadError::TooLarge { bytes });
    }
    Ok(Arc::new(made))
}

/// A workload's priority and the class that it comes from.
pub(super) fn priority(workload: &Workload) -> (i32, &str) {
    (workload.spec.priority.unwrap_or(0), priority_class(workload).unwrap_or_default())
}

/// An assignment whose Workload is made with a preemption gate, if it is to have one.
pub fn gated(assignment: Assignment, gate: Option<PreemptionGate>) -> Assignment {
    Assignment { preemption_gate: gate.map(Into::into), ..assignment }
}

/// The assignment; its payload's hash is filled in by the outbox. `priority`: with its class. `fence`: milliseconds after
/// the end of the agent's lease.
pub fn assignment(
    workload_uid: &str,
    namespace: &str,
    name: &str,
    attempt: u64,
    phase: Phase,
    priority: Option<(i32, &str)>,
    fence: Option<i64>,
) -> Assignment {
    let (priority, priority_class) = priority.unwrap_or_default();
    Assignment {
        workload_uid: workload_uid.to_owned(),
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        attempt,
        phase: phase.into(),
        priority,
        priority_class: priority_class.to_owned(),
        on_disconnect: fence.map(on_disconnect),
        ..Assignment::default()
    }
}

/// As the agent is told: it stops the job by itself so many milliseconds after the end of its lease.
fn on_disconnect(fence: i64) -> OnDisconnect {
    let after = Duration::from_millis(u64::try_from(fence).unwrap_or(0));
    let after = prost_types::Duration::try_from(after).ok();
    OnDisconnect { policy: on_disconnect::Policy::Fence.into(), after }
}
