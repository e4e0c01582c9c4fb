//! The fleet that the tests of a file share: a hub, and two workers with agents. And what tests of several files look at.

pub(crate) mod events;
pub(crate) mod helm;
pub(crate) mod kueue_chart;
pub(crate) mod leader_worker_set;
pub(crate) mod random;
pub(crate) mod shell;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::ensure;
use kube::Api;
use switchyard_api::v1beta2::MultiKueueCluster;
use switchyard_config::Configuration;
use switchyard_e2e::fixture::Shared;
use switchyard_e2e::fleet::{Fleet, Tenant};
use switchyard_e2e::wait::eventually;
use switchyard_e2e::{Cluster, ClusterSpec, NodeSpec, Part, Parts, queues};

/// How long an agent's report may take. The hub writes it every five seconds at most.
const REPORTED: Duration = Duration::from_secs(120);

/// The workers of the shared fleet.
pub(crate) const WORKERS: [&str; 2] = ["west", "east"];

static FLEET: Shared<Fleet> = Shared::new(|| {
    Box::pin(async {
        let mut fleet = Fleet::builder("fleet");
        for worker in WORKERS {
            fleet =
                fleet.agent(ClusterSpec::new(worker).node(NodeSpec::new("n1").cpu(256).gpu(64)));
        }
        let fleet = fleet.start().await?;
        fleet.hub().apply(WORKERS.map(queues::agent_cluster)).await?;
        fleet.connect().await?;
        Ok(fleet)
    })
});

/// Waits until an agent has reported these flavors of a tenant's queue with their nominal CPUs, in any order. Afterwards
/// the agent's controller knows a change of the ClusterQueue.
pub(crate) async fn await_reported(
    fleet: &Fleet,
    tenant: &Tenant<'_>,
    cluster: &str,
    flavors: &[(&str, &str)],
) {
    let clusters: Api<MultiKueueCluster> = Api::all(fleet.hub().admin.clone());
    let expected: BTreeSet<(String, String)> =
        flavors.iter().map(|(name, cpu)| ((*name).to_owned(), (*cpu).to_owned())).collect();
    eventually(REPORTED, format!("{cluster} to report {expected:?}"), async || {
        let agent = clusters.get(cluster).await?.status.unwrap_or_default().agent;
        let rows = agent.map(|agent| agent.capacity).unwrap_or_default();
        let of_tenant = rows
            .into_iter()
            .filter(|row| row.cluster_queue == tenant.name() && row.resource == "cpu");
        let reported: BTreeSet<_> = of_tenant.map(|row| (row.flavor, row.nominal.0)).collect();
        ensure!(reported == expected, "{reported:?}");
        Ok(())
    })
    .await
    .unwrap();
}

/// The folder of a Go module that Kueue requires.
pub(crate) async fn module_of_kueue(module: &'static str) -> PathBuf {
    let find = move || anyhow::Ok(Parts::new()?.source_dir(Part::Kueue, module)?);
    tokio::task::spawn_blocking(find).await.unwrap().unwrap()
}

/// Installs the CRDs in a folder of a Go module that Kueue requires.
pub(crate) async fn install_crds_of(cluster: &Cluster, module: &'static str, folder: &str) {
    cluster.apply_dir(module_of_kueue(module).await.join(folder)).await.unwrap();
}

/// A configuration whose webhooks validate all manifests of the tables: fields of these feature gates are validated
/// only where they are on.
pub(crate) fn that_judges_manifests() -> Configuration {
    let mut config = Configuration::default();
    for gate in ["ConcurrentAdmission", "PriorityBoost"] {
        config.feature_gates.insert(gate.to_owned(), true);
    }
    config
}

/// The shared fleet, started by the first test.
pub(crate) async fn fleet() -> &'static Fleet {
    FLEET.get().await.unwrap()
}
