//! The dispatcher's wish as the assignment that a cluster is sent.

use std::sync::Arc;

use switchyard_api::config::GoDuration;
use switchyard_api::v1beta2::{DisconnectPolicy, MultiKueueCluster, Workload};
use switchyard_controller::Context;
use switchyard_proto::MAX_PAYLOAD;
use switchyard_proto::v1::{Assignment, OnDisconnect, Phase, on_disconnect};

use super::mirror::job_of;
use super::payload::{PayloadError, content, owner};
use crate::cluster::{Content, Port};

/// What the cluster is to create for a workload: what it was given before, or made anew.
///
/// # Errors
/// Says why there is nothing to create.
pub(super) fn content_for(ctx: &Context, port: &Port, workload: &Workload) -> Result<Arc<Content>, PayloadError> {
    let uid = workload.metadata.uid.as_deref().unwrap_or_default();
    if let Some(known) = port.content(uid) {
        return Ok(known);
    }
    let Some((kind, job)) = job_of(ctx, workload) else {
        let (_, owner) = owner(workload).ok_or(PayloadError::NoOwner)?;
        return Err(PayloadError::OwnerMissing { kind: owner.kind.clone(), name: owner.name.clone() });
    };
    let made = content(workload, kind, &job.value, &ctx.config.multi_kueue.origin)?;
    let bytes = made.workload.len() + made.job.len();
    if bytes > MAX_PAYLOAD {
        return Err(PayloadError::TooLarge { bytes });
    }
    Ok(Arc::new(made))
}

/// The assignment; its payload's hash is filled in by the outbox.
pub(super) fn assignment(
    workload_uid: &str,
    namespace: &str,
    name: &str,
    attempt: u64,
    phase: Phase,
    workload: Option<&Workload>,
    cluster: Option<&MultiKueueCluster>,
) -> Assignment {
    Assignment {
        workload_uid: workload_uid.to_owned(),
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        attempt,
        phase: phase.into(),
        priority: workload.and_then(|workload| workload.spec.priority).unwrap_or(0),
        on_disconnect: cluster.and_then(on_disconnect),
        ..Assignment::default()
    }
}

fn on_disconnect(cluster: &MultiKueueCluster) -> Option<OnDisconnect> {
    let rule = cluster.spec.on_disconnect.as_ref()?;
    let policy = match rule.policy {
        DisconnectPolicy::Hold => on_disconnect::Policy::Hold,
        DisconnectPolicy::Fence => on_disconnect::Policy::Fence,
        DisconnectPolicy::Duplicate => on_disconnect::Policy::Duplicate,
    };
    let after = rule.after.as_deref().and_then(|text| text.parse::<GoDuration>().ok());
    let after = after.and_then(|after| prost_types::Duration::try_from(after.std()).ok());
    Some(OnDisconnect { policy: policy.into(), after })
}
