//! The status of a LocalQueue.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::{Api, ResourceExt};
use switchyard_api::{
    conditions::{self, reasons},
    names,
    quantity::quantity_of_nanos,
    v1beta2::{
        LocalQueue, LocalQueueAdmissionFairSharingStatus, LocalQueueFairSharingStatus,
        LocalQueueStatus, StopPolicy,
    },
};
use switchyard_scheduler::PastUsage;

use super::{
    pace::FigurePace,
    publish::{Change, publish},
    usage,
};
use crate::{
    context::Context,
    engine::{
        convert::time::wall_time,
        views::{LocalQueueFigures, Views},
    },
};
use switchyard_platform::{clock::whole_seconds, store::Key, work_queue::Outcome, write::Target};

pub(super) async fn reconcile(
    ctx: &Context,
    views: &Views,
    pace: &FigurePace,
    key: Key,
) -> Outcome {
    let Some(queue) = ctx.stores.local_queues.by_key(&key) else {
        pace.forget(&key);
        ctx.metrics.forget_local_queue(&key);
        return Outcome::Done;
    };
    if !ctx.metrics.shows_local_queue(&key) {
        // It may have lost the labels by which it had metrics.
        ctx.metrics.forget_local_queue(&key);
    }
    if !ctx.leading() {
        return Outcome::Done;
    }
    let Some(figures) = views.local_queue(&key.namespace, &key.name) else { return Outcome::Done };
    let after = status(&queue, &figures, ctx.clock.now());
    let target = Target {
        api: Api::namespaced(ctx.client.clone(), &queue.namespace().unwrap_or_default()),
        store: &ctx.stores.local_queues,
        object: &*queue,
        manager: names::FIELD_MANAGER,
        what: "localqueue",
    };
    let before = queue.status.as_ref();
    let urgent = before.is_none_or(|before| before.conditions != after.conditions);
    publish(ctx, pace, key, &target, Change { before, after: &after, urgent }).await
}

/// The desired status. Pure.
pub(super) fn status(
    queue: &LocalQueue,
    figures: &LocalQueueFigures,
    now: Timestamp,
) -> LocalQueueStatus {
    let mut status = queue.status.clone().unwrap_or_default();
    let stopped = queue.spec.stop_policy != StopPolicy::None;
    // Kueue shows no pending workloads for a stopped queue.
    status.pending_workloads = if stopped { 0 } else { usage::count(figures.pending) };
    // Without a ClusterQueue no quota is used, even while workloads run.
    let gone = reasons::local_queue::CLUSTER_QUEUE_DOES_NOT_EXIST;
    let missing = figures.inactive.as_ref().is_some_and(|cause| cause.reason == gone);
    status.reserving_workloads = if missing { 0 } else { usage::count(figures.reserving) };
    status.admitted_workloads = if missing { 0 } else { usage::count(figures.admitted) };
    status.flavors_reservation = usage::of_local_queue(&figures.reservation);
    status.flavors_usage = usage::of_local_queue(&figures.usage);
    if let Some(used) = &figures.past_usage {
        status.fair_sharing = Some(past_usage(used));
    }
    let (holds, reason, message) = active(figures);
    let condition =
        conditions::new(conditions::ACTIVE, holds, reason, message, queue.metadata.generation);
    conditions::set(&mut status.conditions, condition, whole_seconds(now));
    status
}

/// Past usage, for the next leader to load.
fn past_usage(used: &PastUsage) -> LocalQueueFairSharingStatus {
    let consumed =
        used.consumed.iter().map(|(name, nanos)| (name.to_string(), quantity_of_nanos(*nanos)));
    LocalQueueFairSharingStatus {
        weighted_share: 0,
        admission_fair_sharing_status: Some(LocalQueueAdmissionFairSharingStatus {
            consumed_resources: consumed.collect(),
            last_update: Time(whole_seconds(wall_time(used.last_update))),
        }),
    }
}

fn active(figures: &LocalQueueFigures) -> (bool, &'static str, &str) {
    match &figures.inactive {
        None => (true, reasons::local_queue::READY, "Can submit new workloads to localQueue"),
        Some(inactive) => (false, inactive.reason, inactive.message.as_str()),
    }
}

#[cfg(test)]
mod tests {
    use switchyard_scheduler::InactiveCause;

    use super::*;
    use crate::fixtures;

    fn figures(inactive: Option<InactiveCause>) -> LocalQueueFigures {
        LocalQueueFigures {
            cluster_queue: "cq".into(),
            inactive,
            reservation: Vec::new(),
            usage: Vec::new(),
            pending: 3,
            reserving: 2,
            admitted: 1,
            past_usage: None,
            weighted_usage: None,
        }
    }

    #[test]
    fn stopped_queue_shows_no_pending_workloads() {
        let mut queue = LocalQueue::default();
        queue.spec.stop_policy = StopPolicy::Hold;
        let inactive = InactiveCause { reason: "Stopped", message: "LocalQueue is stopped".into() };
        let status = status(&queue, &figures(Some(inactive)), fixtures::at(30));
        insta::assert_snapshot!(serde_json::to_string(&status).unwrap(), @r#"{"conditions":[{"lastTransitionTime":"1970-01-01T00:00:30Z","message":"LocalQueue is stopped","reason":"Stopped","status":"False","type":"Active"}],"pendingWorkloads":0,"reservingWorkloads":2,"admittedWorkloads":1}"#);
    }

    #[test]
    fn past_usage_is_written_exactly() {
        let consumed = [("cpu".into(), 1_500_000_000_i128), ("memory".into(), 636_414_338)].into();
        let past_usage =
            Some(PastUsage { consumed, last_update: switchyard_scheduler::Time::from_secs(20) });
        let figures = LocalQueueFigures { past_usage, ..figures(None) };
        let status = status(&LocalQueue::default(), &figures, fixtures::at(30)).fair_sharing;
        insta::assert_snapshot!(serde_json::to_string(&status).unwrap(), @r#"{"weightedShare":0,"admissionFairSharingStatus":{"consumedResources":{"cpu":"1500m","memory":"636414338n"},"lastUpdate":"1970-01-01T00:00:20Z"}}"#);
    }

    #[test]
    fn equal_figures_change_nothing() {
        let mut queue = LocalQueue::default();
        queue.status = Some(status(&queue, &figures(None), fixtures::at(30)));
        assert_eq!(status(&queue, &figures(None), fixtures::at(99)), queue.status.clone().unwrap());
    }
}
