//! A cluster is identified by its uid, whatever the name of its MultiKueueCluster, and whichever
//! cluster its kubeconfig or agent reaches later.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use k8s_openapi::api::core::v1::{Event, Namespace, Pod};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use serde_json::json;
use switchyard_api::v1beta2::{MultiKueueCluster, MultiKueueConfig};
use switchyard_e2e::fleet::{Fleet, NAMESPACE, Tenant};
use switchyard_e2e::wait::{always, eventually};
use switchyard_e2e::{ClusterSpec, NodeSpec, fixture, job, queues};

const SOON: Duration = Duration::from_secs(120);
/// How long the test watches that the other cluster's silence is ignored. Otherwise the hub would
/// give the jobs up within six seconds.
const WATCHED: Duration = Duration::from_secs(20);

/// The uid of the tenant's only pod on a worker.
async fn pod_of(
    fleet: &Fleet,
    tenant: &Tenant<'_>,
    worker: &str,
) -> anyhow::Result<Option<String>> {
    let pods: Api<Pod> = Api::namespaced(fleet.worker(worker).admin.clone(), tenant.name());
    let mut there = pods.list(&ListParams::default()).await?.items;
    ensure!(there.len() == 1, "{} pods", there.len());
    Ok(there.remove(0).metadata.uid)
}

/// Checks that the job stays where it is, in the same pod.
async fn stays(fleet: &Fleet, tenant: &Tenant<'_>, worker: &str, pod: Option<&String>) {
    always(WATCHED, "the job stays where it is", async || {
        ensure!(pod_of(fleet, tenant, worker).await?.as_ref() == pod, "another pod");
        let status = tenant.workload_of("long").await?.status.context("no status")?;
        let history = status.dispatch.context("not sent")?.history;
        ensure!(history.is_empty(), "{history:?}");
        Ok(())
    })
    .await
    .unwrap();
}

async fn uid_of(fleet: &Fleet, worker: &str) -> String {
    let namespaces: Api<Namespace> = Api::all(fleet.worker(worker).admin.clone());
    namespaces.get("kube-system").await.unwrap().uid().unwrap()
}

#[test]
fn agent_of_another_cluster_ends_no_job() {
    fixture::run(async {
        let worker = |name: &str| ClusterSpec::new(name).node(NodeSpec::new("n1").cpu(8));
        let fleet = Fleet::builder("stranger")
            .agent(worker("right"))
            .agent(worker("wrong"))
            .start()
            .await
            .unwrap();
        let mut cluster = queues::agent_cluster("right");
        cluster["spec"]["onDisconnect"] = json!({"policy": "Hold"});
        fleet.hub().apply([cluster]).await.unwrap();
        fleet.start_agent("right", &fleet.join_token("right").await.unwrap()).await.unwrap();
        fleet.connected("right").await.unwrap();
        let quota = [("cpu", "4")];
        let tenant =
            fleet.tenant("enrolled").hub(&quota).worker("right", &quota).make().await.unwrap();
        tenant.submit(tenant.job("long").run_forever()).await.unwrap();
        fleet.await_pods("right", tenant.name(), 1).await.unwrap();
        let before = pod_of(&fleet, &tenant, "right").await.unwrap();

        fleet.kill("right");
        fleet.start_agent("wrong", &fleet.join_token("right").await.unwrap()).await.unwrap();
        for worker in ["right", "wrong"] {
            fleet.says("right", "OtherCluster", &uid_of(&fleet, worker).await).await.unwrap();
        }
        stays(&fleet, &tenant, "right", before.as_ref()).await;
        assert_eq!(fleet.pods("wrong", tenant.name()).await.unwrap(), 0);

        fleet.restart_agent("right").unwrap();
        fleet.connected("right").await.unwrap();
        stays(&fleet, &tenant, "right", before.as_ref()).await;
        fleet.connected("right").await.unwrap();

        // Without a job of the hub there, the name may move to the other cluster.
        tenant.hub_jobs().delete("long", &DeleteParams::background()).await.unwrap();
        tenant.await_empty("right", SOON).await.unwrap();
        // The hub assumes that the cluster runs the job until the agent reports otherwise. Then the
        // Workload is deleted.
        eventually(SOON, "the hub to know that the job is gone", async || {
            let left = tenant.hub_workloads().list(&ListParams::default()).await?.items;
            ensure!(left.is_empty(), "{:?}", left.iter().map(Tenant::told).collect::<Vec<_>>());
            Ok(())
        })
        .await
        .unwrap();
        fleet.kill("right");
        let clusters: Api<MultiKueueCluster> = Api::all(fleet.hub().admin.clone());
        let wrong = uid_of(&fleet, "wrong").await;
        eventually(SOON, "the other cluster to be used", async || {
            let agent = clusters
                .get("right")
                .await?
                .status
                .and_then(|status| status.agent)
                .unwrap_or_default();
            ensure!(
                agent.connected_since.is_some() && agent.cluster_uid.as_ref() == Some(&wrong),
                "{agent:?}"
            );
            Ok(())
        })
        .await
        .unwrap();
    });
}

/// The events of a job's Workload on the hub.
async fn notes(fleet: &Fleet, tenant: &Tenant<'_>, job: &str) -> anyhow::Result<Vec<String>> {
    let workload = tenant.workload_of(job).await?.name_any();
    let events: Api<Event> = Api::namespaced(fleet.hub().admin.clone(), tenant.name());
    let events = events.list(&ListParams::default()).await?;
    let its =
        events.into_iter().filter(|event| event.involved_object.name.as_deref() == Some(&workload));
    Ok(its.filter_map(|event| event.message).collect())
}

#[test]
fn jobs_stay_with_cluster_whose_second_name_is_deleted() {
    fixture::run(async {
        let worker = ClusterSpec::new("first").node(NodeSpec::new("n1").cpu(8));
        let fleet = Fleet::builder("renamed").bare(worker).start().await.unwrap();
        fleet.start_single("first").await.unwrap();
        let (_, kubeconfig) = fleet
            .worker("first")
            .service_account(NAMESPACE, "switchyard-remote-hub")
            .await
            .unwrap();
        for name in ["first", "second"] {
            let secret = queues::kubeconfig_secret(NAMESPACE, name, &kubeconfig);
            fleet.hub().apply([secret, queues::kubeconfig_cluster(name, name)]).await.unwrap();
            if name == "first" {
                fleet.connected(name).await.unwrap();
            }
        }
        fleet.says("second", "DuplicateCluster", "delete one of the two").await.unwrap();
        let quota = [("cpu", "4")];
        let tenant =
            fleet.tenant("renamed").hub(&quota).worker("first", &quota).make().await.unwrap();
        let configs: Api<MultiKueueConfig> = Api::all(fleet.hub().admin.clone());
        let both = Patch::Merge(json!({"spec": {"clusters": ["first", "second"]}}));
        configs.patch(tenant.name(), &PatchParams::default(), &both).await.unwrap();
        tenant.submit(tenant.job("long").run_forever()).await.unwrap();
        fleet.await_pods("first", tenant.name(), 1).await.unwrap();
        let before = pod_of(&fleet, &tenant, "first").await.unwrap();

        let clusters: Api<MultiKueueCluster> = Api::all(fleet.hub().admin.clone());
        clusters.delete("first", &DeleteParams::default()).await.unwrap();
        fleet.connected("second").await.unwrap();
        eventually(SOON, "the job to be on \"second\"", async || {
            let status = tenant.workload_of("long").await?.status.unwrap_or_default();
            ensure!(
                status.cluster_name.as_deref() == Some("second"),
                "it is on {:?}",
                status.cluster_name
            );
            Ok(())
        })
        .await
        .unwrap();
        stays(&fleet, &tenant, "first", before.as_ref()).await;
        let status = tenant.workload_of("long").await.unwrap().status.unwrap();
        assert_eq!(status.cluster_name.as_deref(), Some("second"));
        assert_eq!(status.dispatch.unwrap().attempt, 1);
        let said =
            "The workload goes on on \"second\", which leads to the same cluster as \"first\" did";
        assert!(
            status.admission_checks[0].message.starts_with(said),
            "{:?}",
            status.admission_checks
        );
        eventually(SOON, "an event", async || {
            let notes = notes(&fleet, &tenant, "long").await?;
            ensure!(notes.iter().any(|note| note.starts_with(said)), "{notes:?}");
            Ok(())
        })
        .await
        .unwrap();

        tenant.submit(tenant.job("short").run_for(Duration::from_millis(200))).await.unwrap();
        job::complete(&fleet.hub().admin, tenant.name(), "short", SOON).await.unwrap();
        tenant.hub_jobs().delete("long", &DeleteParams::background()).await.unwrap();
        tenant.await_empty("first", SOON).await.unwrap();
    });
}

#[test]
fn hub_is_its_own_worker_only_if_requested() {
    fixture::run(async {
        let fleet = Fleet::builder("own").start().await.unwrap();
        let (_, kubeconfig) =
            fleet.hub().service_account(NAMESPACE, "switchyard-hub").await.unwrap();
        let secret = queues::kubeconfig_secret(NAMESPACE, "own", &kubeconfig);
        fleet.hub().apply([secret, queues::kubeconfig_cluster("own", "own")]).await.unwrap();
        fleet.says("own", "OwnCluster", "switchyard.dev/own-cluster=allowed").await.unwrap();
        let clusters: Api<MultiKueueCluster> = Api::all(fleet.hub().admin.clone());
        let allowed =
            json!({"metadata": {"annotations": {"switchyard.dev/own-cluster": "allowed"}}});
        clusters.patch("own", &PatchParams::default(), &Patch::Merge(allowed)).await.unwrap();
        fleet.connected("own").await.unwrap();
    });
}

#[test]
fn kubeconfig_of_another_cluster_ends_no_job() {
    fixture::run(async {
        let worker = |name: &str| ClusterSpec::new(name).node(NodeSpec::new("n1").cpu(8));
        let fleet = Fleet::builder("elsewhere")
            .bare(worker("right"))
            .bare(worker("wrong"))
            .start()
            .await
            .unwrap();
        let mut kubeconfigs = Vec::new();
        for name in ["right", "wrong"] {
            fleet.start_single(name).await.unwrap();
            let (_, kubeconfig) = fleet
                .worker(name)
                .service_account(NAMESPACE, "switchyard-remote-hub")
                .await
                .unwrap();
            kubeconfigs.push(kubeconfig);
        }
        let mut cluster = queues::kubeconfig_cluster("right", "right");
        cluster["spec"]["onDisconnect"] = json!({"policy": "Hold"});
        let lead = async |kubeconfig: &str| {
            fleet
                .hub()
                .apply([queues::kubeconfig_secret(NAMESPACE, "right", kubeconfig)])
                .await
                .unwrap();
        };
        lead(&kubeconfigs[0]).await;
        fleet.hub().apply([cluster]).await.unwrap();
        fleet.connected("right").await.unwrap();
        let quota = [("cpu", "4")];
        let tenant =
            fleet.tenant("moved").hub(&quota).worker("right", &quota).make().await.unwrap();
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
