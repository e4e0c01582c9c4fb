//! Jobs whose pods never get ready are queued again, counted, deactivated and at last deleted, as the configuration file
//! says; what has finished is not kept for ever.

use std::{sync::Arc, time::Duration};

use crate::bed::{Bed, WAIT};
use crate::common::events;
use anyhow::{Context as _, ensure};
use futures::StreamExt as _;
use k8s_openapi::api::batch::v1::Job;
use kube::{
    Api, ResourceExt as _,
    api::{ListParams, WatchEvent, WatchParams},
};
use serde_json::json;
use switchyard_api::{conditions, v1beta2::Workload};
use switchyard_e2e::fleet::{Fleet, Tenant};
use switchyard_e2e::{ClusterSpec, NodeSpec, fixture, job, queues, wait};
use tokio::sync::Mutex;

/// Long enough for a pod to start on a busy machine, twice.
const SECTIONS: &str =
    "waitForPodsReady: {timeout: 10s, requeuingStrategy: {backoffLimitCount: 1, backoffBaseSeconds: 2}}
objectRetentionPolicies: {workloads: {afterFinished: 1s, afterDeactivatedByKueue: 1s}}";

/// All that one workload ever was, in order.
#[derive(Clone, Default)]
struct Past(Arc<Mutex<Vec<Workload>>>);

impl Past {
    /// Observes the workload of a job, from its creation on.
    async fn of(bed: &Bed, job: &str) -> Self {
        let api: Api<Workload> = Api::namespaced(bed.admin().clone(), &bed.namespace);
        let mut version = api
            .list(&Default::default())
            .await
            .unwrap()
            .metadata
            .resource_version
            .unwrap_or_default();
        let (past, job) = (Self::default(), job.to_owned());
        let into = past.clone();
        tokio::spawn(async move {
            loop {
                let Ok(changes) = api.watch(&WatchParams::default(), &version).await else {
                    continue;
                };
                let mut changes = changes.boxed();
                while let Some(Ok(change)) = changes.next().await {
                    let (WatchEvent::Added(workload) | WatchEvent::Modified(workload)) = change
                    else {
                        continue;
                    };
                    version = workload.metadata.resource_version.clone().unwrap_or_default();
                    if workload
                        .metadata
                        .owner_references
                        .iter()
                        .flatten()
                        .any(|owner| owner.name == job)
                    {
                        into.0.lock().await.push(workload);
                    }
                }
            }
        });
        past
    }

    /// Waits until the workload was in this state, after all awaited earlier, and returns it.
    async fn has_been(
        &self,
        what: &str,
        at: &mut usize,
        so: impl Fn(&Workload) -> bool,
    ) -> Workload {
        let look = async || {
            let all = self.0.lock().await;
            let found = all.iter().enumerate().skip(*at).find(|(_, workload)| so(workload));
            let last = || all.last().and_then(|workload| workload.status.clone());
            let (found, workload) = found.with_context(|| format!("its status is {:?}", last()))?;
            Ok((found, workload.clone()))
        };
        let (found, workload) =
            wait::eventually(WAIT, format!("the workload to be {what}"), look).await.unwrap();
        *at = found;
        workload
    }
}

/// Whether a condition has these values; an empty message stands for any.
fn says(workload: &Workload, type_: &str, status: &str, reason: &str, message: &str) -> bool {
    let known = workload.status.as_ref().and_then(|it| conditions::find(&it.conditions, type_));
    known.is_some_and(|it| {
        it.status == status && it.reason == reason && (message.is_empty() || it.message == message)
    })
}

async fn job_is_gone(api: &Api<Job>, name: &str) {
    let check = async || {
        ensure!(api.get_opt(name).await?.is_none(), "it is still there");
        Ok(())
    };
    wait::eventually(WAIT, format!("job {name} to be deleted"), check).await.unwrap();
}

#[test]
fn job_without_ready_pods_is_evicted_twice_then_deactivated() {
    fixture::run(async {
        let bed = Bed::configured("stuck", SECTIONS).await;
        bed.simple(&[("cpu", "1")]).await;
        let (past, mut at) = (Past::of(&bed, "stuck").await, 0);
        // Deactivated by its user: that one stays.
        bed.job("kept").queue("nosuch").create(bed.admin()).await.unwrap();
        bed.set_active("kept", false).await;
        bed.expect("kept", "Evicted", "True", "Deactivated", "The workload is deactivated").await;

        bed.job("stuck").pod_annotation(job::START_AFTER, "1h").create(bed.admin()).await.unwrap();
        let name = bed.workload_of("stuck").await.metadata.name.unwrap();
        let late = format!("Exceeded the PodsReady timeout {}/{name}", bed.namespace);
        let evicted = |it: &Workload| says(it, "Evicted", "True", "PodsReadyTimeout", &late);
        let first = past.has_been("evicted", &mut at, evicted).await.status.unwrap();
        let state = first.requeue_state.unwrap();
        let since = conditions::find(&first.conditions, "Evicted").unwrap().last_transition_time.0;
        assert_eq!(state.count, Some(1));
        assert_eq!(
            state.requeue_at.unwrap().0.duration_since(since).as_secs(),
            2,
            "the first back-off"
        );
        let waits = |it: &Workload| says(it, "Requeued", "False", "PodsReadyTimeout", &late);
        let waiting = past.has_been("waiting for its back-off", &mut at, waits).await;
        assert!(
            says(&waiting, "QuotaReserved", "False", "PendingEvaluation", &late),
            "{:?}",
            waiting.status
        );
        assert_eq!(waiting.status.unwrap().admission, None);
        let back = |it: &Workload| {
            says(it, "Requeued", "True", "BackoffFinished", "The workload backoff was finished")
        };
        let back = past
            .has_been("queued again", &mut at, back)
            .await
            .status
            .unwrap()
            .requeue_state
            .unwrap();
        assert_eq!((back.count, back.requeue_at), (Some(1), None));
        past.has_been("admitted again", &mut at, |it| says(it, "Admitted", "True", "Admitted", ""))
            .await;

        let why = "exceeding the maximum number of re-queuing retries";
        let target =
            |it: &Workload| says(it, "DeactivationTarget", "True", "RequeuingLimitExceeded", why);
        past.has_been("marked", &mut at, target).await;
        let message = format!("The workload is deactivated due to {why}");
        let due_to = "DeactivatedDueToRequeuingLimitExceeded";
        let ended = past
            .has_been("deactivated", &mut at, |it| says(it, "Evicted", "True", due_to, &message))
            .await;
        assert_eq!(ended.spec.active, Some(false));
        let status = ended.status.unwrap();
        assert_eq!(
            (status.requeue_state, conditions::find(&status.conditions, "DeactivationTarget")),
            (None, None)
        );
        let evictions = serde_json::to_value(status.scheduling_stats.unwrap().evictions).unwrap();
        let expected = json!([
            {"reason": "PodsReadyTimeout", "underlyingCause": "WaitForStart", "count": 1},
            {"reason": "Deactivated", "underlyingCause": "RequeuingLimitExceeded", "count": 1},
        ]);
        assert_eq!(evictions, expected);
        bed.event(&name, "EvictedDueToPodsReadyTimeout", &late).await;
        bed.event(&name, &format!("EvictedDueTo{due_to}"), &message).await;

        bed.event("stuck", "Deleted", "Deleted job: deactivation retention period expired").await;
        job_is_gone(&Api::namespaced(bed.admin().clone(), &bed.namespace), "stuck").await;
        bed.queue_status(0, 0, 0).await;
        assert_eq!(bed.workload_of("kept").await.spec.active, Some(false));
        bed.suspended("kept", true).await;
    });
}

#[test]
fn what_has_finished_is_forgotten_and_its_job_stays() {
    fixture::run(async {
        let bed = Bed::configured("done", SECTIONS).await;
        bed.simple(&[("cpu", "1")]).await;
        bed.job("ends").run_forever().create(bed.admin()).await.unwrap();
        let name = bed.workload_of("ends").await.metadata.name.unwrap();
        bed.pods_succeed("ends").await;
        job::complete(bed.admin(), &bed.namespace, "ends", WAIT).await.unwrap();
        bed.no_workloads().await;
        bed.event(&name, "Deleted", "Deleted finished workload due to elapsed retention").await;
        // It does not come back.
        let still = async || {
            ensure!(bed.workloads().await.is_empty());
            job::complete(bed.admin(), &bed.namespace, "ends", WAIT).await.map(drop)
        };
        wait::always(Duration::from_secs(1), "the job without a workload", still).await.unwrap();
    });
}

/// A fleet with a short retention on the hub and on its worker.
async fn forgetful() -> Fleet {
    let config = |kept: &str| {
        let kept = format!("{{afterFinished: {kept}, afterDeactivatedByKueue: {kept}}}");
        let head = "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n";
        format!("{head}objectRetentionPolicies: {{workloads: {kept}}}\n")
    };
    let west = ClusterSpec::new("west").node(NodeSpec::new("n1").cpu(8));
    let fleet =
        Fleet::builder("retention").agent(west).config(config("2s")).agent_config(config("0s"));
    let fleet = fleet.start().await.unwrap();
    fleet.hub().apply([queues::agent_cluster("west")]).await.unwrap();
    fleet.connect().await.unwrap();
    fleet
}

async fn no_hub_workloads(tenant: &Tenant<'_>) {
    let check = async || {
        let left = tenant.hub_workloads().list(&ListParams::default()).await?.items;
        ensure!(left.is_empty(), "{:?}", left.iter().map(Tenant::told).collect::<Vec<_>>());
        Ok(())
    };
    wait::eventually(WAIT, "the hub's Workloads to be deleted", check).await.unwrap();
}

/// Neither is anything left on the worker, nor run again; that its copies are forgotten at once is the hub's matter alone.
#[test]
fn what_a_hub_has_sent_is_forgotten_on_the_hub() {
    fixture::run(async {
        let fleet = forgetful().await;
        let quota = [("cpu", "2")];
        let tenant = fleet.tenant("sent").hub(&quota).worker("west", &quota).make().await.unwrap();
        let hub = &fleet.hub().admin;

        tenant.submit(tenant.job("ends").run_for(Duration::from_secs(15))).await.unwrap();
        let row =
            tenant.await_status("ends", "sent", WAIT, |row| row.cluster.is_some()).await.unwrap();
        assert_eq!(row.cluster.as_deref(), Some("west"));
        let name = tenant.workload_of("ends").await.unwrap().name_any();
        let ended = job::complete(hub, tenant.name(), "ends", WAIT).await.unwrap();
        let note = format!("Workload '{}/{name}' is declared finished", tenant.name());
        events::told(hub, "ends", "FinishedWorkload", &note).await;
        no_hub_workloads(&tenant).await;
        let told = events::told(
            hub,
            &name,
            "Deleted",
            "Deleted finished workload due to elapsed retention",
        )
        .await;
        let kept = told
            .metadata
            .creation_timestamp
            .unwrap()
            .0
            .duration_since(ended.status.unwrap().completion_time.unwrap().0);
        assert!(kept.as_secs() >= 2, "kept for {kept}");
        tenant.await_empty("west", WAIT).await.unwrap();

        // Its own doing, not its user's.
        let late =
            tenant.job("late").label("kueue.x-k8s.io/max-exec-time-seconds", "15").run_forever();
        tenant.submit(late).await.unwrap();
        events::told(&fleet.worker("west").admin, "late", "SuccessfulCreate", "Created pod").await;
        events::told(hub, "late", "Deleted", "Deleted job: deactivation retention period expired")
            .await;
        job_is_gone(&tenant.hub_jobs(), "late").await;
        no_hub_workloads(&tenant).await;
        tenant.await_empty("west", WAIT).await.unwrap();

        // The first one is where it was, and nowhere else.
        let still = async || {
            let job = tenant.hub_jobs().get("ends").await?;
            ensure!(
                job.status.is_some_and(|status| status.succeeded == Some(1)),
                "it has not succeeded any more"
            );
            ensure!(
                tenant.hub_workloads().list(&ListParams::default()).await?.items.is_empty(),
                "a Workload"
            );
            ensure!(
                tenant.worker_jobs("west").list(&ListParams::default()).await?.items.is_empty(),
                "it runs again"
            );
            Ok(())
        };
        wait::always(Duration::from_secs(2), "the job that has finished", still).await.unwrap();
    });
}
