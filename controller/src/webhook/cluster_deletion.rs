//! Warns a user who deletes a MultiKueueCluster that still has jobs. The deletion proceeds.

use kube::ResourceExt as _;
use switchyard_api::v1beta2::Workload;
use switchyard_jobs::meta;

use super::review::{ReviewOutcome, ReviewRequest};
use crate::context::Context;
use crate::workload;

/// The kind's name in paths and webhook names.
pub(super) const SINGULAR: &str = "multikueuecluster";

pub(super) fn warn(ctx: &Context, request: &ReviewRequest<'_>) -> ReviewOutcome {
    let name = meta::name(request.object);
    let is_there = |workload: &Workload| {
        let cluster = workload.status.as_ref().and_then(|status| status.cluster_name.as_deref());
        cluster == Some(name) && !workload::is_finished(workload)
    };
    let jobs = ctx.stores.workloads.filter(is_there);
    let Some(one) = jobs.first() else { return ReviewOutcome::Allow };
    let example = format!("{}/{}", one.namespace().unwrap_or_default(), one.name_any());
    let count = match jobs.len() {
        1 => format!("1 workload ({example}) is"),
        many => format!("{many} workloads (such as {example}) are"),
    };
    let patience = ctx.config.multi_kueue.worker_lost_timeout.std();
    ReviewOutcome::Warn(vec![format!(
        "{count} on cluster \"{name}\": what runs there is not stopped, the hub hears nothing of it any more, and after {} s or \
         its fence it is queued again and may run twice; to keep the jobs, create the MultiKueueCluster again before that, and where \
         the worker has an agent give it a new token (switchyard cluster add {name})",
        patience.as_secs()
    )])
}
