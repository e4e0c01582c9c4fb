//! A worker whose control plane is away, while its agent and its nodes live.
use anyhow::ensure;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::Api;
use kube::api::ListParams;
use switchyard_api::v1beta2::MultiKueueCluster;
use switchyard_e2e::fleet::{Fleet, HUB, Tenant};
use switchyard_e2e::wait::eventually;
use switchyard_e2e::{ClusterSpec, NodeSpec, Part, fixture};

use super::{REASSIGNED, fenced, workload};

/// Uids of the tenant's pods in the west.
async fn pods(fleet: &Fleet, tenant: &Tenant<'_>) -> anyhow::Result<Vec<Option<String>>> {
    let pods: Api<Pod> = Api::namespaced(fleet.worker("west").admin.clone(), tenant.name());
    Ok(pods
        .list(&ListParams::default())
        .await?
        .items
        .into_iter()
        .map(|pod| pod.metadata.uid)
        .collect())
}

/// Until the hub says for that reason whether the west can be used.
async fn reason(fleet: &Fleet, wanted: &str) {
    eventually(REASSIGNED, format!("the west to be {wanted}"), async || {
        let clusters: Api<MultiKueueCluster> = Api::all(fleet.hub().admin.clone());
        let conditions = clusters.get("west").await?.status.unwrap_or_default().conditions;
        let active = conditions.iter().find(|condition| condition.type_ == "Active");
        ensure!(active.is_some_and(|active| active.reason == wanted), "{active:?}");
        Ok(())
    })
    .await
    .unwrap();
}

/// Since when the agent of the west cannot act, by its cluster's status.
async fn unable_since(fleet: &Fleet) -> Option<Time> {
    let clusters: Api<MultiKueueCluster> = Api::all(fleet.hub().admin.clone());
    clusters.get("west").await.unwrap().status?.agent?.unable_since
}

#[test]
fn job_that_agent_cannot_stop_is_kept_until_it_can() {
    fixture::run(async {
        let spec = |name: &str| ClusterSpec::new(name).node(NodeSpec::new("n1").cpu(8)).own_etcd();
        let fleet =
            Fleet::builder("unable").agent(spec("west")).agent(spec("east")).start().await.unwrap();
        fleet.hub().apply([fenced("west")]).await.unwrap();
        fleet.hub().apply([fenced("east")]).await.unwrap();
        fleet.connect().await.unwrap();
        let quota = [("cpu", "4")];
        let tenant =
            fleet.tenant("unable").hub(&quota).worker("west", &quota).make().await.unwrap();
        tenant.submit(tenant.job("a").cpu("1").run_forever()).await.unwrap();
        fleet.await_pods("west", tenant.name(), 1).await.unwrap();
        let before = pods(&fleet, &tenant).await.unwrap();

        let west = fleet.environment().cluster("west");
        west.kill(Part::ApiServer).unwrap();
        reason(&fleet, "AgentUnable").await;
        // A restarted hub has no session with it, and reads its last report.
        fleet.kill(HUB);
        fleet.start_hub().await.unwrap();
        reason(&fleet, "AgentDisconnected").await;
        assert!(unable_since(&fleet).await.is_some());
        west.restart(Part::ApiServer).await.unwrap();
        reason(&fleet, "Active").await;
        assert_eq!(unable_since(&fleet).await, None);
        assert_eq!(pods(&fleet, &tenant).await.unwrap(), before);
        let dispatch = workload(&tenant).await.unwrap().status.unwrap().dispatch.unwrap();
        assert_eq!(
            (dispatch.attempt, dispatch.history),
            (1, Vec::new()),
            "it went on where it was"
        );
    });
}
