//! Valid marks on objects that no agent created.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use k8s_openapi::api::batch::v1::Job;
use kube::api::{DeleteParams, ListParams};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};
use switchyard_api::v1beta2::Workload;
use switchyard_e2e::fixture;
use switchyard_e2e::fleet::{Fleet, HUB, Tenant};
use switchyard_e2e::wait::{always, eventually};
use switchyard_e2e::{http, job};

use super::{SOON, beside_an_honest_tenant, ends, fleet, hub_id, orphans, ran_once, tenant};

const FORGED: usize = 50;
/// Longer than an observation takes from a watch to the cluster's status.
const SETTLED: Duration = Duration::from_secs(8);

fn pod_spec() -> Value {
    json!({"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]})
}

/// A uid like those of API servers.
pub(super) fn random_uid() -> String {
    let bytes: u128 = rand::random();
    let hex = format!("{bytes:032x}");
    format!("{}-{}-4{}-8{}-{}", &hex[..8], &hex[8..12], &hex[13..16], &hex[17..20], &hex[20..])
}

/// A Workload and a Job with marks that a tenant of a worker creates there.
pub(super) fn pair(
    namespace: &str,
    (workload, job): (&str, &str),
    hub: &str,
    uid: &str,
    attempt: u64,
) -> [Value; 2] {
    let marks = |name: &str| {
        json!({
            "name": name, "namespace": namespace, "labels": {"switchyard.dev/hub-id": hub},
            "annotations": {
                "switchyard.dev/workload-uid": uid, "switchyard.dev/attempt": attempt.to_string(),
                "switchyard.dev/proof": "eW91IG1heSBiZWxpZXZlIG1lLCBJIGFtIGEgY29weS4=",
                "kueue.x-k8s.io/job-owner-gvk": "batch/v1, Kind=Job", "kueue.x-k8s.io/job-owner-name": job,
            },
        })
    };
    let pod_set = json!({"name": "main", "count": 1, "template": {"spec": pod_spec()}});
    [
        json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload", "metadata": marks(workload),
            "spec": {"queueName": "none", "podSets": [pod_set]}}),
        json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": marks(job),
            "spec": {"suspend": true, "template": {"spec": pod_spec()}}}),
    ]
}

/// The number of changed objects without a valid proof that this worker's agent has seen, or the
/// hub for it.
pub(super) async fn ignored(fleet: &Fleet, worker: &str) -> u64 {
    let look = async || ignored_now(fleet, worker).await;
    eventually(SOON, format!("the metrics for {worker}"), look).await.unwrap()
}

async fn ignored_now(fleet: &Fleet, worker: &str) -> anyhow::Result<u64> {
    let ports = fleet.metrics_ports();
    let port = ports.get(worker).unwrap_or(&ports[HUB]);
    let line = format!("switchyard_foreign_marks_total{{cluster=\"{worker}\"}}");
    let page = http::get(*port, "/metrics").await?;
    let seen = page.lines().find_map(|it| it.strip_prefix(&line)?.trim().parse().ok());
    Ok(seen.unwrap_or_default())
}

/// Waits until this many more were seen, and checks that none in the namespace is reported as the
/// hub's.
pub(super) async fn are_ignored(
    fleet: &Fleet,
    worker: &str,
    namespaces: &[&str],
    since: u64,
    count: usize,
) {
    let expected = since + u64::try_from(count).unwrap();
    let seen = eventually(SOON, "the forged objects to be seen", async || {
        let seen = ignored_now(fleet, worker).await?;
        ensure!(seen >= expected, "{seen} of {expected}");
        Ok(())
    });
    if let Err(error) = seen.await {
        eprintln!("{error:#}");
    }
    always(SETTLED, "no forged object is reported as the hub's", async || {
        for namespace in namespaces {
            let orphans = orphans(fleet, namespace).await;
            ensure!(orphans.is_empty(), "{} of {namespace}: {orphans:?}", orphans.len());
        }
        Ok(())
    })
    .await
    .unwrap();
    let seen = ignored(fleet, worker).await;
    assert!(seen >= expected, "{seen} of {expected} were ignored");
}

/// A hub's job that runs on the worker until it is deleted, and its Workload on the hub.
async fn runs(fleet: &Fleet, tenant: &Tenant<'_>, worker: &str, job: &str) -> Workload {
    tenant.submit(tenant.job(job).cpu("100m").run_forever()).await.unwrap();
    fleet.await_pods(worker, tenant.name(), 1).await.unwrap();
    eventually(SOON, format!("{job} to be shown as running"), async || {
        let shown = tenant.hub_jobs().get(job).await?.status.context("no status")?;
        ensure!(shown.active == Some(1), "{shown:?}");
        Ok(())
    })
    .await
    .unwrap();
    tenant.workload_of(job).await.unwrap()
}

/// Checks that the job still runs in the same place.
async fn goes_on(fleet: &Fleet, tenant: &Tenant<'_>, worker: &str, job: &str, copy: &str) {
    always(Duration::from_secs(3), format!("{job} to go on"), async || {
        let shown = tenant.hub_jobs().get(job).await?.status.context("no status")?;
        ensure!(shown.active == Some(1) && shown.succeeded.is_none(), "{shown:?}");
        ensure!(fleet.pods(worker, tenant.name()).await? == 1, "not one pod");
        ensure!(
            tenant.worker_jobs(worker).get(job).await?.uid().as_deref() == Some(copy),
            "another copy"
        );
        Ok(())
    })
    .await
    .unwrap();
    ran_once(tenant, job).await;
}

/// Creates [`FORGED`] pairs with random uids, and pairs with the marks of a victim's job, for its
/// attempt and later ones.
async fn forge(fleet: &Fleet, worker: &str) {
    let (victim, forger) =
        (tenant(fleet, "victim", &[worker]).await, tenant(fleet, "forger", &[worker]).await);
    let (hub, before) = (hub_id(fleet).await, ignored(fleet, worker).await);
    let workload = runs(fleet, &victim, worker, "lasts").await;
    let copy = victim.worker_jobs(worker).get("lasts").await.unwrap().uid().unwrap();
    let mut forged = Vec::new();
    for index in 0..FORGED {
        let names = (format!("forged-{index}"), format!("job-{index}"));
        forged.extend(pair(forger.name(), (&names.0, &names.1), &hub, &random_uid(), 1));
    }
    for attempt in 1..=3 {
        let names = (format!("lasts-{attempt}"), format!("lasts-job-{attempt}"));
        forged.extend(pair(
            forger.name(),
            (&names.0, &names.1),
            &hub,
            &workload.uid().unwrap(),
            attempt,
        ));
    }
    let count = forged.len();
    fleet.worker(worker).apply(forged).await.unwrap();
    are_ignored(fleet, worker, &[forger.name()], before, count).await;
    goes_on(fleet, &victim, worker, "lasts", &copy).await;
    let jobs = forger.worker_jobs(worker).list(&ListParams::default()).await.unwrap().items.len();
    assert_eq!(jobs, FORGED + 3, "they are the forger's own: nobody deletes them");
}

/// Creates pairs with the names of the forger's later jobs.
async fn take_names(fleet: &Fleet, worker: &str) {
    const LATER: usize = 5;
    let forger = tenant(fleet, "forger", &[worker]).await;
    let (hub, before) = (hub_id(fleet).await, ignored(fleet, worker).await);
    let mut forged = Vec::new();
    for index in 0..LATER {
        let names = (format!("job-later-{index}"), format!("later-{index}"));
        forged.extend(pair(forger.name(), (&names.0, &names.1), &hub, &random_uid(), 1));
    }
    fleet.worker(worker).apply(forged).await.unwrap();
    are_ignored(fleet, worker, &[forger.name()], before, 2 * LATER).await;
    for index in 0..LATER {
        let job =
            forger.job(&format!("later-{index}")).cpu("100m").run_for(Duration::from_millis(200));
        forger.submit(job).await.unwrap();
    }
    always(SETTLED, "no job takes the place of a forged one", async || {
        let jobs = forger.hub_jobs().list(&ListParams::default()).await?;
        let begun = jobs
            .iter()
            .find(|job| job.status.as_ref().is_some_and(|it| it.active.or(it.succeeded).is_some()));
        ensure!(begun.is_none(), "{begun:?}");
        Ok(())
    })
    .await
    .unwrap();
    let params = DeleteParams::background();
    for index in 0..LATER {
        forger.worker_jobs(worker).delete(&format!("later-{index}"), &params).await.unwrap();
    }
    for index in 0..LATER {
        let job = format!("later-{index}");
        ends(&forger, &job).await;
        // A taken name is a refusal, and no pod ran.
        let status = forger.workload_of(&job).await.unwrap().status.unwrap_or_default();
        let history = status.dispatch.unwrap_or_default().history;
        assert!(history.iter().all(|past| past.reason == "RefusedByWorker"), "{job}: {history:?}");
    }
}

/// An object, ready to be applied again.
fn again(mut object: Value, api: (&str, &str), namespace: &str, name: &str) -> Value {
    let metadata = object["metadata"].clone();
    object["metadata"] = json!({
        "name": name, "namespace": namespace, "labels": metadata["labels"], "annotations": metadata["annotations"],
    });
    (object["apiVersion"], object["kind"]) = (json!(api.0), json!(api.1));
    object.as_object_mut().unwrap().remove("status");
    if api.1 == "Job" {
        object["spec"] = json!({"suspend": true, "template": {"spec": pod_spec()}});
    } else {
        object["spec"]["queueName"] = json!("none");
    }
    object
}

/// The copies of a job on a worker, to be applied again.
struct Stolen {
    workload: Workload,
    job: Job,
}

impl Stolen {
    async fn of(owner: &Tenant<'_>, worker: &str, job: &str) -> anyhow::Result<Self> {
        let workloads = owner.worker_workloads(worker).list(&ListParams::default()).await?;
        let is_of_job = |it: &Workload| {
            it.annotations().get("kueue.x-k8s.io/job-owner-name").is_some_and(|name| name == job)
        };
        let workload = workloads
            .into_iter()
            .find(is_of_job)
            .with_context(|| format!("no Workload of {job} on {worker}"))?;
        Ok(Self { workload, job: owner.worker_jobs(worker).get(job).await? })
    }

    /// The copies in this namespace, under their own names or another one.
    fn replayed(&self, namespace: &str, name: Option<&str>) -> [Value; 2] {
        let named = |own: String| name.map_or(own, str::to_owned);
        [
            again(
                serde_json::to_value(&self.workload).unwrap(),
                ("kueue.x-k8s.io/v1beta2", "Workload"),
                namespace,
                &named(self.workload.name_any()),
            ),
            again(
                serde_json::to_value(&self.job).unwrap(),
                ("batch/v1", "Job"),
                namespace,
                &named(self.job.name_any()),
            ),
        ]
    }
}

/// Replays a running job's copies elsewhere and, after it has ended and they are deleted, in their
/// own place.
async fn replay(fleet: &Fleet, worker: &str) {
    let (owner, other) =
        (tenant(fleet, "owner", &[worker]).await, tenant(fleet, "replayer", &[worker]).await);
    let before = ignored(fleet, worker).await;
    runs(fleet, &owner, worker, "real").await;
    let stolen = Stolen::of(&owner, worker, "real").await.unwrap();
    let copy = stolen.job.uid().unwrap();
    let replayed = [
        stolen.replayed(owner.name(), Some("twin")),
        stolen.replayed(other.name(), None),
        stolen.replayed(other.name(), Some("twin")),
    ];
    fleet.worker(worker).apply(replayed.into_iter().flatten()).await.unwrap();
    are_ignored(fleet, worker, &[owner.name(), other.name()], before, 6).await;
    goes_on(fleet, &owner, worker, "real", &copy).await;
    let jobs: Api<Job> = other.worker_jobs(worker);
    assert_eq!(
        jobs.list(&ListParams::default()).await.unwrap().items.len(),
        2,
        "nobody deletes them"
    );

    owner.submit(owner.job("brief").cpu("100m").run_forever()).await.unwrap();
    let look = async || Stolen::of(&owner, worker, "brief").await;
    let stolen = eventually(SOON, "the copies of brief", look).await.unwrap();
    let admin = &fleet.worker(worker).admin;
    job::running_pods_succeed(admin, owner.name(), "brief", SOON).await.unwrap();
    ends(&owner, "brief").await;
    let copy_of_workload = stolen.workload.name_any();
    eventually(SOON, "the copies to be gone", async || {
        ensure!(owner.worker_jobs(worker).get_opt("brief").await?.is_none(), "the Job is there");
        let workload = owner.worker_workloads(worker).get_opt(&copy_of_workload).await?;
        ensure!(workload.is_none(), "the Workload is there");
        Ok(())
    })
    .await
    .unwrap();
    fleet.worker(worker).apply(stolen.replayed(owner.name(), None)).await.unwrap();
    // The replay is a copy of a past attempt and changes nothing of the job.
    always(SETTLED, "the job has succeeded", async || {
        let status = owner.hub_jobs().get("brief").await?.status.unwrap_or_default();
        ensure!(status.succeeded == Some(1), "{status:?}");
        Ok(())
    })
    .await
    .unwrap();
    ran_once(&owner, "brief").await;
    goes_on(fleet, &owner, worker, "real", &copy).await;
}

#[test]
fn forged_copies_in_other_namespace_are_ignored() {
    fixture::run(async {
        let fleet = fleet().await;
        beside_an_honest_tenant(fleet, forge(fleet, "west")).await;
    });
}

#[test]
fn forged_copies_on_kubeconfig_worker_are_ignored() {
    fixture::run(async {
        let fleet = fleet().await;
        beside_an_honest_tenant(fleet, forge(fleet, "plain")).await;
    });
}

#[test]
fn forged_copies_named_as_later_jobs_hold_no_slot() {
    fixture::run(async {
        let fleet = fleet().await;
        for worker in ["west", "plain"] {
            beside_an_honest_tenant(fleet, take_names(fleet, worker)).await;
        }
    });
}

#[test]
fn replayed_copies_are_ignored() {
    fixture::run(async {
        let fleet = fleet().await;
        for worker in ["west", "plain"] {
            beside_an_honest_tenant(fleet, replay(fleet, worker)).await;
        }
    });
}
