//! Preemption gates: a workload with a closed gate preempts no other, reports this, and blocks no other, until the gate opens.

use crate::bed::{Bed, WAIT};
use anyhow::ensure;
use kube::{
    Api, ResourceExt as _,
    api::{Patch, PatchParams},
};
use serde_json::{Value, json};
use switchyard_api::v1beta2::{PreemptionGatePosition, Workload};
use switchyard_e2e::{fixture, queues, wait};

/// The gate of Kueue by which they hold.
const SECTIONS: &str = "featureGates: {MultiKueueOrchestratedPreemption: true}";
const GATE: &str = "example.com/gate";

fn workloads(bed: &Bed) -> Api<Workload> {
    Api::namespaced(bed.admin().clone(), &bed.namespace)
}

/// Creates a job, and gives its Workload a gate before anybody looks for quota for it.
async fn gated(bed: &Bed, name: &str, cpus: &str, priority_class: &str) {
    bed.stop_local_queue("Hold").await;
    bed.local_queue_condition("queue", "False", "Stopped", "LocalQueue is stopped").await;
    let job = bed.job(name).cpu(cpus).priority_class(priority_class).run_forever();
    job.create(bed.admin()).await.unwrap();
    bed.expect(name, "QuotaReserved", "False", "Suspended", "LocalQueue queue is inactive").await;
    let workload = bed.workload_of(name).await.name_any();
    let gates = json!({"spec": {"preemptionGates": [{"name": GATE}]}});
    workloads(bed).patch(&workload, &PatchParams::default(), &Patch::Merge(gates)).await.unwrap();
    positions(bed, name, PreemptionGatePosition::Closed).await;
    bed.stop_local_queue("None").await;
}

/// Opens the gate, as its owner does.
async fn open(bed: &Bed, job: &str) {
    let gate =
        json!({"name": GATE, "position": "Open", "lastTransitionTime": "2026-01-01T00:00:00Z"});
    let workload = bed.workload_of(job).await.name_any();
    let status: Value = json!({"status": {"preemptionGates": [gate]}});
    workloads(bed)
        .patch_status(&workload, &PatchParams::default(), &Patch::Merge(status))
        .await
        .unwrap();
}

/// Waits until the status lists the gate in this position.
async fn positions(bed: &Bed, job: &str, expected: PreemptionGatePosition) {
    let check = async || {
        let gates = bed.workload_of(job).await.status.unwrap_or_default().preemption_gates;
        let states: Vec<_> = gates.iter().map(|gate| (gate.name.as_str(), gate.position)).collect();
        ensure!(states == [(GATE, expected)], "{states:?}");
        Ok(())
    };
    wait::eventually(WAIT, format!("the gate of {job} to be {expected:?}"), check).await.unwrap();
}

/// A queue of two cpus in which a workload of the class, whose name comes with it, may preempt others.
async fn preempting(name: &str) -> (Bed, String) {
    let bed = Bed::configured(name, SECTIONS).await;
    let class = bed.part("high");
    bed.cluster().apply([queues::priority_class(&class, 1000)]).await.unwrap();
    let queue = queues::ClusterQueue::new(&bed.name).group(&bed.name, &[("cpu", "2")]);
    bed.apply(queue.preemption("LowerPriority", "Never").build()).await;
    (bed, class)
}

#[test]
fn a_gated_workload_preempts_nobody_until_its_gate_is_open() {
    fixture::run(async {
        let (bed, class) = preempting("gated").await;
        let low = |name: &str| bed.job(name).cpu("1").run_forever();
        low("low").create(bed.admin()).await.unwrap();
        bed.running("low").await;

        gated(&bed, "high", "2", &class).await;
        let message = "Workload requires preemption, but it's gated";
        bed.expect("high", "BlockedOnPreemptionGates", "True", "PreemptionGated", message).await;
        bed.expect("high", "QuotaReserved", "False", "AdmissionGated", message).await;
        // A workload that fits beside it does not wait for it.
        low("later").create(bed.admin()).await.unwrap();
        bed.running("later").await;
        bed.suspended("low", false).await;
        bed.expect("high", "BlockedOnPreemptionGates", "True", "PreemptionGated", message).await;

        open(&bed, "high").await;
        bed.running("high").await;
        let previously = format!("Previously: {message}");
        bed.expect("high", "BlockedOnPreemptionGates", "False", "QuotaReserved", &previously).await;
        positions(&bed, "high", PreemptionGatePosition::Open).await;
        for victim in ["low", "later"] {
            bed.expect(victim, "Preempted", "True", "InClusterQueue", "").await;
        }

        // The next time the gate has to be opened again.
        bed.set_active("high", false).await;
        bed.expect("high", "Evicted", "True", "Deactivated", "The workload is deactivated").await;
        positions(&bed, "high", PreemptionGatePosition::Closed).await;
        for victim in ["low", "later"] {
            bed.running(victim).await;
        }
    });
}

#[test]
fn a_gated_workload_that_fits_is_not_blocked() {
    fixture::run(async {
        let (bed, class) = preempting("fits").await;
        gated(&bed, "high", "2", &class).await;
        bed.running("high").await;
        positions(&bed, "high", PreemptionGatePosition::Closed).await;
        let known = bed.workload_of("high").await.status.unwrap().conditions;
        assert!(
            known.iter().all(|condition| condition.type_ != "BlockedOnPreemptionGates"),
            "{known:?}"
        );
    });
}
