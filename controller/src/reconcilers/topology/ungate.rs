//! Removes the topology scheduling gate from pods, in one write with the node selector of the
//! domain that admission assigned.
//!
//! # Guarantees
//!
//! - No domain of an assignment gets more pods than its count.

use std::{sync::Arc, time::Duration};

use kube::Api;
use serde_json::json;
use switchyard_api::names;
use tokio_util::sync::CancellationToken;

use crate::{
    context::Context,
    reconcilers::{
        chains::Chains,
        pod_gates::{self, Gate, active},
    },
};
use crate::{
    reconcilers::topology::ranks::{Ungating, pods_to_ungate},
    stores::pods::PodRecord,
    workload::topology_chain,
};
use switchyard_platform::{
    store::{Change, Key},
    work_queue::{self, Outcome, Queue},
    write::{Target, WriteError},
};

/// Workloads reconciled in parallel.
const WORKERS: usize = 8;
const GATE: Gate =
    Gate { name: names::TOPOLOGY_SCHEDULING_GATE, failure: "a pod was not let go to its place" };
/// Delay after a pod's change. It lets the pods of one job be handled together, and the failure of
/// a node arrive first.
const BATCH_DELAY: Duration = Duration::from_secs(1);

/// Whether a pod's change may change which pods go where.
fn affects_ungating(change: &Change<PodRecord>) -> bool {
    let seen = |pod: &Arc<PodRecord>| {
        let placed = pod
            .placed()
            .map(|placed| (placed.gates.clone(), placed.node_selector.clone(), placed.ended));
        (pod.chain(), pod.pod_set().to_owned(), placed, kube::Resource::meta(&**pod).uid.clone())
    };
    change.old.as_ref().map(seen) != change.new.as_ref().map(seen)
}

/// Ungates pods until `shutdown`.
pub(crate) async fn run(ctx: Arc<Context>, shutdown: CancellationToken) {
    let (queue, chains) = (Queue::default(), Arc::new(Chains::default()));
    let (into, of) = (queue.clone(), chains.clone());
    ctx.stores.workloads.subscribe(move |change| {
        of.apply_workload(change, topology_chain).into_iter().for_each(|chain| into.add(chain));
    });
    let (into, of) = (queue.clone(), chains.clone());
    ctx.stores.pods.subscribe(move |change| {
        let changed = of.apply_pod(change, PodRecord::chain);
        changed
            .into_iter()
            .filter(|_| affects_ungating(change))
            .for_each(|chain| into.add_after(chain, BATCH_DELAY));
    });
    let everything = || chains.all().into_iter().for_each(|chain| queue.add(chain));
    let each_term = ctx.each_term(&shutdown, everything);
    let (ctx, chains) = (&ctx, &chains);
    let reconcile = |chain| async move { reconcile(ctx, chains, chain).await };
    tokio::join!(work_queue::run(queue.clone(), WORKERS, shutdown.clone(), reconcile), each_term);
}

async fn reconcile(ctx: &Context, chains: &Chains, chain: Key) -> Outcome {
    if !ctx.leading() {
        return Outcome::Done;
    }
    let (workloads, pods) = chains.members(&chain, &ctx.stores.workloads, &ctx.stores.pods);
    let Some(active) = active(workloads) else { return Outcome::Done };
    let release = async |ungating: Ungating<'_>| {
        GATE.outcome(ctx, &active, &Key::of(&**ungating.pod), ungate(ctx, &ungating).await)
    };
    pod_gates::all(pods_to_ungate(&active, &pods).into_iter().map(release).collect()).await
}

async fn ungate(
    ctx: &Context,
    Ungating { pod, selector }: &Ungating<'_>,
) -> Result<(), WriteError> {
    let gates = pod.placed().map(|placed| placed.gates.as_slice()).unwrap_or_default();
    let others = gates.iter().filter(|gate| *gate != GATE.name).map(|gate| json!({"name": gate}));
    let others: Vec<_> = others.collect();
    let api = Api::namespaced(ctx.client.clone(), &Key::of(&***pod).namespace);
    let store = &ctx.stores.pods;
    let target =
        Target { api, store, object: &**pod, manager: names::JOB_CONTROLLER_MANAGER, what: "pod" };
    target
        .patch(ctx, json!({"spec": {"schedulingGates": others, "nodeSelector": selector}}))
        .await
        .map(drop)
}
