//! The keys by which clusters know the hub's copies, and what is known of whether they are in force.
//!
//! `docs/adr/0001-proof-of-copies.md` says why each cluster's key is derived from one of the hub.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, ResourceExt as _};
use parking_lot::Mutex;
use switchyard_agent::proof::{CopyKey, Look, Operators, RootKey};
use switchyard_api::names;
use switchyard_api::v1beta2::MultiKueueCluster;
use switchyard_platform::clock::Clock;
use switchyard_platform::store::Store;
use tokio::sync::Notify;

use super::registry::Registry;
use crate::audit::{Line, Operation, Outcome, Who};
use switchyard_hub_pki::store;

/// For so long operators trust what is on a cluster once they have said so.
const TRUST_FOR: SignedDuration = SignedDuration::from_hours(1);
/// Characters that are kept of what an agent tells.
const MAX_TEXT: usize = 1024;

/// Of all clusters.
pub struct CopyKeys {
    root: RootKey,
    secrets: Api<Secret>,
    clusters: Store<MultiKueueCluster>,
    registry: Arc<Registry>,
    clock: Arc<dyn Clock>,
    /// By cluster, what keeps its key from being in force, as was last told; empty: nothing.
    obstacles: Mutex<BTreeMap<String, String>>,
    /// By cluster, the trust that was written to the audit stream.
    trusted: Mutex<BTreeMap<String, String>>,
    /// Rung at each change.
    pub bell: Notify,
}

impl CopyKeys {
    /// Derived from this one of the hub.
    pub fn new(
        root: RootKey,
        secrets: Api<Secret>,
        clusters: Store<MultiKueueCluster>,
        registry: Arc<Registry>,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let (obstacles, trusted) = (Mutex::default(), Mutex::default());
        Self { root, secrets, clusters, registry, clock, obstacles, trusted, bell: Notify::new() }
    }

    /// The key of the worker cluster with this uid, for a MultiKueueCluster; none if another one leads there.
    pub fn of(&self, cluster: &str, uid: &str) -> Option<CopyKey> {
        let free = !uid.is_empty() && self.registry.holder(cluster, uid).is_none();
        free.then(|| self.root.of_cluster(uid))
    }

    /// Whether operators have said to trust what is on a cluster. Writes that to the audit stream when it counts first.
    pub fn are_trusted(&self, cluster: &str) -> bool {
        let Some(found) = self.clusters.get("", cluster) else { return false };
        let said = found.annotations().get(names::TRUST_COPIES);
        let Some(said) = said.filter(|said| is_trusting(said, self.clock.now())) else {
            return false;
        };
        let mut trusted = self.trusted.lock();
        if trusted.insert(cluster.to_owned(), said.clone()).as_ref() != Some(said) {
            let (object, why) = (format!("MultiKueueCluster/{cluster}"), said.clone());
            let operation = Operation::TrustCopies;
            Line { operation, who: Who::Unknown, object, why, result: Outcome::Accepted }.write();
        }
        true
    }

    /// Records the obstacle that keeps the key of a cluster from being in force.
    pub fn note(&self, cluster: &str, obstacle: &str) {
        let obstacle: String = obstacle.chars().take(MAX_TEXT).collect();
        let mut obstacles = self.obstacles.lock();
        let news = obstacles.get(cluster) != Some(&obstacle);
        obstacles.insert(cluster.to_owned(), obstacle);
        drop(obstacles);
        if news {
            self.bell.notify_one();
        }
    }

    /// The obstacle that was last recorded in this process.
    pub fn obstacle(&self, cluster: &str) -> Option<String> {
        self.obstacles.lock().get(cluster).cloned()
    }

    /// A cluster is gone.
    pub fn forget(&self, cluster: &str) {
        self.obstacles.lock().remove(cluster);
        self.trusted.lock().remove(cluster);
    }

    /// Whether the key of a kubeconfig worker is in force.
    ///
    /// # Errors
    /// The API server refuses or does not answer.
    pub(crate) async fn is_enforced(&self, uid: &str) -> Result<bool, String> {
        store::is_proved(&self.secrets, uid).await.map_err(|error| format!("{error:#}"))
    }

    /// Brings it into force.
    ///
    /// # Errors
    /// As [`Self::is_enforced`].
    pub(crate) async fn enforce(&self, uid: &str) -> Result<(), String> {
        store::note_proved(&self.secrets, uid).await.map_err(|error| format!("{error:#}"))
    }
}

/// Operators, for a kubeconfig worker.
pub(crate) struct OfHosted<'a> {
    pub(crate) keys: &'a CopyKeys,
    pub(crate) cluster: &'a str,
}

impl Operators for OfHosted<'_> {
    fn tell<'a>(&'a self, look: &'a Look) -> BoxFuture<'a, bool> {
        let obstacle = look.obstacle();
        if !obstacle.is_empty() && self.keys.obstacle(self.cluster).as_ref() != Some(&obstacle) {
            tracing::warn!(cluster = self.cluster, obstacle, "marks alone make a copy there");
        }
        self.keys.note(self.cluster, &obstacle);
        std::future::ready(self.keys.are_trusted(self.cluster)).boxed()
    }
}

/// Whether the annotation says to trust what is there now. What it said once does not count for later.
fn is_trusting(value: &str, now: Timestamp) -> bool {
    value.parse::<Timestamp>().is_ok_and(|said| now.duration_since(said).abs() < TRUST_FOR)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trust_counts_for_an_hour() {
        let now: Timestamp = "2026-01-01T12:00:00Z".parse().unwrap();
        for (case, value, trusting) in [
            ("nothing", "", false),
            ("now", "2026-01-01T12:00:00Z", true),
            ("with nanoseconds", "2026-01-01T11:59:59.123456789Z", true),
            ("by a clock that is ahead", "2026-01-01T12:05:00Z", true),
            ("an hour ago", "2026-01-01T11:00:00Z", false),
            ("tomorrow", "2026-01-02T12:00:00Z", false),
            ("no time", "true", false),
        ] {
            assert_eq!(is_trusting(value, now), trusting, "{case}");
        }
    }
}
