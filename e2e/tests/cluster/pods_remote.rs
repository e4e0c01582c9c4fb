//! Pods that a hub sends to workers, by agent and by kubeconfig: alone, in groups, and of a Deployment, which makes its pods
//! on the hub. StatefulSet and LeaderWorkerSet are sent themselves.
mod replicas;
mod stuck;

use std::time::Duration;

use anyhow::ensure;
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, ResourceExt as _,
    api::{DeleteParams, DynamicObject, Patch, PostParams},
};
use serde_json::{Value, json};
use switchyard_api::{conditions, v1beta2::Workload};
use switchyard_e2e::fixture::{self, Shared};
use switchyard_e2e::fleet::{Fleet, Tenant};
use switchyard_e2e::job::{EXIT_CODE, RUN_FOR};
use switchyard_e2e::wait::eventually;
use switchyard_e2e::{Cluster, ClusterSpec, NodeSpec, queues, ready};
use switchyard_jobs::apply_merge;

/// Longer than anything here takes on a busy machine.
const SOON: Duration = Duration::from_secs(120);
const CONFIG: &str = "\
apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
integrations:
  frameworks: [batch/job, pod, deployment, statefulset, leaderworkerset.x-k8s.io/leaderworkerset]
";
/// A worker with an agent, and one in single mode that the hub reaches by its kubeconfig.
const WORKERS: [&str; 2] = ["west", "east"];

static FLEET: Shared<Fleet> = Shared::new(|| {
    Box::pin(async {
        let sets = "statefulset-controller";
        let [west, east] = WORKERS
            .map(|name| ClusterSpec::new(name).node(NodeSpec::new("n1").cpu(64)).controller(sets));
        let fleet = Fleet::builder("pods")
            .agent(west)
            .bare(east)
            .config(CONFIG)
            .agent_config(CONFIG)
            .agent_webhooks();
        let fleet = fleet
            .hub_controllers(["deployment-controller", "replicaset-controller", sets])
            .start()
            .await?;
        fleet.hub().apply([queues::agent_cluster("west")]).await?;
        fleet.connect().await?;
        fleet.add_single("east").await?;
        for cluster in WORKERS.map(|name| fleet.worker(name)).into_iter().chain([fleet.hub()]) {
            ready::pod_webhook(cluster, ("default", "main"), SOON).await?;
        }
        Ok(fleet)
    })
});

async fn fleet() -> &'static Fleet {
    FLEET.get().await.unwrap()
}

/// The template of a pod that asks for one cpu and runs so long.
fn template(run_for: &str, metadata: &Value) -> Value {
    let mut template = json!({
        "metadata": {"labels": {"app": "web"}, "annotations": {RUN_FOR: run_for}},
        "spec": {
            "terminationGracePeriodSeconds": 1,
            "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}],
        },
    });
    apply_merge(&mut template, &json!({ "metadata": metadata }));
    template
}

fn pod(name: &str, run_for: &str, metadata: &Value) -> Pod {
    let mut pod = template(run_for, metadata);
    let metadata = json!({"name": name, "labels": {"kueue.x-k8s.io/queue-name": "main"}});
    apply_merge(&mut pod, &json!({"metadata": metadata, "spec": {"restartPolicy": "Never"}}));
    serde_json::from_value(pod).unwrap()
}

/// A pod of the group `g`, which has two.
fn member(name: &str, run_for: &str, code: &str) -> Pod {
    let labels = json!({"kueue.x-k8s.io/pod-group-name": "g"});
    let annotations = json!({"kueue.x-k8s.io/pod-group-total-count": "2", EXIT_CODE: code});
    pod(name, run_for, &json!({ "labels": labels, "annotations": annotations }))
}

fn pods(cluster: &Cluster, namespace: &str) -> Api<Pod> {
    Api::namespaced(cluster.admin.clone(), namespace)
}

fn phase(pod: &Pod) -> &str {
    pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default()
}

fn is_gated(pod: &Pod) -> bool {
    let gates = pod.spec.as_ref().and_then(|spec| spec.scheduling_gates.as_ref());
    gates.into_iter().flatten().any(|gate| gate.name == "kueue.x-k8s.io/admission")
}

/// The reason of the condition PodScheduled.
fn scheduled(pod: &Pod) -> Option<&str> {
    let conditions = pod.status.as_ref()?.conditions.as_ref()?;
    conditions.iter().find(|it| it.type_ == "PodScheduled").map(|it| it.status.as_str())
}

/// A tenant whose pods go to one worker, its pods here, and those there.
struct Scene<'a> {
    tenant: Tenant<'a>,
    worker: &'static str,
    here: Api<Pod>,
    there: Api<Pod>,
}

impl<'a> Scene<'a> {
    async fn new(fleet: &'a Fleet, stem: &str, worker: &'static str, quota: &str) -> Self {
        let quota = [("cpu", quota)];
        let tenant = fleet.tenant(stem).hub(&quota).worker(worker, &quota).make().await.unwrap();
        let (here, there) =
            (pods(fleet.hub(), tenant.name()), pods(fleet.worker(worker), tenant.name()));
        Self { tenant, worker, here, there }
    }

    async fn create(&self, pod: Pod) {
        self.here.create(&PostParams::default(), &pod).await.unwrap();
    }

    async fn delete(&self, names: impl IntoIterator<Item = &str>) {
        for name in names {
            self.here.delete(name, &DeleteParams::default()).await.unwrap();
        }
    }

    /// Deletes the Workload of the group, and its pods with it, as one does with a group that is to end.
    async fn delete_group(&self) {
        self.tenant.hub_workloads().delete("g", &DeleteParams::default()).await.unwrap();
    }

    /// Runs there, and is shown so here, where it stays behind its gate.
    async fn runs(&self, name: &str) {
        let copy = until(&self.there, name, "running there", |pod| phase(pod) == "Running").await;
        assert_eq!(copy.labels()["kueue.x-k8s.io/multikueue-origin"], "multikueue");
        assert!(copy.owner_references().is_empty());
        let shown =
            until(&self.here, name, "shown as running", |pod| phase(pod) == "Running").await;
        assert!(scheduled(&shown) == Some("True") && is_gated(&shown), "{shown:?}");
        assert_eq!(shown.spec.unwrap().node_name, None, "it has no node here");
    }

    /// Ends a pod there, as its kubelet would.
    async fn end(&self, name: &str, phase: &str) {
        let ended = Patch::Merge(json!({"status": {"phase": phase}}));
        self.there.patch_status(name, &Default::default(), &ended).await.unwrap();
    }

    /// Has ended here, and nothing holds it any more.
    async fn ended(&self, name: &str, phase_: &str) {
        until(&self.here, name, "ended", |pod| phase(pod) == phase_ && pod.finalizers().is_empty())
            .await;
    }

    /// The Workload that a pod owns is finished for this reason.
    async fn finished(&self, pod: &str, reason: &str) {
        let check = async || {
            let all = self.tenant.hub_workloads().list(&Default::default()).await?.items;
            let of_pod = |it: &Workload| it.owner_references().iter().any(|it| it.name == pod);
            let status = all.into_iter().find(of_pod).and_then(|it| it.status).unwrap_or_default();
            let finished = conditions::find(&status.conditions, conditions::FINISHED);
            ensure!(
                finished.is_some_and(|it| it.status == "True" && it.reason == reason),
                "{:?}",
                status.conditions
            );
            Ok(())
        };
        eventually(SOON, format!("the Workload of {pod} finished"), check).await.unwrap();
    }

    /// All pods and Workloads on the worker are gone.
    async fn nothing_there(&self) {
        none_left(&self.there, "there").await;
        self.tenant.await_empty(self.worker, SOON).await.unwrap();
    }

    async fn nothing_left(&self) {
        none_left(&self.here, "here").await;
        self.nothing_there().await;
    }
}

async fn until(pods: &Api<Pod>, name: &str, what: &str, right: impl Fn(&Pod) -> bool) -> Pod {
    let check = async || {
        let pod = pods.get(name).await?;
        ensure!(right(&pod), "{:?} {:?}", pod.metadata, pod.status);
        Ok(pod)
    };
    eventually(SOON, format!("pod {name} {what}"), check).await.unwrap()
}

async fn none_left(pods: &Api<Pod>, what: &str) {
    let check = async || {
        let left = pods.list(&Default::default()).await?.items;
        ensure!(
            left.is_empty(),
            "{:?}",
            left.into_iter().map(|it| it.metadata).collect::<Vec<_>>()
        );
        Ok(())
    };
    eventually(SOON, format!("no pods {what}"), check).await.unwrap();
}

#[test]
fn a_pod_runs_on_a_worker_and_is_shown_here() {
    fixture::run(async {
        let fleet = fleet().await;
        futures::future::join_all(WORKERS.map(async |worker| {
            let scene = Scene::new(fleet, "pods", worker, "4").await;
            for (name, end) in [("good", "Succeeded"), ("bad", "Failed")] {
                scene.create(pod(name, "forever", &json!({}))).await;
                scene.runs(name).await;
                scene.end(name, end).await;
                scene.ended(name, end).await;
                scene.finished(name, end).await;
                scene.nothing_there().await;
            }
            scene.delete(["good", "bad"]).await;
            scene.nothing_left().await;
        }))
        .await;
    });
}

#[test]
fn a_pod_that_is_deleted_here_is_ended_there() {
    fixture::run(async {
        let fleet = fleet().await;
        futures::future::join_all(WORKERS.map(async |worker| {
            let scene = Scene::new(fleet, "ended", worker, "4").await;
            scene.create(pod("a", "forever", &json!({}))).await;
            scene.runs("a").await;
            scene.delete(["a"]).await;
            scene.nothing_left().await;
        }))
        .await;
    });
}

#[test]
fn a_group_of_pods_goes_whole_and_ends_with_its_last() {
    fixture::run(async {
        let fleet = fleet().await;
        futures::future::join_all(WORKERS.map(async |worker| {
            let scene = Scene::new(fleet, "group", worker, "2").await;
            for name in ["a", "b"] {
                scene.create(member(name, "forever", "0")).await;
            }
            for name in ["a", "b"] {
                scene.runs(name).await;
            }
            for name in ["a", "b"] {
                scene.end(name, "Succeeded").await;
            }
            for name in ["a", "b"] {
                scene.ended(name, "Succeeded").await;
            }
            scene.finished("a", "Succeeded").await;
            scene.nothing_there().await;
            scene.delete(["a", "b"]).await;
            scene.nothing_left().await;
        }))
        .await;
    });
}

#[test]
fn failed_pod_of_group_is_replaced_by_pod_made_on_hub() {
    fixture::run(async {
        let fleet = fleet().await;
        futures::future::join_all(WORKERS.map(async |worker| {
            let scene = Scene::new(fleet, "replaced", worker, "2").await;
            scene.create(member("a", "forever", "0")).await;
            scene.create(member("b", "1s", "1")).await;
            scene.runs("a").await;
            until(&scene.here, "b", "shown as failed", |pod| phase(pod) == "Failed").await;
            scene.create(member("c", "forever", "0")).await;
            scene.runs("c").await;
            scene.delete_group().await;
            scene.nothing_left().await;
        }))
        .await;
    });
}

#[test]
fn a_group_of_which_a_worker_loses_a_pod_is_sent_again_whole() {
    fixture::run(async {
        let fleet = fleet().await;
        futures::future::join_all(WORKERS.map(async |worker| {
            let scene = Scene::new(fleet, "lost", worker, "2").await;
            for name in ["a", "b"] {
                scene.create(member(name, "forever", "0")).await;
            }
            let first = until(&scene.there, "b", "running there", |pod| phase(pod) == "Running")
                .await
                .uid();
            scene.runs("a").await;
            scene.there.delete("a", &DeleteParams::default()).await.unwrap();
            let again = |pod: &Pod| phase(pod) == "Running" && pod.uid() != first;
            until(&scene.there, "b", "running there again", again).await;
            scene.runs("a").await;
            scene.delete_group().await;
            scene.nothing_left().await;
        }))
        .await;
    });
}

#[test]
fn the_pods_of_a_deployment_run_where_there_is_room_for_each() {
    fixture::run(async {
        let fleet = fleet().await;
        let scene = Scene::new(fleet, "deployed", "west", "2").await;
        let deployments: Api<DynamicObject> =
            fleet.hub().dynamic("apps/v1", "Deployment", scene.tenant.name()).await.unwrap();
        let web: DynamicObject = serde_json::from_value(json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "web", "labels": {"kueue.x-k8s.io/queue-name": "main"}},
            "spec": {
                "replicas": 3, "selector": {"matchLabels": {"app": "web"}}, "template": template("forever", &json!({})),
            },
        }))
        .unwrap();
        deployments.create(&PostParams::default(), &web).await.unwrap();
        let check = async || {
            let running = |pods: &[Pod]| pods.iter().filter(|pod| phase(pod) == "Running").count();
            let shown = scene.here.list(&Default::default()).await?.items;
            let run = scene.there.list(&Default::default()).await?.items;
            ensure!(
                shown.len() == 3 && running(&run) == 2 && running(&shown) == 2,
                "{shown:?} {run:?}"
            );
            let ready =
                deployments.get("web").await?.data.pointer("/status/readyReplicas").cloned();
            ensure!(ready == Some(json!(2)), "{ready:?}");
            Ok(())
        };
        eventually(SOON, "two of three pods", check).await.unwrap();
        deployments.delete("web", &DeleteParams::background()).await.unwrap();
        scene.nothing_left().await;
    });
}

/// A StatefulSet whose pods ask for one cpu each, on the hub and on its worker.
struct Set {
    here: Api<DynamicObject>,
    there: Api<DynamicObject>,
}

impl Set {
    async fn create(fleet: &Fleet, scene: &Scene<'_>, replicas: i32) -> Self {
        let of = async |cluster: &Cluster| {
            cluster.dynamic("apps/v1", "StatefulSet", scene.tenant.name()).await.unwrap()
        };
        let set = Self { here: of(fleet.hub()).await, there: of(fleet.worker(scene.worker)).await };
        let db: DynamicObject = serde_json::from_value(json!({
            "apiVersion": "apps/v1", "kind": "StatefulSet",
            "metadata": {"name": "db", "labels": {"kueue.x-k8s.io/queue-name": "main"}},
            "spec": {
                "replicas": replicas, "serviceName": "db", "selector": {"matchLabels": {"app": "web"}},
                "template": template("forever", &json!({})),
            },
        }))
        .unwrap();
        set.here.create(&PostParams::default(), &db).await.unwrap();
        set
    }

    async fn change(&self, patch: Value) {
        let patch = Patch::Merge(patch);
        // Refused as long as what it had before is not gone.
        let changed =
            async || Ok(self.here.patch("db", &Default::default(), &patch).await.map(drop)?);
        eventually(SOON, format!("{patch:?}"), changed).await.unwrap();
    }

    /// So many are ready there, and here, where the pods stay behind their gates.
    async fn ready(&self, scene: &Scene<'_>, replicas: i64) {
        let check = async || {
            for (at, api) in [("there", &self.there), ("here", &self.here)] {
                let ready = api
                    .get("db")
                    .await?
                    .data
                    .pointer("/status/readyReplicas")
                    .and_then(Value::as_i64);
                ensure!(ready.unwrap_or(0) == replicas, "{ready:?} are ready {at}");
            }
            Ok(())
        };
        eventually(SOON, format!("{replicas} ready"), check).await.unwrap();
        let pods = scene.here.list(&Default::default()).await.unwrap().items;
        assert!(
            pods.iter().all(is_gated) && i64::try_from(pods.len()).unwrap() == replicas,
            "{pods:?}"
        );
    }
}

#[test]
fn stateful_set_is_sent_whole_and_mirrored() {
    fixture::run(async {
        let fleet = fleet().await;
        futures::future::join_all(WORKERS.map(async |worker| {
            let scene = Scene::new(fleet, "stateful", worker, "3").await;
            let set = Set::create(fleet, &scene, 3).await;
            set.ready(&scene, 3).await;
            let run = scene.there.list(&Default::default()).await.unwrap().items;
            assert!(run.iter().all(|pod| phase(pod) == "Running" && !is_gated(pod)), "{run:?}");
            set.change(json!({"spec": {"replicas": 0}})).await;
            scene.nothing_there().await;
            none_left(&scene.here, "here").await;
            set.change(json!({"spec": {"replicas": 2}})).await;
            set.ready(&scene, 2).await;
            set.here.delete("db", &DeleteParams::background()).await.unwrap();
            scene.nothing_left().await;
        }))
        .await;
    });
}

#[test]
fn stateful_set_pods_wait_on_hub_when_template_changes() {
    fixture::run(async {
        let fleet = fleet().await;
        let scene = Scene::new(fleet, "image", "west", "2").await;
        let set = Set::create(fleet, &scene, 2).await;
        set.ready(&scene, 2).await;
        let before: Vec<_> = scene
            .here
            .list(&Default::default())
            .await
            .unwrap()
            .items
            .iter()
            .map(Pod::uid)
            .collect();
        set.change(
            json!({"spec": {"template": {"metadata": {"annotations": {"changed": "yes"}}}}}),
        )
        .await;
        let check = async || {
            let pods = scene.here.list(&Default::default()).await?.items;
            ensure!(pods.iter().all(is_gated), "let go: {pods:?}");
            ensure!(
                pods.len() == 2 && pods.iter().all(|pod| !before.contains(&pod.uid())),
                "not replaced: {pods:?}"
            );
            Ok(())
        };
        eventually(SOON, "other pods here", check).await.unwrap();
        set.ready(&scene, 2).await;
        set.here.delete("db", &DeleteParams::background()).await.unwrap();
        scene.nothing_left().await;
    });
}
