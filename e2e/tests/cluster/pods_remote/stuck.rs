//! `onStuck` and the report of trouble for objects whose pods a controller of the worker makes: a StatefulSet, and a
//! LeaderWorkerSet, whose pods the test makes.
use k8s_openapi::api::core::v1::{Node, ServiceAccount};
use kube::api::PatchParams;
use switchyard_api::conditions::{FALSE, TRUE, WORKER_TROUBLE, find};
use switchyard_api::names;
use switchyard_e2e::job::START_AFTER;

use super::replicas::Replicas;
use super::*;
use crate::common::await_reported;
use crate::trouble::{shows, try_command};

const GET_JOBS: &[&str] = &["get", "jobs"];

/// A tenant with room on both workers, as the hub knows.
async fn tenant<'a>(fleet: &'a Fleet, stem: &str) -> Tenant<'a> {
    let quota = [("cpu", "4")];
    let tenant = fleet.tenant(stem).hub(&quota).worker("west", &quota).worker("east", &quota);
    let tenant = tenant.make().await.unwrap();
    for worker in WORKERS {
        await_reported(fleet, &tenant, worker, &[(tenant.name(), "4")]).await;
    }
    tenant
}

/// Annotations of an object that moves once.
fn moves_once() -> Value {
    json!({names::ON_STUCK: "40s/1"})
}

/// Waits until the condition of a Workload is such, and gives its message.
async fn said(workloads: &Api<Workload>, name: &str, status: &str, words: &[&str]) -> String {
    let check = async || {
        let conditions = workloads.get(name).await?.status.unwrap_or_default().conditions;
        let found = find(&conditions, WORKER_TROUBLE).cloned();
        let Some(found) = found else { anyhow::bail!("no condition: {conditions:?}") };
        let text = format!("{} {}: {}", found.status, found.reason, found.message);
        ensure!(found.status == status && words.iter().all(|it| text.contains(it)), "{text}");
        Ok(text)
    };
    eventually(SOON, format!("{status} {words:?} of {name}"), check).await.unwrap()
}

/// The other worker.
fn other(worker: &str) -> &'static str {
    if worker == "west" { "east" } else { "west" }
}

/// Waits until a Workload has left its first worker for the other, and gives the reason.
async fn moved(workloads: &Api<Workload>, name: &str, from: &str) -> String {
    let check = async || {
        let dispatch = workloads.get(name).await?.status.unwrap_or_default().dispatch;
        let dispatch = dispatch.unwrap_or_default();
        ensure!(dispatch.cluster_name.as_deref() == Some(other(from)), "{dispatch:?}");
        let [past] = &dispatch.history[..] else { anyhow::bail!("{dispatch:?}") };
        ensure!(past.cluster_name == from, "{dispatch:?}");
        Ok(past.reason.clone())
    };
    eventually(SOON, format!("{name} on {}", other(from)), check).await.unwrap()
}

fn accounts(cluster: &Cluster, tenant: &Tenant<'_>) -> Api<ServiceAccount> {
    Api::namespaced(cluster.admin.clone(), tenant.name())
}

async fn create_account(cluster: &Cluster, tenant: &Tenant<'_>) {
    let account = serde_json::from_value(json!({"metadata": {"name": "builder"}})).unwrap();
    accounts(cluster, tenant).create(&PostParams::default(), &account).await.unwrap();
}

/// Deletes the account, and waits until the API server refuses pods that use it.
async fn delete_account(cluster: &Cluster, tenant: &Tenant<'_>) {
    accounts(cluster, tenant).delete("builder", &DeleteParams::default()).await.unwrap();
    let container = json!({"name": "c", "image": "i"});
    let probe = serde_json::from_value(json!({
        "metadata": {"name": "probe"},
        "spec": {"serviceAccountName": "builder", "containers": [container]},
    }))
    .unwrap();
    let (pods, dry) =
        (pods(cluster, tenant.name()), PostParams { dry_run: true, ..PostParams::default() });
    let refused = async || {
        let made = pods.create(&dry, &probe).await;
        let words = "serviceaccount \"builder\" not found";
        let is_refused = made.as_ref().is_err_and(|error| error.to_string().contains(words));
        ensure!(is_refused, "{made:?}");
        Ok(())
    };
    eventually(SOON, "a pod without an account to be refused", refused).await.unwrap();
}

/// Lets pods with this node selector run on a worker.
async fn label_node(cluster: &Cluster, label: &str, value: &str) {
    let nodes: Api<Node> = Api::all(cluster.admin.clone());
    let patch = Patch::Merge(json!({"metadata": {"labels": {label: value}}}));
    nodes.patch("n1", &PatchParams::default(), &patch).await.unwrap();
}

async fn delete_pod(pods: &Api<Pod>, name: &str) {
    pods.delete(name, &DeleteParams::default().grace_period(0)).await.unwrap();
}

#[test]
fn stateful_set_without_ready_pod_moves_and_shows_trouble() {
    fixture::run(async {
        let fleet = fleet().await;
        let tenant = tenant(fleet, "stuck-set").await;
        for cluster in WORKERS.map(|name| fleet.worker(name)).into_iter().chain([fleet.hub()]) {
            create_account(cluster, &tenant).await;
        }
        let mut template = template("forever", &json!({}));
        let own = json!({"nodeSelector": {"for": tenant.name()}, "serviceAccountName": "builder"});
        apply_merge(&mut template, &json!({ "spec": own }));
        let sets: Api<DynamicObject> =
            fleet.hub().dynamic("apps/v1", "StatefulSet", tenant.name()).await.unwrap();
        let set = serde_json::from_value(json!({
            "apiVersion": "apps/v1", "kind": "StatefulSet",
            "metadata": {
                "name": "db", "labels": {"kueue.x-k8s.io/queue-name": "main"}, "annotations": moves_once(),
            },
            "spec": {
                "replicas": 2, "serviceName": "db", "selector": {"matchLabels": {"app": "web"}},
                "template": template,
            },
        }));
        sets.create(&PostParams::default(), &set.unwrap()).await.unwrap();
        let made = async || Ok(tenant.workload_of("db").await?.name_any());
        let name = eventually(SOON, "its Workload", made).await.unwrap();
        let workloads = tenant.hub_workloads();

        // No node of a worker has the label.
        let words = [": Unschedulable", "pod db-0: ", "onStuck moves it to another cluster at "];
        let first = if said(&workloads, &name, TRUE, &words).await.contains("on \"west\"") {
            "west"
        } else {
            "east"
        };
        assert_eq!(moved(&workloads, &name, first).await, "Stuck");
        none_left(&pods(fleet.worker(first), tenant.name()), "on the first cluster").await;
        let second = fleet.worker(other(first));
        let words = [": Unschedulable", "it stays, as onStuck has moved it 1 times"];
        said(&workloads, &name, TRUE, &words).await;
        let verdict = async || {
            let why = try_command(fleet, &["why", "-n", tenant.name(), "db"]).await?;
            ensure!(why.starts_with("Verdict:   Admitted, and in trouble: on \""), "{why}");
            Ok(())
        };
        eventually(SOON, "the verdict", verdict).await.unwrap();
        shows(fleet, &tenant, GET_JOBS, "db", &[" 0/2 ", "Unschedulable"]).await;
        label_node(second, "for", tenant.name()).await;
        said(&workloads, &name, FALSE, &["Resolved"]).await;

        // The account of its pods goes, then one pod, then the other.
        let there = pods(second, tenant.name());
        until(&there, "db-1", "running", |pod| phase(pod) == "Running").await;
        delete_account(second, &tenant).await;
        delete_pod(&there, "db-1").await;
        let words = ["FailedCreate", "serviceaccount \"builder\" not found"];
        said(&workloads, &name, TRUE, &words).await;
        shows(fleet, &tenant, GET_JOBS, "db", &[" 1/2 ", "FailedCreate"]).await;
        delete_pod(&there, "db-0").await;
        shows(fleet, &tenant, GET_JOBS, "db", &[" 0/2 "]).await;
        let words = ["FailedCreate", "it stays, as onStuck has moved it 1 times"];
        said(&workloads, &name, TRUE, &words).await;
        create_account(second, &tenant).await;
        said(&workloads, &name, FALSE, &["Resolved"]).await;
        sets.delete("db", &DeleteParams::background()).await.unwrap();
        tenant.await_empty(other(first), SOON).await.unwrap();
    });
}

/// Changes the status of a pod, as its kubelet would.
async fn report_status(pods: &Api<Pod>, name: &str, status: Value) {
    let patch = Patch::Strategic(json!({ "status": status }));
    pods.patch_status(name, &PatchParams::default(), &patch).await.unwrap();
}

/// The image of a pod that has begun to start cannot be pulled.
async fn lacks_image(pods: &Api<Pod>, name: &str) {
    until(pods, name, "on a node", |pod| !is_gated(pod)).await;
    let waiting = json!({"reason": "ImagePullBackOff", "message": "Back-off pulling image"});
    let container = json!({
        "name": "c", "image": "i", "imageID": "", "ready": false, "restartCount": 0,
        "state": {"waiting": waiting},
    });
    report_status(pods, name, json!({"containerStatuses": [container]})).await;
}

#[test]
fn leader_worker_set_without_ready_pod_moves_whole() {
    fixture::run(async {
        let fleet = fleet().await;
        let tenant = tenant(fleet, "stuck-replicas").await;
        let never = json!({"annotations": {START_AFTER: "1h"}});
        let set = Replicas::create_with(fleet, &tenant, 2, &moves_once(), &never).await;
        let from = set.cluster(2).await;
        set.make_pods(&from, 0..2).await;
        let workloads = tenant.hub_workloads();
        let mut all = workloads.list(&Default::default()).await.unwrap().items;
        all.sort_by_key(|it| it.annotations().get(names::COMPONENT_WORKLOAD_INDEX).cloned());
        let [first, second] = [all[0].name_any(), all[1].name_any()];

        // The image of one replica cannot be pulled, and the pod of the other is slow.
        let there = pods(fleet.worker(&from), tenant.name());
        lacks_image(&there, "llm-1-1").await;
        let words = [": ImagePull", "pod llm-1-1: ", "onStuck moves it to another cluster at "];
        said(&workloads, &first, TRUE, &words).await;
        assert_eq!(moved(&workloads, &first, &from).await, "Stuck");
        assert_eq!(moved(&workloads, &second, &from).await, "FollowsFirstReplica");
        none_left(&there, "on the first cluster").await;

        // One ready pod of any replica is enough to stay.
        let to = other(&from);
        set.make_pods_there(to, 0..2).await;
        let there = pods(fleet.worker(to), tenant.name());
        lacks_image(&there, "llm-0-1").await;
        let words = [": ImagePull", "pod llm-0-1: ", "it stays, as onStuck has moved it 1 times"];
        said(&workloads, &first, TRUE, &words).await;
        shows(fleet, &tenant, GET_JOBS, "llm", &[" 0/1 "]).await;
        let ready = json!({"type": "Ready", "status": "True"});
        let runs = json!({"phase": "Running", "conditions": [ready]});
        report_status(&there, "llm-1-1", runs).await;
        let stays = async || {
            let conditions = workloads.get(&first).await?.status.unwrap_or_default().conditions;
            let trouble = find(&conditions, WORKER_TROUBLE).map(|it| it.message.clone());
            ensure!(trouble.as_ref().is_some_and(|it| !it.contains("onStuck")), "{trouble:?}");
            Ok(())
        };
        eventually(SOON, "it to stay", stays).await.unwrap();
        set.delete().await;
        tenant.await_empty(to, SOON).await.unwrap();
    });
}
