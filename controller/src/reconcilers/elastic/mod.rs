//! Lets the pods of elastic jobs go. Each comes with a scheduling gate and is let go once a workload of its job is admitted
//! that counts it: so what a job grew to waits for quota while its other pods run.
//!
//! # Guarantees
//! - Of each pod set no more pods are let go than the newest admitted workload of the job has quota for: those that it counts
//!   without those that it does not need any more.

use std::{collections::BTreeMap, sync::Arc};

use k8s_openapi::api::core::v1::{Pod, PodSpec, PodStatus};
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

/// Chains of workloads looked at in parallel.
const WORKERS: usize = 8;
const GATE: Gate = Gate {
    name: names::ELASTIC_JOB_SCHEDULING_GATE,
    failure: "a pod of an elastic job was not let go",
};

/// Leaves of a pod what is looked at here.
pub(crate) fn fit(pod: &mut Pod) {
    let scheduling_gates = pod.spec.take().and_then(|spec| spec.scheduling_gates);
    pod.spec = Some(PodSpec { scheduling_gates, ..PodSpec::default() });
    let phase = pod.status.take().and_then(|status| status.phase);
    pod.status = Some(PodStatus { phase, ..PodStatus::default() });
}

/// The chain of workloads that a pod belongs to: the first of them, as admission wrote it into the pod's template.
fn chain_of_pod(pod: &Pod) -> Option<Key> {
    let first = pod.metadata.annotations.as_ref()?.get(names::WORKLOAD_SLICE_NAME)?;
    Some(Key::new(pod.metadata.namespace.as_deref()?, first))
}

/// The chain that a workload belongs to.
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

/// The pods of a pod set that the workload has quota for.
fn room(workload: &Workload, pod_set: &PodSet) -> i32 {
    let reclaimable = workload.status.iter().flat_map(|status| &status.reclaimable_pods);
    let of_it = reclaimable
        .filter(|pods| pods.name == pod_set.name && !elastic::is_outdated(workload, pods));
    let gone: i32 = of_it.map(|pods| pods.count).sum();
    pod_set.count.saturating_sub(gone).max(0)
}

/// The pods to be let go: as many as the workload has quota for and are not let go yet, by name.
fn to_let_go<'a>(workload: &Workload, pods: &'a [Arc<Pod>]) -> Vec<&'a Arc<Pod>> {
    let room_of = |pod_set| room(workload, pod_set);
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

/// Whether a change of a pod may change which pods are to be let go. Most do not: there is one for each time that a pod
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

/// Lets pods go until `shutdown`, whatever the feature gate says: while it was on, jobs may have been started whose templates
/// have the scheduling gate, and cannot be changed while they run.
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
    tokio::join!(work::run(queue.clone(), WORKERS, shutdown.clone(), reconcile), again);
}

async fn reconcile(ctx: &Context, chains: &Chains, chain: Key) -> Outcome {
    if !ctx.leading() {
        return Outcome::Done;
    }
    let (workloads, pods) = chains.members(&chain, &ctx.stores.workloads, &ctx.stores.elastic_pods);
    let Some(active) = active(workloads) else { return Outcome::Done };
    let let_go =
        async |pod: &Arc<Pod>| GATE.outcome(ctx, &active, &Key::of(&**pod), ungate(ctx, pod).await);
    pod_gates::all(to_let_go(&active, &pods).into_iter().map(let_go).collect()).await
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
        fit(&mut pod);
        Arc::new(pod)
    }

    fn gated(name: &str) -> Arc<Pod> {
        pod(name, "Pending", &json!([{"name": "x.io/y"}, {"name": "kueue.x-k8s.io/elastic-job"}]))
    }

    fn running(name: &str) -> Arc<Pod> {
        pod(name, "Running", &json!([]))
    }

    /// Admitted with that many pods.
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
    #[case::all_that_are_counted(3, vec![gated("a"), gated("b")], "a b")]
    #[case::no_more_than_are_counted(1, vec![gated("b"), gated("a")], "a")]
    #[case::beside_those_that_run(3, vec![running("a"), running("b"), gated("c"), gated("d")], "c")]
    #[case::none_where_as_many_run(2, vec![running("a"), running("b"), gated("c")], "")]
    #[case::none_where_more_run_after_it_shrank(1, vec![running("a"), running("b"), gated("c")], "")]
    #[case::what_has_ended_takes_no_room(1, vec![pod("a", "Succeeded", &json!([])), pod("b", "Failed", &json!([])), gated("c")], "c")]
    #[case::a_pod_that_has_no_gate_of_ours_stays(9, vec![pod("a", "Pending", &json!([{"name": "x.io/y"}]))], "")]
    fn which_pods_are_let_go(#[case] count: i32, #[case] pods: Vec<Arc<Pod>>, #[case] want: &str) {
        let slice = slice("a", count);
        let names: Vec<_> =
            to_let_go(&slice, &pods).iter().filter_map(|pod| pod.metadata.name.clone()).collect();
        assert_eq!(names.join(" "), want);
    }

    #[rstest]
    #[case::those_that_it_does_not_need_any_more_have_no_quota("main", 2, "b")]
    #[case::those_of_another_pod_set_are_not_its("other", 2, "b c d")]
    #[case::more_than_it_has_were_said_before_it_shrank("main", 9, "b c d")]
    fn what_is_reclaimable_is_no_room(
        #[case] pod_set: &str,
        #[case] count: i32,
        #[case] want: &str,
    ) {
        let mut slice = slice("a", 4);
        let pods = json!([{"name": pod_set, "count": count}]);
        slice.status.as_mut().unwrap().reclaimable_pods = serde_json::from_value(pods).unwrap();
        let pods = [running("a"), gated("b"), gated("c"), gated("d")];
        let names: Vec<_> =
            to_let_go(&slice, &pods).iter().filter_map(|pod| pod.metadata.name.clone()).collect();
        assert_eq!(names.join(" "), want);
    }

    #[rstest]
    #[case::it_comes(None, Some(gated("a")), true)]
    #[case::it_goes(Some(running("a")), None, true)]
    #[case::it_is_let_go(Some(gated("a")), Some(pod("a", "Pending", &json!([]))), true)]
    #[case::it_starts(Some(pod("a", "Pending", &json!([]))), Some(running("a")), false)]
    #[case::it_becomes_ready(Some(running("a")), Some(running("a")), false)]
    #[case::it_ends(Some(running("a")), Some(pod("a", "Failed", &json!([]))), true)]
    fn changes_that_matter(
        #[case] old: Option<Arc<Pod>>,
        #[case] new: Option<Arc<Pod>>,
        #[case] want: bool,
    ) {
        assert_eq!(matters(&Change { key: Key::new("ns", "a"), old, new }), want);
    }

    #[test]
    fn a_pod_of_a_pod_set_that_the_workload_does_not_have_waits() {
        let mut slice = slice("a", 3);
        slice.spec.pod_sets[0].name = "other".into();
        assert!(to_let_go(&slice, &[gated("a")]).is_empty());
    }

    #[rstest]
    #[case::the_newest(vec![slice("a", 1).created(1), slice("b", 2).created(2)], Some("b"))]
    #[case::of_one_second(vec![slice("a", 1).annotation(names::WORKLOAD_SLICE_REPLACEMENT_FOR, "ns/b"), slice("b", 2)], Some("a"))]
    #[case::not_one_that_waits(vec![slice("a", 1).created(1), fixtures::workload("b").created(2)], Some("a"))]
    #[case::not_one_whose_checks_are_to_come(vec![fixtures::workload("b").reserved("cq")], None)]
    #[case::not_one_that_goes(vec![slice("a", 1).condition("Evicted", true, "Preempted", "")], None)]
    #[case::not_one_that_is_over(vec![slice("a", 1).condition("Finished", true, "WorkloadSliceReplaced", "")], None)]
    fn whose_counts_hold(#[case] workloads: Vec<Workload>, #[case] want: Option<&str>) {
        let found = active(workloads.into_iter().map(Arc::new).collect());
        assert_eq!(found.as_ref().and_then(|it| it.metadata.name.as_deref()), want);
    }

    #[test]
    fn pods_and_workloads_are_of_the_chain_that_they_name() {
        let first = Key::new("ns", "first");
        assert_eq!(chain_of_pod(&gated("a")), Some(first.clone()));
        assert_eq!(chain_of(&slice("b", 1)), Some(first));
        assert_eq!(chain_of(&fixtures::workload("c")), None, "no elastic job's");
    }
}
