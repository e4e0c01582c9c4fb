//! Ray's kinds that change their size while they run, on a real API server with KubeRay's own definitions and webhooks.
//! KubeRay and Ray's autoscaler are played; kwok runs the pods.

mod operator;
mod remote;

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{Ipv4Addr, TcpListener},
    time::Duration,
};

use anyhow::ensure;
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, ResourceExt as _,
    api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams},
};
use operator::{API, OF_CLUSTER, Operator};
use serde_json::{Value, json};
use switchyard_api::{conditions, v1beta2::Workload};
use switchyard_controller::webhook::{Advertise, WebhookOptions};
use switchyard_e2e::{Cluster, fixture, job::RUN_FOR, queues, wait};

use crate::{
    bed::{Bed, WAIT},
    common::module_of_kueue,
    elastic::{ELASTIC, REPLACES, is_gated, reserved, said, slices},
};

const FRAMEWORKS: &str =
    "integrations: {frameworks: [batch/job, ray.io/raycluster, ray.io/rayjob, ray.io/rayservice]}";
const KINDS: [&str; 3] = ["RayCluster", "RayJob", "RayService"];

/// Installs KubeRay's definitions, as its module has them.
async fn install(cluster: &Cluster) {
    let module = module_of_kueue("github.com/ray-project/kuberay/ray-operator").await;
    let folder = module.join("config/crd/bases");
    for plural in ["rayclusters", "rayjobs", "rayservices"] {
        let text = std::fs::read_to_string(folder.join(format!("ray.io_{plural}.yaml"))).unwrap();
        cluster.apply_yaml(&text).await.unwrap();
    }
}

/// A namespace with a queue of that many cores that preempts lower priorities, once the API server calls the webhooks.
async fn bed(stem: &str, cores: &str) -> (Bed, Operator) {
    let bed = Bed::with_options(stem, FRAMEWORKS, |_, options| {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let url = format!("https://127.0.0.1:{}", listener.local_addr().unwrap().port());
        options.webhook = Some(WebhookOptions::new(listener, Advertise::Url(url)));
    })
    .await;
    install(bed.cluster()).await;
    let queue = queues::ClusterQueue::new(&bed.name).group(&bed.name, &[("cpu", cores)]);
    bed.apply(queue.preemption("LowerPriority", "Never").build()).await;
    for kind in KINDS {
        let jobs = api(&bed, kind).await;
        let called = async || {
            let probe = serde_json::from_value(job(&bed, kind, &[("a", 1)], &json!({})))?;
            let made =
                jobs.create(&PostParams { dry_run: true, ..PostParams::default() }, &probe).await?;
            ensure!(is_suspended(&made), "it is let through");
            Ok(())
        };
        wait::eventually(WAIT, format!("the webhook of {kind}"), called).await.unwrap();
    }
    let operator = Operator::start(bed.cluster(), &bed.namespace).await;
    (bed, operator)
}

async fn api(bed: &Bed, kind: &str) -> Api<DynamicObject> {
    bed.cluster().dynamic(API, kind, &bed.namespace).await.unwrap()
}

fn is_suspended(job: &DynamicObject) -> bool {
    let of = |pointer: &str| job.data.pointer(pointer) == Some(&json!(true));
    of("/spec/suspend") || of("/spec/rayClusterConfig/suspend")
}

/// A template of pods that run until they are deleted.
fn metadata() -> Value {
    json!({"labels": {"app": "train"}, "annotations": {RUN_FOR: "forever"}})
}

/// An elastic job with these groups of workers; all pods ask for one core.
fn job(bed: &Bed, kind: &str, groups: &[(&str, i32)], of_cluster: &Value) -> Value {
    let container = json!({"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}});
    let template = json!({"metadata": metadata(), "spec": {"containers": [container]}});
    let group = |(name, replicas): &(&str, i32)| json!({"groupName": name, "replicas": replicas, "minReplicas": 0, "maxReplicas": 9, "template": template});
    let groups: Vec<Value> = groups.iter().map(group).collect();
    let mut cluster = json!({"headGroupSpec": {"template": template}, "workerGroupSpecs": groups});
    switchyard_jobs::apply_merge(&mut cluster, of_cluster);
    let spec = match kind {
        "RayJob" => json!({
            "entrypoint": "python", "shutdownAfterJobFinishes": true, "submissionMode": "HTTPMode", "rayClusterSpec": cluster,
        }),
        "RayService" => json!({"rayClusterConfig": cluster}),
        _ => cluster,
    };
    json!({
        "apiVersion": API, "kind": kind,
        "metadata": {
            "name": "train", "namespace": bed.namespace,
            "labels": {"kueue.x-k8s.io/queue-name": "queue"}, "annotations": {ELASTIC: "true"},
        },
        "spec": spec,
    })
}

async fn create(bed: &Bed, job: Value) {
    let kind = job["kind"].as_str().unwrap().to_owned();
    let job = serde_json::from_value(job).unwrap();
    api(bed, &kind).await.create(&PostParams::default(), &job).await.unwrap();
}

async fn delete(bed: &Bed, kind: &str) {
    api(bed, kind).await.delete("train", &DeleteParams::background()).await.unwrap();
    bed.no_workloads().await;
}

/// Writes how many replicas the groups of a RayCluster have, one each.
async fn resize(bed: &Bed, cluster: &str, replicas: &[i32]) {
    let clusters = api(bed, "RayCluster").await;
    let change = async || {
        let mut found = clusters.get(cluster).await?;
        for (group, replicas) in replicas.iter().enumerate() {
            let field = found.data.pointer_mut(&format!("/spec/workerGroupSpecs/{group}/replicas"));
            *field.ok_or_else(|| anyhow::anyhow!("no group {group}"))? = json!(replicas);
        }
        clusters.replace(cluster, &PostParams::default(), &found).await?;
        Ok(())
    };
    wait::eventually(WAIT, format!("{cluster} to be of {replicas:?}"), change).await.unwrap();
}

/// The uids of the pods that run, and of each pod set how many run and how many wait behind the gate.
async fn pods(cluster: &Cluster, namespace: &str) -> anyhow::Result<(BTreeSet<String>, String)> {
    let api: Api<Pod> = Api::namespaced(cluster.admin.clone(), namespace);
    let pods = api.list(&ListParams::default().labels(OF_CLUSTER)).await?.items;
    let (mut uids, mut counts) = (BTreeSet::new(), BTreeMap::<String, (usize, usize)>::new());
    for pod in pods.iter().filter(|pod| pod.metadata.deletion_timestamp.is_none()) {
        let runs =
            pod.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Running");
        ensure!(!(runs && is_gated(pod)), "a pod runs behind its gate");
        let count = counts
            .entry(pod.labels().get("kueue.x-k8s.io/podset").cloned().unwrap_or_default())
            .or_default();
        if runs {
            count.0 += 1;
            uids.extend(pod.uid());
        } else if is_gated(pod) {
            count.1 += 1;
        }
    }
    let shown = counts.iter().map(|(pod_set, (run, wait))| format!("{pod_set} {run}+{wait}"));
    Ok((uids, shown.collect::<Vec<_>>().join(", ")))
}

/// Waits until its pods are so, and gives the uids of those that run.
async fn shows(bed: &Bed, want: &str) -> BTreeSet<String> {
    let check = async || {
        let (uids, shown) = pods(bed.cluster(), &bed.namespace).await?;
        ensure!(shown == want, "{shown}");
        Ok(uids)
    };
    wait::eventually(WAIT, format!("pods {want:?}"), check).await.unwrap()
}

/// Waits until these workloads of the job are not over, each with its counts, the first one first.
async fn live(bed: &Bed, want: &[&str]) -> Vec<Workload> {
    let check = async || {
        let live: Vec<_> = slices(bed)
            .await
            .into_iter()
            .filter(|it| said(it, conditions::FINISHED).0 != "True")
            .collect();
        let counts = |it: &Workload| {
            it.spec
                .pod_sets
                .iter()
                .map(|set| format!("{} {}", set.name, set.count))
                .collect::<Vec<_>>()
                .join(", ")
        };
        let shown: Vec<String> = live.iter().map(counts).collect();
        ensure!(shown == want, "{shown:?}");
        Ok(live)
    };
    wait::eventually(WAIT, format!("workloads {want:?}"), check).await.unwrap()
}

#[test]
fn ray_cluster_groups_resize_while_pods_run_on() {
    fixture::run(async {
        let (bed, _operator) = bed("ray-size", "9").await;
        create(&bed, job(&bed, "RayCluster", &[("a", 1), ("b", 2)], &json!({}))).await;
        let first = shows(&bed, "a 1+0, b 2+0, head 1+0").await;
        let [before] = &live(&bed, &["head 1, a 1, b 2"]).await[..] else { panic!("one workload") };
        bed.next_second().await;

        resize(&bed, "train", &[3, 2]).await;
        let grown = shows(&bed, "a 3+0, b 2+0, head 1+0").await;
        assert!(grown.is_superset(&first), "the pods of before run on");
        let [after] = &live(&bed, &["head 1, a 3, b 2"]).await[..] else { panic!("one workload") };
        assert_eq!(
            after.annotations()[REPLACES],
            format!("{}/{}", bed.namespace, before.name_any())
        );
        reserved(&bed, "6").await;
        bed.next_second().await;

        // One grows and the other shrinks.
        resize(&bed, "train", &[1, 5]).await;
        let changed = shows(&bed, "a 1+0, b 5+0, head 1+0").await;
        assert!(changed.is_superset(&first));
        let [last] = &live(&bed, &["head 1, a 1, b 5"]).await[..] else { panic!("one workload") };
        assert_eq!(last.annotations()[REPLACES], format!("{}/{}", bed.namespace, after.name_any()));
        reserved(&bed, "7").await;

        resize(&bed, "train", &[0, 2]).await;
        shows(&bed, "b 2+0, head 1+0").await;
        let [kept] = &live(&bed, &["head 1, a 0, b 2"]).await[..] else { panic!("one workload") };
        assert_eq!(kept.uid(), last.uid(), "it keeps its workload");
        reserved(&bed, "3").await;
        delete(&bed, "RayCluster").await;
    });
}

#[test]
fn multi_host_workers_wait_gated_until_quota_is_reserved() {
    fixture::run(async {
        let (bed, _operator) = bed("ray-waits", "6").await;
        bed.plain_job("other").cpu("2").run_forever().create(bed.admin()).await.unwrap();
        bed.running("other").await;
        let mut cluster = job(&bed, "RayCluster", &[("a", 1)], &json!({}));
        cluster["spec"]["workerGroupSpecs"][0]["numOfHosts"] = json!(2);
        create(&bed, cluster).await;
        let first = shows(&bed, "a 2+0, head 1+0").await;
        bed.next_second().await;

        resize(&bed, "train", &[2]).await;
        assert_eq!(shows(&bed, "a 2+2, head 1+0").await, first);
        live(&bed, &["head 1, a 2", "head 1, a 4"]).await;
        wait::always(Duration::from_millis(500), "nothing else happens", async || {
            let now = pods(bed.cluster(), &bed.namespace).await?;
            ensure!(now == (first.clone(), "a 2+2, head 1+0".to_owned()), "{now:?}");
            Ok(())
        })
        .await
        .unwrap();
        reserved(&bed, "5").await;

        bed.delete_job("other").await;
        assert!(shows(&bed, "a 4+0, head 1+0").await.is_superset(&first));
        reserved(&bed, "5").await;
        live(&bed, &["head 1, a 4"]).await;
        delete(&bed, "RayCluster").await;
    });
}

#[test]
fn preempted_growing_ray_cluster_returns_in_its_new_size() {
    fixture::run(async {
        let (bed, _operator) = bed("ray-preempted", "4").await;
        bed.cluster().apply([queues::priority_class(&bed.part("high"), 100)]).await.unwrap();
        create(&bed, job(&bed, "RayCluster", &[("a", 2)], &json!({}))).await;
        shows(&bed, "a 2+0, head 1+0").await;
        bed.next_second().await;
        resize(&bed, "train", &[4]).await;
        shows(&bed, "a 2+2, head 1+0").await;

        let high = bed.plain_job("high").priority_class(&bed.part("high")).cpu("3").run_forever();
        high.create(bed.admin()).await.unwrap();
        bed.running("high").await;
        shows(&bed, "").await;
        wait::eventually(WAIT, "its workload to wait", async || {
            let [waits] = &live(&bed, &["head 1, a 4"]).await[..] else { panic!("one workload") };
            let (status, reason, _) = said(waits, conditions::QUOTA_RESERVED);
            ensure!(status == "False", "{status} {reason}");
            Ok(())
        })
        .await
        .unwrap();
        let stopped = api(&bed, "RayCluster").await.get("train").await.unwrap();
        let template = stopped.data.pointer("/spec/workerGroupSpecs/0/template/metadata").unwrap();
        assert_eq!(template, &metadata(), "as its user wrote it");

        resize(&bed, "train", &[3]).await;
        bed.delete_job("high").await;
        shows(&bed, "a 3+0, head 1+0").await;
        reserved(&bed, "4").await;
        delete(&bed, "RayCluster").await;
    });
}

/// An autoscaler that asks for a core beside the head.
fn autoscaled() -> Value {
    json!({"enableInTreeAutoscaling": true, "autoscalerOptions": {"resources": {"requests": {"cpu": "1"}}}})
}

#[test]
fn autoscaled_workers_wait_for_quota_of_the_job() {
    fixture::run(async {
        let (bed, _operator) = bed("ray-autoscaled", "5").await;
        for kind in ["RayJob", "RayService"] {
            create(&bed, job(&bed, kind, &[("a", 1), ("b", 1)], &autoscaled())).await;
            let first = shows(&bed, "a 1+0, b 1+0, head 1+0").await;
            let made = api(&bed, "RayCluster").await.get("train-made").await.unwrap();
            reserved(&bed, "4").await;
            bed.next_second().await;

            // Two more than there is quota for, and one fewer.
            resize(&bed, "train-made", &[4, 0]).await;
            assert!(shows(&bed, "a 1+3, head 1+0").await.is_subset(&first));
            live(&bed, &["head 1, a 1, b 1", "head 1, a 4, b 0"]).await;
            resize(&bed, "train-made", &[3, 0]).await;
            shows(&bed, "a 3+0, head 1+0").await;
            live(&bed, &["head 1, a 3, b 0"]).await;
            reserved(&bed, "5").await;
            resize(&bed, "train-made", &[0, 0]).await;
            live(&bed, &["head 1, a 0, b 0"]).await;
            shows(&bed, "head 1+0").await;
            let now = api(&bed, "RayCluster").await.get("train-made").await.unwrap();
            assert_eq!(
                (now.uid(), is_suspended(&now)),
                (made.uid(), false),
                "it was never stopped"
            );
            if kind == "RayJob" {
                end(&bed).await;
            }
            delete(&bed, kind).await;
            shows(&bed, "").await;
        }
    });
}

/// Says that the RayJob has succeeded, and waits until all its workloads are over.
async fn end(bed: &Bed) {
    let status = json!({"status": {"jobDeploymentStatus": "Complete", "jobStatus": "SUCCEEDED", "message": "done"}});
    let jobs = api(bed, "RayJob").await;
    jobs.patch_status("train", &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
    let over = async || {
        let mut ends: Vec<String> =
            slices(bed).await.iter().map(|slice| said(slice, conditions::FINISHED).1).collect();
        ends.sort();
        ensure!(
            ends.contains(&"Succeeded".to_owned()) && !ends.contains(&String::new()),
            "{ends:?}"
        );
        Ok(())
    };
    wait::eventually(WAIT, "its workloads to be over", over).await.unwrap();
}

#[test]
fn autoscaling_needs_elastic_job_and_gated_groups() {
    fixture::run(async {
        let (bed, _operator) = bed("ray-refused", "9").await;
        let refused = async |job: Value, want: &str| {
            let jobs = api(&bed, job["kind"].as_str().unwrap()).await;
            let job: DynamicObject = serde_json::from_value(job).unwrap();
            let dry = PostParams { dry_run: true, ..PostParams::default() };
            // The API server may not yet call the webhook that validates.
            wait::eventually(WAIT, "a refusal", async || {
                let answer = jobs.create(&dry, &job).await.map(drop);
                let answer = answer.map_err(|error| error.to_string());
                ensure!(answer.as_ref().is_err_and(|error| error.contains(want)), "{answer:?}");
                Ok(())
            })
            .await
            .unwrap();
        };
        for kind in KINDS {
            let mut plain = job(&bed, kind, &[("a", 1)], &autoscaled());
            plain["metadata"]["annotations"] = Value::Null;
            refused(plain, "enable the ElasticJobsViaWorkloadSlices feature gate").await;
        }
        create(&bed, job(&bed, "RayCluster", &[("a", 1)], &autoscaled())).await;
        shows(&bed, "a 1+0, head 1+0").await;
        reserved(&bed, "3").await;
        let clusters = api(&bed, "RayCluster").await;
        let added = async || {
            let mut found = clusters.get("train").await?;
            let groups = found.data["spec"]["workerGroupSpecs"].as_array_mut().unwrap();
            let mut group = groups[0].clone();
            group["groupName"] = json!("late");
            group["template"]["spec"]["schedulingGates"] = Value::Null;
            groups.push(group);
            match clusters.replace("train", &PostParams::default(), &found).await {
                Err(kube::Error::Api(status)) if status.code != 409 => Ok(status.message),
                other => anyhow::bail!("{other:?}"),
            }
        };
        let said = wait::eventually(WAIT, "a refusal", added).await.unwrap();
        assert!(said.contains("workerGroupSpecs[1].template.spec.schedulingGates"), "{said}");
        delete(&bed, "RayCluster").await;
    });
}
