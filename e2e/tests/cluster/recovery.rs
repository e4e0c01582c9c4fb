//! A hub that has lost its etcd: what runs on the workers goes on, and becomes what is applied again.
use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::ensure;
use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::api::{DeleteParams, ListParams, ObjectMeta, PostParams};
use kube::{Api, ResourceExt as _};
use switchyard_api::v1beta2::MultiKueueCluster;
use switchyard_e2e::auditor::{self, FindingKind};
use switchyard_e2e::fleet::{Fleet, HUB, NAMESPACE, Tenant};
use switchyard_e2e::wait::{always, eventually};
use switchyard_e2e::{ClusterSpec, JobBuilder, NodeSpec, fixture, job, queues};

const SOON: Duration = Duration::from_secs(120);
const WORKERS: [&str; 2] = ["west", "east"];
const QUOTA: [(&str, &str); 1] = [("cpu", "4")];
const AUTHORITY: &str = "switchyard-hub-ca";

/// A worker's copy of a job: its uid, and those of its pods.
type Copy = (String, Vec<String>);

/// All that the workers have of a tenant, by cluster and job.
async fn copies(
    fleet: &Fleet,
    tenant: &Tenant<'_>,
) -> anyhow::Result<BTreeMap<(String, String), Copy>> {
    let mut copies = BTreeMap::new();
    for cluster in WORKERS {
        let pods: Api<Pod> = Api::namespaced(fleet.worker(cluster).admin.clone(), tenant.name());
        for copy in tenant.worker_jobs(cluster).list(&ListParams::default()).await? {
            let of_job = job::pods_of(&copy.name_any());
            let pods = pods.list(&of_job).await?.items.iter().filter_map(Pod::uid).collect();
            copies.insert(
                (cluster.to_owned(), copy.name_any()),
                (copy.uid().unwrap_or_default(), pods),
            );
        }
    }
    Ok(copies)
}

async fn orphans(fleet: &Fleet) -> anyhow::Result<Vec<String>> {
    let clusters: Api<MultiKueueCluster> = Api::all(fleet.hub().admin.clone());
    let found = clusters.list(&ListParams::default()).await?;
    let notes = found
        .items
        .into_iter()
        .filter_map(|cluster| cluster.status)
        .flat_map(|status| status.orphans);
    Ok(notes.map(|orphan| orphan.note.unwrap_or_default()).collect())
}

/// Everything but the authority is lost, and applied again: the agents enrol again.
async fn lose_and_restore(fleet: &Fleet) {
    let secrets: Api<Secret> = Api::namespaced(fleet.hub().admin.clone(), NAMESPACE);
    let authority = secrets.get(AUTHORITY).await.unwrap();
    fleet.kill(HUB);
    fleet.hub().lose_store().await.unwrap();
    fleet.reinstall_hub().await.unwrap();
    let metadata = ObjectMeta { name: Some(AUTHORITY.to_owned()), ..ObjectMeta::default() };
    let backup = Secret { metadata, data: authority.data, ..Secret::default() };
    secrets.create(&PostParams::default(), &backup).await.unwrap();
    fleet.start_hub().await.unwrap();
    fleet.hub().apply(WORKERS.map(queues::agent_cluster)).await.unwrap();
}

/// An agent whose MultiKueueCluster was made again needs a new token, and keeps the Secret of its identity.
async fn enrol_again(fleet: &Fleet, cluster: &str) {
    fleet.kill(cluster);
    let token = fleet.join_token(cluster).await.unwrap();
    fleet.start_agent(cluster, &token).await.unwrap();
    fleet.connected(cluster).await.unwrap();
}

/// Jobs that run when the store is lost, one that ends meanwhile, one that is not applied again, and one that waits.
fn jobs(tenant: &Tenant<'_>) -> Vec<JobBuilder> {
    let job = |name: &str, cpu: &str| tenant.job(name).cpu(cpu);
    vec![
        job("first", "1").run_forever(),
        job("second", "1").run_forever(),
        job("short", "1").run_forever(),
        job("late", "2").run_for(Duration::from_secs(1)),
    ]
}

/// Whether a copy is as it was. The short job ends meanwhile, and its copy may have been collected since.
fn goes_on(
    (key, before): (&(String, String), &Copy),
    now: &BTreeMap<(String, String), Copy>,
) -> bool {
    match now.get(key) {
        Some(now) if now == before => true,
        Some((uid, pods)) => key.1 == "short" && *uid == before.0 && pods.is_empty(),
        None => key.1 == "short",
    }
}

/// The copies of a tenant on the workers, by `switchyard recover export`.
async fn manifests(fleet: &Fleet, tenant: &Tenant<'_>) -> Vec<serde_json::Value> {
    let args = switchyard::copies::Args::default();
    let mut manifests = Vec::new();
    for cluster in WORKERS {
        let client = fleet.worker(cluster).admin.clone();
        manifests
            .extend(switchyard::copies::manifests(client, tenant.name(), &args).await.unwrap());
    }
    manifests
}

#[test]
fn what_runs_goes_on_and_becomes_what_is_applied_again() {
    fixture::run(async {
        auditor::expect(
            &[FindingKind::HubChargedLess],
            "its hub loses its store, and with that what it was charged",
        );
        let spec = |name: &str| ClusterSpec::new(name).node(NodeSpec::new("n1").cpu(16));
        let fleet = Fleet::builder("recovery")
            .hub_etcd()
            .agent(spec("west"))
            .agent(spec("east"))
            .start()
            .await
            .unwrap();
        fleet.hub().apply(WORKERS.map(queues::agent_cluster)).await.unwrap();
        fleet.connect().await.unwrap();
        let corner = || {
            let tenant = fleet.tenant("recovery").hub(&QUOTA);
            WORKERS.into_iter().fold(tenant, |tenant, worker| tenant.worker(worker, &QUOTA))
        };
        let tenant = corner().make().await.unwrap();
        tenant.submit(tenant.job("nobodys").cpu("1").run_forever()).await.unwrap();
        for job in jobs(&tenant) {
            tenant.submit(job).await.unwrap();
        }
        let running = |copies: &BTreeMap<(String, String), Copy>| {
            copies.values().filter(|(_, pods)| pods.len() == 1).count()
        };
        let before = eventually(SOON, "four jobs to run", async || {
            let copies = copies(&fleet, &tenant).await?;
            ensure!(running(&copies) == 4, "{copies:?}");
            Ok(copies)
        })
        .await
        .unwrap();

        lose_and_restore(&fleet).await;
        // Queues are active, and take jobs, once a cluster is connected.
        enrol_again(&fleet, "west").await;
        let tenant = corner().again(tenant.name()).make().await.unwrap();
        for job in jobs(&tenant) {
            tenant.submit(job).await.unwrap();
        }
        // As long as one of the clusters has not spoken, nothing is started anywhere.
        always(Duration::from_secs(5), "what runs", async || {
            let now = copies(&fleet, &tenant).await?;
            let known = now.keys().all(|key| before.contains_key(key));
            ensure!(
                known && before.iter().all(|copy| goes_on(copy, &now)),
                "{now:?}, before: {before:?}"
            );
            Ok(())
        })
        .await
        .unwrap();
        let end = async |name: &str| {
            for cluster in WORKERS {
                let admin = &fleet.worker(cluster).admin;
                job::pods_succeed(admin, tenant.name(), name).await.unwrap();
            }
        };
        end("short").await;
        enrol_again(&fleet, "east").await;

        for name in ["first", "second"] {
            let row = tenant
                .await_status(name, "adopted", SOON, |row| row.cluster.is_some())
                .await
                .unwrap();
            let cluster = row.cluster.unwrap();
            assert!(
                before.contains_key(&(cluster.clone(), name.to_owned())),
                "{name} is on {cluster}: {before:?}"
            );
            let dispatch =
                tenant.workload_of(name).await.unwrap().status.unwrap().dispatch.unwrap();
            assert_eq!(dispatch.attempt, 1);
            assert!(dispatch.workload_uid.is_some(), "clusters know it by another uid");
        }
        let now = copies(&fleet, &tenant).await.unwrap();
        for copy in &before {
            assert!(goes_on(copy, &now), "{copy:?}, now: {now:?}");
        }
        for name in ["first", "second"] {
            end(name).await;
        }
        for name in ["short", "first", "second", "late"] {
            job::complete(&fleet.hub().admin, tenant.name(), name, SOON).await.unwrap();
        }
        eventually(SOON, "nothing to be left but what nobody has applied again", async || {
            let left = copies(&fleet, &tenant).await?;
            let kept =
                left.iter().all(|(key, copy)| key.1 == "nobodys" && before.get(key) == Some(copy));
            ensure!(left.len() == 1 && kept, "{left:?}");
            let notes = orphans(&fleet).await?;
            ensure!(
                notes == ["made before this hub's memory; waits for its job to be applied again"],
                "{notes:?}"
            );
            Ok(())
        })
        .await
        .unwrap();

        // To delete it, apply it again first. Its copy has the manifest.
        fleet.hub().apply(manifests(&fleet, &tenant).await).await.unwrap();
        tenant.await_status("nobodys", "adopted", SOON, |row| row.cluster.is_some()).await.unwrap();
        tenant.hub_jobs().delete("nobodys", &DeleteParams::background()).await.unwrap();
        for worker in WORKERS {
            tenant.await_empty(worker, SOON).await.unwrap();
        }
    });
}
