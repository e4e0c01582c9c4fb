//! Builds the assignment that a cluster receives for a decision of the dispatcher.

use std::sync::Arc;
use std::time::Duration;

use switchyard_api::flavor_pins::FlavorPins;
use switchyard_api::v1beta2::{Admission, Workload};
use switchyard_controller::Context;
use switchyard_dispatcher::PreemptionGate;
use switchyard_proto::MAX_PAYLOAD;
use switchyard_proto::v1::{Assignment, FlavorPin, OnDisconnect, Payload, Phase, on_disconnect};

use super::gather::sized;
use super::job_status::sent_job;
use super::payload::{PayloadError, encode_payload, require_managed_by_kueue, sent_owner};
use super::replicas::is_later_replica;
use super::workload_view::priority_class;

/// Builds the objects that the agent creates for a workload. `held` is quota reserved in memory
/// only.
///
/// The job of a later replica is empty: the agent creates it with the first replica.
///
/// # Errors
/// Why the workload cannot be sent.
pub(super) fn build_payload(
    ctx: &Context,
    workload: &Workload,
    held: Option<&Admission>,
) -> Result<Arc<Payload>, PayloadError> {
    let Some((kind, job)) = sent_job(ctx, workload) else {
        let owned = sent_owner(workload).ok_or(PayloadError::NoOwner)?;
        return Err(PayloadError::OwnerMissing {
            kind: owned.kind.id().kind.to_owned(),
            name: owned.name.to_owned(),
        });
    };
    let job = job.value();
    require_managed_by_kueue(kind, &job)?;
    let sized = sized(workload, held);
    let mut payload =
        encode_payload(workload, sized.as_ref(), kind, &job, &ctx.config.multi_kueue.origin)?;
    if is_later_replica(workload) {
        payload = Payload::new(payload.workload, Vec::new());
    }
    let bytes = payload.workload.len() + payload.job.len();
    if bytes > MAX_PAYLOAD {
        return Err(PayloadError::TooLarge { bytes });
    }
    Ok(Arc::new(payload))
}

/// The workload's priority, and the WorkloadPriorityClass that sets it.
pub(super) fn priority(workload: &Workload) -> (i32, &str) {
    (workload.spec.priority.unwrap_or(0), priority_class(workload).unwrap_or_default())
}

/// Has the agent create the Workload with a preemption gate.
pub fn with_preemption_gate(assignment: Assignment, gate: Option<PreemptionGate>) -> Assignment {
    Assignment { preemption_gate: gate.map(Into::into), ..assignment }
}

/// Binds the cluster to these flavors.
pub fn with_flavor_pins(assignment: Assignment, pins: &FlavorPins) -> Assignment {
    let pin = |(pod_set, resource, flavor): (&str, &str, &str)| FlavorPin {
        pod_set: pod_set.to_owned(),
        resource: resource.to_owned(),
        flavor: flavor.to_owned(),
    };
    Assignment { flavor_pins: pins.rows().map(pin).collect(), ..assignment }
}

/// An assignment without payload; the outbox fills in the payload's hash. `fence` is in
/// milliseconds after the end of the agent's lease.
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

/// The agent stops the job by itself this many milliseconds after the end of its lease.
fn on_disconnect(fence: i64) -> OnDisconnect {
    let after = Duration::from_millis(u64::try_from(fence).unwrap_or(0));
    let after = prost_types::Duration::try_from(after).ok();
    OnDisconnect { policy: on_disconnect::Policy::Fence.into(), after }
}
