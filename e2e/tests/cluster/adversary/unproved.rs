//! Copies without a proof, and the copies of a cluster that the hub reaches in another way later.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use k8s_openapi::api::core::v1::Secret;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};
use switchyard_api::conditions;
use switchyard_api::v1beta2::MultiKueueCluster;
use switchyard_e2e::fixture;
use switchyard_e2e::fleet::{Fleet, NAMESPACE, Tenant};
use switchyard_e2e::wait::{always, eventually};
use switchyard_e2e::{Cluster, ClusterSpec, NodeSpec, queues};

use super::forged::{are_ignored, ignored, pair, random_uid};
use super::{QUOTA, SOON, ends, hub_id, ran_once};

const PROOF: &str = "switchyard.dev/proof";
/// Longer than it takes to enforce a key: 75 s for late creations, and the steps around it.
const SETTLED: Duration = Duration::from_secs(240);
/// Shorter than the 75 s for late creations.
const AT_ONCE: Duration = Duration::from_secs(45);

async fn patch_cluster(fleet: &Fleet, name: &str, patch: &Value) {
    let clusters: Api<MultiKueueCluster> = Api::all(fleet.hub().admin.clone());
    clusters.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
}

/// Waits for the condition `CopiesUnproved` of a cluster, with this message.
async fn says_unproved(fleet: &Fleet, name: &str, status: &str, words: &str) {
    let clusters: Api<MultiKueueCluster> = Api::all(fleet.hub().admin.clone());
    eventually(SETTLED, format!("CopiesUnproved of {name} to be {status}"), async || {
        let known = clusters.get(name).await?.status.unwrap_or_default().conditions;
        let found =
            conditions::find(&known, conditions::COPIES_UNPROVED).context("no condition")?;
        ensure!(
            found.status == status && found.message.contains(words),
            "{}: {}",
            found.status,
            found.message
        );
        Ok(())
    })
    .await
    .unwrap();
}

/// The uid of the job on a worker, once it runs.
async fn runs(tenant: &Tenant<'_>, worker: &str, job: &str) -> String {
    let jobs = tenant.worker_jobs(worker);
    let there = eventually(SOON, format!("{job} to run"), async || {
        let job = jobs.get(job).await?;
        ensure!(job.status.as_ref().and_then(|it| it.active) == Some(1), "{:?}", job.status);
        Ok(job)
    });
    there.await.unwrap().uid().unwrap()
}

/// Checks that the job keeps running there and was never assigned to another cluster.
async fn goes_on(tenant: &Tenant<'_>, worker: &str, job: &str, uid: &str) {
    always(Duration::from_secs(10), format!("{job} to go on"), async || {
        let there = tenant.worker_jobs(worker).get(job).await?;
        ensure!(there.uid().as_deref() == Some(uid), "another copy");
        ensure!(there.status.as_ref().and_then(|it| it.active) == Some(1), "{:?}", there.status);
        Ok(())
    })
    .await
    .unwrap();
    ran_once(tenant, job).await;
}

/// The Secrets of the program in this cluster.
fn secrets_of(cluster: &Cluster) -> Api<Secret> {
    Api::namespaced(cluster.admin.clone(), NAMESPACE)
}

/// Waits until an agent's key is in force.
async fn in_force(secrets: &Api<Secret>, name: &str, within: Duration) {
    eventually(within, "the key to be in force", async || {
        let data = secrets.get(name).await?.data.context("no data")?;
        let state = data.get("copies.in-force").context("no key")?;
        ensure!(state.0 == b"true", "not in force");
        Ok(())
    })
    .await
    .unwrap();
}

/// As before proofs existed, and as after the loss of the agent's Secret: the agent has no key, and
/// copies have no proof.
#[test]
fn unproved_copies_keep_running_until_trusted() {
    const SECRET: &str = "switchyard-agent-identity";
    fixture::run(async {
        let west = ClusterSpec::new("west").node(NodeSpec::new("n1").cpu(64));
        let fleet = Fleet::builder("unproved").agent(west).start().await.unwrap();
        fleet.hub().apply([queues::agent_cluster("west")]).await.unwrap();
        fleet.connect().await.unwrap();
        let tenant = fleet.tenant("team").hub(&QUOTA).worker("west", &QUOTA).make().await.unwrap();
        let forger =
            fleet.tenant("forger").hub(&QUOTA).worker("west", &QUOTA).make().await.unwrap();
        let worker = fleet.worker("west");
        let secrets = secrets_of(worker);
        // Nothing was marked, so the key does not wait for late creations.
        in_force(&secrets, SECRET, AT_ONCE).await;
        tenant.submit(tenant.job("lasts").cpu("100m").run_forever()).await.unwrap();
        let uid = runs(&tenant, "west", "lasts").await;

        fleet.kill("west");
        let jobs = tenant.worker_jobs("west");
        let bare = Patch::Merge(json!({"metadata": {"annotations": {PROOF: null}}}));
        jobs.patch("lasts", &PatchParams::default(), &bare).await.unwrap();
        let copies = tenant.worker_workloads("west");
        for copy in copies.list(&ListParams::default()).await.unwrap() {
            copies.patch(&copy.name_any(), &PatchParams::default(), &bare).await.unwrap();
        }
        let lost = Patch::Merge(
            json!({"data": {"copies.hub-id": null, "copies.key": null, "copies.in-force": null}}),
        );
        secrets.patch(SECRET, &PatchParams::default(), &lost).await.unwrap();
        let hub = hub_id(&fleet).await;
        worker
            .apply(pair(forger.name(), ("forged", "forged"), &hub, &random_uid(), 1))
            .await
            .unwrap();
        fleet.restart_agent("west").unwrap();
        says_unproved(&fleet, "west", "True", "4 objects have this hub's marks and no proof: ")
            .await;
        goes_on(&tenant, "west", "lasts", &uid).await;
        tenant
            .submit(tenant.job("meanwhile").cpu("100m").run_for(Duration::from_secs(1)))
            .await
            .unwrap();
        ends(&tenant, "meanwhile").await;

        for kind in ["jobs", "workloads"] {
            forger_deletes(&forger, kind).await;
        }
        let now = jiff::Timestamp::now().to_string();
        patch_cluster(
            &fleet,
            "west",
            &json!({"metadata": {"annotations": {"switchyard.dev/trust-copies": now}}}),
        )
        .await;
        in_force(&secrets, SECRET, SETTLED).await;
        assert!(jobs.get("lasts").await.unwrap().annotations().contains_key(PROOF));
        says_unproved(&fleet, "west", "False", "").await;
        goes_on(&tenant, "west", "lasts", &uid).await;
        let before = ignored(&fleet, "west").await;
        worker
            .apply(pair(forger.name(), ("forged", "forged"), &hub, &random_uid(), 1))
            .await
            .unwrap();
        are_ignored(&fleet, "west", &[forger.name()], before, 2).await;
        tenant
            .submit(tenant.job("after").cpu("100m").run_for(Duration::from_secs(1)))
            .await
            .unwrap();
        ends(&tenant, "after").await;
    });
}

async fn forger_deletes(forger: &Tenant<'_>, kind: &str) {
    let params = kube::api::DeleteParams::background();
    if kind == "jobs" {
        forger.worker_jobs("west").delete("forged", &params).await.map(drop).unwrap();
    } else {
        forger.worker_workloads("west").delete("forged", &params).await.map(drop).unwrap();
    }
}

/// An agent reaches the cluster, then a kubeconfig, then an agent again. The hub still recognizes
/// its copies.
#[test]
fn copies_stay_known_when_cluster_is_reached_otherwise() {
    fixture::run(async {
        let west = ClusterSpec::new("west").node(NodeSpec::new("n1").cpu(64));
        let fleet = Fleet::builder("sources").agent(west).start().await.unwrap();
        fleet.hub().apply([queues::agent_cluster("west")]).await.unwrap();
        fleet.connect().await.unwrap();
        let tenant = fleet.tenant("team").hub(&QUOTA).worker("west", &QUOTA).make().await.unwrap();
        tenant.submit(tenant.job("lasts").cpu("100m").run_forever()).await.unwrap();
        let uid = runs(&tenant, "west", "lasts").await;

        fleet.kill("west");
        fleet.start_single("west").await.unwrap();
        let (_, kubeconfig) =
            fleet.worker("west").service_account(NAMESPACE, "switchyard-remote-hub").await.unwrap();
        fleet
            .hub()
            .apply([queues::kubeconfig_secret(NAMESPACE, "west", &kubeconfig)])
            .await
            .unwrap();
        let kubeconfig =
            json!({"agent": null, "kubeConfig": {"locationType": "Secret", "location": "west"}});
        patch_cluster(&fleet, "west", &json!({"spec": {"clusterSource": kubeconfig}})).await;
        eventually(SETTLED, "the key to be in force on the hub", async || {
            let found = secrets_of(fleet.hub()).get("switchyard-hub-ca").await?;
            ensure!(found.data.context("no data")?.contains_key("copies.in-force"), "not in force");
            Ok(())
        })
        .await
        .unwrap();
        fleet.connected("west").await.unwrap();
        goes_on(&tenant, "west", "lasts", &uid).await;
        tenant
            .submit(tenant.job("hosted").cpu("100m").run_for(Duration::from_secs(1)))
            .await
            .unwrap();
        ends(&tenant, "hosted").await;
        tenant.submit(tenant.job("hosted-lasts").cpu("100m").run_forever()).await.unwrap();
        let hosted = runs(&tenant, "west", "hosted-lasts").await;

        fleet.kill("west");
        // As after an uninstallation: no agent answers there any more.
        let west = &fleet.worker("west").admin;
        let (all, params) = (ListParams::default(), DeleteParams::default());
        Api::<MutatingWebhookConfiguration>::all(west.clone())
            .delete_collection(&params, &all)
            .await
            .unwrap();
        Api::<ValidatingWebhookConfiguration>::all(west.clone())
            .delete_collection(&params, &all)
            .await
            .unwrap();
        patch_cluster(
            &fleet,
            "west",
            &json!({"spec": {"clusterSource": {"agent": {}, "kubeConfig": null}}}),
        )
        .await;
        fleet.restart_agent("west").unwrap();
        fleet.connected("west").await.unwrap();
        for (job, uid) in [("lasts", &uid), ("hosted-lasts", &hosted)] {
            goes_on(&tenant, "west", job, uid).await;
        }
        tenant
            .submit(tenant.job("after").cpu("100m").run_for(Duration::from_secs(1)))
            .await
            .unwrap();
        ends(&tenant, "after").await;
    });
}
