//! A RayCluster that changes on the hub while it runs on the worker that it was sent to.

use std::collections::BTreeSet;

use anyhow::ensure;
use kube::ResourceExt as _;
use kube::api::{Api, DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use switchyard_e2e::fleet::{Fleet, Tenant};
use switchyard_e2e::wait::eventually;
use switchyard_e2e::{ClusterSpec, NodeSpec, fixture, queues};

use super::operator::{API, Operator};
use super::{install, is_suspended, metadata, pods};
use crate::bed::WAIT;
use crate::elastic::ELASTIC;

const CONFIG: &str = "\
apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
integrations: {frameworks: [batch/job, ray.io/raycluster]}
";

async fn fleet() -> Fleet {
    let west = ClusterSpec::new("west").node(NodeSpec::new("n1").cpu(64));
    let fleet = Fleet::builder("elastic-ray")
        .agent(west)
        .config(CONFIG)
        .agent_config(CONFIG)
        .agent_webhooks();
    let fleet = fleet.start().await.unwrap();
    for cluster in [fleet.hub(), fleet.worker("west")] {
        install(cluster).await;
    }
    fleet.hub().apply([queues::agent_cluster("west")]).await.unwrap();
    fleet.connect().await.unwrap();
    for cluster in [fleet.hub(), fleet.worker("west")] {
        let clusters = cluster.dynamic(API, "RayCluster", "default").await.unwrap();
        let called = async || {
            let probe = serde_json::from_value(ray_cluster("default", &group(1, 1, "i")))?;
            let made = clusters
                .create(&PostParams { dry_run: true, ..PostParams::default() }, &probe)
                .await?;
            ensure!(is_suspended(&made), "it is let through");
            Ok(())
        };
        eventually(WAIT, "the webhook of RayClusters", called).await.unwrap();
    }
    fleet
}

fn template(image: &str) -> Value {
    let container = json!({"name": "c", "image": image, "resources": {"requests": {"cpu": "1"}}});
    json!({"metadata": metadata(), "spec": {"containers": [container]}})
}

fn group(replicas: i32, hosts: i32, image: &str) -> Value {
    json!({
        "groupName": "a", "replicas": replicas, "minReplicas": 0, "maxReplicas": 9, "numOfHosts": hosts,
        "template": template(image),
    })
}

fn ray_cluster(namespace: &str, group: &Value) -> Value {
    json!({
        "apiVersion": API, "kind": "RayCluster",
        "metadata": {
            "name": "train", "namespace": namespace,
            "labels": {"kueue.x-k8s.io/queue-name": "main"}, "annotations": {ELASTIC: "true"},
        },
        "spec": {"headGroupSpec": {"template": template("i")}, "workerGroupSpecs": [group]},
    })
}

struct Scene<'a> {
    fleet: &'a Fleet,
    tenant: Tenant<'a>,
    here: Api<DynamicObject>,
    there: Api<DynamicObject>,
}

impl Scene<'_> {
    async fn change(&self, group: &Value) {
        let patch = Patch::Merge(json!({"spec": {"workerGroupSpecs": [group]}}));
        let change = async || Ok(self.here.patch("train", &PatchParams::default(), &patch).await?);
        eventually(WAIT, "the cluster to be changed", change).await.unwrap();
    }

    /// The uids of its pods on the worker, once so many of its group run and none waits.
    async fn runs(&self, workers: usize) -> BTreeSet<String> {
        let check = async || {
            let (uids, shown) = pods(self.fleet.worker("west"), self.tenant.name()).await?;
            ensure!(shown == format!("a {workers}+0, head 1+0"), "{shown}");
            Ok(uids)
        };
        eventually(WAIT, format!("{workers} workers"), check).await.unwrap()
    }

    async fn copy(&self) -> (Option<String>, Value) {
        let copy = self.there.get("train").await.unwrap();
        (copy.uid(), copy.data["spec"]["workerGroupSpecs"][0].clone())
    }
}

#[test]
fn ray_cluster_resizes_on_worker_and_restarts_with_new_image() {
    fixture::run(async {
        let fleet = fleet().await;
        let tenant = fleet
            .tenant("ray")
            .hub(&[("cpu", "9")])
            .worker("west", &[("cpu", "9")])
            .make()
            .await
            .unwrap();
        let api = async |cluster: &switchyard_e2e::Cluster| {
            cluster.dynamic(API, "RayCluster", tenant.name()).await.unwrap()
        };
        let (here, there) = (api(fleet.hub()).await, api(fleet.worker("west")).await);
        let _operator = Operator::start(fleet.worker("west"), tenant.name()).await;
        let made = serde_json::from_value(ray_cluster(tenant.name(), &group(1, 1, "i"))).unwrap();
        here.create(&PostParams::default(), &made).await.unwrap();
        let scene = Scene { fleet: &fleet, tenant, here, there };
        let first = scene.runs(1).await;
        let (copy, _) = scene.copy().await;

        scene.change(&group(3, 1, "i")).await;
        assert!(scene.runs(3).await.is_superset(&first), "the pods of before run on");
        scene.change(&group(2, 2, "i")).await;
        assert!(scene.runs(4).await.is_superset(&first));
        let (kept, group_there) = scene.copy().await;
        assert_eq!(kept, copy, "it was never made anew");
        assert_eq!((&group_there["replicas"], &group_there["numOfHosts"]), (&json!(2), &json!(2)));
        scene.change(&group(1, 2, "i")).await;
        let before = scene.runs(2).await;

        scene.change(&group(1, 2, "other")).await;
        let anew = async || {
            let (uid, group) =
                scene.there.get_opt("train").await?.map_or((None, Value::Null), |copy| {
                    (copy.uid(), copy.data["spec"]["workerGroupSpecs"][0].clone())
                });
            ensure!(uid.is_some() && uid != copy, "it is the one of before");
            ensure!(group["template"]["spec"]["containers"][0]["image"] == "other", "{group}");
            Ok(())
        };
        eventually(WAIT, "the cluster to be sent anew", anew).await.unwrap();
        let replaced = async || {
            let (uids, shown) = pods(fleet.worker("west"), scene.tenant.name()).await?;
            ensure!(shown == "a 2+0, head 1+0", "{shown}");
            ensure!(uids.is_disjoint(&before), "pods of before run");
            Ok(())
        };
        eventually(WAIT, "other pods", replaced).await.unwrap();
        scene.here.delete("train", &DeleteParams::background()).await.unwrap();
        scene.tenant.await_empty("west", WAIT).await.unwrap();
    });
}
