//! A worker that a ClusterProfile leads to, with the real CRD; a command of the hub's configuration prints the credential.
use std::path::Path;
use std::time::Duration;

use crate::common::install_crds_of;
use anyhow::ensure;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};
use switchyard_e2e::fleet::{Fleet, NAMESPACE};
use switchyard_e2e::wait::{always, eventually};
use switchyard_e2e::{Cluster, ClusterSpec, NodeSpec, fixture, job, queues};

const SOON: Duration = Duration::from_secs(60);
/// The hub looks for a profile every three seconds.
const WHILE: Duration = Duration::from_secs(5);
const WORKER: &str = "east";
const PROFILE: &str = "east-profile";
const PROVIDER: &str = "vault";
const API: &str = "multicluster.x-k8s.io/v1alpha1";

/// The hub's configuration: who has to do with the provider gets what is in a file.
fn config(credential: &Path) -> String {
    let exec = json!({
        "command": "cat", "args": [credential], "apiVersion": "client.authentication.k8s.io/v1", "interactiveMode": "Never",
    });
    let config = json!({
        "apiVersion": "config.kueue.x-k8s.io/v1beta2", "kind": "Configuration",
        "featureGates": {"MultiKueueClusterProfile": true},
        "multiKueue": {"clusterProfile": {"accessProviders": [{"name": PROVIDER, "execConfig": exec}]}},
    });
    config.to_string()
}

/// Prepares the worker for the hub, and writes the hub's credential there into a file as the provider's command prints it.
async fn let_in(fleet: &Fleet, credential: &Path) {
    fleet.start_single(WORKER).await.unwrap();
    let token = fleet
        .worker(WORKER)
        .service_account_token(NAMESPACE, "switchyard-remote-hub")
        .await
        .unwrap();
    let printed = json!({
        "apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": {"token": token},
    });
    std::fs::write(credential, printed.to_string()).unwrap();
}

/// How the worker is reached, as a kubeconfig has it.
fn way(worker: &Cluster) -> Value {
    use base64::Engine as _;
    let ca = base64::engine::general_purpose::STANDARD.encode(worker.ca_pem());
    json!({"server": worker.url(), "certificate-authority-data": ca})
}

/// Makes the profile, in a namespace.
async fn make(hub: &Cluster, namespace: &str) {
    let metadata = json!({"name": PROFILE, "namespace": namespace});
    let spec = json!({"clusterManager": {"name": "tests"}});
    hub.apply([
        json!({"apiVersion": API, "kind": "ClusterProfile", "metadata": metadata, "spec": spec}),
    ])
    .await
    .unwrap();
}

/// Has the profile's status say how a provider reaches the cluster.
async fn shows(hub: &Cluster, namespace: &str, provider: &str, way: &Value) {
    let profiles = hub.dynamic(API, "ClusterProfile", namespace).await.unwrap();
    let status = json!({"status": {"accessProviders": [{"name": provider, "cluster": way}]}});
    profiles.patch_status(PROFILE, &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
}

#[test]
fn a_job_runs_where_a_cluster_profile_leads() {
    fixture::run(async {
        let dir = tempfile::tempdir().unwrap();
        let credential = dir.path().join("credential.json");
        let spec = ClusterSpec::new(WORKER).node(NodeSpec::new("n1").cpu(8));
        let fleet =
            Fleet::builder("profile").bare(spec).config(config(&credential)).start().await.unwrap();
        let_in(&fleet, &credential).await;
        let (hub, worker) = (fleet.hub(), fleet.worker(WORKER));
        install_crds_of(hub, "sigs.k8s.io/cluster-inventory-api", "config/crd").await;

        // A profile that does not lead there names the reason.
        hub.apply([queues::profile_cluster(WORKER, PROFILE)]).await.unwrap();
        let says = async |reason: &str, why: &str| {
            let message = format!("load client config failed: {why}");
            fleet.says(WORKER, reason, &message).await.unwrap();
        };
        let missing = format!("ClusterProfile.multicluster.x-k8s.io \"{PROFILE}\" not found");
        says("BadClusterProfile", &missing).await;
        // One of another namespace is none.
        make(hub, "default").await;
        shows(hub, "default", PROVIDER, &way(worker)).await;
        let still = async || fleet.says_now(WORKER, "BadClusterProfile", &missing).await;
        always(WHILE, "the cluster without a profile", still).await.unwrap();
        make(hub, NAMESPACE).await;
        shows(hub, NAMESPACE, "another", &way(worker)).await;
        let nobody =
            format!("no matching cluster accessor found for cluster profile \"{PROFILE}\"");
        says("BadClusterProfile", &nobody).await;
        shows(hub, NAMESPACE, PROVIDER, &json!({"server": "https://not_a_host"})).await;
        says("BadRestConfig", "untrusted server endpoint").await;
        shows(hub, NAMESPACE, PROVIDER, &way(worker)).await;
        fleet.connected(WORKER).await.unwrap();

        let quota = [("cpu", "4")];
        let tenant =
            fleet.tenant("profile").hub(&quota).worker(WORKER, &quota).make().await.unwrap();
        tenant.submit(tenant.job("short").run_for(Duration::from_millis(500))).await.unwrap();
        job::complete(&hub.admin, tenant.name(), "short", SOON).await.unwrap();
        tenant.await_empty(WORKER, SOON).await.unwrap();

        // Running jobs go on while the profile is away.
        tenant.submit(tenant.job("long").run_forever()).await.unwrap();
        fleet.await_pods(WORKER, tenant.name(), 1).await.unwrap();
        let before = tenant.worker_jobs(WORKER).get("long").await.unwrap().metadata.uid;
        let profiles = hub.dynamic(API, "ClusterProfile", NAMESPACE).await.unwrap();
        profiles.delete(PROFILE, &DeleteParams::default()).await.unwrap();
        says("BadClusterProfile", &missing).await;
        make(hub, NAMESPACE).await;
        shows(hub, NAMESPACE, PROVIDER, &way(worker)).await;
        fleet.connected(WORKER).await.unwrap();
        assert_eq!(tenant.worker_jobs(WORKER).get("long").await.unwrap().metadata.uid, before);
        let shown = async || {
            let status = tenant.hub_jobs().get("long").await?.status.unwrap_or_default();
            ensure!(status.active == Some(1), "{status:?}");
            Ok(())
        };
        eventually(SOON, "the job to run on", shown).await.unwrap();
        tenant.hub_jobs().delete("long", &DeleteParams::background()).await.unwrap();
        tenant.await_empty(WORKER, SOON).await.unwrap();
    });
}
