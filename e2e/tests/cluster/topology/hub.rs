//! Topologies behind a hub: the hub counts quota, and the worker cluster places the pods.

use std::time::Duration;

use anyhow::ensure;
use clap::Parser as _;
use kube::api::{DeleteParams, ListParams};
use serde_json::{Value, json};
use switchyard_api::v1beta2::{DelayedTopologyRequestState, PodSetAssignment, Workload};
use switchyard_e2e::{
    ClusterSpec, NodeSpec, fixture,
    fleet::{Fleet, Tenant},
    queues,
    wait::eventually,
};

use super::racks::{HOST, RACK, REQUIRED};

const SOON: Duration = Duration::from_secs(60);
const WORKERS: [&str; 2] = ["narrow", "wide"];
const DISPATCHERS: [&str; 3] = [
    "switchyard.dev/best-fit",
    "kueue.x-k8s.io/multikueue-dispatcher-all-at-once",
    "kueue.x-k8s.io/multikueue-dispatcher-incremental",
];

/// Four hosts of four CPUs: in one rack each on `narrow`, in one rack all on `wide`.
fn hosts(worker: &str) -> Vec<NodeSpec> {
    let rack = |host: u32| if worker == "narrow" { host } else { 0 };
    let host = |at: u32| {
        let node = NodeSpec::new(format!("{worker}-{at}")).cpu(4).label("pool", "placed");
        node.label(RACK, format!("rack-{}", rack(at)))
    };
    (0..4).map(host).collect()
}

async fn start(dispatcher: &str) -> Fleet {
    let config = format!(
        "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\nmultiKueue: {{dispatcherName: {dispatcher}}}\n"
    );
    let mut fleet = Fleet::builder("places").config(config);
    for worker in WORKERS {
        fleet = fleet.agent(ClusterSpec::new(worker).nodes(hosts(worker)));
    }
    let fleet = fleet.start().await.unwrap();
    fleet.hub().apply(WORKERS.map(queues::agent_cluster)).await.unwrap();
    fleet.connect().await.unwrap();
    fleet
}

/// A tenant whose flavor has a topology of racks and hosts on all clusters.
async fn tenant<'a>(fleet: &'a Fleet, stem: &str) -> Tenant<'a> {
    let quota = [("cpu", "16")];
    let tenant = fleet.tenant(stem).hub(&quota).worker("narrow", &quota).worker("wide", &quota);
    let tenant = tenant.make().await.unwrap();
    let levels = [RACK, HOST].map(|label| json!({"nodeLabel": label}));
    let topology = json!({
        "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Topology", "metadata": {"name": tenant.name()},
        "spec": {"levels": levels},
    });
    let mut flavor =
        queues::ResourceFlavor::new(tenant.name()).node_label("pool", "placed").build();
    flavor["spec"]["topologyName"] = json!(tenant.name());
    for cluster in WORKERS.into_iter().chain(["hub"]) {
        fleet.worker(cluster).apply([topology.clone(), flavor.clone()]).await.unwrap();
    }
    tenant
}

fn assignment(workload: &Workload) -> Option<&PodSetAssignment> {
    workload.status.as_ref()?.admission.as_ref()?.pod_set_assignments.first()
}

/// Waits until a job runs on a cluster, placed there and shown as placed on the hub.
async fn is_placed_on(fleet: &Fleet, tenant: &Tenant<'_>, job: &str, cluster: &str, pods: usize) {
    let check = async || {
        let workload = tenant.workload_of(job).await?;
        let status = workload.status.clone().unwrap_or_default();
        ensure!(status.cluster_name.as_deref() == Some(cluster), "{:?}", status.cluster_name);
        let here = assignment(&workload).cloned().unwrap_or_default();
        ensure!(
            here.topology_assignment.is_none(),
            "the hub has placed {:?}",
            here.topology_assignment
        );
        ensure!(
            here.delayed_topology_request == Some(DelayedTopologyRequestState::Ready),
            "{here:?}"
        );
        let name = workload.metadata.name.clone().unwrap_or_default();
        let there = tenant.worker_workloads(cluster).get(&name).await?;
        let topology = assignment(&there).and_then(|it| it.topology_assignment.clone());
        let placed: i32 = topology.iter().flat_map(|it| it.domains()).map(|it| it.count).sum();
        ensure!(usize::try_from(placed)? == pods, "{placed} pods are placed");
        Ok(())
    };
    eventually(SOON, format!("{job} on {cluster}"), check).await.unwrap();
    fleet.await_pods(cluster, tenant.name(), pods).await.unwrap();
}

async fn why(fleet: &Fleet, tenant: &Tenant<'_>, job: &str) -> String {
    let kubeconfig = fleet.hub().kubeconfig().to_str().unwrap();
    let args = ["switchyard", "--kubeconfig", kubeconfig, "why", job, "-n", tenant.name()];
    let mut out = Vec::new();
    switchyard::run(switchyard::Args::try_parse_from(args).unwrap(), &mut out).await.unwrap();
    String::from_utf8(out).unwrap()
}

fn rack_job(tenant: &Tenant<'_>, name: &str, pods: u32) -> switchyard_e2e::JobBuilder {
    let job = tenant.job(name).cpu("3").parallelism(pods).completions(pods).run_forever();
    job.pod_annotation(REQUIRED, RACK)
}

async fn places(dispatcher: &str) {
    let fleet = start(dispatcher).await;
    let tenant = tenant(&fleet, "tenant").await;
    // Quota suffices on both workers, and one rack only on `wide`.
    tenant.submit(rack_job(&tenant, "two", 2)).await.unwrap();
    is_placed_on(&fleet, &tenant, "two", "wide", 2).await;
    // A worker's word reaches the user of the hub.
    tenant.submit(rack_job(&tenant, "three", 3)).await.unwrap();
    let waits = async || {
        let text = why(&fleet, &tenant, "three").await;
        for worker in WORKERS {
            ensure!(text.contains(worker), "nothing of {worker}: {text}");
        }
        ensure!(text.contains("allows to fit only"), "{text}");
        Ok(())
    };
    eventually(SOON, "both workers' messages", waits).await.unwrap();
    tenant.hub_jobs().delete("two", &DeleteParams::background()).await.unwrap();
    is_placed_on(&fleet, &tenant, "three", "wide", 3).await;
    tenant.hub_jobs().delete("three", &DeleteParams::background()).await.unwrap();
    // Without an annotation, the flavor's topology places it all the same.
    let plain: Value = tenant.job("plain").cpu("3").run_forever().build();
    fleet.hub().apply([plain]).await.unwrap();
    let sent = async || {
        let workload = tenant.workload_of("plain").await?;
        let cluster = workload.status.and_then(|status| status.cluster_name);
        cluster.ok_or_else(|| anyhow::anyhow!("it is on no cluster"))
    };
    let cluster = eventually(SOON, "plain on a worker", sent).await.unwrap();
    is_placed_on(&fleet, &tenant, "plain", &cluster, 1).await;
    let others = WORKERS.into_iter().filter(|worker| *worker != cluster);
    for worker in others {
        let gone = async || {
            let left = tenant.worker_workloads(worker).list(&ListParams::default()).await?.items;
            ensure!(left.is_empty(), "{} Workloads", left.len());
            Ok(())
        };
        eventually(SOON, format!("nothing on {worker}"), gone).await.unwrap();
    }
}

#[test]
fn worker_places_pods_with_each_dispatcher() {
    fixture::run(async {
        for dispatcher in DISPATCHERS {
            println!("{dispatcher}");
            places(dispatcher).await;
        }
    });
}
