//! A kubeconfig that comes to lead to another cluster while jobs run: a cluster is the one that its uid says.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::ListParams;
use serde_json::json;
use switchyard_e2e::fleet::{Fleet, NAMESPACE};
use switchyard_e2e::wait::{always, eventually};
use switchyard_e2e::{ClusterSpec, NodeSpec, fixture, queues};

const SOON: Duration = Duration::from_secs(120);
/// For so long the other cluster's silence is not believed. Without a mend jobs were given up within six seconds.
const WATCHED: Duration = Duration::from_secs(20);

#[test]
fn kubeconfig_of_another_cluster_ends_no_job() {
    fixture::run(async {
        let worker = |name: &str| ClusterSpec::new(name).node(NodeSpec::new("n1").cpu(8));
        let fleet = Fleet::builder("elsewhere").bare(worker("right")).bare(worker("wrong")).start().await.unwrap();
        let mut kubeconfigs = Vec::new();
        for name in ["right", "wrong"] {
            fleet.start_single(name).await.unwrap();
            let (_, kubeconfig) = fleet.worker(name).service_account(NAMESPACE, "switchyard-remote-hub").await.unwrap();
            kubeconfigs.push(kubeconfig);
        }
        let mut cluster = queues::kubeconfig_cluster("right", "right");
        cluster["spec"]["onDisconnect"] = json!({"policy": "Hold"});
        let lead = async |kubeconfig: &str| {
            fleet.hub().apply([queues::kubeconfig_secret(NAMESPACE, "right", kubeconfig)]).await.unwrap();
        };
        lead(&kubeconfigs[0]).await;
        fleet.hub().apply([cluster]).await.unwrap();
        fleet.connected("right").await.unwrap();
        let quota = [("cpu", "4")];
        let tenant = fleet.tenant("moved").hub(&quota).worker("right", &quota).make().await.unwrap();
        tenant.submit(tenant.job("long").run_forever()).await.unwrap();
        fleet.await_pods("right", tenant.name(), 1).await.unwrap();
        let pods: Api<Pod> = Api::namespaced(fleet.worker("right").admin.clone(), tenant.name());
        let before = pods.list(&ListParams::default()).await.unwrap().items.remove(0).metadata.uid;

        lead(&kubeconfigs[1]).await;
        fleet.says("right", "OtherCluster", "its jobs are on the cluster").await.unwrap();
        always(WATCHED, "the job stays where it was sent", async || {
            let status = tenant.workload_of("long").await?.status.context("no status")?;
            let history = status.dispatch.context("not sent")?.history;
            ensure!(history.is_empty(), "{history:?}");
            ensure!(fleet.pods("wrong", tenant.name()).await? == 0, "pods on the wrong cluster");
            Ok(())
        })
        .await
        .unwrap();

        lead(&kubeconfigs[0]).await;
        fleet.connected("right").await.unwrap();
        eventually(SOON, "the same pod to run", async || {
            let there = pods.list(&ListParams::default()).await?.items;
            ensure!(there.len() == 1 && there[0].metadata.uid == before, "{} pods", there.len());
            Ok(())
        })
        .await
        .unwrap();
        let dispatch = tenant.workload_of("long").await.unwrap().status.unwrap().dispatch.unwrap();
        assert!(dispatch.history.is_empty(), "{:?}", dispatch.history);
    });
}
