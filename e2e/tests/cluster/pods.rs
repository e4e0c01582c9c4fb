//! Pods that are queued themselves, alone and in groups, on a real API server with webhooks; kwok runs them.
use std::net::{Ipv4Addr, TcpListener};

use crate::bed::{Bed, WAIT};
use anyhow::ensure;
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, PostParams},
};
use serde_json::{Value, json};
use switchyard_controller::webhook::{Advertise, WebhookOptions};
use switchyard_e2e::{
    fixture,
    job::{EXIT_CODE, RUN_FOR},
    wait,
};

const SECTIONS: &str = "integrations: {frameworks: [batch/job, pod]}";
const GATE: &str = "kueue.x-k8s.io/admission";
const MANAGED: &str = "kueue.x-k8s.io/managed";

/// A namespace under a controller that manages pods, once the API server calls its webhooks.
async fn pods_bed(stem: &str) -> (Bed, Api<Pod>) {
    let bed = Bed::with_options(stem, SECTIONS, |_, options| {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let url = format!("https://127.0.0.1:{}", listener.local_addr().unwrap().port());
        options.webhook = Some(WebhookOptions::new(listener, Advertise::Url(url)));
    })
    .await;
    let pods: Api<Pod> = Api::namespaced(bed.admin().clone(), &bed.namespace);
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    let called = async || {
        let made = pods.create(&dry, &pod("probe", &json!({}))).await?;
        ensure!(is_gated(&made), "it is let through");
        Ok(())
    };
    wait::eventually(WAIT, "the webhook of pods", called).await.unwrap();
    (bed, pods)
}

/// A pod in queue `queue` that asks for one cpu and runs until it is deleted, with this put into its metadata.
fn pod(name: &str, metadata: &Value) -> Pod {
    let mut pod = json!({
        "metadata": {"name": name, "labels": {"kueue.x-k8s.io/queue-name": "queue"}, "annotations": {RUN_FOR: "forever"}},
        "spec": {
            "restartPolicy": "Never", "terminationGracePeriodSeconds": 1,
            "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}],
        },
    });
    switchyard_jobs::apply_merge(&mut pod, &json!({ "metadata": metadata }));
    serde_json::from_value(pod).unwrap()
}

/// One of a group of `count`.
fn member(name: &str, count: &str, annotations: &Value) -> Pod {
    let mut metadata = json!({
        "labels": {"kueue.x-k8s.io/pod-group-name": "group"},
        "annotations": {"kueue.x-k8s.io/pod-group-total-count": count},
    });
    switchyard_jobs::apply_merge(&mut metadata, &json!({ "annotations": annotations }));
    pod(name, &metadata)
}

fn is_gated(pod: &Pod) -> bool {
    let gates = pod.spec.as_ref().and_then(|spec| spec.scheduling_gates.as_ref());
    gates.into_iter().flatten().any(|gate| gate.name == GATE)
}

fn phase(pod: &Pod) -> &str {
    pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default()
}

async fn create(pods: &Api<Pod>, pod: Pod) -> Pod {
    pods.create(&PostParams::default(), &pod).await.unwrap()
}

async fn until(pods: &Api<Pod>, name: &str, what: &str, right: impl Fn(&Pod) -> bool) -> Pod {
    let check = async || {
        let pod = pods.get(name).await?;
        ensure!(right(&pod), "{:?} {:?} {:?}", pod.metadata.finalizers, pod.spec, pod.status);
        Ok(pod)
    };
    wait::eventually(WAIT, format!("pod {name} {what}"), check).await.unwrap()
}

async fn running(pods: &Api<Pod>, name: &str) -> Pod {
    until(pods, name, "running", |pod| phase(pod) == "Running").await
}

async fn gone(pods: &Api<Pod>, name: &str) {
    let check = async || {
        ensure!(pods.get_opt(name).await?.is_none(), "it is still there");
        Ok(())
    };
    wait::eventually(WAIT, format!("pod {name} gone"), check).await.unwrap();
}

async fn delete(pods: &Api<Pod>, name: &str) {
    pods.delete(name, &DeleteParams::default()).await.unwrap();
}

#[test]
fn pod_waits_gated_runs_when_admitted_and_is_released() {
    fixture::run(async {
        let (bed, pods) = pods_bed("pods").await;
        bed.simple(&[("cpu", "1")]).await;
        let first = create(&pods, pod("first", &json!({"annotations": {RUN_FOR: "500ms"}}))).await;
        assert!(
            is_gated(&first)
                && first.labels()[MANAGED] == "true"
                && first.finalizers() == [MANAGED]
        );
        // Pods of one second are in the order of their uids.
        bed.workload_of("first").await;
        bed.next_second().await;
        create(&pods, pod("second", &json!({}))).await;
        let ended = until(&pods, "first", "let go", |pod| {
            phase(pod) == "Succeeded" && pod.finalizers().is_empty()
        })
        .await;
        assert_eq!(ended.labels()["kueue.x-k8s.io/podset"], "main");
        bed.expect("first", "Finished", "True", "Succeeded", "").await;
        running(&pods, "second").await;
        create(&pods, pod("third", &json!({}))).await;
        bed.expect("third", "QuotaReserved", "False", "WaitingForQuota", "").await;
        assert!(is_gated(&pods.get("third").await.unwrap()));

        // Its place is free as soon as it is deleted.
        delete(&pods, "second").await;
        running(&pods, "third").await;
        gone(&pods, "second").await;
        delete(&pods, "third").await;
        delete(&pods, "first").await;
        bed.no_workloads().await;
    });
}

#[test]
fn an_evicted_pod_is_ended_with_the_reason() {
    fixture::run(async {
        let (bed, pods) = pods_bed("evicted").await;
        bed.simple(&[("cpu", "1")]).await;
        // Its finalizer keeps it for the check.
        create(&pods, pod("a", &json!({"finalizers": ["example.com/look"]}))).await;
        running(&pods, "a").await;
        bed.stop_cluster_queue("HoldAndDrain").await;
        let ended =
            until(&pods, "a", "being deleted", |pod| pod.metadata.deletion_timestamp.is_some())
                .await;
        let conditions = ended.status.unwrap().conditions.unwrap();
        let target = conditions.iter().find(|it| it.type_ == "TerminationTarget").unwrap();
        assert_eq!(
            (target.status.as_str(), target.reason.as_deref()),
            ("True", Some("WorkloadEvictedDueToClusterQueueStopped"))
        );
        until(&pods, "a", "let go", |pod| pod.finalizers() == ["example.com/look"]).await;
        let release = kube::api::Patch::Merge(json!({"metadata": {"finalizers": null}}));
        pods.patch("a", &Default::default(), &release).await.unwrap();
        bed.no_workloads().await;
    });
}

#[test]
fn a_group_is_admitted_whole_and_ends_when_all_its_pods_have() {
    fixture::run(async {
        let (bed, pods) = pods_bed("group").await;
        bed.simple(&[("cpu", "3")]).await;
        let short = json!({RUN_FOR: "500ms"});
        create(&pods, member("a", "3", &short)).await;
        create(&pods, member("b", "3", &json!({}))).await;
        let alone = pod("x", &json!({"labels": {"kueue.x-k8s.io/pod-group-name": "group"}}));
        let refused = pods.create(&PostParams::default(), &alone).await.unwrap_err().to_string();
        assert!(
            refused.contains("both the 'kueue.x-k8s.io/pod-group-total-count' annotation"),
            "{refused}"
        );
        assert!(bed.workloads().await.is_empty() && is_gated(&pods.get("a").await.unwrap()));

        // A failed one is replaced by another.
        create(&pods, member("c", "3", &json!({RUN_FOR: "500ms", EXIT_CODE: "1"}))).await;
        running(&pods, "b").await;
        let workload = bed.workload_of("a").await;
        assert_eq!((workload.name_any().as_str(), workload.spec.pod_sets[0].count), ("group", 3));
        until(&pods, "c", "failed and held", |pod| {
            phase(pod) == "Failed" && !pod.finalizers().is_empty()
        })
        .await;
        bed.expect(
            "a",
            "WaitingForReplacementPods",
            "True",
            "PodsFailed",
            "Some Failed pods need replacement",
        )
        .await;
        create(&pods, member("d", "3", &short)).await;
        until(&pods, "c", "let go", |pod| pod.finalizers().is_empty()).await;
        until(&pods, "d", "done", |pod| phase(pod) == "Succeeded").await;
        bed.expect(
            "a",
            "WaitingForReplacementPods",
            "False",
            "PodsReady",
            "No pods need replacement",
        )
        .await;
        let check = async || {
            let reclaimed = bed.workload_of("a").await.status.unwrap_or_default().reclaimable_pods;
            ensure!(reclaimed.iter().map(|it| it.count).sum::<i32>() == 2, "{reclaimed:?}");
            Ok(())
        };
        wait::eventually(WAIT, "the quota of two pods is free", check).await.unwrap();

        // The last one is stopped with its queue; one that comes in its place runs when there is quota again.
        bed.stop_cluster_queue("HoldAndDrain").await;
        until(&pods, "b", "ended", |pod| phase(pod) == "Failed").await;
        create(&pods, member("e", "3", &short)).await;
        gone(&pods, "b").await;
        assert!(is_gated(&pods.get("e").await.unwrap()));
        bed.stop_cluster_queue("None").await;
        bed.expect("a", "Finished", "True", "Succeeded", "Pods succeeded: 3/3.").await;
        for name in ["a", "c", "d", "e"] {
            delete(&pods, name).await;
            gone(&pods, name).await;
        }
        bed.no_workloads().await;
    });
}

#[test]
fn waiting_pod_that_joins_group_leaves_no_own_workload() {
    fixture::run(async {
        let (bed, pods) = pods_bed("joined").await;
        bed.simple(&[("cpu", "2")]).await;
        bed.stop_cluster_queue("Hold").await;
        create(&pods, pod("a", &json!({}))).await;
        assert!(bed.workload_of("a").await.name_any().starts_with("pod-a-"));
        let joins =
            kube::api::Patch::Merge(json!({ "metadata": member("a", "2", &json!({})).metadata }));
        pods.patch("a", &Default::default(), &joins).await.unwrap();
        create(&pods, member("b", "2", &json!({}))).await;
        let check = async || {
            let names: Vec<String> =
                bed.workloads().await.iter().map(ResourceExt::name_any).collect();
            ensure!(names == ["group"], "{names:?}");
            Ok(())
        };
        wait::eventually(WAIT, "one workload, of the group", check).await.unwrap();
        // Both fit: the quota is charged once.
        bed.stop_cluster_queue("None").await;
        for name in ["a", "b"] {
            running(&pods, name).await;
        }
        bed.delete_workload("group").await;
        for name in ["a", "b"] {
            gone(&pods, name).await;
        }
        bed.no_workloads().await;
    });
}

#[test]
fn deleting_the_workload_of_a_group_ends_its_pods() {
    fixture::run(async {
        let (bed, pods) = pods_bed("collected").await;
        bed.simple(&[("cpu", "1")]).await;
        for name in ["a", "b"] {
            create(&pods, member(name, "2", &json!({}))).await;
        }
        bed.workload_of("a").await;
        bed.delete_workload("group").await;
        gone(&pods, "a").await;
        gone(&pods, "b").await;
        bed.no_workloads().await;
    });
}

#[test]
fn pods_of_jobs_and_pods_of_the_system_are_not_touched() {
    fixture::run(async {
        let (bed, pods) = pods_bed("others").await;
        bed.simple(&[("cpu", "1")]).await;
        // The queue's label on the pods of a queued Job means nothing.
        let job = bed
            .plain_job("job")
            .cpu("1")
            .run_forever()
            .pod_label("kueue.x-k8s.io/queue-name", "queue");
        job.create(bed.admin()).await.unwrap();
        bed.running("job").await;
        let all = pods.list(&Default::default()).await.unwrap().items;
        assert!(!all.is_empty());
        for pod in all {
            assert!(
                !is_gated(&pod) && pod.finalizers().iter().all(|it| it != MANAGED),
                "{:?}",
                pod.metadata
            );
            assert!(!pod.labels().contains_key(MANAGED));
        }
        let system: Api<Pod> = Api::namespaced(bed.admin().clone(), "kube-system");
        let dry = PostParams { dry_run: true, ..PostParams::default() };
        let made = system.create(&dry, &pod("a", &json!({}))).await;
        // There may be no service account in the namespace yet, which is another reason.
        assert!(made.is_err() || made.is_ok_and(|pod| !is_gated(&pod)));
    });
}
