//! Ungates pods of elastic jobs. Each pod is created with a scheduling gate, which is removed once
//! an admitted slice counts it. So new pods of a growing job wait for quota while the others run.
//!
//! # Guarantees
//!
//! - For each pod set, no more pods are ungated than the newest admitted slice counts, without its
//!   reclaimable pods.

use std::{collections::BTreeMap, sync::Arc};

use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use serde_json::json;
use switchyard_api::{
    names,
    v1beta2::{PodSet, Workload},
};
use switchyard_jobs::elastic;
use tokio_util::sync::CancellationToken;

use crate::{
    context::Context,
    reconcilers::{
        chains::Chains,
        pod_gates::{self, Gate, active},
    },
};
use switchyard_platform::{
    store::{Change, Key},
    work_queue::{self, Outcome, Queue},
    write::{Target, WriteError},
};

/// Chains reconciled in parallel.
const WORKERS: usize = 8;
const GATE: Gate = Gate {
    name: names::ELASTIC_JOB_SCHEDULING_GATE,
    failure: "a pod of an elastic job was not let go",
};

/// The chain of a pod. Admission wrote the name of the first slice into the pod's template.
fn chain_of_pod(pod: &Pod) -> Option<Key> {
    let first = pod.metadata.annotations.as_ref()?.get(names::WORKLOAD_SLICE_NAME)?;
    Some(Key::new(pod.metadata.namespace.as_deref()?, first))
}

/// The chain of a workload.
fn chain_of(workload: &Workload) -> Option<Key> {
    let namespace =
        workload.metadata.namespace.as_deref().filter(|_| elastic::is_slice(workload))?;
    Some(Key::new(namespace, elastic::slice_name(workload)))
}

fn pod_set_of(pod: &Pod) -> &str {
    pod.metadata
        .labels
        .as_ref()
        .and_then(|labels| labels.get(names::POD_SET))
        .map_or("", String::as_str)
}

fn is_gated(pod: &Pod) -> bool {
    let gates = pod.spec.iter().flat_map(|spec| spec.scheduling_gates.iter().flatten());
    gates.into_iter().any(|gate| gate.name == GATE.name)
}

fn has_ended(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    matches!(phase, Some("Succeeded" | "Failed"))
}

/// Number of pods of a pod set that the slice has quota for.
fn quota_for(workload: &Workload, pod_set: &PodSet) -> i32 {
    let reclaimable = workload.status.iter().flat_map(|status| &status.reclaimable_pods);
    let of_it = reclaimable
        .filter(|pods| pods.name == pod_set.name && !elastic::is_outdated(workload, pods));
    let gone: i32 = of_it.map(|pods| pods.count).sum();
    pod_set.count.saturating_sub(gone).max(0)
}

/// The pods to ungate, by name: as many as the slice has quota for beyond the running ones.
fn pods_to_ungate<'a>(workload: &Workload, pods: &'a [Arc<Pod>]) -> Vec<&'a Arc<Pod>> {
    let room_of = |pod_set| quota_for(workload, pod_set);
    let mut rooms: BTreeMap<&str, i32> =
        workload.spec.pod_sets.iter().map(|it| (it.name.as_str(), room_of(it))).collect();
    let (mut gated, running): (Vec<_>, Vec<_>) =
        pods.iter().filter(|pod| !has_ended(pod)).partition(|pod| is_gated(pod));
    for pod in running {
        if let Some(room) = rooms.get_mut(pod_set_of(pod)) {
            *room -= 1;
        }
    }
    gated.sort_by(|a, b| a.metadata.name.cmp(&b.metadata.name));
    gated.retain(|pod| {
        let room = rooms.get_mut(pod_set_of(pod)).filter(|room| **room > 0);
        room.map(|room| *room -= 1).is_some()
    });
    gated
}

/// Whether a pod's change may affect which pods are ungated. Most do not; each pod has one when it
/// becomes ready.
fn matters(change: &Change<Pod>) -> bool {
    let seen = |pod: &Arc<Pod>| {
        let gates = pod.spec.as_ref().and_then(|spec| spec.scheduling_gates.clone());
        (
            chain_of_pod(pod),
            pod_set_of(pod).to_owned(),
            gates,
            has_ended(pod),
            pod.metadata.uid.clone(),
        )
    };
    change.old.as_ref().map(seen) != change.new.as_ref().map(seen)
}

/// Runs until `shutdown`, whatever the feature gate says: templates of running jobs may have the
/// scheduling gate from before, and are immutable.
pub(crate) async fn run(ctx: Arc<Context>, shutdown: CancellationToken) {
    let (queue, chains) = (Queue::default(), Arc::new(Chains::default()));
    let (into, of) = (queue.clone(), chains.clone());
    ctx.stores.workloads.subscribe(move |change| {
        let changed = of.apply_workload(change, chain_of);
        changed.into_iter().for_each(|chain| into.add(chain));
    });
    let (into, of) = (queue.clone(), chains.clone());
    ctx.stores.elastic_pods.subscribe(move |change| {
        let changed = of.apply_pod(change, chain_of_pod);
        changed.into_iter().filter(|_| matters(change)).for_each(|chain| into.add(chain));
    });
    let everything = || chains.all().into_iter().for_each(|chain| queue.add(chain));
    let again = ctx.each_term(&shutdown, everything);
    let (ctx, chains) = (&ctx, &chains);
    let reconcile = |chain| async move { reconcile(ctx, chains, chain).await };
    tokio::join!(work_queue::run(queue.clone(), WORKERS, shutdown.clone(), reconcile), again);
}

async fn reconcile(ctx: &Context, chains: &Chains, chain: Key) -> Outcome {
    if !ctx.leading() {
        return Outcome::Done;
    }
    let (workloads, pods) = chains.members(&chain, &ctx.stores.workloads, &ctx.stores.elastic_pods);
    let Some(active) = active(workloads) else { return Outcome::Done };
    let let_go =
        async |pod: &Arc<Pod>| GATE.outcome(ctx, &active, &Key::of(&**pod), ungate(ctx, pod).await);
    pod_gates::all(pods_to_ungate(&active, &pods).into_iter().map(let_go).collect()).await
}

async fn ungate(ctx: &Context, pod: &Pod) -> Result<(), WriteError> {
    let gates = pod.spec.iter().flat_map(|spec| spec.scheduling_gates.iter().flatten());
    let others: Vec<_> = gates.filter(|gate| gate.name != GATE.name).collect();
    let api =
        Api::namespaced(ctx.client.clone(), pod.metadata.namespace.as_deref().unwrap_or_default());
    let store = &ctx.stores.elastic_pods;
    let target =
        Target { api, store, object: pod, manager: names::JOB_CONTROLLER_MANAGER, what: "pod" };
    target.patch(ctx, json!({"spec": {"schedulingGates": others}})).await.map(drop)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::Value;

    use super::*;
    use crate::fixtures::{self, WorkloadExt};

    fn pod(name: &str, phase: &str, gates: &Value) -> Arc<Pod> {
        let pod = json!({
            "metadata": {
                "name": name, "namespace": "ns",
                "labels": {"kueue.x-k8s.io/podset": "main"}, "annotations": {"kueue.x-k8s.io/workload-slice-name": "first"},
            },
            "spec": {"containers": [{"name": "c"}], "schedulingGates": gates},
            "status": {"phase": phase},
        });
        let mut pod: Pod = serde_json::from_value(pod).unwrap();
        crate::stores::filters::strip_unused_pod_fields(&mut pod);
        Arc::new(pod)
    }

    fn gated(name: &str) -> Arc<Pod> {
        pod(name, "Pending", &json!([{"name": "x.io/y"}, {"name": "kueue.x-k8s.io/elastic-job"}]))
    }

    fn running(name: &str) -> Arc<Pod> {
        pod(name, "Running", &json!([]))
    }

    /// A slice that is admitted with that many pods.
    fn slice(name: &str, count: i32) -> Workload {
        let slice = fixtures::workload(name)
            .reserved("cq")
            .admitted()
            .annotation(names::ELASTIC_JOB, "true");
        slice.annotation(names::WORKLOAD_SLICE_NAME, "first").edit(|slice| {
            slice.spec.pod_sets[0].name = "main".into();
            slice.spec.pod_sets[0].count = count;
        })
    }

    #[rstest]
    #[case::all_counted(3, vec![gated("a"), gated("b")], "a b")]
    #[case::more_pods_than_counted(1, vec![gated("b"), gated("a")], "a")]
    #[case::some_running(3, vec![running("a"), running("b"), gated("c"), gated("d")], "c")]
    #[case::as_many_running(2, vec![running("a"), running("b"), gated("c")], "")]
    #[case::more_running_after_shrink(1, vec![running("a"), running("b"), gated("c")], "")]
    #[case::ended_pod(1, vec![pod("a", "Succeeded", &json!([])), pod("b", "Failed", &json!([])), gated("c")], "c")]
    #[case::foreign_gate(9, vec![pod("a", "Pending", &json!([{"name": "x.io/y"}]))], "")]
    fn gated_pods_within_quota_are_ungated(
        #[case] count: i32,
        #[case] pods: Vec<Arc<Pod>>,
        #[case] want: &str,
    ) {
        let slice = slice("a", count);
        let names: Vec<_> = pods_to_ungate(&slice, &pods)
            .iter()
            .filter_map(|pod| pod.metadata.name.clone())
            .collect();
        assert_eq!(names.join(" "), want);
    }

    #[rstest]
    #[case::reclaimable("main", 2, "b")]
    #[case::other_pod_set("other", 2, "b c d")]
    #[case::more_reclaimable_than_counted("main", 9, "b c d")]
    fn reclaimable_pods_are_not_counted(
        #[case] pod_set: &str,
        #[case] count: i32,
        #[case] want: &str,
    ) {
        let mut slice = slice("a", 4);
        let pods = json!([{"name": pod_set, "count": count}]);
        slice.status.as_mut().unwrap().reclaimable_pods = serde_json::from_value(pods).unwrap();
        let pods = [running("a"), gated("b"), gated("c"), gated("d")];
        let names: Vec<_> = pods_to_ungate(&slice, &pods)
            .iter()
            .filter_map(|pod| pod.metadata.name.clone())
            .collect();
        assert_eq!(names.join(" "), want);
    }

    #[rstest]
    #[case::created(None, Some(gated("a")), true)]
    #[case::deleted(Some(running("a")), None, true)]
    #[case::ungated(Some(gated("a")), Some(pod("a", "Pending", &json!([]))), true)]
    #[case::started(Some(pod("a", "Pending", &json!([]))), Some(running("a")), false)]
    #[case::ready(Some(running("a")), Some(running("a")), false)]
    #[case::ended(Some(running("a")), Some(pod("a", "Failed", &json!([]))), true)]
    fn relevant_changes_queue_the_chain(
        #[case] old: Option<Arc<Pod>>,
        #[case] new: Option<Arc<Pod>>,
        #[case] want: bool,
    ) {
        assert_eq!(matters(&Change { key: Key::new("ns", "a"), old, new }), want);
    }

    #[test]
    fn pod_of_unknown_pod_set_waits() {
        let mut slice = slice("a", 3);
        slice.spec.pod_sets[0].name = "other".into();
        assert!(pods_to_ungate(&slice, &[gated("a")]).is_empty());
    }

    #[rstest]
    #[case::newest(vec![slice("a", 1).created(1), slice("b", 2).created(2)], Some("b"))]
    #[case::equal_creation_time(vec![slice("a", 1).annotation(names::WORKLOAD_SLICE_REPLACEMENT_FOR, "ns/b"), slice("b", 2)], Some("a"))]
    #[case::pending(vec![slice("a", 1).created(1), fixtures::workload("b").created(2)], Some("a"))]
    #[case::checks_pending(vec![fixtures::workload("b").reserved("cq")], None)]
    #[case::being_evicted(vec![slice("a", 1).condition("Evicted", true, "Preempted", "")], None)]
    #[case::finished(vec![slice("a", 1).condition("Finished", true, "WorkloadSliceReplaced", "")], None)]
    fn newest_admitted_slice_counts(#[case] workloads: Vec<Workload>, #[case] want: Option<&str>) {
        let found = active(workloads.into_iter().map(Arc::new).collect());
        assert_eq!(found.as_ref().and_then(|it| it.metadata.name.as_deref()), want);
    }

    #[test]
    fn pods_and_workloads_name_their_chain() {
        let first = Key::new("ns", "first");
        assert_eq!(chain_of_pod(&gated("a")), Some(first.clone()));
        assert_eq!(chain_of(&slice("b", 1)), Some(first));
        assert_eq!(chain_of(&fixtures::workload("c")), None, "no elastic job's");
    }
}
