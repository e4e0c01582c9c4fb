//! The job reconciler on a real API server, whose rules for suspended Jobs decide what can be written
//! when: partial admission, restoration, workloads made beforehand.
use std::time::Duration;

use crate::bed::{Bed, WAIT};
use anyhow::ensure;
use k8s_openapi::api::batch::v1::{Job, JobSpec};
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api,
    api::{DeleteParams, PostParams},
};
use serde_json::json;
use switchyard_api::{conditions, v1beta2::Workload};
use switchyard_e2e::{fixture, job, queues, wait};
use switchyard_jobs::{Remote as _, RemoteMeta, batch_job::BatchJob};

fn jobs(bed: &Bed) -> Api<Job> {
    Api::namespaced(bed.admin().clone(), &bed.namespace)
}

fn workloads(bed: &Bed) -> Api<Workload> {
    Api::namespaced(bed.admin().clone(), &bed.namespace)
}

async fn spec(bed: &Bed, name: &str) -> JobSpec {
    jobs(bed).get(name).await.unwrap().spec.unwrap()
}

#[test]
fn partially_admitted_job_starts_smaller_and_is_restored() {
    fixture::run(async {
        let bed = Bed::new("partial").await;
        let flavor = queues::ResourceFlavor::new(&bed.name).node_label("pool", "gpu");
        let objects = queues::in_flavor(&bed.namespace, &bed.name, flavor, &[("cpu", "3")]);
        bed.cluster().apply(objects).await.unwrap();
        let before = bed
            .job("a")
            .cpu("1")
            .parallelism(5)
            .completions(10)
            .annotation("kueue.x-k8s.io/job-min-parallelism", "2")
            .run_forever()
            .create(bed.admin())
            .await
            .unwrap();
        bed.running("a").await;
        let running = spec(&bed, "a").await;
        assert_eq!((running.parallelism, running.completions), (Some(3), Some(10)));
        let pod = running.template.spec.clone().unwrap();
        assert_eq!(
            pod.node_selector.unwrap_or_default().get("pool").map(String::as_str),
            Some("gpu")
        );
        let labels = running.template.metadata.unwrap().labels.unwrap();
        assert_eq!(labels.get("kueue.x-k8s.io/podset").map(String::as_str), Some("main"));

        bed.stop_cluster_queue("HoldAndDrain").await;
        let restored = async || {
            let now = spec(&bed, "a").await;
            let was = before.spec.clone().unwrap();
            ensure!(now == was, "{now:?} is not {was:?}");
            Ok(())
        };
        wait::eventually(WAIT, "the job as its user wrote it", restored).await.unwrap();
        bed.stop_cluster_queue("None").await;
        bed.running("a").await;
        assert_eq!(spec(&bed, "a").await.parallelism, Some(3), "and started smaller again");
    });
}

/// How a job goes.
enum Goes {
    Deactivated,
    Deleted,
    DeletedInTheBackground,
}

async fn is_charged_until_its_pods_have_ended(stem: &str, goes: Goes) {
    let bed = Bed::new(stem).await;
    bed.simple(&[("cpu", "2")]).await;
    let slow = bed
        .job("slow")
        .cpu("2")
        .run_forever()
        .pod_annotation("e2e.switchyard.dev/stop-after", "6s");
    slow.create(bed.admin()).await.unwrap();
    bed.running("slow").await;
    bed.job("next").cpu("2").run_forever().create(bed.admin()).await.unwrap();
    match goes {
        Goes::Deactivated => bed.set_active("slow", false).await,
        Goes::Deleted => {
            drop(jobs(&bed).delete("slow", &DeleteParams::foreground()).await.unwrap())
        }
        Goes::DeletedInTheBackground => {
            drop(jobs(&bed).delete("slow", &DeleteParams::background()).await.unwrap());
        }
    }
    let pods: Api<Pod> = Api::namespaced(bed.admin().clone(), &bed.namespace);
    let ran_together = async || {
        let pods = pods.list(&Default::default()).await?.items;
        let runs = |pod: &&Pod| {
            pod.status.as_ref().is_some_and(|it| it.phase.as_deref() == Some("Running"))
        };
        let running: Vec<String> =
            pods.iter().filter(runs).map(kube::ResourceExt::name_any).collect();
        if running.len() > 1 {
            return Err(wait::never(format!("{running:?} run together")));
        }
        ensure!(running.iter().any(|name| name.starts_with("next")), "{running:?} run");
        Ok(())
    };
    wait::eventually(WAIT, "the next job to run", ran_together).await.unwrap();
}

#[test]
fn a_deactivated_job_is_charged_until_its_pods_have_ended() {
    fixture::run(is_charged_until_its_pods_have_ended("deactivated", Goes::Deactivated));
}

#[test]
fn a_deleted_job_is_charged_until_its_pods_have_ended() {
    fixture::run(is_charged_until_its_pods_have_ended("deleted", Goes::Deleted));
}

#[test]
fn job_deleted_in_background_is_charged_until_pods_end() {
    fixture::run(is_charged_until_its_pods_have_ended("background", Goes::DeletedInTheBackground));
}

/// The workload of a job as a hub sends it, and the copy of the job that names it.
async fn sent(bed: &Bed, name: &str) -> (Workload, Job) {
    let original = bed
        .job(name)
        .cpu("1")
        .run_for(Duration::from_millis(200))
        .create(bed.admin())
        .await
        .unwrap();
    let mut workload = bed.workload_of(name).await;
    jobs(bed).delete(name, &DeleteParams::foreground()).await.unwrap();
    let gone = async || {
        ensure!(jobs(bed).get_opt(name).await?.is_none(), "there");
        Ok(())
    };
    wait::eventually(WAIT, "the original to be gone", gone).await.unwrap();
    bed.no_workloads().await;
    let original = serde_json::to_value(original).unwrap();
    let copy = BatchJob.remote_copy(&original, RemoteMeta { workload: "sent", origin: "hub" });
    workload.metadata = kube::api::ObjectMeta {
        name: Some("sent".into()),
        namespace: Some(bed.namespace.clone()),
        labels: Some([("kueue.x-k8s.io/multikueue-origin".to_owned(), "hub".to_owned())].into()),
        ..Default::default()
    };
    workload.status = None;
    (workload, serde_json::from_value(copy).unwrap())
}

#[test]
fn a_job_that_names_its_workload_waits_for_it_and_runs_with_it() {
    fixture::run(async {
        let bed = Bed::new("prebuilt").await;
        bed.simple(&[("cpu", "3")]).await;
        let (workload, copy) = sent(&bed, "a").await;
        let created = jobs(&bed).create(&PostParams::default(), &copy).await.unwrap();
        wait::always(Duration::from_secs(1), "no workload is made for it", async || {
            ensure!(bed.workloads().await.is_empty());
            Ok(())
        })
        .await
        .unwrap();
        workloads(&bed).create(&PostParams::default(), &workload).await.unwrap();
        job::complete(bed.admin(), &bed.namespace, "a", WAIT).await.unwrap();
        bed.expect_true("a", "Finished").await;
        let adopted = workloads(&bed).get("sent").await.unwrap();
        let owners = adopted.metadata.owner_references.unwrap();
        assert_eq!(owners[0].uid, created.metadata.uid.unwrap());
        let labels = spec(&bed, "a").await.template.metadata.unwrap().labels.unwrap();
        assert_eq!(
            labels.get("kueue.x-k8s.io/multikueue-worker-workload-pod").map(String::as_str),
            Some("true")
        );
    });
}

#[test]
fn workload_out_of_sync_with_its_job_is_finished() {
    fixture::run(async {
        let bed = Bed::new("outofsync").await;
        bed.simple(&[("cpu", "3")]).await;
        let (mut workload, copy) = sent(&bed, "a").await;
        workload.spec.pod_sets[0].count = 2;
        workloads(&bed).create(&PostParams::default(), &workload).await.unwrap();
        jobs(&bed).create(&PostParams::default(), &copy).await.unwrap();
        let message = "The prebuilt workload is out of sync with its user job";
        bed.expect("a", "Finished", "True", "OutOfSync", message).await;
        bed.suspended("a", true).await;
    });
}

#[test]
fn a_failed_job_says_so_on_its_workload() {
    fixture::run(async {
        let bed = Bed::new("fails").await;
        bed.simple(&[("cpu", "3")]).await;
        bed.job("a")
            .cpu("1")
            .fails()
            .backoff_limit(0)
            .run_for(Duration::from_millis(100))
            .create(bed.admin())
            .await
            .unwrap();
        job::failed(bed.admin(), &bed.namespace, "a", WAIT).await.unwrap();
        bed.expect(
            "a",
            "Finished",
            "True",
            "Failed",
            "Job has reached the specified backoff limit",
        )
        .await;
    });
}

#[test]
fn slots_that_no_pod_needs_any_more_go_to_others() {
    fixture::run(async {
        let bed = Bed::new("reclaim").await;
        bed.simple(&[("cpu", "3")]).await;
        // The pods of the first round end soon, the last one never.
        bed.job("a")
            .cpu("1")
            .parallelism(3)
            .completions(3)
            .field("completionMode", json!("Indexed"))
            .run_for(Duration::from_secs(3))
            .create(bed.admin())
            .await
            .unwrap();
        bed.expect_true("a", "QuotaReserved").await;
        bed.job("b")
            .cpu("2")
            .run_for(Duration::from_millis(100))
            .create(bed.admin())
            .await
            .unwrap();
        job::complete(bed.admin(), &bed.namespace, "b", WAIT).await.unwrap();
        let status = bed.workload_of("a").await.status.unwrap();
        let finished = conditions::is_true(&status.conditions, conditions::FINISHED);
        assert!(finished || !status.reclaimable_pods.is_empty(), "{status:?}");
    });
}
