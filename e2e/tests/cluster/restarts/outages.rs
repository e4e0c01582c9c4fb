//! The API server of a cluster is killed with its etcd, on a worker and on the hub: no job is lost, moved or restarted.

use std::time::Duration;

use anyhow::ensure;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::ListParams;
use switchyard_e2e::fleet::{Fleet, HUB, Tenant};
use switchyard_e2e::wait::eventually;
use switchyard_e2e::{Cluster, ClusterSpec, NodeSpec, Part, fixture, job, queues};

/// A hub that was cut off from its API server waits for its Lease, and its watches start again.
const LATER: Duration = Duration::from_secs(240);

/// Kills what a cluster's state is in and what serves it, and brings both back.
async fn strike(cluster: &Cluster) {
    for part in [Part::Etcd, Part::ApiServer] {
        cluster.kill(part).unwrap();
    }
    for part in [Part::Etcd, Part::ApiServer] {
        cluster.restart(part).await.unwrap();
    }
}

/// The pods of a job.
async fn pods(
    fleet: &Fleet,
    tenant: &Tenant<'_>,
    job: &str,
) -> anyhow::Result<Vec<Option<String>>> {
    let pods: Api<Pod> = Api::namespaced(fleet.worker("west").admin.clone(), tenant.name());
    let of_job = job::pods_of(job);
    Ok(pods.list(&of_job).await?.items.into_iter().map(|pod| pod.metadata.uid).collect())
}

#[test]
fn killed_api_servers_and_their_etcds_lose_no_job_and_move_none() {
    fixture::run(async {
        let west = ClusterSpec::new("west").node(NodeSpec::new("n1").cpu(8)).own_etcd();
        let fleet = Fleet::builder("outages").hub_etcd().agent(west).start().await.unwrap();
        fleet.hub().apply([queues::agent_cluster("west")]).await.unwrap();
        fleet.connect().await.unwrap();
        let quota = [("cpu", "4")];
        let tenant =
            fleet.tenant("outage").hub(&quota).worker("west", &quota).make().await.unwrap();
        tenant.submit(tenant.job("long").cpu("1").run_forever()).await.unwrap();
        fleet.await_pods("west", tenant.name(), 1).await.unwrap();
        let before = pods(&fleet, &tenant, "long").await.unwrap();

        for struck in ["west", HUB] {
            strike(fleet.environment().cluster(struck)).await;
            // It works again, also for new jobs. The hub's webhooks need its API server, and that needs the hub.
            let name = format!("after-{struck}");
            eventually(LATER, format!("job {name} to be taken"), async || {
                if tenant.hub_jobs().get_opt(&name).await?.is_some() {
                    return Ok(());
                }
                let job = tenant.job(&name).cpu("1").run_for(Duration::from_secs(1));
                tenant.submit(job).await.map(drop)
            })
            .await
            .unwrap();
            job::complete(&fleet.hub().admin, tenant.name(), &name, LATER).await.unwrap();
        }
        // The old one has not been touched.
        assert_eq!(pods(&fleet, &tenant, "long").await.unwrap(), before);
        eventually(
            LATER,
            "the old one to be on its first attempt, and none to have been taken back",
            async || {
                for workload in tenant.hub_workloads().list(&ListParams::default()).await?.items {
                    let dispatch =
                        workload.status.clone().unwrap_or_default().dispatch.unwrap_or_default();
                    // An offer that was under way when the hub's term ended may have used up an attempt of a later job.
                    let old = workload
                        .metadata
                        .owner_references
                        .iter()
                        .flatten()
                        .any(|owner| owner.name == "long");
                    let first = !old || dispatch.attempt == 1;
                    ensure!(first && dispatch.history.is_empty(), "{}", Tenant::told(&workload));
                }
                Ok(())
            },
        )
        .await
        .unwrap();
    });
}
