//! The status of a ClusterQueue, and the finalizer that keeps it while workloads hold its quota.

use std::time::Duration;

use jiff::Timestamp;
use kube::Api;
use switchyard_api::{
    conditions::{self, reasons},
    names,
    v1beta2::{ClusterQueue, ClusterQueueStatus, FairSharingStatus, Workload},
};
use switchyard_scheduler::InactiveCause;

use super::{
    Memory, outcome,
    publish::{Change, publish},
    usage,
};
use crate::{
    context::Context,
    engine::views::{ClusterQueueFigures, Views},
    workload,
};
use switchyard_platform::{
    clock::whole_seconds,
    store::Key,
    work_queue::Outcome,
    write::{Target, WriteError},
};

pub(super) async fn reconcile(ctx: &Context, views: &Views, memory: &Memory, key: Key) -> Outcome {
    let Some(queue) = ctx.stores.cluster_queues.by_key(&key) else {
        memory.cluster_queues.forget(&key);
        memory.queue_deletions.forget(&key);
        ctx.metrics.forget_cluster_queue(&key.name);
        return Outcome::Done;
    };
    if !ctx.leading() {
        return Outcome::Done;
    }
    let figures = views.cluster_queue(&key.name);
    let target = Target {
        api: Api::all(ctx.client.clone()),
        store: &ctx.stores.cluster_queues,
        object: &*queue,
        manager: names::FIELD_MANAGER,
        what: "clusterqueue",
    };
    match finalizer(ctx, &target, figures.as_deref()).await {
        // The write triggers another reconcile.
        Ok(true) => return Outcome::Done,
        Ok(false) => (),
        Err(error) => return outcome("ClusterQueue", &key, Err(error)),
    }
    let Some(figures) = figures else { return Outcome::Done };
    let after = status(&queue, &figures, ctx.config.fair_sharing.is_some(), ctx.clock.now());
    let before = queue.status.as_ref();
    let urgent = before.is_none_or(|before| before.conditions != after.conditions);
    let again = queue
        .metadata
        .deletion_timestamp
        .as_ref()
        .and_then(|_| publish_holders(ctx, memory, &queue));
    let change = Change { before, after: &after, urgent };
    publish(ctx, &memory.cluster_queues, key, &target, change).await.at_latest(again)
}

/// Publishes whose quota keeps a deleted queue. Returns the delay until the next reconcile.
fn publish_holders(ctx: &Context, memory: &Memory, queue: &ClusterQueue) -> Option<Duration> {
    let name = queue.metadata.name.as_deref();
    let holds = |subject: &Workload| {
        workload::has_reservation(subject)
            && !workload::is_finished(subject)
            && workload::admitted_by(subject) == name
    };
    let holders = ctx.stores.workloads.filter(holds);
    let names: Vec<String> = holders.iter().map(|holder| Key::of(&**holder).to_string()).collect();
    // The engine may know of a reservation that is not written yet.
    (!names.is_empty())
        .then(|| {
            memory.queue_deletions.publish(ctx, queue, "its quota is held by", "workload", &names)
        })
        .flatten()
}

/// Adds the finalizer. Removes it from a deleted queue once the engine knows of the deletion and
/// the queue is empty; then nothing more is admitted.
async fn finalizer(
    ctx: &Context,
    target: &Target<'_, ClusterQueue>,
    figures: Option<&ClusterQueueFigures>,
) -> Result<bool, WriteError> {
    if target.object.metadata.deletion_timestamp.is_none() {
        return target.finalizer(ctx, names::RESOURCE_IN_USE, true).await;
    }
    let empty = figures.is_some_and(|figures| {
        let terminating =
            |inactive: &InactiveCause| inactive.reason == reasons::cluster_queue::TERMINATING;
        figures.reserving == 0 && figures.inactive.iter().any(terminating)
    });
    if empty { target.finalizer(ctx, names::RESOURCE_IN_USE, false).await } else { Ok(false) }
}

/// The desired status. `fair`: whether fair sharing is on. Pure.
pub(super) fn status(
    queue: &ClusterQueue,
    figures: &ClusterQueueFigures,
    fair: bool,
    now: Timestamp,
) -> ClusterQueueStatus {
    let mut status = queue.status.clone().unwrap_or_default();
    status.flavors_reservation = usage::of_cluster_queue(&figures.reservation);
    status.flavors_usage = usage::of_cluster_queue(&figures.usage);
    status.pending_workloads = usage::count(figures.pending_active + figures.pending_inadmissible);
    status.reserving_workloads = usage::count(figures.reserving);
    status.admitted_workloads = usage::count(figures.admitted);
    status.fair_sharing =
        fair.then_some(FairSharingStatus { weighted_share: figures.weighted_share });
    let (holds, reason, mut message) = active(&figures.inactive);
    if status.effective_quotas.is_some() {
        message.push_str(NOT_FOLLOWED);
    }
    let condition =
        conditions::new(conditions::ACTIVE, holds, reason, message, queue.metadata.generation);
    conditions::set(&mut status.conditions, condition, whole_seconds(now));
    status
}

/// Addition to the condition's message of a queue with external quota.
const NOT_FOLLOWED: &str = " (status.effectiveQuotas has no effect, quota is that of the spec)";

/// The first cause gives the reason, all causes the message.
fn active(inactive: &[InactiveCause]) -> (bool, &'static str, String) {
    let Some(first) = inactive.first() else {
        return (true, reasons::cluster_queue::READY, "Can admit new workloads".to_owned());
    };
    if first.reason == reasons::cluster_queue::TERMINATING {
        return (
            false,
            first.reason,
            "Can't admit new workloads; clusterQueue is terminating".to_owned(),
        );
    }
    let messages: Vec<&str> = inactive.iter().map(|inactive| inactive.message.as_str()).collect();
    (false, first.reason, format!("Can't admit new workloads: {}.", messages.join(", ")))
}

#[cfg(test)]
mod tests {
    use switchyard_scheduler::{Amount, Name, ResourceUsage};

    use super::*;
    use crate::fixtures;

    fn figures(inactive: Vec<InactiveCause>) -> ClusterQueueFigures {
        let used = |flavor: &str, resource: &str, total: i64, borrowed: i64| ResourceUsage {
            flavor: Name::from(flavor),
            resource: Name::from(resource),
            total: Amount::new(total),
            borrowed: Amount::new(borrowed),
        };
        ClusterQueueFigures {
            inactive,
            reservation: vec![
                used("spot", "cpu", 2500, 500),
                used("spot", "memory", 1 << 30, 0),
                used("gpu", "cpu", 0, 0),
            ],
            usage: vec![used("spot", "cpu", 1000, 0)],
            quota: Vec::new(),
            pending_active: 2,
            pending_inadmissible: 3,
            parked: std::collections::BTreeMap::new(),
            pending_requests: std::collections::BTreeMap::new(),
            reserving: 4,
            admitted: 1,
            weighted_share: 125,
            precise_share: 124.5,
            cohorts: None,
        }
    }

    #[test]
    fn active_queue_has_figures_and_condition() {
        let status = status(&ClusterQueue::default(), &figures(Vec::new()), true, fixtures::at(30));
        insta::assert_snapshot!(serde_json::to_string_pretty(&status).unwrap(), @r#"
        {
          "conditions": [
            {
              "lastTransitionTime": "1970-01-01T00:00:30Z",
              "message": "Can admit new workloads",
              "reason": "Ready",
              "status": "True",
              "type": "Active"
            }
          ],
          "flavorsReservation": [
            {
              "name": "spot",
              "resources": [
                {
                  "name": "cpu",
                  "total": "2500m",
                  "borrowed": "500m"
                },
                {
                  "name": "memory",
                  "total": "1Gi",
                  "borrowed": "0"
                }
              ]
            },
            {
              "name": "gpu",
              "resources": [
                {
                  "name": "cpu",
                  "total": "0",
                  "borrowed": "0"
                }
              ]
            }
          ],
          "flavorsUsage": [
            {
              "name": "spot",
              "resources": [
                {
                  "name": "cpu",
                  "total": "1",
                  "borrowed": "0"
                }
              ]
            }
          ],
          "pendingWorkloads": 5,
          "reservingWorkloads": 4,
          "admittedWorkloads": 1,
          "fairSharing": {
            "weightedShare": 125
          }
        }
        "#);
    }

    #[test]
    fn effective_quotas_are_kept_without_effect() {
        let mut queue = ClusterQueue::default();
        let quotas = Some(serde_json::json!({"resourceGroups": []}));
        queue.status = Some(ClusterQueueStatus {
            effective_quotas: quotas.clone(),
            ..ClusterQueueStatus::default()
        });
        let status = status(&queue, &figures(Vec::new()), true, fixtures::at(30));
        assert_eq!(status.effective_quotas, quotas);
        assert_eq!(
            status.conditions[0].message,
            "Can admit new workloads (status.effectiveQuotas has no effect, quota is that of the spec)"
        );
    }

    #[test]
    fn weighted_share_is_removed_without_fair_sharing() {
        let mut queue = ClusterQueue::default();
        queue.status = Some(status(&queue, &figures(Vec::new()), true, fixtures::at(30)));
        assert_eq!(
            status(&queue, &figures(Vec::new()), false, fixtures::at(30)).fair_sharing,
            None
        );
    }

    #[rstest::rstest]
    #[case::deleted(&[("Terminating", "")], "Terminating", "Can't admit new workloads; clusterQueue is terminating")]
    #[case::two_causes(
        &[("Stopped", "is stopped"), ("FlavorNotFound", "references missing ResourceFlavor(s): a")],
        "Stopped",
        "Can't admit new workloads: is stopped, references missing ResourceFlavor(s): a."
    )]
    #[case::below_cohort_cycle(
        &[(reasons::cluster_queue::COHORT_CYCLE_DETECTED, "the cohorts above form a cycle")],
        "CohortCycleDetected",
        "Can't admit new workloads: the cohorts above form a cycle."
    )]
    fn inactive_queue_has_reason_and_message(
        #[case] causes: &[(&'static str, &str)],
        #[case] reason: &str,
        #[case] message: &str,
    ) {
        let causes: Vec<InactiveCause> = causes
            .iter()
            .map(|(reason, message)| InactiveCause { reason, message: (*message).to_owned() })
            .collect();
        let (holds, said, told) = active(&causes);
        assert_eq!((holds, said, told.as_str()), (false, reason, message));
    }
}
