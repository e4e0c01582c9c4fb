//! Workers use the flavors that the hub charged, or say why not; the hub shows where that is not so.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};
use switchyard_api::v1beta2::{ClusterQueue, MultiKueueConfig, Workload};
use switchyard_e2e::fixture::{self, Shared};
use switchyard_e2e::fleet::{Fleet, Tenant};
use switchyard_e2e::queues::{self, ResourceFlavor};
use switchyard_e2e::stock::{Kueue, Options};
use switchyard_e2e::wait::eventually;
use switchyard_e2e::{Cluster, ClusterSpec, NodeSpec};

use crate::common::{WORKERS, await_reported, fleet};
use crate::trouble::why;

const SOON: Duration = Duration::from_secs(120);
const QUOTA: &[(&str, &str)] = &[("cpu", "8")];

/// Has a worker's queue list these flavors, in this order. Waits until the worker knows it.
async fn list_flavors(fleet: &Fleet, tenant: &Tenant<'_>, cluster: &str, flavors: &[&str]) {
    let quotas: Vec<_> = flavors.iter().map(|name| (*name, QUOTA)).collect();
    set_quotas(fleet.worker(cluster), tenant, &quotas).await;
    if WORKERS.contains(&cluster) {
        let nominal: Vec<_> = flavors.iter().map(|name| (*name, QUOTA[0].1)).collect();
        await_reported(fleet, tenant, cluster, &nominal).await;
    } else {
        shows_flavors(fleet.worker(cluster), tenant, flavors).await;
    }
}

/// Waits until the status of a queue has these flavors.
async fn shows_flavors(cluster: &Cluster, tenant: &Tenant<'_>, flavors: &[&str]) {
    let queues: Api<ClusterQueue> = Api::all(cluster.admin.clone());
    eventually(SOON, format!("{} to know its flavors", cluster.name()), async || {
        let status = queues.get(tenant.name()).await?.status.unwrap_or_default();
        let shown: Vec<_> = status.flavors_reservation.iter().map(|it| it.name.as_str()).collect();
        ensure!(flavors.iter().all(|flavor| shown.contains(flavor)), "{shown:?}");
        Ok(())
    })
    .await
    .unwrap();
}

/// Has a queue list these flavors with their quota, in this order.
async fn set_quotas(cluster: &Cluster, tenant: &Tenant<'_>, group: &[(&str, &[(&str, &str)])]) {
    cluster.apply(group.iter().map(|(name, _)| ResourceFlavor::new(name).build())).await.unwrap();
    let queue = queues::ClusterQueue::new(tenant.name()).flavors(group).build();
    let queues: Api<ClusterQueue> = Api::all(cluster.admin.clone());
    let patch = Patch::Merge(json!({"spec": queue["spec"]}));
    queues.patch(tenant.name(), &PatchParams::default(), &patch).await.unwrap();
}

async fn configure(fleet: &Fleet, tenant: &Tenant<'_>, pins: Value) {
    let configs: Api<MultiKueueConfig> = Api::all(fleet.hub().admin.clone());
    let patch = Patch::Merge(json!({"spec": {"flavorPins": pins}}));
    configs.patch(tenant.name(), &PatchParams::default(), &patch).await.unwrap();
}

/// The flavor of `cpu` that a cluster's Workload of a job is admitted to, and its pins.
async fn flavor_on(
    tenant: &Tenant<'_>,
    cluster: &str,
    job: &str,
) -> anyhow::Result<(String, Option<String>)> {
    let name = tenant.workload_of(job).await?.metadata.name.context("a name")?;
    let copy = tenant.worker_workloads(cluster).get(&name).await?;
    let pins = copy.metadata.annotations.unwrap_or_default().remove("switchyard.dev/flavor-pins");
    let admission =
        copy.status.and_then(|status| status.admission).context("it is not admitted")?;
    let assigned = admission.pod_set_assignments.first().context("a pod set")?;
    Ok((assigned.flavors.get("cpu").cloned().context("a flavor")?, pins))
}

async fn runs_in(tenant: &Tenant<'_>, cluster: &str, job: &str, flavor: &str) -> Option<String> {
    let row = tenant.await_status(job, cluster, SOON, |row| row.cluster.is_some()).await.unwrap();
    assert_eq!(row.cluster.as_deref(), Some(cluster), "{job}");
    eventually(SOON, format!("{job} to run in {flavor}"), async || {
        let (used, pins) = flavor_on(tenant, cluster, job).await?;
        ensure!(used == flavor, "it runs in {used}");
        Ok(pins)
    })
    .await
    .unwrap()
}

#[test]
fn job_runs_in_the_charged_flavor_or_a_mapped_one() {
    fixture::run(async {
        let fleet = fleet().await;
        let tenant = fleet.tenant("pins").hub(QUOTA).worker("west", QUOTA).make().await.unwrap();
        let charged = tenant.name().to_owned();
        let other = format!("{charged}-other");
        // By itself, the worker would take the first flavor.
        list_flavors(fleet, &tenant, "west", &[&other, &charged]).await;
        tenant.submit(tenant.job("pinned").cpu("1").run_forever()).await.unwrap();
        let pins = runs_in(&tenant, "west", "pinned", &charged).await;
        assert_eq!(pins, Some(format!(r#"{{"main":{{"cpu":"{charged}"}}}}"#)));

        // The queue loses the flavor: the next job is refused with a reason.
        tenant.hub_jobs().delete("pinned", &DeleteParams::background()).await.unwrap();
        tenant.await_empty("west", SOON).await.unwrap();
        list_flavors(fleet, &tenant, "west", &[&other]).await;
        tenant.submit(tenant.job("refused").cpu("1").run_forever()).await.unwrap();
        let says = format!(
            "flavor {charged}, which the hub charged for cpu, is not in ClusterQueue {charged}"
        );
        tenant
            .await_status("refused", "refused", SOON, |row| row.reason.contains(&says))
            .await
            .unwrap();
        let mapping =
            json!({"mapping": [{"flavor": charged, "workerFlavor": other, "cluster": "west"}]});
        configure(fleet, &tenant, mapping).await;
        let pins = runs_in(&tenant, "west", "refused", &other).await;
        assert_eq!(pins, Some(format!(r#"{{"main":{{"cpu":"{other}"}}}}"#)));

        configure(fleet, &tenant, json!({"policy": "None", "mapping": null})).await;
        // The hub may send a job before it knows the policy.
        let mut free = None;
        for name in ["free", "free-2", "free-3"] {
            tenant.submit(tenant.job(name).cpu("1").run_forever()).await.unwrap();
            if runs_in(&tenant, "west", name, &other).await.is_none() {
                free = Some(name);
                break;
            }
        }
        let text = why(fleet, &tenant, free.expect("nothing is pinned")).await;
        assert!(!text.contains("is charged"), "{text}");
    });
}

/// `west` has one of the hub's two flavors alone, and is every job's preferred cluster.
#[test]
fn job_runs_only_where_its_charged_flavor_is() {
    fixture::run(async {
        let fleet = fleet().await;
        let tenant = fleet.tenant("gpus").hub(QUOTA).worker("west", QUOTA).worker("east", QUOTA);
        let tenant = tenant.make().await.unwrap();
        let (fast, slow) = (format!("{}-h100", tenant.name()), format!("{}-a100", tenant.name()));
        list_flavors(fleet, &tenant, "west", &[&slow]).await;
        list_flavors(fleet, &tenant, "east", &[&slow, &fast]).await;
        let four: &[(&str, &str)] = &[("cpu", "4")];
        set_quotas(fleet.hub(), &tenant, &[(&*fast, four), (&*slow, four)]).await;
        shows_flavors(fleet.hub(), &tenant, &[&fast, &slow]).await;
        let job = |name: &str| tenant.job(name).cpu("4").run_forever();
        let prefers = "switchyard.dev/preferred-clusters";

        tenant.submit(job("first").annotation(prefers, "west")).await.unwrap();
        runs_in(&tenant, "east", "first", &fast).await;
        // The hub's other flavor is left for the next job, and west has it.
        tenant.submit(job("second").annotation(prefers, "west")).await.unwrap();
        runs_in(&tenant, "west", "second", &slow).await;

        // A job that may go nowhere else waits, and says why.
        let first = tenant.workload_of("first").await.unwrap().metadata.name.unwrap();
        tenant.hub_jobs().delete("first", &DeleteParams::background()).await.unwrap();
        eventually(SOON, "the first job to leave", async || {
            ensure!(tenant.worker_workloads("east").get_opt(&first).await?.is_none());
            Ok(())
        })
        .await
        .unwrap();
        tenant.submit(job("third").annotation("switchyard.dev/clusters", "west")).await.unwrap();
        let says = format!("flavor {fast}, which the hub charged for cpu, is not in ClusterQueue");
        let row =
            tenant.await_status("third", "why it waits", SOON, |row| row.reason.contains(&says));
        assert_eq!(row.await.unwrap().cluster, None);
        let text = why(fleet, &tenant, "third").await;
        assert!(text.contains(&says), "{text}");
        println!("{text}");
    });
}

#[test]
fn worker_refuses_unknown_or_unreadable_pins() {
    fixture::run(async {
        let fleet = fleet().await;
        let tenant =
            fleet.tenant("unlisted").hub(QUOTA).worker("west", QUOTA).make().await.unwrap();
        // A hub's Workload is forged by an administrator: its pin names a flavor that is not there.
        let workloads = tenant.worker_workloads("west");
        for (name, pins, says) in [
            (
                "unknown",
                r#"{"main":{"cpu":"nowhere"}}"#.to_owned(),
                "flavor nowhere, which the hub charged for cpu, is not in the ClusterQueue",
            ),
            (
                "unreadable",
                "nowhere".to_owned(),
                "annotation switchyard.dev/flavor-pins: not a JSON object",
            ),
            ("too-many", many_pins(10_000), "annotation switchyard.dev/flavor-pins: "),
        ] {
            let workload = forged(tenant.name(), name, &pins);
            workloads.create(&Default::default(), &workload).await.unwrap();
            eventually(SOON, format!("{name} to be refused"), async || {
                let status = workloads.get(name).await?.status.unwrap_or_default();
                let condition = status.conditions.iter().find(|it| it.type_ == "QuotaReserved");
                let condition = condition.context("no condition")?;
                ensure!(
                    condition.status == "False" && condition.message.contains(says),
                    "{condition:?}"
                );
                Ok(())
            })
            .await
            .unwrap();
        }
    });
}

fn many_pins(count: usize) -> String {
    let resources: serde_json::Map<String, Value> =
        (0..count).map(|number| (format!("r{number}"), "f".into())).collect();
    json!({"main": resources}).to_string()
}

/// A Workload as an agent would make it.
fn forged(namespace: &str, name: &str, pins: &str) -> Workload {
    let container = json!({"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}});
    serde_json::from_value(json!({
        "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload",
        "metadata": {
            "name": name, "namespace": namespace,
            "annotations": {"switchyard.dev/workload-uid": "u", "switchyard.dev/flavor-pins": pins},
        },
        "spec": {
            "queueName": "main",
            "podSets": [{"name": "main", "count": 1, "template": {
                "spec": {"restartPolicy": "Never", "containers": [container]},
            }}],
        },
    }))
    .unwrap()
}

static STOCK: Shared<Fleet> = Shared::new(|| {
    Box::pin(async {
        let node = NodeSpec::new("n1").cpu(64);
        let fleet = Fleet::builder("pins-stock").bare(ClusterSpec::new("stock").node(node));
        fleet.start().await
    })
});

#[test]
fn other_flavor_of_a_stock_worker_is_shown() {
    fixture::run(async {
        let fleet = STOCK.get().await.unwrap();
        let worker = fleet.worker("stock");
        let _kueue = Kueue::start(worker, &Options::default()).await.unwrap();
        let kubeconfig = std::fs::read_to_string(worker.kubeconfig()).unwrap();
        let secret =
            queues::kubeconfig_secret(switchyard_e2e::fleet::NAMESPACE, "stock", &kubeconfig);
        fleet.hub().apply([secret, queues::kubeconfig_cluster("stock", "stock")]).await.unwrap();
        let tenant = fleet.tenant("stock").hub(QUOTA).worker("stock", QUOTA).make().await.unwrap();
        let charged = tenant.name().to_owned();
        let other = format!("{charged}-other");
        list_flavors(fleet, &tenant, "stock", &[&other, &charged]).await;
        tenant.submit(tenant.job("free").cpu("1").run_forever()).await.unwrap();
        runs_in(&tenant, "stock", "free", &other).await;
        let says = format!("Flavor:    cpu of main runs in {other}; {charged} is charged");
        eventually(SOON, "the hub to show the flavor in use", async || {
            let text = why(fleet, &tenant, "free").await;
            ensure!(text.contains(&says), "{text}");
            Ok(())
        })
        .await
        .unwrap();
    });
}
