//! A LeaderWorkerSet, whose replicas go to one worker. Its operator does not run here: the test makes its pods, on the hub and
//! where it was sent.
use std::ops::Range;

use kube::api::PatchParams;
use switchyard_api::v1beta2;
use switchyard_e2e::{job, queues::ClusterQueue};

use super::*;
use crate::common::leader_worker_set::{self, API_VERSION, make_pod};

/// A LeaderWorkerSet whose replicas are one pod each, which asks for one cpu.
pub(super) struct Replicas<'a> {
    fleet: &'a Fleet,
    tenant: &'a Tenant<'a>,
    here: Api<DynamicObject>,
}

impl<'a> Replicas<'a> {
    async fn create(fleet: &'a Fleet, tenant: &'a Tenant<'a>, replicas: u32) -> Self {
        Self::create_with(fleet, tenant, replicas, &json!({}), &json!({})).await
    }

    /// With annotations of its own, and metadata of its pods.
    pub(super) async fn create_with(
        fleet: &'a Fleet,
        tenant: &'a Tenant<'a>,
        replicas: u32,
        annotations: &Value,
        pods: &Value,
    ) -> Self {
        let clusters: Vec<&Cluster> =
            WORKERS.map(|name| fleet.worker(name)).into_iter().chain([fleet.hub()]).collect();
        for cluster in &clusters {
            leader_worker_set::install(cluster).await;
        }
        for cluster in clusters {
            await_mark(cluster).await;
        }
        let here = sets(fleet.hub(), tenant.name()).await;
        let mut set = written(replicas, pods);
        set.metadata.annotations = serde_json::from_value(annotations.clone()).unwrap();
        here.create(&PostParams::default(), &set).await.unwrap();
        Self { fleet, tenant, here }
    }

    /// The cluster that all its replicas are on, once they are so many and each has one.
    pub(super) async fn cluster(&self, replicas: usize) -> String {
        let check = async || self.clusters(replicas).await;
        let clusters = eventually(SOON, "a cluster for each replica", check).await.unwrap();
        assert!(clusters.iter().all(|cluster| *cluster == clusters[0]), "{clusters:?}");
        clusters[0].clone()
    }

    /// The cluster that all its replicas are on, once all have left this one.
    async fn cluster_after(&self, replicas: usize, left: &str) -> String {
        let check = async || {
            let clusters = self.clusters(replicas).await?;
            let together = clusters.iter().all(|cluster| *cluster == clusters[0]);
            ensure!(together && clusters[0] != left, "{clusters:?}");
            Ok(clusters[0].clone())
        };
        eventually(SOON, format!("all replicas to leave {left}"), check).await.unwrap()
    }

    /// The cluster of each replica.
    async fn clusters(&self, replicas: usize) -> anyhow::Result<Vec<String>> {
        let all = self.tenant.hub_workloads().list(&Default::default()).await?.items;
        let clusters: Vec<_> =
            all.iter().filter_map(|it| it.status.as_ref()?.cluster_name.clone()).collect();
        ensure!(all.len() == replicas && clusters.len() == replicas, "{all:?}");
        Ok(clusters)
    }

    /// The copy on the worker, once it has so many replicas.
    async fn copy(&self, worker: &str, replicas: u32) -> DynamicObject {
        let there = sets(self.fleet.worker(worker), self.tenant.name()).await;
        let check = async || {
            let copy = there.get("llm").await?;
            ensure!(
                copy.data.pointer("/spec/replicas") == Some(&json!(replicas)),
                "{:?}",
                copy.data.get("spec")
            );
            Ok(copy)
        };
        eventually(SOON, "the copy with its replicas", check).await.unwrap()
    }

    /// Makes the pods of its last replicas as its operator would, on the hub and on the worker.
    pub(super) async fn make_pods(&self, worker: &str, replicas: Range<u32>) {
        let set = self.here.get("llm").await.unwrap();
        self.make_pods_there(worker, replicas.clone()).await;
        for index in replicas {
            make_pod(&pods(self.fleet.hub(), self.tenant.name()), &set, "worker", index).await;
        }
    }

    /// Makes the pods on the worker alone: after a move, the hub has its own.
    pub(super) async fn make_pods_there(&self, worker: &str, replicas: Range<u32>) {
        let copy = self.copy(worker, replicas.end).await;
        let there = pods(self.fleet.worker(worker), self.tenant.name());
        for index in replicas {
            make_pod(&there, &copy, "worker", index).await;
        }
    }

    async fn scale(&self, replicas: u32) {
        let patch = Patch::Merge(json!({"spec": {"replicas": replicas}}));
        self.here.patch("llm", &PatchParams::default(), &patch).await.unwrap();
    }

    pub(super) async fn delete(&self) {
        self.here.delete("llm", &DeleteParams::background()).await.unwrap();
    }
}

async fn sets(cluster: &Cluster, namespace: &str) -> Api<DynamicObject> {
    let sets = async || cluster.dynamic(API_VERSION, "LeaderWorkerSet", namespace).await;
    eventually(SOON, "the kind LeaderWorkerSet", sets).await.unwrap()
}

/// `pods` is metadata of its pods.
fn written(replicas: u32, pods: &Value) -> DynamicObject {
    serde_json::from_value(json!({
        "apiVersion": API_VERSION, "kind": "LeaderWorkerSet",
        "metadata": {"name": "llm", "labels": {"kueue.x-k8s.io/queue-name": "main"}},
        "spec": {
            "replicas": replicas, "leaderWorkerTemplate": {"size": 1, "workerTemplate": template("forever", pods)},
        },
    }))
    .unwrap()
}

/// From now on the API server refuses any LeaderWorkerSet that is to be created in the namespace, before it looks at its name.
async fn allow_no_more(cluster: &Cluster, namespace: &str) {
    let name = format!("no-more-{namespace}");
    let rule = json!({
        "apiGroups": ["leaderworkerset.x-k8s.io"], "apiVersions": ["*"],
        "operations": ["CREATE"], "resources": ["leaderworkersets"],
    });
    let policy = json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": name},
        "spec": {
            "matchConstraints": {"resourceRules": [rule]},
            "validations": [{"expression": "false", "message": "there is one"}],
        },
    });
    let here = json!({"matchLabels": {"kubernetes.io/metadata.name": namespace}});
    let binding = json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": name},
        "spec": {
            "policyName": name, "validationActions": ["Deny"], "matchResources": {"namespaceSelector": here},
        },
    });
    cluster.apply([policy, binding]).await.unwrap();
    let (sets, dry) =
        (sets(cluster, namespace).await, PostParams { dry_run: true, ..PostParams::default() });
    let refused = async || {
        let another = sets.create(&dry, &written(1, &json!({}))).await;
        ensure!(
            another.is_err_and(|error| error.to_string().contains("there is one")),
            "it is let through"
        );
        Ok(())
    };
    eventually(SOON, "the policy to be in force", refused).await.unwrap();
}

/// Waits until the webhook marks what is of this kind, which has just come.
async fn await_mark(cluster: &Cluster) {
    let sets = sets(cluster, "default").await;
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    let marked = async || {
        let made = sets.create(&dry, &written(1, &json!({}))).await?;
        let at = "/spec/leaderWorkerTemplate/workerTemplate/metadata/annotations/kueue.x-k8s.io~1pod-suspending-parent";
        ensure!(made.data.pointer(at).is_some(), "it is let through");
        Ok(())
    };
    eventually(SOON, "the webhook of LeaderWorkerSets", marked).await.unwrap();
}

#[test]
fn leader_worker_set_replicas_run_on_one_worker() {
    fixture::run(async {
        let fleet = fleet().await;
        futures::future::join_all(WORKERS.map(async |worker| {
            let scene = Scene::new(fleet, "replicas", worker, "2").await;
            let set = Replicas::create(fleet, &scene.tenant, 2).await;
            assert_eq!(set.cluster(2).await, worker);
            set.make_pods(worker, 0..2).await;
            for name in ["llm-0-1", "llm-1-1"] {
                until(&scene.there, name, "running there", |pod| {
                    phase(pod) == "Running" && !is_gated(pod)
                })
                .await;
                until(&scene.here, name, "shown as running", |pod| {
                    phase(pod) == "Running" && is_gated(pod)
                })
                .await;
            }
            set.delete().await;
            scene.nothing_left().await;
        }))
        .await;
    });
}

#[test]
fn leader_worker_set_goes_where_all_replicas_fit() {
    fixture::run(async {
        let fleet = fleet().await;
        // West would fit the first replica best.
        let tenant = fleet.tenant("room").hub(&[("cpu", "2")]);
        let tenant = tenant
            .worker("west", &[("cpu", "1")])
            .worker("east", &[("cpu", "4")])
            .make()
            .await
            .unwrap();
        // No other cluster fits it: once it has run, the capacity of east is known.
        tenant.submit(tenant.job("first").cpu("2").run_for(Duration::from_secs(1))).await.unwrap();
        job::complete(&fleet.hub().admin, tenant.name(), "first", SOON).await.unwrap();
        tenant.hub_jobs().delete("first", &DeleteParams::background()).await.unwrap();
        tenant.await_empty("east", SOON).await.unwrap();
        let set = Replicas::create(fleet, &tenant, 2).await;
        assert_eq!(set.cluster(2).await, "east");
        set.delete().await;
        tenant.await_empty("east", SOON).await.unwrap();
    });
}

#[test]
fn later_replica_without_room_waits_on_cluster_of_first() {
    fixture::run(async {
        let fleet = fleet().await;
        let quota = [("cpu", "2")];
        let tenant =
            fleet.tenant("waits").hub(&quota).worker("west", &[("cpu", "1")]).make().await.unwrap();
        let set = Replicas::create(fleet, &tenant, 2).await;
        assert_eq!(set.cluster(2).await, "west");
        set.make_pods("west", 0..2).await;
        let there = pods(fleet.worker("west"), tenant.name());
        until(&there, "llm-0-1", "running there", |pod| phase(pod) == "Running").await;
        until(&there, "llm-1-1", "waiting there", is_gated).await;
        let more = ClusterQueue::new(tenant.name()).group(tenant.name(), &quota).build();
        fleet.worker("west").apply([more]).await.unwrap();
        until(&there, "llm-1-1", "running there", |pod| phase(pod) == "Running").await;
        set.delete().await;
        none_left(&there, "there").await;
        tenant.await_empty("west", SOON).await.unwrap();
    });
}

#[test]
fn replicas_that_come_and_go_do_so_where_the_first_is() {
    fixture::run(async {
        let fleet = fleet().await;
        futures::future::join_all(WORKERS.map(async |worker| {
            let scene = Scene::new(fleet, "scaled", worker, "3").await;
            let set = Replicas::create(fleet, &scene.tenant, 1).await;
            assert_eq!(set.cluster(1).await, worker);
            set.make_pods(worker, 0..1).await;
            allow_no_more(fleet.worker(worker), scene.tenant.name()).await;
            set.scale(3).await;
            assert_eq!(set.cluster(3).await, worker);
            set.make_pods(worker, 1..3).await;
            let running = |pod: &Pod| phase(pod) == "Running" && !is_gated(pod);
            let first = until(&scene.there, "llm-0-1", "running there", running).await;
            until(&scene.there, "llm-2-1", "running there", running).await;
            set.scale(1).await;
            assert_eq!(set.cluster(1).await, worker);
            set.copy(worker, 1).await;
            for name in ["llm-1-1", "llm-2-1"] {
                gone(&scene.there, name).await;
            }
            let still = scene.there.get("llm-0-1").await.unwrap();
            assert!(running(&still) && still.uid() == first.uid(), "{still:?}");
            set.delete().await;
            scene.nothing_left().await;
        }))
        .await;
    });
}

#[test]
fn all_replicas_leave_a_worker_together_and_go_to_another() {
    fixture::run(async {
        let fleet = fleet().await;
        let quota = [("cpu", "2")];
        let tenant =
            fleet.tenant("leaves").hub(&quota).worker("west", &quota).worker("east", &quota);
        let tenant = tenant.make().await.unwrap();
        let set = Replicas::create(fleet, &tenant, 2).await;
        let before = set.cluster(2).await;
        set.make_pods(&before, 0..2).await;
        let there = pods(fleet.worker(&before), tenant.name());
        until(&there, "llm-1-1", "running there", |pod| phase(pod) == "Running").await;
        let stopped = json!({"spec": {"stopPolicy": "HoldAndDrain"}});
        let queues: Api<v1beta2::ClusterQueue> = Api::all(fleet.worker(&before).admin.clone());
        queues.patch(tenant.name(), &PatchParams::default(), &Patch::Merge(stopped)).await.unwrap();
        tenant.await_empty(&before, SOON).await.unwrap();
        none_left(&there, "there").await;
        let after = set.cluster_after(2, &before).await;
        set.copy(&after, 2).await;
        set.delete().await;
        tenant.await_empty(&after, SOON).await.unwrap();
    });
}

async fn gone(pods: &Api<Pod>, name: &str) {
    let check = async || {
        let left = pods.get_opt(name).await?;
        ensure!(left.is_none(), "{left:?}");
        Ok(())
    };
    eventually(SOON, format!("pod {name} gone"), check).await.unwrap();
}
