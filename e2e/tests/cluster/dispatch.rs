//! Jobs of the hub on workers with agents.
use std::time::Duration;

use crate::common::{await_reported, fleet};
use anyhow::{Context as _, ensure};
use kube::Api;
use kube::ResourceExt as _;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use serde_json::{Value, json};
use switchyard::status::JobState;
use switchyard_api::v1beta2::{
    AdmissionCheck, CheckState, ClusterQueue, MultiKueueCluster, Workload,
};
use switchyard_e2e::fleet::{Fleet, Tenant};
use switchyard_e2e::wait::{always, eventually};
use switchyard_e2e::{Cluster, JobBuilder, fixture, job, queues};

const SOON: Duration = Duration::from_secs(120);
const WHILE: Duration = Duration::from_secs(2);

#[test]
fn job_runs_on_the_only_worker_where_it_fits() {
    fixture::run(async {
        let fleet = fleet().await;
        let quota = [("cpu", "16"), ("nvidia.com/gpu", "8")];
        let tenant = fleet
            .tenant("fits")
            .hub(&quota)
            .worker("west", &[("cpu", "16"), ("nvidia.com/gpu", "2")]);
        let tenant = tenant.worker("east", &quota).make().await.unwrap();
        tenant.submit(tenant.job("train").gpu(4).run_for(Duration::from_secs(1))).await.unwrap();
        let row = tenant
            .await_status("train", "on east", SOON, |row| row.cluster.is_some())
            .await
            .unwrap();
        assert_eq!(row.cluster.as_deref(), Some("east"));
        let done = job::complete(&fleet.hub().admin, tenant.name(), "train", SOON).await.unwrap();
        assert_eq!(done.status.unwrap().succeeded, Some(1));
        tenant
            .await_status("train", "finished", SOON, |row| row.state == JobState::Succeeded)
            .await
            .unwrap();
        tenant.await_empty("east", SOON).await.unwrap();
        tenant.await_empty("west", SOON).await.unwrap();
        let pods = fleet.pods("hub", tenant.name()).await.unwrap();
        assert_eq!(pods, 0, "the hub runs nothing itself");
    });
}

#[test]
fn a_job_that_comes_with_its_queue_is_sent_like_any_other() {
    fixture::run(async {
        let fleet = fleet().await;
        let hub = fleet.hub();
        for _ in 0..5 {
            let name = fixture::unique("early");
            // Nothing waits for the hub to see any of it.
            hub.apply([
                json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}),
            ])
            .await
            .unwrap();
            hub.apply(queues::multikueue(&name, &["west"])).await.unwrap();
            let queue = queues::ClusterQueue::new(&name)
                .group(&name, &[("cpu", "4")])
                .admission_check(&name)
                .build();
            let flavor = queues::ResourceFlavor::new(&name).build();
            hub.apply([flavor, queue, queues::local_queue(&name, "main", &name)]).await.unwrap();
            let job =
                JobBuilder::new(&name, "early").queue("main").create(&hub.admin).await.unwrap();
            let spec = job.spec.unwrap();
            assert_eq!(spec.managed_by.as_deref(), Some("kueue.x-k8s.io/multikueue"));
            assert_eq!(spec.suspend, Some(true));
        }
    });
}

#[test]
fn jobs_wait_until_quota_is_free_and_say_why() {
    fixture::run(async {
        let fleet = fleet().await;
        let tenant = fleet
            .tenant("full")
            .hub(&[("cpu", "2")])
            .worker("west", &[("cpu", "8")])
            .make()
            .await
            .unwrap();
        tenant.submit(tenant.job("first").cpu("2").run_forever()).await.unwrap();
        tenant.await_status("first", "admitted", SOON, |row| row.cluster.is_some()).await.unwrap();
        tenant.submit(tenant.job("second").cpu("1").run_for(Duration::from_secs(1))).await.unwrap();
        let waits = tenant
            .await_status("second", "waits", SOON, |row| row.reason.contains("insufficient"))
            .await
            .unwrap();
        let name = tenant.name();
        assert_eq!(
            waits.reason,
            format!(
                "couldn't assign flavors to pod set main: insufficient unused quota for cpu in flavor {name}, 1 more needed"
            )
        );
        tenant.hub_jobs().delete("first", &DeleteParams::background()).await.unwrap();
        job::complete(&fleet.hub().admin, tenant.name(), "second", SOON).await.unwrap();
    });
}

#[test]
fn a_job_deleted_on_the_hub_while_queued_leaves_nothing() {
    fixture::run(async {
        let fleet = fleet().await;
        let tenant = fleet
            .tenant("queued")
            .hub(&[("cpu", "1")])
            .worker("west", &[("cpu", "8")])
            .make()
            .await
            .unwrap();
        tenant.submit(tenant.job("big").cpu("4")).await.unwrap();
        tenant
            .await_status("big", "waits", SOON, |row| row.reason.contains("maximum capacity"))
            .await
            .unwrap();
        tenant.hub_jobs().delete("big", &DeleteParams::background()).await.unwrap();
        eventually(SOON, "the Workload to go", async || {
            let left = tenant.hub_workloads().list(&ListParams::default()).await?.items;
            ensure!(left.is_empty(), "{} left", left.len());
            Ok(())
        })
        .await
        .unwrap();
        tenant.await_empty("west", SOON).await.unwrap();
    });
}

/// A tenant whose only job runs on `west` with all its quota.
async fn runs_long<'a>(fleet: &'a Fleet, stem: &str) -> Tenant<'a> {
    let tenant = fleet.tenant(stem).hub(&[("cpu", "2")]).worker("west", &[("cpu", "8")]);
    let tenant = tenant.make().await.unwrap();
    tenant.submit(tenant.job("long").cpu("2").run_forever()).await.unwrap();
    fleet.await_pods("west", tenant.name(), 1).await.unwrap();
    tenant
}

/// Nothing is left of it on its cluster, and the next job gets its quota.
async fn is_collected(fleet: &Fleet, tenant: &Tenant<'_>) {
    tenant.await_empty("west", SOON).await.unwrap();
    fleet.await_pods("west", tenant.name(), 0).await.unwrap();
    tenant.submit(tenant.job("next").cpu("2").run_for(Duration::from_secs(1))).await.unwrap();
    job::complete(&fleet.hub().admin, tenant.name(), "next", SOON).await.unwrap();
}

#[test]
fn job_deleted_on_hub_while_it_runs_is_collected() {
    fixture::run(async {
        let fleet = fleet().await;
        let tenant = runs_long(fleet, "runs").await;
        tenant.hub_jobs().delete("long", &DeleteParams::background()).await.unwrap();
        is_collected(fleet, &tenant).await;
    });
}

/// `kubectl delete --cascade=orphan`. The garbage collector takes the owner from the Workload.
#[test]
fn job_deleted_as_orphan_on_hub_is_collected() {
    fixture::run(async {
        let fleet = fleet().await;
        let tenant = runs_long(fleet, "orphaned").await;
        let workload = tenant.workload_of("long").await.unwrap().name_any();
        tenant.hub_jobs().delete("long", &DeleteParams::orphan()).await.unwrap();
        // The garbage collector does the same, if it has learnt of Workloads by now.
        let orphaned = Patch::Merge(json!({"metadata": {"ownerReferences": null}}));
        let workloads = tenant.hub_workloads();
        let patched = workloads.patch(&workload, &PatchParams::default(), &orphaned).await;
        assert!(patched.is_ok() || workloads.get_opt(&workload).await.unwrap().is_none());
        is_collected(fleet, &tenant).await;
    });
}

/// The worker counts the time, too: what it has ended is not sent anywhere again.
#[test]
fn job_over_its_execution_time_is_deactivated_on_hub() {
    fixture::run(async {
        let fleet = fleet().await;
        let tenant = fleet
            .tenant("late")
            .hub(&[("cpu", "2")])
            .worker("west", &[("cpu", "8")])
            .make()
            .await
            .unwrap();
        let job =
            tenant.job("late").label("kueue.x-k8s.io/max-exec-time-seconds", "30").run_forever();
        tenant.submit(job).await.unwrap();
        fleet.await_pods("west", tenant.name(), 1).await.unwrap();
        let ended = async || {
            let workload = tenant.hub_workloads().list(&ListParams::default()).await?.items.pop();
            let status = workload.as_ref().and_then(|it| it.status.clone()).unwrap_or_default();
            let evicted =
                status.conditions.iter().find(|it| it.type_ == "Evicted" && it.status == "True");
            let reason = evicted.map(|it| it.reason.as_str()).unwrap_or_default();
            ensure!(
                reason == "DeactivatedDueToMaximumExecutionTimeExceeded",
                "{:?}",
                status.conditions
            );
            ensure!(workload.is_some_and(|it| it.spec.active == Some(false)), "it is active");
            Ok(status.dispatch.unwrap_or_default().attempt)
        };
        assert_eq!(eventually(SOON, "the Workload to be deactivated", ended).await.unwrap(), 1);
        fleet.await_pods("west", tenant.name(), 0).await.unwrap();
        tenant.await_empty("west", SOON).await.unwrap();
    });
}

#[test]
fn a_job_that_fails_on_the_worker_fails_on_the_hub() {
    fixture::run(async {
        let fleet = fleet().await;
        let tenant = fleet
            .tenant("fails")
            .hub(&[("cpu", "2")])
            .worker("east", &[("cpu", "8")])
            .make()
            .await
            .unwrap();
        tenant.submit(tenant.job("broken").fails()).await.unwrap();
        let failed = job::failed(&fleet.hub().admin, tenant.name(), "broken", SOON).await.unwrap();
        assert_eq!(failed.status.unwrap().failed, Some(1));
        let row = tenant
            .await_status("broken", "failed", SOON, |row| row.state == JobState::Failed)
            .await
            .unwrap();
        assert!(row.reason.contains("backoff limit"), "{}", row.reason);
        tenant.await_empty("east", SOON).await.unwrap();
    });
}

#[test]
fn a_worker_whose_admin_takes_quota_away_is_passed_over() {
    fixture::run(async {
        let fleet = fleet().await;
        let quota = [("cpu", "4")];
        let tenant = fleet
            .tenant("shrinks")
            .hub(&[("cpu", "8")])
            .worker("west", &quota)
            .make()
            .await
            .unwrap();
        let queues: Api<ClusterQueue> = Api::all(fleet.worker("west").admin.clone());
        set_quota(&queues, tenant.name(), "1").await;
        await_reported(fleet, &tenant, "west", &[(tenant.name(), "1")]).await;
        tenant
            .submit(tenant.job("too-big").cpu("4").run_for(Duration::from_secs(1)))
            .await
            .unwrap();
        let row = tenant
            .await_status("too-big", "says why", SOON, |row| row.reason.contains("west"))
            .await
            .unwrap();
        assert!(row.cluster.is_none(), "{row:?}");
        always(WHILE, "nothing runs on west", async || {
            ensure!(fleet.pods("west", tenant.name()).await? == 0, "a pod");
            Ok(())
        })
        .await
        .unwrap();
        set_quota(&queues, tenant.name(), "4").await;
        // Refused everywhere, it was put aside for a while: the delay is in its status.
        job::complete(&fleet.hub().admin, tenant.name(), "too-big", Duration::from_secs(90))
            .await
            .unwrap();
    });
}

#[test]
fn the_hubs_job_carries_what_a_user_would_look_for() {
    fixture::run(async {
        let fleet = fleet().await;
        let tenant = fleet
            .tenant("looks")
            .hub(&[("cpu", "2")])
            .worker("east", &[("cpu", "8")])
            .make()
            .await
            .unwrap();
        let made = tenant.submit(tenant.job("plain").run_forever()).await.unwrap();
        let spec = made.spec.unwrap();
        assert_eq!(spec.suspend, Some(true), "the webhook suspends it");
        assert_eq!(spec.managed_by.as_deref(), Some("kueue.x-k8s.io/multikueue"));
        // Changes while it runs are shown every few seconds.
        eventually(SOON, "the pod to show on the hub", async || {
            let status = tenant.hub_jobs().get("plain").await?.status.unwrap_or_default();
            ensure!(status.active == Some(1) && status.ready == Some(1), "{status:?}");
            Ok(())
        })
        .await
        .unwrap();
        let remote = tenant.worker_jobs("east").get("plain").await.unwrap();
        assert!(remote.labels().contains_key("kueue.x-k8s.io/multikueue-origin"));
        assert!(remote.labels().contains_key("switchyard.dev/hub-id"));
        let workload =
            tenant.hub_workloads().list(&ListParams::default()).await.unwrap().items.remove(0);
        let status = workload.status.unwrap();
        assert_eq!(status.admission_checks[0].message, "The workload was admitted on \"east\"");
        assert_eq!(status.dispatch.unwrap().attempt, 1);
    });
}

/// As the worker's administrator does, with `kubectl edit`.
async fn set_quota(queues: &Api<ClusterQueue>, name: &str, cpu: &str) {
    let flavor = json!({"name": name, "resources": [{"name": "cpu", "nominalQuota": cpu}]});
    let groups = json!([{"coveredResources": ["cpu"], "flavors": [flavor]}]);
    let patch = json!({"spec": {"resourceGroups": groups}});
    queues.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
}

/// The disconnect policy as the agent gets it: how long a job of the hub runs on there.
async fn fence(tenant: &Tenant<'_>, job: &str) -> anyhow::Result<Option<String>> {
    let copies = tenant.worker_workloads("west").list(&ListParams::default()).await?.items;
    let of = |copy: &Workload| {
        copy.annotations().get("kueue.x-k8s.io/job-owner-name").is_some_and(|name| name == job)
    };
    let copy = copies.into_iter().find(of).with_context(|| format!("{job} is not on west"))?;
    Ok(copy.annotations().get("switchyard.dev/fence-after").cloned())
}

#[test]
fn on_disconnect_of_job_precedes_queue_and_cluster() {
    fixture::run(async {
        let fleet = fleet().await;
        let hub = &fleet.hub().admin;
        let tenant = fleet
            .tenant("loss")
            .hub(&[("cpu", "8")])
            .worker("west", &[("cpu", "8")])
            .make()
            .await
            .unwrap();
        let queues: Api<ClusterQueue> = Api::all(hub.clone());
        let clusters: Api<MultiKueueCluster> = Api::all(hub.clone());
        let rule = |rule: Value| Patch::Merge(json!({"spec": {"onDisconnect": rule}}));
        let params = PatchParams::default();
        queues
            .patch(tenant.name(), &params, &rule(json!({"policy": "Fence", "after": "5m"})))
            .await
            .unwrap();
        clusters
            .patch("west", &params, &rule(json!({"policy": "Fence", "after": "7m"})))
            .await
            .unwrap();
        let word = |name: &str, word: &str| {
            tenant.job(name).run_forever().annotation("switchyard.dev/on-disconnect", word)
        };
        tenant.submit(word("by-job", "Fence/90s")).await.unwrap();
        tenant.submit(word("held", "Hold")).await.unwrap();
        tenant.submit(tenant.job("by-queue").run_forever()).await.unwrap();
        let told = async |job: &str, expected: Option<&str>| {
            eventually(SOON, format!("{job} to be told {expected:?}"), async || {
                let fence = fence(&tenant, job).await?;
                ensure!(fence.as_deref() == expected, "it is {fence:?}");
                Ok(())
            })
            .await
            .unwrap();
        };
        told("by-job", Some("90000ms")).await;
        told("by-queue", Some("300000ms")).await;
        told("held", None).await;
        // The running job follows.
        queues.patch(tenant.name(), &params, &rule(Value::Null)).await.unwrap();
        told("by-queue", Some("420000ms")).await;
        clusters.patch("west", &params, &rule(Value::Null)).await.unwrap();
        told("by-queue", None).await;
        told("by-job", Some("90000ms")).await;
    });
}

#[test]
fn changed_priority_of_running_job_reaches_worker() {
    fixture::run(async {
        let fleet = fleet().await;
        let tenant = fleet
            .tenant("urgent")
            .hub(&[("cpu", "2")])
            .worker("west", &[("cpu", "8")])
            .make()
            .await
            .unwrap();
        tenant.changes_priority("west", SOON).await.unwrap();
    });
}

/// Gives the hub's ClusterQueue of a tenant a second flavor, and a check for the first one alone.
async fn check_first_flavor(hub: &Cluster, name: &str, check: &str) {
    let (free, cpu) = (format!("{name}-free"), [("cpu", "1")]);
    let strategy =
        json!({"admissionChecks": [{"name": name}, {"name": check, "onFlavors": [name]}]});
    let queue = queues::ClusterQueue::new(name).flavors(&[(name, &cpu), (&free, &cpu)]);
    let queue = queue.field("admissionChecksStrategy", strategy).build();
    let flavor = queues::ResourceFlavor::new(&free).build();
    hub.apply([queues::admission_check(check), flavor, queue]).await.unwrap();
    let queues: Api<ClusterQueue> = Api::all(hub.admin.clone());
    let active = async |wanted: &str| {
        let look = async || {
            let known = queues.get(name).await?.status.unwrap_or_default().conditions;
            let active = known.into_iter().find(|it| it.type_ == "Active");
            ensure!(active.as_ref().is_some_and(|it| it.status == wanted), "{active:?}");
            Ok(())
        };
        eventually(SOON, format!("ClusterQueue {name} to be Active={wanted}"), look).await.unwrap();
    };
    // The hub knows of the check by now.
    active("False").await;
    let condition = json!({
        "type": "Active", "status": "True", "reason": "Active", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"
    });
    let checks: Api<AdmissionCheck> = Api::all(hub.admin.clone());
    let status = Patch::Merge(json!({"status": {"conditions": [condition]}}));
    checks.patch_status(check, &PatchParams::default(), &status).await.unwrap();
    active("True").await;
}

#[test]
fn check_of_one_flavor_precedes_dispatch() {
    fixture::run(async {
        let fleet = fleet().await;
        let tenant = fleet
            .tenant("checked")
            .hub(&[("cpu", "1")])
            .worker("west", &[("cpu", "8")])
            .make()
            .await
            .unwrap();
        let (hub, check) = (fleet.hub(), format!("{}-budget", tenant.name()));
        check_first_flavor(hub, tenant.name(), &check).await;
        // The worker uses the flavor that the hub charges.
        let (free, cpu) = (format!("{}-free", tenant.name()), [("cpu", "8")]);
        let queue = queues::ClusterQueue::new(tenant.name());
        let queue = queue.flavors(&[(tenant.name(), &cpu), (&free, &cpu)]).build();
        let flavor = queues::ResourceFlavor::new(&free).build();
        fleet.worker("west").apply([flavor, queue]).await.unwrap();
        let brief = |name: &str| tenant.job(name).run_for(Duration::from_millis(200));
        tenant.submit(brief("waits")).await.unwrap();
        let listed = async || {
            let status = tenant.workload_of("waits").await?.status.unwrap_or_default();
            let checks: Vec<&str> =
                status.admission_checks.iter().map(|it| it.name.as_str()).collect();
            ensure!(checks == [tenant.name(), check.as_str()], "{checks:?}");
            Ok(())
        };
        eventually(SOON, "both checks to be listed", listed).await.unwrap();

        // The flavor is taken: the next one gets the other.
        tenant.submit(brief("goes")).await.unwrap();
        job::complete(&hub.admin, tenant.name(), "goes", SOON).await.unwrap();
        let waits = tenant.workload_of("waits").await.unwrap();
        assert_eq!(waits.status.as_ref().unwrap().cluster_name, None);
        assert!(
            tenant.worker_jobs("west").get_opt("waits").await.unwrap().is_none(),
            "it was sent"
        );

        let answer = async || {
            let mut workload = tenant.workload_of("waits").await?;
            let checks = workload
                .status
                .as_mut()
                .map(|it| it.admission_checks.as_mut_slice())
                .unwrap_or_default();
            for ours in checks.iter_mut().filter(|it| it.name == check) {
                ours.state = CheckState::Ready;
            }
            tenant
                .hub_workloads()
                .replace_status(&workload.name_any(), &Default::default(), &workload)
                .await?;
            Ok(())
        };
        eventually(SOON, "an answer of the check", answer).await.unwrap();
        job::complete(&hub.admin, tenant.name(), "waits", SOON).await.unwrap();
    });
}
