//! Jobs that change their size while they run, on a real API server with webhooks; kwok runs their pods.

use std::{
    collections::BTreeSet,
    net::{Ipv4Addr, TcpListener},
    time::Duration,
};

use anyhow::ensure;
use k8s_openapi::api::{batch::v1::Job, core::v1::Pod};
use kube::{Api, ResourceExt, api::PostParams};
use serde_json::json;
use switchyard_api::{
    conditions,
    v1beta2::{ClusterQueue, Workload},
};
use switchyard_controller::webhook::{Advertise, WebhookOptions};
use switchyard_e2e::{job, wait};

use crate::bed::{self, Bed, WAIT};
use switchyard_e2e::fixture;

pub(crate) const ELASTIC: &str = "kueue.x-k8s.io/elastic-job";
pub(crate) const REPLACES: &str = "kueue.x-k8s.io/workload-slice-replacement-for";

/// A namespace with a queue of that many cores, once the API server calls the webhooks of jobs.
async fn elastic_bed(stem: &str, cores: &str) -> Bed {
    let bed = Bed::with_options(stem, "", |_, options| {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let url = format!("https://127.0.0.1:{}", listener.local_addr().unwrap().port());
        options.webhook = Some(WebhookOptions::new(listener, Advertise::Url(url)));
    })
    .await;
    bed.simple(&[("cpu", cores)]).await;
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    let jobs: Api<Job> = Api::namespaced(bed.admin().clone(), &bed.namespace);
    let called = async || {
        let probe = serde_json::from_value(bed.plain_job("probe").build())?;
        let made = jobs.create(&dry, &probe).await?;
        ensure!(made.spec.and_then(|spec| spec.suspend) == Some(true), "it is let through");
        Ok(())
    };
    wait::eventually(WAIT, "the webhook of jobs", called).await.unwrap();
    bed
}

/// Starts job `train` with two pods of one core that run until they are deleted.
async fn train(bed: &Bed) -> BTreeSet<String> {
    let job = bed
        .plain_job("train")
        .annotation(ELASTIC, "true")
        .parallelism(2)
        .completions(10)
        .cpu("1")
        .run_forever();
    job.create(bed.admin()).await.unwrap();
    running(bed, 2, 0).await
}

async fn resize(bed: &Bed, pods: i32) {
    bed.patch_job("train", json!({"spec": {"parallelism": pods}})).await;
}

pub(crate) fn is_gated(pod: &Pod) -> bool {
    let gates = pod.spec.as_ref().and_then(|spec| spec.scheduling_gates.as_ref());
    gates.into_iter().flatten().any(|gate| gate.name == ELASTIC)
}

/// The uids of the job's pods that run, and how many wait behind the gate.
async fn pods(bed: &Bed) -> anyhow::Result<(BTreeSet<String>, usize)> {
    let api: Api<Pod> = Api::namespaced(bed.admin().clone(), &bed.namespace);
    let pods = api.list(&job::pods_of("train")).await?.items;
    let pods: Vec<_> =
        pods.into_iter().filter(|pod| pod.metadata.deletion_timestamp.is_none()).collect();
    let runs = |pod: &&Pod| {
        pod.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Running")
    };
    ensure!(!pods.iter().any(|pod| runs(&pod) && is_gated(pod)), "a pod runs behind its gate");
    Ok((
        pods.iter().filter(runs).filter_map(ResourceExt::uid).collect(),
        pods.iter().filter(|it| is_gated(it)).count(),
    ))
}

/// Waits until so many pods run and so many wait; the uids of those that run.
async fn running(bed: &Bed, running: usize, waiting: usize) -> BTreeSet<String> {
    let check = async || {
        let (run, gated) = pods(bed).await?;
        ensure!((run.len(), gated) == (running, waiting), "{} run, {gated} wait", run.len());
        Ok(run)
    };
    wait::eventually(WAIT, format!("{running} pods that run and {waiting} that wait"), check)
        .await
        .unwrap()
}

/// The workloads of the job, the first one first.
pub(crate) async fn slices(bed: &Bed) -> Vec<Workload> {
    let owned = |it: &Workload| {
        it.metadata.owner_references.iter().flatten().any(|owner| owner.name == "train")
    };
    let mut slices: Vec<_> = bed.workloads().await.into_iter().filter(owned).collect();
    slices.sort_by_key(|slice| slice.metadata.creation_timestamp.clone().map(|time| time.0));
    slices
}

pub(crate) fn said(workload: &Workload, condition: &str) -> (String, String, String) {
    let known =
        workload.status.as_ref().map(|status| status.conditions.clone()).unwrap_or_default();
    conditions::find(&known, condition)
        .map(|it| (it.status.clone(), it.reason.clone(), it.message.clone()))
        .unwrap_or_default()
}

/// Waits until one workload replaces another, and gives the last such pair.
async fn replacement(bed: &Bed) -> (Workload, Workload) {
    let check = async || {
        let slices = slices(bed).await;
        let new = slices.iter().rfind(|slice| slice.annotations().contains_key(REPLACES));
        let new = new.ok_or_else(|| anyhow::anyhow!("{} workloads", slices.len()))?;
        let named = |old: &&Workload| {
            format!("{}/{}", bed.namespace, old.name_any()) == new.annotations()[REPLACES]
        };
        let old = slices
            .iter()
            .find(named)
            .ok_or_else(|| anyhow::anyhow!("it replaces nothing that is there"))?;
        Ok((old.clone(), new.clone()))
    };
    wait::eventually(WAIT, "a workload that replaces another", check).await.unwrap()
}

/// Waits until the queue shows so many cores as reserved.
pub(crate) async fn reserved(bed: &Bed, cores: &str) {
    let api: Api<ClusterQueue> = Api::all(bed.admin().clone());
    let check = async || {
        let queue = serde_json::to_value(api.get(&bed.name).await?.status)?;
        let total =
            queue.pointer("/flavorsReservation/0/resources/0/total").cloned().unwrap_or_default();
        ensure!(total == json!(cores), "{total}");
        Ok(())
    };
    wait::eventually(WAIT, format!("{cores} cores reserved"), check).await.unwrap();
}

/// Gives the job one pod more, and waits until its older workload is over. Gives its pods, its newer workload, and
/// whether the scheduler ended the older one.
async fn grow(bed: &Bed, before: &BTreeSet<String>) -> (BTreeSet<String>, Workload, bool) {
    let pods = before.len() + 1;
    bed.next_second().await;
    resize(bed, i32::try_from(pods).unwrap()).await;
    let grown = running(bed, pods, 0).await;
    assert!(grown.is_superset(before), "the pods of before run on");
    let over = async || {
        let (old, new) = replacement(bed).await;
        let (status, reason, message) = said(&old, conditions::FINISHED);
        ensure!(status == "True" && reason == "WorkloadSliceReplaced", "{status} {reason}");
        Ok((new, message))
    };
    let (new, message) = wait::eventually(WAIT, "the older one is over", over).await.unwrap();
    let (uid, job_uid) = (new.uid().unwrap(), bed.job_uid("train").await);
    let by_scheduler = format!(
        "Replaced to accommodate a workload (UID: {uid}, JobUID: {job_uid}) due to workload slice aggregation"
    );
    let by_reconciler = "Replaced to accommodate a new workload slice";
    assert!(message == by_scheduler || message == by_reconciler, "{message}");
    assert_eq!(
        (said(&new, conditions::ADMITTED).0.as_str(), usize::try_from(new.spec.pod_sets[0].count)),
        ("True", Ok(pods))
    );
    reserved(bed, &pods.to_string()).await;
    (grown, new, message == by_scheduler)
}

#[test]
fn a_job_grows_and_shrinks_while_its_pods_run_on() {
    fixture::run(async {
        let bed = elastic_bed("elastic-size", "4").await;
        let first = train(&bed).await;
        reserved(&bed, "2").await;

        let (mut grown, mut new, mut by_scheduler) = grow(&bed, &first).await;
        if !by_scheduler {
            // The job's reconciler ends a workload that the scheduler leaves for three seconds.
            (grown, new, by_scheduler) = grow(&bed, &grown).await;
        }
        assert!(by_scheduler, "the scheduler ends what it replaces");
        let counted = format!(
            "kueue_replaced_workload_slices_total{{cluster_queue=\"{}\",replica_role=\"standalone\"}} 1",
            bed.name
        );
        wait::eventually(WAIT, "the replaced workload to be counted", async || {
            let page = bed::metrics();
            ensure!(page.contains(&counted), "{page}");
            Ok(())
        })
        .await
        .unwrap();

        resize(&bed, 1).await;
        let shrunk = running(&bed, 1, 0).await;
        assert!(shrunk.is_subset(&grown), "none was started anew");
        reserved(&bed, "1").await;
        let live: Vec<_> = slices(&bed)
            .await
            .into_iter()
            .filter(|it| said(it, conditions::FINISHED).0 != "True")
            .collect();
        let [kept] = &live[..] else { panic!("one workload is left: {live:?}") };
        assert_eq!((kept.uid(), kept.spec.pod_sets[0].count), (new.uid(), 1));

        bed.delete_job("train").await;
        bed.no_workloads().await;
    });
}

#[test]
fn what_it_grows_by_waits_behind_its_gate_until_there_is_quota() {
    fixture::run(async {
        let bed = elastic_bed("elastic-waits", "4").await;
        bed.plain_job("other").cpu("1").run_forever().create(bed.admin()).await.unwrap();
        bed.running("other").await;
        let first = train(&bed).await;
        bed.next_second().await;

        resize(&bed, 4).await;
        assert_eq!(running(&bed, 2, 2).await, first);
        let refused = async || {
            let (_, new) = replacement(&bed).await;
            let (status, reason, message) = said(&new, conditions::QUOTA_RESERVED);
            ensure!(status == "False" && reason == "WaitingForQuota", "{status} {reason}");
            ensure!(message.ends_with("1 more needed"), "{message}");
            Ok(())
        };
        wait::eventually(WAIT, "what it grew to waits", refused).await.unwrap();
        wait::always(Duration::from_millis(500), "nothing else happens", async || {
            ensure!(pods(&bed).await? == (first.clone(), 2), "its pods changed");
            Ok(())
        })
        .await
        .unwrap();
        reserved(&bed, "3").await;

        bed.delete_job("other").await;
        let grown = running(&bed, 4, 0).await;
        assert!(grown.is_superset(&first), "the pods of before run on");
        reserved(&bed, "4").await;
        bed.delete_job("train").await;
        bed.no_workloads().await;
    });
}

#[test]
fn growing_job_that_loses_quota_returns_in_its_new_size() {
    fixture::run(async {
        let bed = elastic_bed("elastic-evicted", "4").await;
        train(&bed).await;
        bed.next_second().await;
        resize(&bed, 5).await;
        running(&bed, 2, 3).await;

        bed.stop_cluster_queue("HoldAndDrain").await;
        bed.suspended("train", true).await;
        running(&bed, 0, 0).await;
        resize(&bed, 3).await;
        bed.stop_cluster_queue("None").await;
        running(&bed, 3, 0).await;
        reserved(&bed, "3").await;
        bed.delete_job("train").await;
        bed.no_workloads().await;
    });
}
