//! Two replicas of the hub: one leads, the other is warm. When the leader is killed, the other goes on where it was.
use std::time::Duration;

use anyhow::{Context, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::ListParams;
use switchyard_e2e::fleet::{Fleet, REPLICAS, Tenant};
use switchyard_e2e::leader::{QUICK, leader};
use switchyard_e2e::wait::eventually;
use switchyard_e2e::{ClusterSpec, NodeSpec, fixture, job, queues};

const SOON: Duration = Duration::from_secs(120);

/// Names and uids of all pods that a tenant has on the worker, including ended ones.
async fn pods(fleet: &Fleet, tenant: &Tenant<'_>) -> Vec<(String, String)> {
    let pods: Api<Pod> = Api::namespaced(fleet.worker("west").admin.clone(), tenant.name());
    let pods = pods.list(&ListParams::default()).await.unwrap().items;
    let named = |pod: Pod| Some((pod.metadata.labels?.get("job-name")?.clone(), pod.metadata.uid?));
    pods.into_iter().filter_map(named).collect()
}

#[test]
fn a_killed_leader_is_followed_and_nothing_that_runs_is_touched() {
    fixture::run(async {
        let west = ClusterSpec::new("west").node(NodeSpec::new("n1").cpu(16));
        let fleet = Fleet::builder("availability")
            .two_replicas()
            .config(QUICK)
            .agent(west)
            .start()
            .await
            .unwrap();
        fleet.hub().apply([queues::agent_cluster("west")]).await.unwrap();
        fleet.connect().await.unwrap();
        let tenant = fleet
            .tenant("ha")
            .hub(&[("cpu", "2")])
            .worker("west", &[("cpu", "8")])
            .make()
            .await
            .unwrap();
        tenant.submit(tenant.job("long").cpu("1").run_forever()).await.unwrap();
        tenant.submit(tenant.job("short").cpu("1").run_forever()).await.unwrap();
        fleet.await_pods("west", tenant.name(), 2).await.unwrap();
        for name in ["queued-1", "queued-2"] {
            tenant
                .submit(tenant.job(name).cpu("1").run_for(Duration::from_millis(200)))
                .await
                .unwrap();
        }
        let before = pods(&fleet, &tenant).await;
        let long = before.iter().find(|(job, _)| job == "long").unwrap();

        // On a busy machine, the first replica may have lost the lease by now.
        let victim = leader(&fleet).await.unwrap().context("no replica leads").unwrap();
        let other = if victim == REPLICAS[0] { REPLICAS[1] } else { REPLICAS[0] };
        fleet.kill(&victim);
        // The other replica's webhooks accept it, whichever leads.
        let meanwhile = tenant.job("meanwhile").cpu("1").run_for(Duration::from_millis(200));
        tenant.submit_until_taken(meanwhile, SOON).await.unwrap();
        eventually(SOON, "the other replica to lead", async || {
            let leads = leader(&fleet).await?;
            ensure!(leads.as_deref() == Some(other), "{leads:?} leads");
            Ok(())
        })
        .await
        .unwrap();
        let west = &fleet.worker("west").admin;
        job::running_pods_succeed(west, tenant.name(), "short", SOON).await.unwrap();
        for name in ["short", "queued-1", "queued-2", "meanwhile"] {
            job::complete(&fleet.hub().admin, tenant.name(), name, SOON).await.unwrap();
        }
        let after = pods(&fleet, &tenant).await;
        assert!(after.contains(long), "{long:?} is not among {after:?}");
        assert_eq!(after.iter().filter(|(job, _)| job == "long").count(), 1, "{after:?}");
        assert_eq!(fleet.pods("west", tenant.name()).await.unwrap(), 1, "what runs");
        for name in ["long", "short"] {
            let workload = tenant.workload_of(name).await.unwrap();
            let dispatch = workload.status.as_ref().and_then(|status| status.dispatch.as_ref());
            let attempt = dispatch.map(|it| it.attempt);
            assert_eq!(attempt, Some(1), "{}", Tenant::told(&workload));
        }
        for workload in tenant.hub_workloads().list(&ListParams::default()).await.unwrap().items {
            let dispatch = workload.status.as_ref().and_then(|status| status.dispatch.as_ref());
            let history = dispatch.map(|it| it.history.as_slice()).unwrap_or_default();
            // An offer that a slow worker answers late is withdrawn before any pod runs.
            let has_run_once = history.iter().all(|past| past.reason == "Withdrawn");
            assert!(has_run_once, "{history:?}: {}", Tenant::told(&workload));
        }

        // The killed replica comes back, and is ready.
        fleet.start_replica(&victim).await.unwrap();
        tenant
            .submit(tenant.job("last").cpu("1").run_for(Duration::from_millis(200)))
            .await
            .unwrap();
        job::complete(&fleet.hub().admin, tenant.name(), "last", SOON).await.unwrap();
    });
}
