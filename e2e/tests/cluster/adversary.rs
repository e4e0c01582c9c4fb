//! Attacks by a tenant on the hub, through objects that the tenant may create. No other tenant
//! notices.
//!
//! Each attack runs beside an honest tenant that submits a short job every second. The checks count
//! ended sessions, attempts and pods of each job, and jobs that did not end.

mod forged;
mod marks;
mod unproved;

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, ensure};
use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::api::ListParams;
use kube::{Api, ResourceExt as _};
use serde_json::json;
use switchyard_api::v1beta2::MultiKueueCluster;
use switchyard_e2e::fixture::Shared;
use switchyard_e2e::fleet::{Fleet, NAMESPACE, Tenant};
use switchyard_e2e::wait::eventually;
use switchyard_e2e::{ClusterSpec, NodeSpec, queues};

const SOON: Duration = Duration::from_secs(120);
/// Two workers with agents, and one that the hub reaches with a kubeconfig.
const WORKERS: [&str; 3] = ["west", "east", "plain"];
const QUOTA: [(&str, &str); 1] = [("cpu", "8")];

/// The worst cost of a lost session: after five seconds its jobs move to the next cluster.
static FLEET: Shared<Fleet> = Shared::new(|| {
    Box::pin(async {
        let worker = |name: &str| ClusterSpec::new(name).node(NodeSpec::new("n1").cpu(64));
        let fleet = Fleet::builder("adversary")
            .agent(worker("west"))
            .agent(worker("east"))
            .bare(worker("plain"));
        let fleet = fleet.start().await?;
        fleet.start_single("plain").await?;
        let (_, kubeconfig) =
            fleet.worker("plain").service_account(NAMESPACE, "switchyard-remote-hub").await?;
        let mut clusters = vec![
            queues::agent_cluster("west"),
            queues::agent_cluster("east"),
            queues::kubeconfig_cluster("plain", "plain"),
        ];
        for cluster in &mut clusters {
            cluster["spec"]["onDisconnect"] = json!({"policy": "Duplicate", "after": "5s"});
        }
        fleet.hub().apply([queues::kubeconfig_secret(NAMESPACE, "plain", &kubeconfig)]).await?;
        fleet.hub().apply(clusters).await?;
        fleet.connect().await?;
        fleet.connected("plain").await?;
        Ok(fleet)
    })
});

async fn fleet() -> &'static Fleet {
    FLEET.get().await.unwrap()
}

/// A tenant whose jobs may go to these workers.
async fn tenant<'a>(fleet: &'a Fleet, stem: &str, workers: &[&str]) -> Tenant<'a> {
    let mut tenant = fleet.tenant(stem).hub(&QUOTA);
    for worker in workers {
        tenant = tenant.worker(worker, &QUOTA);
    }
    tenant.make().await.unwrap()
}

/// The hub's id. It is public: the hub's CA certificate, which every client sees, contains it.
async fn hub_id(fleet: &Fleet) -> String {
    let namespaces: Api<Namespace> = Api::all(fleet.hub().admin.clone());
    namespaces.get("kube-system").await.unwrap().uid().unwrap()
}

/// The session of each worker.
async fn sessions(fleet: &Fleet) -> BTreeMap<&'static str, String> {
    let clusters: Api<MultiKueueCluster> = Api::all(fleet.hub().admin.clone());
    let mut sessions = BTreeMap::new();
    for worker in WORKERS {
        let status = clusters.get(worker).await.unwrap().status.unwrap_or_default();
        let session = status.agent.and_then(|agent| agent.session_id).unwrap_or_default();
        assert!(!session.is_empty(), "{worker} has no session");
        sessions.insert(worker, session);
    }
    sessions
}

/// The orphans that the fleet's clusters report in a namespace.
async fn orphans(fleet: &Fleet, namespace: &str) -> Vec<String> {
    let clusters: Api<MultiKueueCluster> = Api::all(fleet.hub().admin.clone());
    let mut found = Vec::new();
    for worker in WORKERS {
        let cluster = clusters.get_opt(worker).await.unwrap();
        let status = cluster.and_then(|cluster| cluster.status).unwrap_or_default();
        let there = status.orphans.into_iter().filter(|orphan| orphan.namespace == namespace);
        found.extend(there.map(|orphan| format!("{worker}: {}", orphan.name)));
    }
    found
}

async fn ends(tenant: &Tenant<'_>, job: &str) {
    eventually(SOON, format!("{job} to end"), async || {
        let job = tenant.hub_jobs().get(job).await?;
        let status = job.status.context("no status")?;
        ensure!(status.succeeded == Some(1), "{status:?}");
        Ok(())
    })
    .await
    .unwrap();
}

/// Checks that a job was assigned once, to one cluster.
async fn ran_once(tenant: &Tenant<'_>, job: &str) {
    let dispatch = tenant
        .workload_of(job)
        .await
        .unwrap()
        .status
        .unwrap_or_default()
        .dispatch
        .unwrap_or_default();
    assert!(dispatch.history.is_empty(), "{job} was taken from a cluster: {:?}", dispatch.history);
}

/// Runs an attack beside a tenant that submits a job every second.
///
/// Checks that no session ended, and that each of the tenant's jobs ended and ran once.
async fn beside_an_honest_tenant(fleet: &Fleet, attack: impl Future<Output = ()>) {
    let honest = tenant(fleet, "honest", &WORKERS).await;
    let before = sessions(fleet).await;
    let mut attack = std::pin::pin!(attack);
    let (mut jobs, mut over) = (Vec::new(), false);
    while !over || jobs.len() < 5 {
        let name = format!("honest-{}", jobs.len());
        honest
            .submit(honest.job(&name).cpu("100m").run_for(Duration::from_millis(200)))
            .await
            .unwrap();
        jobs.push(name);
        let second = tokio::time::sleep(Duration::from_secs(1));
        if over {
            second.await;
        } else {
            tokio::select! {
                () = &mut attack => over = true,
                () = second => {}
            }
        }
    }
    for job in &jobs {
        ends(&honest, job).await;
        ran_once(&honest, job).await;
    }
    let mut pods = 0;
    for worker in WORKERS {
        let there: Api<Pod> = Api::namespaced(fleet.worker(worker).admin.clone(), honest.name());
        pods += there.list(&ListParams::default()).await.unwrap().items.len();
    }
    assert!(pods <= jobs.len(), "{pods} pods of {} jobs", jobs.len());
    assert_eq!(sessions(fleet).await, before, "no session has ended");
}
