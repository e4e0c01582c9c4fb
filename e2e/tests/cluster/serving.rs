//! Kinds that are queued by their pods, on a real cluster: Deployment, StatefulSet and LeaderWorkerSet. The first two have
//! Kubernetes' own controllers; the test creates the pods of the third.
use std::net::{Ipv4Addr, TcpListener};

use crate::bed::{Bed, WAIT};
use crate::common::leader_worker_set::{self, API_VERSION, GROUP_INDEX, make_pod};
use anyhow::ensure;
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, ResourceExt as _,
    api::{DeleteParams, DynamicObject, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use switchyard_controller::webhook::{Advertise, WebhookOptions};
use switchyard_e2e::{fixture, job::RUN_FOR, wait};

/// Pods are not named: they come with the others.
const SECTIONS: &str = "integrations: {frameworks: [batch/job, deployment, statefulset, leaderworkerset.x-k8s.io/leaderworkerset]}";
/// How long a pod takes to end when it is deleted.
const STOP_AFTER: &str = "e2e.switchyard.dev/stop-after";
const GATE: &str = "kueue.x-k8s.io/admission";

/// A namespace under a controller that manages these kinds, once the API server calls its webhooks.
async fn serving_bed(stem: &str) -> Bed {
    let bed = Bed::with_options(stem, SECTIONS, |_, options| {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let url = format!("https://127.0.0.1:{}", listener.local_addr().unwrap().port());
        options.webhook = Some(WebhookOptions::new(listener, Advertise::Url(url)));
    })
    .await;
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    for kind in ["Deployment", "StatefulSet"] {
        let api = bed.cluster().dynamic("apps/v1", kind, &bed.namespace).await.unwrap();
        let called = async || {
            let made = api.create(&dry, &object(kind, "probe", "queue", 1)).await?;
            let by = made.data.pointer(
                "/spec/template/metadata/annotations/kueue.x-k8s.io~1pod-suspending-parent",
            );
            ensure!(by.is_some(), "it is let through");
            // Changes and refusals come from two registrations.
            let bad = api.create(&dry, &object(kind, "probe", "Not_A_Name", 1)).await;
            let refused = bad.err().map(|error| error.to_string());
            ensure!(refused.is_some_and(|it| it.contains("Invalid value")), "nothing is refused");
            Ok(())
        };
        wait::eventually(WAIT, format!("the webhooks of {kind}"), called).await.unwrap();
    }
    bed
}

/// A template of pods that ask for one cpu each and run until they are deleted.
fn template(name: &str) -> Value {
    let container = json!({"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}});
    json!({
        "metadata": {"labels": {"app": name}, "annotations": {RUN_FOR: "forever"}},
        "spec": {"terminationGracePeriodSeconds": 1, "containers": [container]},
    })
}

fn object(kind: &str, name: &str, queue: &str, replicas: i32) -> DynamicObject {
    serde_json::from_value(json!({
        "apiVersion": "apps/v1", "kind": kind,
        "metadata": {"name": name, "labels": {"kueue.x-k8s.io/queue-name": queue}},
        "spec": {
            "replicas": replicas, "serviceName": name, "selector": {"matchLabels": {"app": name}},
            "template": template(name),
        },
    }))
    .unwrap()
}

/// Objects of one kind in the namespace of a test.
struct Objects<'a> {
    bed: &'a Bed,
    api: Api<DynamicObject>,
}

impl<'a> Objects<'a> {
    async fn new(bed: &'a Bed, api_version: &str, kind: &str) -> Self {
        Self { bed, api: bed.cluster().dynamic(api_version, kind, &bed.namespace).await.unwrap() }
    }

    async fn create(&self, object: &DynamicObject) -> DynamicObject {
        self.api.create(&PostParams::default(), object).await.unwrap()
    }

    async fn change(&self, name: &str, patch: Value) -> Result<DynamicObject, kube::Error> {
        self.api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await
    }

    async fn scale(&self, name: &str, replicas: i32) -> Result<DynamicObject, kube::Error> {
        self.change(name, json!({"spec": {"replicas": replicas}})).await
    }

    async fn delete(&self, name: &str) {
        self.api.delete(name, &DeleteParams::background()).await.unwrap();
    }

    async fn ready(&self, name: &str, replicas: i64) {
        let check = async || {
            let object = self.api.get(name).await?;
            let ready =
                object.data.pointer("/status/readyReplicas").and_then(Value::as_i64).unwrap_or(0);
            let waits: Vec<_> =
                self.bed.workloads().await.into_iter().map(|it| it.status).collect();
            ensure!(ready == replicas, "{ready} are ready of {}; {waits:?}", object.data["status"]);
            Ok(())
        };
        wait::eventually(WAIT, format!("{replicas} ready of {name}"), check).await.unwrap();
    }
}

fn pods(bed: &Bed) -> Api<Pod> {
    Api::namespaced(bed.admin().clone(), &bed.namespace)
}

/// Waits until there are so many pods, all as they should be.
async fn all_pods(bed: &Bed, count: usize, what: &str, right: impl Fn(&Pod) -> bool) -> Vec<Pod> {
    let check = async || {
        let pods = pods(bed).list(&Default::default()).await?.items;
        ensure!(pods.len() == count && pods.iter().all(&right), "{pods:?}");
        Ok(pods)
    };
    wait::eventually(WAIT, format!("{count} pods {what}"), check).await.unwrap()
}

fn is_gated(pod: &Pod) -> bool {
    let gates = pod.spec.as_ref().and_then(|spec| spec.scheduling_gates.as_ref());
    gates.into_iter().flatten().any(|gate| gate.name == GATE)
}

fn in_queue(pod: &Pod, queue: &str) -> bool {
    pod.labels().get("kueue.x-k8s.io/queue-name").is_some_and(|name| name == queue)
}

fn queue(name: impl Into<Value>) -> Value {
    let name: Value = name.into();
    json!({"metadata": {"labels": {"kueue.x-k8s.io/queue-name": name}}})
}

#[test]
fn each_pod_of_a_deployment_is_queued() {
    fixture::run(async {
        let bed = serving_bed("deployment").await;
        bed.simple(&[("cpu", "2")]).await;
        let deployments = Objects::new(&bed, "apps/v1", "Deployment").await;
        deployments.create(&object("Deployment", "web", "queue", 3)).await;
        deployments.ready("web", 2).await;
        let pods = all_pods(&bed, 3, "of the deployment", |pod| in_queue(pod, "queue")).await;
        assert_eq!(pods.iter().filter(|pod| is_gated(pod)).count(), 1, "there is quota for two");
        bed.workload_count(3).await;
        let refused =
            deployments.change("web", queue(json!("other"))).await.unwrap_err().to_string();
        assert!(refused.contains("field is immutable"), "{refused}");
        deployments.scale("web", 1).await.unwrap();
        all_pods(&bed, 1, "after scaling down", |_| true).await;
        deployments.ready("web", 1).await;
        deployments.delete("web").await;
        bed.no_workloads().await;
    });
}

#[test]
fn a_deployment_that_waits_goes_to_another_queue() {
    fixture::run(async {
        let bed = serving_bed("moved").await;
        bed.simple(&[("cpu", "2")]).await;
        let deployments = Objects::new(&bed, "apps/v1", "Deployment").await;
        deployments.create(&object("Deployment", "web", "nowhere", 2)).await;
        all_pods(&bed, 2, "waiting", is_gated).await;
        let refused = deployments.change("web", queue(Value::Null)).await.unwrap_err().to_string();
        assert!(refused.contains("field is immutable"), "{refused}");
        deployments.change("web", queue(json!("queue"))).await.unwrap();
        deployments.ready("web", 2).await;
        all_pods(&bed, 2, "in the new queue", |pod| in_queue(pod, "queue")).await;
        deployments.delete("web").await;
        bed.no_workloads().await;
    });
}

#[test]
fn stateful_set_is_one_workload_that_rests_at_zero() {
    fixture::run(async {
        let bed = serving_bed("stateful").await;
        bed.simple(&[("cpu", "3")]).await;
        let sets = Objects::new(&bed, "apps/v1", "StatefulSet").await;
        let set = sets.create(&object("StatefulSet", "db", "queue", 3)).await;
        sets.ready("db", 3).await;
        let workload = bed.workload_of("db").await;
        let uid = set.uid().unwrap();
        assert_eq!(
            workload.name_any(),
            switchyard_jobs::workload_name("StatefulSet", "apps", "db", &uid)
        );
        assert_eq!(workload.labels()["kueue.x-k8s.io/job-uid"], uid);
        assert_eq!(
            (workload.spec.pod_sets[0].name.as_str(), workload.spec.pod_sets[0].count),
            ("main", 3)
        );
        let refused = sets.scale("db", 2).await.unwrap_err().to_string();
        assert!(refused.contains("spec.replicas: Invalid value: 2"), "{refused}");

        sets.scale("db", 0).await.unwrap();
        bed.expect(
            "db",
            "QuotaReserved",
            "False",
            "OnHold",
            "StatefulSet scaled to zero; workload on hold",
        )
        .await;
        all_pods(&bed, 0, "left", |_| true).await;
        sets.ready("db", 0).await;
        // It may come back with another number of pods.
        let check = async || Ok(sets.scale("db", 2).await.map(drop)?);
        wait::eventually(WAIT, "scaling up", check).await.unwrap();
        sets.ready("db", 2).await;
        let again = bed.workload_of("db").await;
        assert_eq!((again.metadata.uid, again.spec.pod_sets[0].count), (workload.metadata.uid, 2));
        sets.delete("db").await;
        all_pods(&bed, 0, "left", |_| true).await;
        bed.no_workloads().await;
    });
}

fn image(name: &str) -> Value {
    let container = json!({"name": "c", "image": name, "resources": {"requests": {"cpu": "1"}}});
    json!({"spec": {"template": {"spec": {"containers": [container]}}}})
}

fn has_image(pod: &Pod, name: &str) -> bool {
    pod.spec.as_ref().is_some_and(|spec| spec.containers[0].image.as_deref() == Some(name))
}

#[test]
fn waiting_stateful_set_with_new_image_runs_no_pod() {
    fixture::run(async {
        let bed = serving_bed("waiting").await;
        bed.simple(&[("cpu", "1")]).await;
        let sets = Objects::new(&bed, "apps/v1", "StatefulSet").await;
        sets.create(&object("StatefulSet", "db", "queue", 2)).await;
        all_pods(&bed, 1, "waiting", is_gated).await;
        sets.change("db", image("j")).await.unwrap();
        let check = async || {
            let pods = pods(&bed).list(&Default::default()).await?.items;
            if let Some(pod) = pods.iter().find(|pod| !is_gated(pod)) {
                return Err(wait::never(format!("{} runs without quota", pod.name_any())));
            }
            ensure!(pods.len() == 1 && has_image(&pods[0], "j"), "{pods:?}");
            Ok(())
        };
        wait::eventually(WAIT, "a waiting pod with the new image", check).await.unwrap();
        bed.simple(&[("cpu", "2")]).await;
        sets.ready("db", 2).await;
        sets.delete("db").await;
        bed.no_workloads().await;
    });
}

#[test]
fn stateful_set_at_zero_is_charged_until_pods_are_gone() {
    fixture::run(async {
        let bed = serving_bed("to-zero").await;
        bed.simple(&[("cpu", "2")]).await;
        let sets = Objects::new(&bed, "apps/v1", "StatefulSet").await;
        let mut db = object("StatefulSet", "db", "queue", 2);
        db.data["spec"]["template"]["metadata"]["annotations"][STOP_AFTER] = json!("15s");
        db.data["spec"]["podManagementPolicy"] = json!("Parallel");
        sets.create(&db).await;
        sets.ready("db", 2).await;
        sets.scale("db", 0).await.unwrap();
        all_pods(&bed, 2, "ending", |pod| pod.metadata.deletion_timestamp.is_some()).await;
        assert!(bed.is_true("db", "QuotaReserved").await, "its pods still run");
        bed.expect(
            "db",
            "QuotaReserved",
            "False",
            "OnHold",
            "StatefulSet scaled to zero; workload on hold",
        )
        .await;
        assert!(pods(&bed).list(&Default::default()).await.unwrap().items.iter().all(has_ended));
    });
}

fn has_ended(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    matches!(phase, Some("Failed" | "Succeeded"))
}

#[test]
fn stateful_set_pods_wait_while_queue_is_stopped_and_roll_after() {
    fixture::run(async {
        let bed = serving_bed("rolling").await;
        bed.simple(&[("cpu", "2")]).await;
        let sets = Objects::new(&bed, "apps/v1", "StatefulSet").await;
        sets.create(&object("StatefulSet", "db", "nowhere", 2)).await;
        all_pods(&bed, 1, "waiting in the first queue", |pod| {
            is_gated(pod) && in_queue(pod, "nowhere")
        })
        .await;
        sets.change("db", queue(json!("queue"))).await.unwrap();
        sets.ready("db", 2).await;
        let uid = bed.workload_of("db").await.uid();
        bed.stop_cluster_queue("HoldAndDrain").await;
        sets.ready("db", 0).await;
        // Where both have failed before either is gone, the StatefulSet's controller makes both again at once.
        let waiting = async || {
            let pods = pods(&bed).list(&Default::default()).await?.items;
            ensure!(!pods.is_empty() && pods.iter().all(is_gated), "{pods:?}");
            Ok(())
        };
        wait::eventually(WAIT, "waiting pods alone", waiting).await.unwrap();
        bed.stop_cluster_queue("None").await;
        sets.ready("db", 2).await;
        assert_eq!(bed.workload_of("db").await.uid(), uid);

        sets.change("db", image("j")).await.unwrap();
        all_pods(&bed, 2, "with the new image", |pod| has_image(pod, "j")).await;
        sets.ready("db", 2).await;
        assert_eq!(bed.workload_of("db").await.uid(), uid);
        sets.delete("db").await;
        bed.no_workloads().await;
    });
}

#[test]
fn each_replica_of_a_leader_worker_set_is_a_workload() {
    fixture::run(async {
        let bed = serving_bed("lws").await;
        leader_worker_set::install(bed.cluster()).await;
        bed.simple(&[("cpu", "3")]).await;
        let sets = Objects::new(&bed, API_VERSION, "LeaderWorkerSet").await;
        let template = json!({"size": 2, "leaderTemplate": template("leader"), "workerTemplate": template("worker")});
        let labels = json!({"kueue.x-k8s.io/queue-name": "queue"});
        let set = serde_json::from_value(json!({
            "apiVersion": API_VERSION, "kind": "LeaderWorkerSet", "metadata": {"name": "llm", "labels": labels},
            "spec": {"replicas": 2, "leaderWorkerTemplate": template},
        }));
        let set = sets.create(&set.unwrap()).await;
        let name = |index: u32| {
            let of = format!("llm-{index}");
            switchyard_jobs::workload_name(
                "LeaderWorkerSet",
                "leaderworkerset.x-k8s.io",
                &of,
                &set.uid().unwrap(),
            )
        };
        let named = async |names: &[String]| {
            let check = async || {
                let mut found: Vec<String> =
                    bed.workloads().await.iter().map(|it| it.name_any()).collect();
                found.sort();
                let mut names = names.to_vec();
                names.sort();
                ensure!(found == names, "{found:?}");
                Ok(())
            };
            wait::eventually(WAIT, format!("workloads {names:?}"), check).await.unwrap();
        };
        named(&[name(0), name(1)]).await;
        let sets_of = bed.workloads().await;
        let shape: Vec<_> =
            sets_of[0].spec.pod_sets.iter().map(|it| (it.name.as_str(), it.count)).collect();
        assert_eq!(shape, [("leader", 1), ("worker", 1)]);

        // One replica fits; its pods run as they come, those of the other wait.
        for index in [0, 1] {
            for role in ["leader", "worker"] {
                make_pod(&pods(&bed), &set, role, index).await;
            }
        }
        let check = async || {
            let pods = pods(&bed).list(&Default::default()).await?.items;
            let runs = |pod: &Pod| {
                pod.status.as_ref().and_then(|it| it.phase.as_deref()) == Some("Running")
            };
            let (running, waiting): (Vec<_>, Vec<_>) = pods.iter().partition(|pod| runs(pod));
            let group = |pod: &&Pod| pod.labels().get(GROUP_INDEX).cloned();
            ensure!(
                running.len() == 2 && waiting.len() == 2 && waiting.iter().all(|pod| is_gated(pod)),
                "{pods:?}"
            );
            ensure!(group(&running[0]) == group(&running[1]), "{pods:?}");
            Ok(())
        };
        wait::eventually(WAIT, "one replica running", check).await.unwrap();

        // Without its last replica, its Workload goes. The operator ends the pods.
        sets.scale("llm", 1).await.unwrap();
        for name in ["llm-1", "llm-1-1"] {
            // Where it was this replica that had quota, its pods have been ended with its Workload.
            if let Err(error) = pods(&bed).delete(name, &DeleteParams::default()).await {
                assert!(error.to_string().contains("not found"), "{error}");
            }
        }
        named(&[name(0)]).await;
        all_pods(&bed, 2, "running", |pod| !is_gated(pod)).await;
        let larger = json!({"spec": {"leaderWorkerTemplate": {"size": 3}}});
        let refused = sets.change("llm", larger).await.unwrap_err().to_string();
        assert!(
            refused
                .contains("spec.leaderWorkerTemplate.size: Invalid value: 3: field is immutable"),
            "{refused}"
        );
        sets.delete("llm").await;
        all_pods(&bed, 0, "left", |_| true).await;
        bed.no_workloads().await;
    });
}
