//! Marks workloads with pods on failed nodes in `status.unhealthyNodes`, so that the engine finds a
//! replacement. As Kueue's `pkg/controller/tas/node_controller.go`. Nodes are named by hostname
//! label.
//!
//! A node fails for a workload if it is not ready or has an untolerated taint, once all pods there
//! have stopped making progress. If a second node of a workload fails before the first is replaced,
//! the workload is evicted.

mod hosts;
mod judge;

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::{
    Api, Resource as _, ResourceExt as _,
    api::{Patch, PatchParams},
};
use serde_json::json;
use switchyard_api::{
    conditions::reasons,
    names,
    v1beta2::{TopologyAssignment, UnhealthyNode, Workload},
};
use switchyard_config::Configuration;
use switchyard_jobs::elastic;
use tokio_util::sync::CancellationToken;

use crate::reconcilers::topology::failures::{
    hosts::Hosts,
    judge::{NodeJudge, NodeVerdict},
};
use crate::{
    context::{Context, patch_status},
    reconcilers::chains::Chains,
    workload::{Edit, Evicted, Eviction, admitted_by, is_admitted, is_evicted, is_finished},
};
use crate::{
    stores::{TOPOLOGY_GATE, nodes, pods::PodRecord},
    workload::topology_chain,
};
use switchyard_platform::write::WriteError;
use switchyard_platform::{
    api_call::with_deadline,
    clock::since,
    store::{Change, Key},
    work_queue::{self, Outcome, Queue},
};

/// Nodes reconciled in parallel.
const WORKERS: usize = 4;
/// Delay after a pod's change, which lets several be handled together.
const BATCH_DELAY: Duration = Duration::from_millis(100);
/// How long a node must have been not ready to count as failed, if its pods do not decide.
const NOT_READY_LIMIT: Duration = Duration::from_secs(30);

/// Kueue's condition, reason, event and message of pods that cannot start on their node.
const TERMINATED: &str = "TerminatedByKueue";
/// Kubernetes' condition of pods that a disruption ends. A Job's `podFailurePolicy` can then ignore
/// them.
const DISRUPTED: &str = "DisruptionTarget";
const UNSCHEDULABLE: &str = "UnschedulableOnAssignedNode";
const POD_MESSAGE: &str = "Pod terminated by Kueue NodeController due to node taint";
/// Reason and message of evicted pods whose node is gone.
const NODE_DELETED: &str = "NodeDeleted";
const NODE_DELETED_MESSAGE: &str =
    "Pod terminated: its node was deleted, and its termination grace period is over";

/// Feature gates for failed nodes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FailureRules {
    /// `TASReplaceNodeOnPodTermination`: a node fails only once no pod makes progress there.
    await_pods: bool,
    /// `TASReplaceNodeDueToNotReadyOverFixedTime`: a node fails after [`NOT_READY_LIMIT`].
    fixed_time: bool,
    /// `TASReplaceNodeOnNodeTaints`: taints that are not tolerated count.
    taints: bool,
}

impl FailureRules {
    /// `None` if `TASFailedNodeReplacement` is off.
    fn of(config: &Configuration) -> Option<Self> {
        let on = config.enabled(TOPOLOGY_GATE) && config.enabled("TASFailedNodeReplacement");
        on.then(|| Self {
            await_pods: config.enabled("TASReplaceNodeOnPodTermination"),
            fixed_time: config.enabled("TASReplaceNodeDueToNotReadyOverFixedTime"),
            taints: config.enabled("TASReplaceNodeOnNodeTaints"),
        })
    }
}

struct FailureIndex {
    rules: FailureRules,
    /// Workloads by the hosts that their pods are assigned to.
    assigned: Hosts,
    /// Pods by the hosts that they are bound to or selected for.
    pods: Hosts,
    chains: Chains,
}

/// Reconciles nodes until `shutdown`.
pub(crate) async fn run(ctx: Arc<Context>, shutdown: CancellationToken) {
    let Some(rules) = FailureRules::of(&ctx.config) else { return shutdown.cancelled().await };
    let queue = Queue::default();
    let state = Arc::new(FailureIndex {
        rules,
        assigned: Hosts::default(),
        pods: Hosts::default(),
        chains: Chains::default(),
    });
    subscribe(&ctx, &state, &queue);
    let everything = || {
        let hosts = state.assigned.all().into_iter().chain(state.pods.all());
        hosts.for_each(|host| queue.add(host));
    };
    let each_term = ctx.each_term(&shutdown, everything);
    let (ctx, state) = (&ctx, &state);
    let reconcile = |host| async move { reconcile(ctx, state, host).await };
    tokio::join!(work_queue::run(queue.clone(), WORKERS, shutdown.clone(), reconcile), each_term);
}

fn subscribe(ctx: &Context, state: &Arc<FailureIndex>, queue: &Queue<Arc<str>>) {
    let (of, into) = (state.clone(), queue.clone());
    ctx.stores.workloads.subscribe(move |change| {
        of.chains.apply_workload(change, topology_chain);
        if has_new_assignment(change) {
            let hosts = |workload: &Option<Arc<Workload>>| {
                workload.as_deref().map(hosts::assigned).unwrap_or_default()
            };
            let (before, now) = (hosts(&change.old), hosts(&change.new));
            of.assigned.apply(&change.key, &before, &now);
            // A host may have failed between the decision and the write, and pods may have been sent
            // to a host that was replaced.
            before.union(&now).for_each(|host| into.add(host.clone()));
        }
    });
    let (of, into) = (state.clone(), queue.clone());
    ctx.stores.pods.subscribe(move |change| {
        of.chains.apply_pod(change, PodRecord::chain);
        let hosts =
            |pod: &Option<Arc<PodRecord>>| pod.as_deref().map(hosts::of_pod).unwrap_or_default();
        let now = hosts(&change.new);
        of.pods.apply(&change.key, &hosts(&change.old), &now);
        if change.new.as_deref().is_none_or(judge::may_decide) {
            now.into_iter()
                .chain(hosts(&change.old))
                .for_each(|host| into.add_after(host, BATCH_DELAY));
        }
    });
    let (into, rules) = (queue.clone(), state.rules);
    ctx.stores.nodes.subscribe(move |change| {
        let seen = |node: &Arc<Node>| {
            let ready = nodes::ready_condition(node).map(|condition| condition.status.clone());
            (node.uid(), ready, rules.taints.then(|| nodes::taints(node).to_vec()))
        };
        if change.old.as_ref().map(seen) != change.new.as_ref().map(seen) {
            let labels =
                change.old.iter().chain(&change.new).filter_map(|node| nodes::hostname(node));
            labels.for_each(|host| into.add(Arc::from(host)));
            into.add(change.key.name.clone());
        }
    });
}

/// Whether the workload's assignment or its admission changed.
fn has_new_assignment(change: &Change<Workload>) -> bool {
    // Borrows: nearly all changes are of workloads without an assignment.
    fn places(workload: Option<&Workload>) -> Option<(Vec<&TopologyAssignment>, bool)> {
        let admission = workload?.status.as_ref()?.admission.as_ref()?;
        let places =
            admission.pod_set_assignments.iter().filter_map(|it| it.topology_assignment.as_ref());
        Some((places.collect(), is_admitted(workload?)))
    }
    places(change.old.as_deref()) != places(change.new.as_deref())
}

async fn reconcile(ctx: &Context, state: &FailureIndex, host: Arc<str>) -> Outcome {
    if !ctx.leading() {
        return Outcome::Done;
    }
    // Before the first list, every node would seem to be gone.
    if ctx.stores.awaits_nodes() {
        return Outcome::Requeue(NOT_READY_LIMIT);
    }
    let node = nodes::of_host(&ctx.stores, &host);
    let affected: Vec<Arc<Workload>> = state
        .assigned
        .on(&host)
        .iter()
        .filter_map(|key| ctx.stores.workloads.by_key(key))
        .filter(|it| is_running(it))
        .collect();
    let ready = node.as_ref().and_then(|node| nodes::ready_condition(node));
    let Some((node, ready)) = node.as_ref().zip(ready) else {
        let marked = mark_all(ctx, &affected, &host).await;
        let ended = end_sent(ctx, state, &host).await;
        let lost = end_lost(ctx, state, &host).await;
        return [marked, ended].into_iter().find(|it| *it != Outcome::Done).unwrap_or(lost);
    };
    let failed_for = (ready.status != "True").then(|| {
        ready.last_transition_time.as_ref().map_or(Duration::MAX, |at| since(ctx.clock.now(), at.0))
    });
    if let Some(failed_for) = failed_for.filter(|failed_for| *failed_for < NOT_READY_LIMIT)
        && (!state.rules.await_pods || state.rules.fixed_time)
    {
        let left = NOT_READY_LIMIT.saturating_sub(failed_for).max(BATCH_DELAY);
        if !state.rules.await_pods {
            return Outcome::Requeue(left);
        }
        return judge_all(ctx, state, node, &host, affected).await.at_latest(Some(left));
    }
    if state.rules.fixed_time && failed_for.is_some() {
        return mark_all(ctx, &affected, &host).await;
    }
    judge_all(ctx, state, node, &host, affected).await
}

fn is_running(workload: &Workload) -> bool {
    is_admitted(workload) && !is_finished(workload) && !is_evicted(workload)
}

async fn mark_all(ctx: &Context, workloads: &[Arc<Workload>], host: &str) -> Outcome {
    let mut outcome = Outcome::Done;
    for workload in workloads {
        if mark(ctx, workload, host, true).await == Outcome::Failed {
            outcome = Outcome::Failed;
        }
    }
    outcome
}

/// The Workload of a pod's owner, and its other slices.
fn workloads_of(ctx: &Context, state: &FailureIndex, pod: &PodRecord) -> Vec<Arc<Workload>> {
    let chain = pod.chain();
    let members = |chain| state.chains.members(&chain, &ctx.stores.workloads, &ctx.stores.pods).0;
    chain.map(members).unwrap_or_default()
}

/// Ends pods of running workloads that were sent to a host without a node. Their replacements stay
/// gated until they have another host.
async fn end_sent(ctx: &Context, state: &FailureIndex, host: &str) -> Outcome {
    let pods = state.pods.on(host);
    let pods = pods.iter().filter_map(|key| ctx.stores.pods.by_key(key));
    let mut outcome = Outcome::Done;
    for pod in pods.filter(|pod| judge::is_sent(pod, host)) {
        let workloads = workloads_of(ctx, state, &pod);
        let placed = |it: &Workload| is_running(it) && !hosts::assigned(it).is_empty();
        if workloads.iter().any(|workload| placed(workload))
            && !fail_pod(ctx, &pod, UNSCHEDULABLE, POD_MESSAGE).await
        {
            outcome = Outcome::Failed;
        }
    }
    outcome
}

/// Ends deleted pods of evicted workloads whose Node object was deleted, so that no kubelet can
/// report their end. Like Kubernetes' pod garbage collector it trusts that the machine of a deleted
/// Node is gone, or has killed its pods. Until then they are charged.
async fn end_lost(ctx: &Context, state: &FailureIndex, host: &str) -> Outcome {
    // Pods name their node, whose hostname label may differ: then no node has this host, and this
    // one exists all the same.
    if ctx.stores.nodes.get("", host).is_some() {
        return Outcome::Done;
    }
    let pods = state.pods.on(host);
    let pods = pods.iter().filter_map(|key| ctx.stores.pods.by_key(key));
    let mut outcome = Outcome::Done;
    for (pod, left) in pods.filter_map(|pod| {
        let left = judge::left_of_lost(&pod, host, ctx.clock.now())?;
        Some((pod, left))
    }) {
        if !workloads_of(ctx, state, &pod).iter().any(|workload| is_evicted(workload)) {
            continue;
        }
        if !left.is_zero() {
            outcome = outcome.at_latest(Some(left));
        } else if !fail_pod(ctx, &pod, NODE_DELETED, NODE_DELETED_MESSAGE).await {
            return Outcome::Failed;
        }
    }
    outcome
}

/// Checks each workload with pods on the node, or with pods that are to go there.
async fn judge_all(
    ctx: &Context,
    state: &FailureIndex,
    node: &Node,
    host: &str,
    affected: Vec<Arc<Workload>>,
) -> Outcome {
    let pods: Vec<Arc<PodRecord>> =
        state.pods.on(host).iter().filter_map(|key| ctx.stores.pods.by_key(key)).collect();
    let known: BTreeSet<Key> = affected.iter().map(|workload| Key::of(&**workload)).collect();
    let chains: BTreeSet<Key> = pods.iter().filter_map(|pod| pod.chain()).collect();
    let others = chains
        .iter()
        .flat_map(|chain| state.chains.members(chain, &ctx.stores.workloads, &ctx.stores.pods).0);
    let others =
        others.filter(|workload| is_running(workload) && !known.contains(&Key::of(&**workload)));
    let workloads: Vec<_> = others.chain(affected).collect();
    let judge = NodeJudge { rules: state.rules, node, host };
    let mut outcome = Outcome::Done;
    for workload in workloads {
        let chain =
            Key::new(&workload.namespace().unwrap_or_default(), elastic::slice_name(&workload));
        let own: Vec<_> =
            pods.iter().filter(|pod| pod.chain().as_ref() == Some(&chain)).cloned().collect();
        let flavor = |name: &str| ctx.stores.resource_flavors.get("", name);
        let NodeVerdict { failed, ends } = judge.judge(&workload, &own, flavor);
        let mut done = mark(ctx, &workload, host, failed).await;
        for pod in &ends {
            if !fail_pod(ctx, pod, UNSCHEDULABLE, POD_MESSAGE).await {
                done = Outcome::Failed;
            }
        }
        if done == Outcome::Failed {
            outcome = Outcome::Failed;
        }
    }
    outcome
}

/// The status after a host of the workload failed or recovered. `None` if nothing changes.
fn unhealthy_nodes_edit(
    mut edit: Edit,
    host: &str,
    failed: bool,
) -> Option<(Edit, Option<Evicted>)> {
    let known: Vec<String> =
        edit.status.unhealthy_nodes.iter().map(|node| node.name.clone()).collect();
    match (known.iter().any(|it| it == host), failed) {
        (true, true) | (false, false) => None,
        (true, false) => {
            edit.status.unhealthy_nodes.retain(|node| node.name != host);
            Some((edit, None))
        }
        (false, true) if known.is_empty() => {
            edit.status.unhealthy_nodes.push(UnhealthyNode { name: host.to_owned() });
            Some((edit, None))
        }
        (false, true) => {
            let nodes = [known.join(", "), host.to_owned()].join(", ");
            let message = format!(
                "Workload eviction triggered due to multiple TAS assigned node failures, including: {nodes}"
            );
            let eviction =
                Eviction { reason: reasons::evicted::NODE_FAILURES, cause: String::new(), message };
            let evicted = edit.evict(eviction);
            Some((edit, Some(evicted)))
        }
    }
}

async fn mark(ctx: &Context, workload: &Workload, host: &str, failed: bool) -> Outcome {
    let Some((edit, evicted)) = unhealthy_nodes_edit(ctx.edit(workload), host, failed) else {
        return Outcome::Done;
    };
    match patch_status(ctx, workload, &edit.status, "unhealthy nodes").await {
        Ok(Some(after)) => {
            if let (Some(evicted), Some(cluster_queue)) = (&evicted, admitted_by(workload)) {
                ctx.announce_eviction(workload, &after, cluster_queue, evicted);
            }
            Outcome::Done
        }
        Ok(None) | Err(WriteError::Gone | WriteError::NotLeading) => Outcome::Done,
        Err(WriteError::Conflict) => Outcome::Failed,
        Err(error) => {
            tracing::warn!(workload = %Key::of(workload), node = host, %error, "the failure of a node was not noted");
            Outcome::Failed
        }
    }
}

/// Fails a pod that cannot start on its node, so that its job creates another, or a pod that has
/// ended with its node. False if that failed.
async fn fail_pod(ctx: &Context, pod: &PodRecord, reason: &str, message: &str) -> bool {
    if !ctx.leading() {
        return true;
    }
    let key = Key::of(pod);
    let api: Api<Pod> = Api::namespaced(ctx.client.clone(), &key.namespace);
    let now = switchyard_platform::clock::whole_seconds(ctx.clock.now()).to_string();
    let conditions = [TERMINATED, DISRUPTED].map(|type_| {
        json!({
            "type": type_, "status": "True", "reason": reason, "message": message,
            "lastTransitionTime": now,
        })
    });
    // A strategic merge patch merges conditions by type.
    let patch = json!({"metadata": {"uid": pod.meta().uid}, "status": {"phase": "Failed", "conditions": conditions}});
    let params = PatchParams {
        field_manager: Some(names::JOB_CONTROLLER_MANAGER.into()),
        ..PatchParams::default()
    };
    match with_deadline(api.patch_status(&key.name, &params, &Patch::Strategic(&patch)))
        .await
        .map_err(WriteError::from)
    {
        Ok(pod) => {
            ctx.events.normal(&pod, reasons::events::POD_TERMINATED, message);
            true
        }
        Err(WriteError::Gone) => true,
        Err(error) => {
            tracing::warn!(pod = %key, %error, "a pod was not marked as failed");
            false
        }
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use crate::{
        fixtures::{self, WorkloadExt as _},
        workload::ReasonDetail,
    };

    #[rstest]
    #[case::first_fails(&[], true, Some("n1"))]
    #[case::already_marked(&["n1"], true, None)]
    #[case::recovers(&["n1"], false, Some(""))]
    #[case::other_recovers(&["n2"], false, None)]
    #[case::second_fails(&["n2"], true, Some("evicted"))]
    fn unhealthy_nodes_follow_node_failures(
        #[case] known: &[&str],
        #[case] failed: bool,
        #[case] expected: Option<&str>,
    ) {
        let workload = fixtures::workload("a").reserved("cq").admitted().status(|status| {
            status.unhealthy_nodes =
                known.iter().map(|name| UnhealthyNode { name: (*name).to_owned() }).collect();
        });
        let edit = Edit::new(&workload, ReasonDetail::Full, fixtures::at(30));
        let change = unhealthy_nodes_edit(edit, "n1", failed).map(|(edit, evicted)| match evicted {
            Some(evicted) => {
                let message =
                    "Workload eviction triggered due to multiple TAS assigned node failures, including: n2, n1";
                assert_eq!(evicted.eviction.message, message);
                "evicted".to_owned()
            }
            None => edit.status.unhealthy_nodes.iter().map(|node| node.name.as_str()).collect::<Vec<_>>().join(" "),
        });
        assert_eq!(change.as_deref(), expected);
    }
}
