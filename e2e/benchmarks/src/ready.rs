//! Waiting until queues take Jobs and clusters are connected, in all systems.

use std::time::Duration;

use anyhow::ensure;
use kube::Api;
use switchyard_api::conditions;
use switchyard_api::v1beta2::{LocalQueue, MultiKueueCluster};
use switchyard_e2e::Cluster;
use switchyard_e2e::wait::eventually;

const SOON: Duration = Duration::from_secs(120);

/// Waits until a LocalQueue is Active.
pub(super) async fn queue(cluster: &Cluster, namespace: &str, name: &str) -> anyhow::Result<()> {
    let queues: Api<LocalQueue> = Api::namespaced(cluster.admin.clone(), namespace);
    eventually(SOON, format!("LocalQueue {name} on {} to be active", cluster.name()), async || {
        let status = queues.get(name).await?.status.unwrap_or_default();
        ensure!(
            conditions::is_true(&status.conditions, conditions::ACTIVE),
            "{:?}",
            status.conditions
        );
        Ok(())
    })
    .await
}

/// Waits until the hub says that a worker is connected.
pub(super) async fn connected(hub: &Cluster, name: &str) -> anyhow::Result<()> {
    let clusters: Api<MultiKueueCluster> = Api::all(hub.admin.clone());
    eventually(SOON, format!("MultiKueueCluster {name} to be active"), async || {
        let status = clusters.get(name).await?.status.unwrap_or_default();
        ensure!(
            conditions::is_true(&status.conditions, conditions::ACTIVE),
            "{:?}",
            status.conditions
        );
        Ok(())
    })
    .await
}
