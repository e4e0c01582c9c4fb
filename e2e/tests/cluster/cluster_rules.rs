//! Jobs go to the clusters that their rules allow, in the order of preference and cost, and excluded clusters are named.

use std::time::Duration;

use anyhow::ensure;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};
use switchyard_api::v1beta2::{ClusterQueue, MultiKueueCluster};
use switchyard_e2e::fixture;
use switchyard_e2e::fleet::{Fleet, Tenant};
use switchyard_e2e::wait::{always, eventually};

use crate::common::fleet;
use crate::trouble::why;

const SOON: Duration = Duration::from_secs(120);

/// Gives a cluster a label `region` and a cost.
async fn describe(fleet: &Fleet, cluster: &str, region: &str, cost: i32) {
    let clusters: Api<MultiKueueCluster> = Api::all(fleet.hub().admin.clone());
    let patch = json!({"metadata": {"labels": {"region": region}}, "spec": {"cost": cost}});
    clusters.patch(cluster, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
}

async fn default_of(fleet: &Fleet, tenant: &Tenant<'_>, affinity: Value) {
    let queues: Api<ClusterQueue> = Api::all(fleet.hub().admin.clone());
    let patch = Patch::Merge(json!({"spec": {"clusterAffinity": affinity}}));
    queues.patch(tenant.name(), &PatchParams::default(), &patch).await.unwrap();
}

async fn lands_on(tenant: &Tenant<'_>, job: &str, cluster: &str) {
    let row = tenant.await_status(job, cluster, SOON, |row| row.cluster.is_some()).await.unwrap();
    assert_eq!(row.cluster.as_deref(), Some(cluster), "{job}");
}

/// Submits jobs one after the other until three have landed on one cluster, or two on another: it must be the preferred one. If the preferred
/// cluster answers an offer late, another cluster gets the job.
async fn prefers(tenant: &Tenant<'_>, stem: &str, preference: Option<(&str, &str)>, cluster: &str) {
    let (mut there, mut elsewhere) = (0, 0);
    while there < 3 {
        let name = fixture::unique(stem);
        let job = tenant.job(&name).cpu("1").run_forever();
        let job = preference.into_iter().fold(job, |job, (key, text)| job.annotation(key, text));
        tenant.submit(job).await.unwrap();
        let row =
            tenant.await_status(&name, cluster, SOON, |row| row.cluster.is_some()).await.unwrap();
        match row.cluster.as_deref() == Some(cluster) {
            true => there += 1,
            false => elsewhere += 1,
        }
        assert!(elsewhere < 2, "{stem}: {elsewhere} jobs are not on {cluster}, {there} are");
        tenant.hub_jobs().delete(&name, &DeleteParams::background()).await.unwrap();
        let left = row.cluster.unwrap_or_default();
        eventually(SOON, format!("{name} to be gone"), async || {
            let copy = tenant.worker_jobs(&left).get_opt(&name).await?;
            ensure!(copy.is_none(), "it is on {left}");
            Ok(())
        })
        .await
        .unwrap();
    }
}

#[test]
fn jobs_go_where_rules_and_cost_say() {
    fixture::run(async {
        let fleet = fleet().await;
        let quota = [("cpu", "16")];
        let tenant = fleet
            .tenant("rules")
            .hub(&quota)
            .worker("west", &quota)
            .worker("east", &quota)
            .make()
            .await
            .unwrap();
        describe(fleet, "west", "eu", 10).await;
        describe(fleet, "east", "us", 0).await;
        // These wait until the hub knows the labels, and the cost with them.
        for (name, region, cluster) in
            [("of-eu", "region=eu", "west"), ("of-us", "region=us", "east")]
        {
            let job = tenant.job(name).cpu("1").run_forever();
            let job = job.annotation("switchyard.dev/cluster-selector", region);
            tenant.submit(job).await.unwrap();
            lands_on(&tenant, name, cluster).await;
        }
        let annotations = [
            ("named", "switchyard.dev/clusters", "west", "west"),
            ("selected", "switchyard.dev/cluster-selector", "region in (us,asia)", "east"),
            ("excluding", "switchyard.dev/excluded-cluster-selector", "region=us", "west"),
        ];
        for (name, key, text, _) in annotations {
            let job = tenant.job(name).cpu("1").run_forever().annotation(key, text);
            tenant.submit(job).await.unwrap();
        }
        for (name, _, _, cluster) in annotations {
            lands_on(&tenant, name, cluster).await;
        }
        prefers(&tenant, "cheap", None, "east").await;
        let west = Some(("switchyard.dev/preferred-clusters", "west"));
        prefers(&tenant, "preferring", west, "west").await;
        let text = why(fleet, &tenant, "named").await;
        let east = text.lines().find(|line| line.starts_with("east")).unwrap_or_default();
        assert!(east.ends_with("no: switchyard.dev/clusters requires west"), "{text}");

        default_of(fleet, &tenant, json!({"required": {"names": ["west"]}})).await;
        eventually(SOON, "a job to go by its queue's default", async || {
            let name = fixture::unique("default");
            tenant.submit(tenant.job(&name).cpu("1").run_forever()).await?;
            let row = tenant.await_status(&name, "sent", SOON, |row| row.cluster.is_some()).await?;
            ensure!(row.cluster.as_deref() == Some("west"), "{:?}", row.cluster);
            Ok(())
        })
        .await
        .unwrap();
        let own =
            tenant.job("own").cpu("1").run_forever().annotation("switchyard.dev/clusters", "east");
        tenant.submit(own).await.unwrap();
        lands_on(&tenant, "own", "east").await;
    });
}

#[test]
fn job_without_allowed_cluster_waits_for_a_label() {
    fixture::run(async {
        let fleet = fleet().await;
        let quota = [("cpu", "4")];
        let tenant = fleet
            .tenant("nowhere")
            .hub(&quota)
            .worker("west", &quota)
            .worker("east", &quota)
            .make()
            .await
            .unwrap();
        let zone = |value: Option<&str>| json!({"metadata": {"labels": {"zone": value}}});
        let clusters: Api<MultiKueueCluster> = Api::all(fleet.hub().admin.clone());
        let job = tenant
            .job("zoned")
            .cpu("1")
            .run_forever()
            .annotation("switchyard.dev/cluster-selector", "zone=z1");
        tenant.submit(job).await.unwrap();
        let says = "switchyard.dev/cluster-selector requires zone=z1";
        let waits = format!("No worker cluster is allowed: west: {says}; east: {says}");
        tenant
            .await_status("zoned", "waits", SOON, |row| row.reason.contains(&waits))
            .await
            .unwrap();
        let text = why(fleet, &tenant, "zoned").await;
        assert_eq!(
            text.lines().filter(|line| line.ends_with(&format!("no: {says}"))).count(),
            2,
            "{text}"
        );

        let label = |value| Patch::Merge(zone(value));
        clusters.patch("east", &PatchParams::default(), &label(Some("z1"))).await.unwrap();
        lands_on(&tenant, "zoned", "east").await;
        fleet.await_pods("east", tenant.name(), 1).await.unwrap();

        // It stays when the label goes, and when its own rule excludes the cluster.
        clusters.patch("east", &PatchParams::default(), &label(None)).await.unwrap();
        let rule =
            json!({"metadata": {"annotations": {"switchyard.dev/excluded-clusters": "east"}}});
        tenant
            .hub_jobs()
            .patch("zoned", &PatchParams::default(), &Patch::Merge(rule))
            .await
            .unwrap();
        eventually(SOON, "the Workload to have the job's rule", async || {
            let annotations =
                tenant.workload_of("zoned").await?.metadata.annotations.unwrap_or_default();
            ensure!(
                annotations.contains_key("switchyard.dev/excluded-clusters"),
                "{annotations:?}"
            );
            Ok(())
        })
        .await
        .unwrap();
        always(Duration::from_secs(5), "the job stays", async || {
            let row = tenant.status("zoned").await?;
            ensure!(row.cluster.as_deref() == Some("east"), "{:?}", row.cluster);
            Ok(())
        })
        .await
        .unwrap();
        let bad = tenant.job("bad").cpu("1").annotation("switchyard.dev/clusters", "region=eu");
        let refused = format!("{:#}", tenant.submit(bad).await.unwrap_err());
        assert!(
            refused.contains("is no name of a MultiKueueCluster: write names in lower case"),
            "{refused}"
        );
    });
}
