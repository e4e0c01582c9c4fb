//! The leader among a hub's replicas.

use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;

use crate::fleet::{Fleet, NAMESPACE};

/// The configuration of a hub whose second replica leads in less than five seconds. See docs/availability.md.
pub const QUICK: &str = "apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
leaderElection:
  leaderElect: true
  leaseDuration: 3s
  renewDeadline: 2s
  retryPeriod: 500ms
";

/// The election's Lease: Kueue's.
const LEASE: &str = "c1f6bfd2.kueue.x-k8s.io";

/// The leader, by the election's Lease.
///
/// # Errors
/// When it cannot be read.
pub async fn leader(fleet: &Fleet) -> anyhow::Result<Option<String>> {
    let leases: Api<Lease> = Api::namespaced(fleet.hub().admin.clone(), NAMESPACE);
    Ok(leases.get_opt(LEASE).await?.and_then(|lease| lease.spec?.holder_identity))
}
