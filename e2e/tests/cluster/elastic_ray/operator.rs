//! KubeRay, played for sizes: it makes the RayCluster of a RayJob or a RayService once, and the pods of a RayCluster.

use std::{collections::BTreeMap, time::Duration};

use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, ResourceExt as _,
    api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use switchyard_e2e::Cluster;
use tokio::task::JoinHandle;

pub(super) const API: &str = "ray.io/v1";
/// KubeRay's label of the pods of a cluster.
pub(super) const OF_CLUSTER: &str = "ray.io/cluster";
const EVERY: Duration = Duration::from_millis(100);

/// A kind that has a RayCluster made for it.
struct Maker {
    kind: &'static str,
    cluster_at: &'static str,
    suspend_at: &'static str,
    runs: fn(&str) -> Value,
    stopped: fn() -> Value,
}

const MAKERS: [Maker; 2] = [
    Maker {
        kind: "RayJob",
        cluster_at: "/spec/rayClusterSpec",
        suspend_at: "/spec/suspend",
        runs: |child| {
            json!({
                "jobDeploymentStatus": "Running", "jobStatus": "RUNNING", "rayClusterName": child,
                "rayClusterStatus": {"state": "ready"},
            })
        },
        stopped: || json!({"jobDeploymentStatus": "Suspended", "rayClusterName": null, "rayClusterStatus": null}),
    },
    Maker {
        kind: "RayService",
        cluster_at: "/spec/rayClusterConfig",
        suspend_at: "/spec/rayClusterConfig/suspend",
        runs: |child| {
            let ready = json!({
                "type": "Ready", "status": "True", "reason": "R", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z",
            });
            json!({"activeServiceStatus": {"rayClusterName": child}, "conditions": [ready]})
        },
        stopped: || json!({"activeServiceStatus": null, "conditions": []}),
    },
];

/// It runs until this is dropped.
pub(super) struct Operator(JoinHandle<()>);

impl Drop for Operator {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Operator {
    pub(super) async fn start(cluster: &Cluster, namespace: &str) -> Self {
        let mut makers = Vec::new();
        for maker in &MAKERS {
            makers.push((maker, cluster.dynamic(API, maker.kind, namespace).await.unwrap()));
        }
        let clusters = cluster.dynamic(API, "RayCluster", namespace).await.unwrap();
        let pods = Api::namespaced(cluster.admin.clone(), namespace);
        Self(tokio::spawn(async move {
            loop {
                for (maker, jobs) in &makers {
                    let looked = async {
                        make_clusters(maker, jobs, &clusters).await?;
                        collect(maker, jobs, &clusters).await
                    };
                    if let Err(error) = looked.await {
                        tracing::info!(kind = maker.kind, %error, "again");
                    }
                }
                if let Err(error) = make_pods(&clusters, &pods).await {
                    tracing::info!(%error, "again");
                }
                tokio::time::sleep(EVERY).await;
            }
        }))
    }
}

fn owned_by(owner: &Value, kind: &str) -> Value {
    let metadata = &owner["metadata"];
    json!([{"apiVersion": API, "kind": kind, "name": metadata["name"], "uid": metadata["uid"], "controller": true}])
}

async fn make_clusters(
    maker: &Maker,
    jobs: &Api<DynamicObject>,
    clusters: &Api<DynamicObject>,
) -> anyhow::Result<()> {
    for job in jobs.list(&ListParams::default()).await?.items {
        let (name, job) = (job.name_any(), serde_json::to_value(job)?);
        let child = format!("{name}-made");
        let (suspended, ended) = (
            job.pointer(maker.suspend_at) == Some(&json!(true)),
            &job["status"]["jobDeploymentStatus"],
        );
        let found = clusters.get_opt(&child).await?;
        let ended = ended == "Complete";
        if (suspended || ended) && found.is_some() {
            clusters.delete(&child, &DeleteParams::background()).await?;
        }
        if ended {
            continue;
        }
        if !suspended && found.is_none() {
            let metadata = json!({
                "name": child, "labels": job["metadata"]["labels"], "annotations": job["metadata"]["annotations"],
                "ownerReferences": owned_by(&job, maker.kind),
            });
            let spec = job.pointer(maker.cluster_at);
            let made = json!({"apiVersion": API, "kind": "RayCluster", "metadata": metadata, "spec": spec});
            clusters.create(&PostParams::default(), &serde_json::from_value(made)?).await?;
        }
        let status = if suspended { (maker.stopped)() } else { (maker.runs)(&child) };
        // Changes of a test in between stay.
        let seen = json!({"resourceVersion": job["metadata"]["resourceVersion"]});
        let patch = Patch::Merge(json!({"metadata": seen, "status": status}));
        jobs.patch_status(&name, &PatchParams::default(), &patch).await?;
    }
    Ok(())
}

/// Deletes the clusters whose makers are gone: the garbage collector looks for new kinds only every half a minute.
async fn collect(
    maker: &Maker,
    jobs: &Api<DynamicObject>,
    clusters: &Api<DynamicObject>,
) -> anyhow::Result<()> {
    for cluster in clusters.list(&ListParams::default()).await?.items {
        let makers = cluster.owner_references().iter().filter(|owner| owner.kind == maker.kind);
        for owner in makers {
            let there = jobs.get_opt(&owner.name).await?;
            if there.is_none_or(|it| it.uid().as_deref() != Some(&*owner.uid)) {
                clusters.delete(&cluster.name_any(), &DeleteParams::background()).await?;
            }
        }
    }
    Ok(())
}

/// The pods that a cluster is to have, by name.
fn wanted(cluster: &Value) -> BTreeMap<String, Value> {
    let spec = &cluster["spec"];
    if spec["suspend"] == true {
        return BTreeMap::new();
    }
    let name = &cluster["metadata"]["name"];
    let pod = |pod: &str, template: &Value| {
        let name = format!("{}-{pod}", name.as_str().unwrap_or_default());
        let mut pod = json!({"metadata": template["metadata"], "spec": template["spec"]});
        pod["metadata"]["name"] = json!(name);
        pod["metadata"]["labels"][OF_CLUSTER] = cluster["metadata"]["name"].clone();
        pod["metadata"]["ownerReferences"] = owned_by(cluster, "RayCluster");
        (name, pod)
    };
    let mut pods = BTreeMap::from([pod("head", &spec["headGroupSpec"]["template"])]);
    for group in spec["workerGroupSpecs"].as_array().into_iter().flatten() {
        let count =
            group["replicas"].as_i64().unwrap_or(1) * group["numOfHosts"].as_i64().unwrap_or(1);
        let of = group["groupName"].as_str().unwrap_or_default();
        pods.extend((0..count).map(|at| pod(&format!("{of}-{at}"), &group["template"])));
    }
    pods
}

async fn make_pods(clusters: &Api<DynamicObject>, pods: &Api<Pod>) -> anyhow::Result<()> {
    let there = pods.list(&ListParams::default().labels(OF_CLUSTER)).await?.items;
    let mut wanted_of_all = BTreeMap::new();
    for cluster in clusters.list(&ListParams::default()).await?.items {
        let goes = cluster.metadata.deletion_timestamp.is_some();
        let (name, cluster) = (cluster.name_any(), serde_json::to_value(cluster)?);
        let wanted = if goes { BTreeMap::new() } else { wanted(&cluster) };
        let runs = |pod: &&Pod| {
            pod.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Running")
        };
        let running = there
            .iter()
            .filter(|pod| pod.labels().get(OF_CLUSTER) == Some(&name))
            .filter(runs)
            .count();
        let state = match cluster["status"]["state"].as_str() {
            _ if wanted.is_empty() => "suspended",
            Some("ready") => "ready",
            _ if running == wanted.len() => "ready",
            _ => "",
        };
        let status = Patch::Merge(json!({"status": {"state": state}}));
        clusters.patch_status(&name, &PatchParams::default(), &status).await?;
        wanted_of_all.extend(wanted);
    }
    for pod in &there {
        let wanted = wanted_of_all.remove(&pod.name_any());
        let owner = pod.owner_references().first().map(|owner| owner.uid.as_str());
        // The pods of an earlier cluster of this name go.
        if wanted.is_none_or(|it| it["metadata"]["ownerReferences"][0]["uid"].as_str() != owner) {
            pods.delete(&pod.name_any(), &DeleteParams::default().grace_period(0)).await?;
        }
    }
    for (_, pod) in wanted_of_all {
        pods.create(&PostParams::default(), &serde_json::from_value(pod)?).await?;
    }
    Ok(())
}
