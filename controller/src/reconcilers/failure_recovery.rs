//! Deletes pods that cannot terminate because their node is unreachable: Kueue's
//! `FailureRecoveryPolicy`, off by default. Pods opt in by an annotation.
//!
//! A job is replaced only after its pods have terminated, so an unreachable node blocks it. One
//! minute after a pod's deletion deadline the controller marks it failed and deletes it without
//! grace, if its node has the taint `unreachable`. Setting the annotation accepts that the node may
//! still run the pod.

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::{
    Api, Resource as _, ResourceExt as _,
    api::{DeleteParams, Patch, PatchParams, Preconditions},
};
use serde_json::{Value, json};
use switchyard_api::{conditions::reasons::events::FORCEFULLY_DELETED, names};
use switchyard_config::GoDuration;
use tokio_util::sync::CancellationToken;

use crate::{context::Context, stores::filters::is_forcefully_deletable};
use switchyard_platform::{
    api_call::with_deadline,
    clock::since,
    events::EventType,
    store::Key,
    work_queue::{self, Outcome, Queue},
    write::WriteError,
};

/// Time after a pod's deletion deadline until it is deleted by force.
const GRACE: Duration = Duration::from_secs(60);
/// Interval for checking the node of an overdue pod while it is reachable.
const NODE_RECHECK: Duration = Duration::from_secs(15);
/// Pods reconciled in parallel.
const WORKERS: usize = 4;

const UNREACHABLE: &str = "node.kubernetes.io/unreachable";
/// Condition of a pod that was deleted by force, as in Kueue.
const CONDITION: &str = "KueueFailureRecovery";

/// Time left until a terminating pod is overdue.
fn time_left(pod: &Pod, now: Timestamp) -> Option<Duration> {
    let ends = pod.metadata.deletion_timestamp.as_ref().filter(|_| is_forcefully_deletable(pod))?;
    let overdue_at = ends.0.checked_add(GRACE).unwrap_or(Timestamp::MAX);
    Some(since(overdue_at, now))
}

fn is_unreachable(node: &Node) -> bool {
    let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_ref());
    taints.into_iter().flatten().any(|taint| taint.key == UNREACHABLE)
}

/// Kueue's message about a pod that is deleted by force.
fn message(pod: &Pod, node: &str) -> String {
    let grace = i64::try_from(GRACE.as_secs()).unwrap_or(i64::MAX);
    let waited = GoDuration::from_secs(
        pod.metadata.deletion_grace_period_seconds.unwrap_or(0).saturating_add(grace),
    );
    format!(
        "Pod forcefully terminated after {waited} grace period due to unreachable node `{node}` (triggered by `{}` annotation)",
        names::SAFE_TO_FORCEFULLY_DELETE
    )
}

/// The status of a pod deleted by force: `Failed`, unless it has ended already.
fn status_patch(pod: &Pod, message: &str, now: Timestamp) -> Value {
    let status = pod.status.as_ref();
    let phase = status.and_then(|status| status.phase.as_deref());
    let phase = phase.filter(|phase| ["Succeeded", "Failed"].contains(phase)).unwrap_or("Failed");
    let mut conditions =
        json!(status.and_then(|status| status.conditions.as_ref()).cloned().unwrap_or_default());
    if let Some(conditions) = conditions.as_array_mut() {
        conditions.retain(|condition| condition["type"] != CONDITION);
        conditions.push(json!({
            "type": CONDITION, "status": "True", "reason": FORCEFULLY_DELETED, "message": message,
            "lastTransitionTime": switchyard_platform::clock::whole_seconds(now).to_string(),
        }));
    }
    json!({
        "metadata": {"uid": pod.metadata.uid, "resourceVersion": pod.metadata.resource_version},
        "status": {"phase": phase, "conditions": conditions},
    })
}

/// Whether the pod was deleted by force and only a finalizer keeps it.
fn is_force_deleted(pod: &Pod) -> bool {
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let has_condition = conditions
        .into_iter()
        .any(|condition| condition.type_ == CONDITION && condition.status == "True");
    has_condition && pod.metadata.deletion_grace_period_seconds == Some(0)
}

/// Reconciles terminating pods until `shutdown`. With the feature gate off the store is empty.
pub(crate) async fn run(ctx: Arc<Context>, shutdown: CancellationToken) {
    let queue = Queue::default();
    let into = queue.clone();
    ctx.stores.ending_pods.subscribe(move |change| {
        if change.new.is_some() {
            into.add(change.key.clone());
        }
    });
    let everything =
        || ctx.stores.ending_pods.all().iter().for_each(|pod| queue.add(Key::of(&**pod)));
    let each_term = ctx.each_term(&shutdown, everything);
    let ctx = &ctx;
    let reconcile = |key| async move { reconcile(ctx, key).await };
    tokio::join!(work_queue::run(queue.clone(), WORKERS, shutdown.clone(), reconcile), each_term);
}

async fn reconcile(ctx: &Context, key: Key) -> Outcome {
    if !ctx.leading() || ctx.stores.ending_pods.by_key(&key).is_none() {
        return Outcome::Done;
    }
    match force_delete_if_unreachable(ctx, &key).await {
        Ok(outcome) => outcome,
        Err(WriteError::Gone | WriteError::NotLeading) => Outcome::Done,
        Err(WriteError::Conflict) => Outcome::Failed,
        Err(error) => {
            tracing::warn!(pod = %key, %error, "a pod that hangs was not deleted");
            Outcome::Failed
        }
    }
}

async fn force_delete_if_unreachable(ctx: &Context, key: &Key) -> Result<Outcome, WriteError> {
    let pods: Api<Pod> = Api::namespaced(ctx.client.clone(), &key.namespace);
    let Some(pod) = with_deadline(pods.get_opt(&key.name)).await? else { return Ok(Outcome::Done) };
    if is_force_deleted(&pod) {
        return Ok(Outcome::Done);
    }
    let now = ctx.clock.now();
    match time_left(&pod, now) {
        None => return Ok(Outcome::Done),
        Some(Duration::ZERO) => (),
        Some(left) => return Ok(Outcome::Requeue(left)),
    }
    let node = pod.spec.as_ref().and_then(|spec| spec.node_name.clone()).unwrap_or_default();
    if node.is_empty() {
        return Ok(Outcome::Done);
    }
    let nodes: Api<Node> = Api::all(ctx.client.clone());
    // Kubernetes collects the pods of a deleted node.
    let Some(found) = with_deadline(nodes.get_opt(&node)).await? else { return Ok(Outcome::Done) };
    if !is_unreachable(&found) {
        return Ok(Outcome::Requeue(NODE_RECHECK));
    }
    delete_by_force(ctx, &pods, &pod, &node).await
}

async fn delete_by_force(
    ctx: &Context,
    pods: &Api<Pod>,
    pod: &Pod,
    node: &str,
) -> Result<Outcome, WriteError> {
    if !ctx.leading() {
        return Err(WriteError::NotLeading);
    }
    let (name, message) = (pod.name_any(), message(pod, node));
    let params =
        PatchParams { field_manager: Some(names::FIELD_MANAGER.into()), ..PatchParams::default() };
    let patch = Patch::Merge(status_patch(pod, &message, ctx.clock.now()));
    let written = with_deadline(pods.patch_status(&name, &params, &patch)).await;
    ctx.metrics.wrote("pod", written.is_ok());
    written?;
    ctx.events.publish(pod.object_ref(&()), EventType::Warning, FORCEFULLY_DELETED, message);
    let preconditions = Preconditions { uid: pod.uid(), resource_version: None };
    let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() }
        .grace_period(0);
    let deleted = with_deadline(pods.delete(&name, &params)).await;
    ctx.metrics.wrote("delete", deleted.is_ok());
    deleted?;
    Ok(Outcome::Done)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use crate::fixtures::at;

    /// A running pod on node `n`, deleted with a grace of 30 s that ends at second 100.
    fn pod(metadata: &Value) -> Pod {
        let mut whole = json!({
            "name": "p", "namespace": "ns", "uid": "u", "resourceVersion": "7", "deletionGracePeriodSeconds": 30,
            "deletionTimestamp": at(100).to_string(),
            "annotations": {"kueue.x-k8s.io/safe-to-forcefully-delete": "true"},
        });
        whole.as_object_mut().unwrap().extend(metadata.as_object().unwrap().clone());
        let condition = json!({"type": "Ready", "status": "False"});
        let status = json!({"phase": "Running", "conditions": [condition]});
        serde_json::from_value(
            json!({"metadata": whole, "spec": {"nodeName": "n", "containers": []}, "status": status}),
        )
        .unwrap()
    }

    #[rstest]
    #[case::deadline_ahead(json!({}), 70, Some(90))]
    #[case::within_grace(json!({}), 110, Some(50))]
    #[case::grace_over(json!({}), 160, Some(0))]
    #[case::long_overdue(json!({}), 9000, Some(0))]
    #[case::not_deleted(json!({"deletionTimestamp": null}), 9000, None)]
    #[case::no_annotation(json!({"annotations": {}}), 9000, None)]
    #[case::annotated_false(json!({"annotations": {"kueue.x-k8s.io/safe-to-forcefully-delete": "false"}}), 9000, None)]
    fn time_left_of_a_terminating_pod(
        #[case] metadata: Value,
        #[case] now: i64,
        #[case] seconds: Option<u64>,
    ) {
        assert_eq!(time_left(&pod(&metadata), at(now)), seconds.map(Duration::from_secs));
    }

    #[test]
    fn only_the_unreachable_taint_counts() {
        let node = |taint: &str| -> Node {
            serde_json::from_value(
                json!({"metadata": {"name": "n"}, "spec": {"taints": [{"key": taint, "effect": "NoExecute"}]}}),
            )
            .unwrap()
        };
        assert!(is_unreachable(&node("node.kubernetes.io/unreachable")));
        assert!(!is_unreachable(&node("node.kubernetes.io/not-ready")));
        assert!(!is_unreachable(&Node::default()));
    }

    #[test]
    fn overdue_pod_is_marked_failed() {
        let pod = pod(&json!({}));
        let patch = status_patch(&pod, &message(&pod, "n"), at(160));
        insta::assert_snapshot!(serde_json::to_string_pretty(&patch).unwrap());
        let mut ended = pod;
        ended.status.as_mut().unwrap().phase = Some("Succeeded".to_owned());
        assert_eq!(status_patch(&ended, "", at(160))["status"]["phase"], "Succeeded");
    }
}
