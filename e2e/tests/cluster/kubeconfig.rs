//! Workers without an agent: the hub drives them with a kubeconfig.
use std::path::Path;
use std::time::Duration;

use anyhow::ensure;
use kube::Api;
use serde_json::{Value, json};
use switchyard_api::v1beta2::MultiKueueCluster;
use switchyard_e2e::fixture::Shared;
use switchyard_e2e::fleet::{Fleet, NAMESPACE};
use switchyard_e2e::stock::{Kueue, Options};
use switchyard_e2e::wait::eventually;
use switchyard_e2e::{ClusterSpec, NodeSpec, fixture, job, queues};

use crate::node_room::shows_on_nodes;

const SOON: Duration = Duration::from_secs(60);

/// A hub and its workers: one runs Switchyard in single mode, one runs stock Kueue, and one only lets the hub in. No two names
/// stand for one cluster that runs jobs.
static FLEET: Shared<Fleet> = Shared::new(|| {
    Box::pin(async {
        let node = || NodeSpec::new("n1").cpu(64).gpu(8);
        let fleet = Fleet::builder("kubeconfig")
            .bare(ClusterSpec::new("single").node(node()))
            .bare(ClusterSpec::new("stock").node(node()))
            .bare(ClusterSpec::new("idle"));
        let fleet = fleet.start().await?;
        fleet.start_single("single").await?;
        fleet.worker("idle").install().await?;
        Ok(fleet)
    })
});

async fn fleet() -> &'static Fleet {
    FLEET.get().await.unwrap()
}

/// Puts a worker's kubeconfig into a Secret on the hub, and names it in a MultiKueueCluster.
async fn register(fleet: &Fleet, cluster: &str, kubeconfig: &str) {
    let secret = queues::kubeconfig_secret(NAMESPACE, cluster, kubeconfig);
    fleet.hub().apply([secret, queues::kubeconfig_cluster(cluster, cluster)]).await.unwrap();
}

/// Two MultiKueueClusters must not name one worker: those who use the idle one take turns, and delete what they named.
static IDLE: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

async fn delete(fleet: &Fleet, cluster: &str) {
    let clusters: Api<MultiKueueCluster> = Api::all(fleet.hub().admin.clone());
    clusters.delete(cluster, &kube::api::DeleteParams::default()).await.unwrap();
}

/// Waits until the hub says this of a cluster.
async fn says(fleet: &Fleet, cluster: &str, reason: &str, message: &str) {
    fleet.says(cluster, reason, message).await.unwrap();
}

#[test]
fn a_job_runs_on_a_worker_in_single_mode() {
    fixture::run(async {
        let fleet = fleet().await;
        let (_, kubeconfig) = fleet
            .worker("single")
            .service_account(NAMESPACE, "switchyard-remote-hub")
            .await
            .unwrap();
        register(fleet, "single", &kubeconfig).await;
        fleet.connected("single").await.unwrap();
        runs_and_fails_and_is_collected(fleet, "single").await;
    });
}

#[test]
fn a_job_runs_on_a_worker_with_stock_kueue() {
    fixture::run(async {
        let fleet = fleet().await;
        let worker = fleet.worker("stock");
        let _kueue = Kueue::start(worker, &Options::default()).await.unwrap();
        worker.apply_dir(switchyard_e2e::paths::root().join("deploy/rbac")).await.unwrap();
        let (_, kubeconfig) =
            worker.service_account(NAMESPACE, "switchyard-remote-hub").await.unwrap();
        register(fleet, "stock", &kubeconfig).await;
        fleet.connected("stock").await.unwrap();
        runs_and_fails_and_is_collected(fleet, "stock").await;
    });
}

/// One job completes, one fails, one is deleted while it runs; nothing is left on the worker. One gets another priority.
async fn runs_and_fails_and_is_collected(fleet: &Fleet, worker: &str) {
    let tenant = fleet
        .tenant(worker)
        .hub(&[("cpu", "4")])
        .worker(worker, &[("cpu", "4")])
        .make()
        .await
        .unwrap();
    let hub = &fleet.hub().admin;
    tenant.submit(tenant.job("good").run_for(Duration::from_secs(1))).await.unwrap();
    tenant.submit(tenant.job("bad").fails()).await.unwrap();
    tenant.submit(tenant.job("long").run_forever()).await.unwrap();
    shows_on_nodes(fleet, &tenant, worker, |_| true).await;
    job::complete(hub, tenant.name(), "good", SOON).await.unwrap();
    job::failed(hub, tenant.name(), "bad", SOON).await.unwrap();
    fleet.await_pods(worker, tenant.name(), 1).await.unwrap();
    tenant.hub_jobs().delete("long", &kube::api::DeleteParams::background()).await.unwrap();
    tenant.await_empty(worker, SOON).await.unwrap();
    tenant.changes_priority(worker, SOON).await.unwrap();
}

#[test]
fn a_kubeconfig_that_cannot_be_used_says_why() {
    fixture::run(async {
        let _turn = IDLE.lock().await;
        let fleet = fleet().await;
        let (_, good) =
            fleet.worker("idle").service_account(NAMESPACE, "switchyard-remote-hub").await.unwrap();
        let edit = |change: fn(&mut Value)| {
            let mut kubeconfig: Value = serde_saphyr::from_str(&good).unwrap();
            change(&mut kubeconfig);
            serde_json::to_string(&kubeconfig).unwrap()
        };
        let cases = [
            ("no YAML", "{{{".to_owned(), "InsecureKubeConfig", "load client config failed"),
            (
                "another CA",
                edit(|k| {
                    k["clusters"][0]["cluster"]["certificate-authority-data"] = other_ca().into()
                }),
                "ClientConnectionFailed",
                "",
            ),
            (
                "no verification",
                edit(|k| {
                    k["clusters"][0]["cluster"] =
                        json!({"server": "https://127.0.0.1:1", "insecure-skip-tls-verify": true})
                }),
                "InsecureKubeConfig",
                "insecure TLS verification is not allowed for cluster",
            ),
            (
                "a token from a file",
                edit(|k| k["users"][0]["user"] = json!({"tokenFile": "/etc/hostname"})),
                "InsecureKubeConfig",
                "tokenFile",
            ),
        ];
        for (case, kubeconfig, reason, message) in cases {
            let name = fixture::unique("bad");
            println!("{case}: {name}");
            register(fleet, &name, &kubeconfig).await;
            says(fleet, &name, reason, message).await;
            delete(fleet, &name).await;
        }
    });
}

fn other_ca() -> String {
    use base64::Engine as _;
    let other = switchyard_e2e::Authority::new("other").unwrap();
    base64::engine::general_purpose::STANDARD.encode(other.pem())
}

#[test]
fn a_missing_secret_and_a_missing_key_are_told_apart() {
    fixture::run(async {
        let fleet = fleet().await;
        let name = fixture::unique("absent");
        fleet.hub().apply([queues::kubeconfig_cluster(&name, &name)]).await.unwrap();
        says(fleet, &name, "BadKubeConfig", "not found").await;
        let mut secret = queues::kubeconfig_secret(NAMESPACE, &name, "");
        secret["stringData"] = json!({"kubeconf": "x"});
        fleet.hub().apply([secret]).await.unwrap();
        says(fleet, &name, "BadKubeConfig", "key \"kubeconfig\" not found").await;
    });
}

/// Puts a file in the place of another at once, as a mounted Secret changes.
fn replace(path: &Path, text: &str) {
    let next = path.with_extension("next");
    std::fs::write(&next, text).unwrap();
    std::fs::rename(&next, path).unwrap();
}

#[test]
fn a_file_is_taken_up_when_it_changes() {
    fixture::run(async {
        let _turn = IDLE.lock().await;
        let fleet = fleet().await;
        let name = fixture::unique("file");
        let path = fleet.hub().state_dir().join("kubeconfigs").join(&name);
        let source =
            json!({"kubeConfig": {"location": path.display().to_string(), "locationType": "Path"}});
        let mut cluster = queues::kubeconfig_cluster(&name, &name);
        cluster["spec"]["clusterSource"] = source;
        fleet.hub().apply([cluster]).await.unwrap();
        says(fleet, &name, "BadKubeConfig", "cannot resolve kubeconfig path symlinks").await;

        let worker = fleet.worker("idle");
        let account =
            async || worker.service_account(NAMESPACE, "switchyard-remote-hub").await.unwrap().1;
        let (first, second) = (account().await, account().await);
        assert_ne!(first, second, "each has a token of its own");
        replace(&path, &first);
        fleet.connected(&name).await.unwrap();

        // A token that the worker does not know, then none, then a good one again.
        let mut wrong: Value = serde_saphyr::from_str(&second).unwrap();
        wrong["users"][0]["user"]["token"] = "wrong".into();
        replace(&path, &serde_json::to_string(&wrong).unwrap());
        says(fleet, &name, "ClientConnectionFailed", "Unauthorized").await;
        replace(&path, &second);
        fleet.connected(&name).await.unwrap();
        std::fs::remove_file(&path).unwrap();
        says(fleet, &name, "BadKubeConfig", "cannot resolve kubeconfig path symlinks").await;
        replace(&path, &first);
        fleet.connected(&name).await.unwrap();
        delete(fleet, &name).await;
    });
}

#[test]
fn a_rotated_secret_is_taken_up() {
    fixture::run(async {
        let _turn = IDLE.lock().await;
        let fleet = fleet().await;
        let name = fixture::unique("rotated");
        register(fleet, &name, "{{{").await;
        says(fleet, &name, "InsecureKubeConfig", "").await;
        let worker = fleet.worker("idle");
        let (_, kubeconfig) =
            worker.service_account(NAMESPACE, "switchyard-remote-hub").await.unwrap();
        fleet
            .hub()
            .apply([queues::kubeconfig_secret(NAMESPACE, &name, &kubeconfig)])
            .await
            .unwrap();
        fleet.connected(&name).await.unwrap();

        // Another name for the same worker is refused as long as the first one is there.
        eventually(SOON, "a later second", async || {
            let cluster =
                Api::<MultiKueueCluster>::all(fleet.hub().admin.clone()).get(&name).await?;
            let created = cluster.metadata.creation_timestamp.map(|at| at.0.as_second());
            ensure!(created < Some(jiff::Timestamp::now().as_second()), "they would be of one age");
            Ok(())
        })
        .await
        .unwrap();
        let twin = fixture::unique("twin");
        register(fleet, &twin, &kubeconfig).await;
        says(fleet, &twin, "DuplicateCluster", &format!("MultiKueueCluster \"{name}\"")).await;
        delete(fleet, &name).await;
        fleet.connected(&twin).await.unwrap();
        delete(fleet, &twin).await;
    });
}

#[test]
fn a_cluster_profile_is_not_used_where_its_gate_is_off() {
    fixture::run(async {
        let fleet = fleet().await;
        let name = fixture::unique("profiled");
        fleet.hub().apply([queues::profile_cluster(&name, &name)]).await.unwrap();
        let message =
            "load client config failed: MultiKueueClusterProfile feature gate is disabled";
        says(fleet, &name, "MultiKueueClusterProfileFeatureDisabled", message).await;
    });
}
