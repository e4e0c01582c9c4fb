//! Worker clusters that are lost, by the policy of `onDisconnect`: jobs with a fence stop by themselves, and go elsewhere.

mod asleep;
mod gates;
mod isolation;
mod operators;
mod unable;

use std::time::Duration;

use anyhow::{Context, ensure};
use gates::Gates;
use jiff::SignedDuration;
use kube::api::ListParams;
use serde_json::json;
use switchyard_api::v1beta2::Workload;
use switchyard_e2e::fleet::{Fleet, Tenant};
use switchyard_e2e::wait::eventually;
use switchyard_e2e::{ClusterSpec, NodeSpec, fixture, queues};

/// For how long after the end of its lease a job may run on.
const AFTER: SignedDuration = SignedDuration::from_secs(1);
const SOON: Duration = Duration::from_secs(120);
/// The hub waits for the fence: lease, fence, an eighth of both, its margin and the pods' grace are 46 s.
const REASSIGNED: Duration = Duration::from_secs(300);

fn fenced(name: &str) -> serde_json::Value {
    let mut cluster = queues::agent_cluster(name);
    cluster["spec"]["onDisconnect"] =
        json!({"policy": "Fence", "after": format!("{}s", AFTER.as_secs())});
    cluster
}

/// The only Workload of a tenant on the hub.
async fn workload(tenant: &Tenant<'_>) -> anyhow::Result<Workload> {
    tenant.hub_workloads().list(&ListParams::default()).await?.items.pop().context("no Workload")
}

#[test]
fn fenced_job_that_is_cut_off_stops_and_never_runs_twice() {
    fixture::run(async {
        let spec = |name: &str| ClusterSpec::new(name).node(NodeSpec::new("n1").cpu(8));
        let fleet = Fleet::builder("cut-off")
            .agent(spec("west"))
            .agent(spec("east"))
            .start()
            .await
            .unwrap();
        fleet.hub().apply(["west", "east"].map(fenced)).await.unwrap();
        let gates = Gates::connect(&fleet, &["west", "east"]).await.unwrap();
        let quota = [("cpu", "4")];
        let tenant = fleet
            .tenant("cut")
            .hub(&quota)
            .worker("west", &quota)
            .worker("east", &quota)
            .make()
            .await
            .unwrap();
        let job = tenant
            .job("a")
            .cpu("1")
            .pod_field("terminationGracePeriodSeconds", json!(1))
            .run_forever();
        tenant.submit(job).await.unwrap();
        let row = tenant
            .await_status("a", "dispatched", SOON, |row| row.cluster.is_some())
            .await
            .unwrap();
        let first = row.cluster.unwrap();
        let second = if first == "west" { "east" } else { "west" };
        fleet.await_pods(&first, tenant.name(), 1).await.unwrap();

        gates.shut(&first);
        eventually(REASSIGNED, format!("the job to run on {second}"), async || {
            ensure!(
                fleet.pods(second, tenant.name()).await? == 1,
                "{}",
                Tenant::told(&workload(&tenant).await?)
            );
            Ok(())
        })
        .await
        .unwrap();
        // A stopped job does not start again: had both run at any time, the first would run now.
        assert_eq!(fleet.pods(&first, tenant.name()).await.unwrap(), 0, "both run");
        let status = workload(&tenant).await.unwrap().status.unwrap();
        assert_eq!(status.cluster_name.as_deref(), Some(second));
        let dispatch = status.dispatch.unwrap();
        let past: Vec<_> = dispatch
            .history
            .iter()
            .map(|it| (it.attempt, &*it.cluster_name, &*it.reason))
            .collect();
        assert_eq!((dispatch.attempt, past), (2, vec![(1, &*first, "ClusterLost")]));

        // It comes back: what it has left is removed, and the job stays where it is.
        gates.unshut(&first);
        tenant.await_empty(&first, SOON).await.unwrap();
        assert_eq!(fleet.pods(second, tenant.name()).await.unwrap(), 1);
        assert_eq!(workload(&tenant).await.unwrap().status.unwrap().dispatch.unwrap().attempt, 2);
    });
}
