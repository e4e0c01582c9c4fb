//! `onStuck`, and the hub's `waitForPodsReady`: a job whose pods do not become ready moves to the next cluster, so many times
//! at most.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use jiff::SignedDuration;
use k8s_openapi::api::core::v1::{Event, Pod};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};
use switchyard::status::{JobRow, JobState};
use switchyard_api::conditions::{WORKER_TROUBLE, find};
use switchyard_api::names;
use switchyard_api::v1beta2::DispatchStatus;
use switchyard_e2e::fleet::{Fleet, HUB, Tenant};
use switchyard_e2e::wait::{always, eventually};
use switchyard_e2e::{ClusterSpec, NodeSpec, fixture, job, queues, ready};

use crate::node_room::shows_on_nodes;
use crate::trouble::{command, cordon, why};

const SOON: Duration = Duration::from_secs(120);
const WORKERS: [&str; 2] = ["west", "east"];

fn worker(name: &str) -> ClusterSpec {
    ClusterSpec::new(name).node(NodeSpec::new("n1").cpu(8))
}

async fn tenant<'a>(fleet: &'a Fleet, clusters: &[&str]) -> Tenant<'a> {
    let quota = [("cpu", "4")];
    let mut tenant = fleet.tenant("stuck").hub(&quota);
    for cluster in clusters {
        tenant = tenant.worker(cluster, &quota);
    }
    tenant.make().await.unwrap()
}

async fn dispatch(tenant: &Tenant<'_>, job: &str) -> anyhow::Result<DispatchStatus> {
    let status = tenant.workload_of(job).await?.status.unwrap_or_default();
    Ok(status.dispatch.unwrap_or_default())
}

/// Waits until the condition says these words.
async fn said(tenant: &Tenant<'_>, job: &str, words: &str) {
    eventually(SOON, format!("{words:?} of {job}"), async || {
        let conditions = tenant.workload_of(job).await?.status.unwrap_or_default().conditions;
        let found = find(&conditions, WORKER_TROUBLE).context("no condition")?;
        ensure!(found.message.contains(words), "{}", found.message);
        Ok(())
    })
    .await
    .unwrap();
}

/// Waits until the hub shows a job as running.
async fn runs(tenant: &Tenant<'_>, job: &str) {
    let running = |row: &JobRow| row.state == JobState::Running;
    tenant.await_status(job, "running", SOON, running).await.unwrap();
}

#[test]
fn job_without_ready_pod_moves_and_then_stays() {
    fixture::run(async {
        let fleet = Fleet::builder("stuck").agent(worker("west")).agent(worker("east"));
        let fleet = fleet.start().await.unwrap();
        fleet.hub().apply(WORKERS.map(queues::agent_cluster)).await.unwrap();
        fleet.connect().await.unwrap();
        let tenant = tenant(&fleet, &WORKERS).await;
        for cluster in WORKERS {
            cordon(&fleet, cluster, true).await;
        }
        // Until the hub knows of both, it prefers the other one.
        for cluster in WORKERS {
            shows_on_nodes(&fleet, &tenant, cluster, |free| free == "0").await;
        }
        let stuck = tenant
            .job("stuck")
            .run_forever()
            .annotation(names::PREFERRED_CLUSTERS, "west")
            .annotation(names::ON_STUCK, "30s/1");
        tenant.submit(stuck).await.unwrap();
        said(&tenant, "stuck", "onStuck moves it to another cluster at ").await;
        let why = why(&fleet, &tenant, "stuck").await;
        assert!(why.starts_with("Verdict:   Admitted, and in trouble: on \"west\": "), "{why}");

        // It goes to the other cluster, and its only move is used.
        said(&tenant, "stuck", "it stays, as onStuck has moved it 1 times").await;
        let moved = dispatch(&tenant, "stuck").await.unwrap();
        let past: Vec<_> =
            moved.history.iter().map(|past| (&*past.cluster_name, &*past.reason)).collect();
        assert_eq!((past, moved.stuck_moves), (vec![("west", "Stuck")], 1));
        assert_eq!(moved.cluster_name.as_deref(), Some("east"));
        fleet.await_pods("west", tenant.name(), 0).await.unwrap();
        command(&fleet, &["describe", "job", "-n", tenant.name(), "stuck"]).await;

        let events: Api<Event> = Api::namespaced(fleet.hub().admin.clone(), tenant.name());
        let of = |event: &Event| {
            event.involved_object.kind.as_deref() == Some("Job")
                && event.reason.as_deref() == Some("Stuck")
        };
        let notes = eventually(SOON, "an event about the move", async || {
            let events = events.list(&ListParams::default()).await?;
            let moves = events.into_iter().filter(of);
            let notes: Vec<_> = moves.filter_map(|event| event.message).collect();
            ensure!(!notes.is_empty(), "there is none");
            Ok(notes)
        })
        .await
        .unwrap();
        let note =
            "No pod of it was ready on worker cluster \"west\" for 30s (onStuck, move 1 of 1)";
        assert!(notes.len() == 1 && notes[0].starts_with(note), "{notes:?}");
        let log = fleet.with(HUB, switchyard_e2e::Process::log).unwrap();
        let is_audited =
            |line: &&str| line.contains("switchyard::audit") && line.contains("move-stuck");
        assert_eq!(log.lines().filter(is_audited).count(), 1);

        always(Duration::from_secs(35), "it stays", async || {
            ensure!(dispatch(&tenant, "stuck").await?.attempt == moved.attempt, "it moved");
            Ok(())
        })
        .await
        .unwrap();
        cordon(&fleet, "east", false).await;
        runs(&tenant, "stuck").await;

        // A job with a ready pod stays, though another pod finds no node.
        let partly = tenant
            .job("partly")
            .parallelism(2)
            .completions(2)
            .cpu("1")
            .run_forever()
            .backoff_limit(6)
            .annotation(names::CLUSTERS, "east,west")
            .annotation(names::PREFERRED_CLUSTERS, "east")
            .annotation(names::ON_STUCK, "30s");
        tenant.submit(partly).await.unwrap();
        let pods: Api<Pod> = Api::namespaced(fleet.worker("east").admin.clone(), tenant.name());
        let of_job = job::pods_of("partly");
        let first = eventually(SOON, "both pods of partly to run", async || {
            let pods = pods.list(&of_job).await?.items;
            let phase = |pod: &Pod| pod.status.as_ref().and_then(|status| status.phase.clone());
            let phases: Vec<_> = pods.iter().filter_map(phase).collect();
            ensure!(phases == ["Running"; 2], "{phases:?}");
            Ok(pods[0].name_any())
        })
        .await
        .unwrap();
        runs(&tenant, "partly").await;
        cordon(&fleet, "east", true).await;
        pods.delete(&first, &DeleteParams::default().grace_period(0)).await.unwrap();
        said(&tenant, "partly", "Unschedulable").await;
        always(Duration::from_secs(40), "it stays", async || {
            ensure!(dispatch(&tenant, "partly").await?.history.is_empty(), "it moved");
            Ok(())
        })
        .await
        .unwrap();
    });
}

#[test]
fn job_on_its_only_cluster_stays_and_says_so() {
    fixture::run(async {
        let fleet = Fleet::builder("only").bare(worker("south")).start().await.unwrap();
        fleet.add_single("south").await.unwrap();
        let tenant = tenant(&fleet, &["south"]).await;
        cordon(&fleet, "south", true).await;
        let patch = Patch::Merge(json!({"spec": {"onStuck": {"after": "10s"}}}));
        let queues: Api<switchyard_api::v1beta2::ClusterQueue> =
            Api::all(fleet.hub().admin.clone());
        queues.patch(tenant.name(), &PatchParams::default(), &patch).await.unwrap();
        tenant.submit(tenant.job("alone").run_forever()).await.unwrap();
        said(&tenant, "alone", "it stays, as no other cluster may take it (onStuck)").await;
        always(Duration::from_secs(20), "it stays", async || {
            ensure!(dispatch(&tenant, "alone").await?.history.is_empty(), "it moved");
            Ok(())
        })
        .await
        .unwrap();
        cordon(&fleet, "south", false).await;
        fleet.await_pods("south", tenant.name(), 1).await.unwrap();
        // Its pod has a node, and nothing tells why it does not start.
        let silent = tenant.job("silent").run_forever().pod_annotation(job::START_AFTER, "1h");
        tenant.submit(silent).await.unwrap();
        said(&tenant, "silent", "on \"south\": no pod is ready since ").await;
        runs(&tenant, "alone").await;
    });
}

/// A StatefulSet whose pod does not become ready.
fn late_set(namespace: &str) -> Value {
    let labels = json!({"app": "late"});
    let requests = json!({"requests": {"cpu": "1"}});
    json!({
        "apiVersion": "apps/v1", "kind": "StatefulSet",
        "metadata": {
            "name": "late-set", "namespace": namespace, "labels": {"kueue.x-k8s.io/queue-name": "main"},
        },
        "spec": {
            "replicas": 1, "serviceName": "late", "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels, "annotations": {job::START_AFTER: "1h"}},
                "spec": {"containers": [{"name": "c", "image": "i", "resources": requests}]},
            },
        },
    })
}

/// The hub's `waitForPodsReady` counts for jobs on worker clusters, too, and they go to the next one.
#[test]
fn hub_evicts_dispatched_job_whose_pods_are_not_ready() {
    fixture::run(async {
        let config = |wait: &str, more: &str| {
            format!(
                "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\nwaitForPodsReady: {wait}\n{more}"
            )
        };
        let kinds = "integrations: {frameworks: [batch/job, pod, statefulset]}\n";
        let hub = config("{timeout: 20s, requeuingStrategy: {backoffBaseSeconds: 1}}", kinds);
        let agents = config("{timeout: 1h}", kinds);
        let sets = "statefulset-controller";
        let [west, east] = WORKERS.map(|name| worker(name).controller(sets));
        let fleet = Fleet::builder("hub-ready").agent(west).agent(east).hub_controllers([sets]);
        let fleet = fleet.config(hub).agent_config(agents).agent_webhooks().start().await.unwrap();
        fleet.hub().apply(WORKERS.map(queues::agent_cluster)).await.unwrap();
        fleet.connect().await.unwrap();
        for cluster in WORKERS.map(|name| fleet.worker(name)).into_iter().chain([fleet.hub()]) {
            ready::pod_webhook(cluster, ("default", "main"), SOON).await.unwrap();
        }
        let tenant = tenant(&fleet, &WORKERS).await;
        tenant.submit(tenant.job("ready").run_forever()).await.unwrap();
        let late = tenant.job("late").run_forever().pod_annotation(job::START_AFTER, "1h");
        tenant.submit(late).await.unwrap();
        fleet.hub().apply([late_set(tenant.name())]).await.unwrap();
        for name in ["late", "late-set"] {
            eventually(SOON * 2, format!("{name} to have tried two clusters"), async || {
                let history = dispatch(&tenant, name).await?.history;
                let timed_out = history.iter().all(|past| past.reason == "PodsReadyTimeout");
                ensure!(history.len() >= 2 && timed_out, "{history:?}");
                ensure!(history[0].cluster_name != history[1].cluster_name, "{history:?}");
                // The first attempt may also wait until the cluster was connected for 30 s.
                let created = tenant.workload_of(name).await?.metadata.creation_timestamp;
                let first = history[0].at.0.duration_since(created.context("created")?.0);
                ensure!(first < SignedDuration::from_secs(100), "the first ended after {first}");
                Ok(())
            })
            .await
            .unwrap();
            let requeued = tenant.workload_of(name).await.unwrap().status.unwrap().requeue_state;
            assert!(requeued.is_some_and(|state| state.count >= Some(2)), "{name}");
        }
        assert_eq!(dispatch(&tenant, "ready").await.unwrap().history, Vec::new());
    });
}
