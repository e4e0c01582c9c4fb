//! The keys that prove a worker's object to be this hub's copy, and whether each worker enforces
//! its key yet.
//!
//! `docs/adr/0001-proof-of-copies.md` says why one root key of the hub yields each cluster's key.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, ResourceExt as _};
use parking_lot::Mutex;
use switchyard_agent::signing::{Operators, ScanResult};
use switchyard_api::names;
use switchyard_api::v1beta2::MultiKueueCluster;
use switchyard_hub_pki::store;
use switchyard_platform::clock::Clock;
use switchyard_platform::store::Store;
use switchyard_proto::copy_key::{CopyKey, RootKey};
use tokio::sync::Notify;

use super::registry::Registry;
use crate::audit::{Actor, AuditOperation, AuditOutcome, AuditRecord};

/// How long an operator's `trust-copies` annotation counts.
const TRUST_FOR: SignedDuration = SignedDuration::from_hours(1);
/// Characters kept of an obstacle that an agent reports.
const MAX_TEXT: usize = 1024;

pub struct CopyKeys {
    root: RootKey,
    secrets: Api<Secret>,
    clusters: Store<MultiKueueCluster>,
    registry: Arc<Registry>,
    clock: Arc<dyn Clock>,
    /// Why a cluster does not enforce its key, as last reported. Empty: it enforces the key.
    obstacles: Mutex<BTreeMap<String, String>>,
    /// The value of each cluster's `trust-copies` annotation that the audit stream has.
    trusted: Mutex<BTreeMap<String, String>>,
    /// Notified when an obstacle changes.
    pub changed: Notify,
}

impl CopyKeys {
    pub fn new(
        root: RootKey,
        secrets: Api<Secret>,
        clusters: Store<MultiKueueCluster>,
        registry: Arc<Registry>,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let (obstacles, trusted) = (Mutex::default(), Mutex::default());
        Self {
            root,
            secrets,
            clusters,
            registry,
            clock,
            obstacles,
            trusted,
            changed: Notify::new(),
        }
    }

    /// The key for copies on the worker cluster with this uid. None if another MultiKueueCluster
    /// holds that worker.
    pub fn of(&self, cluster: &str, uid: &str) -> Option<CopyKey> {
        let free = !uid.is_empty() && self.registry.holder(cluster, uid).is_none();
        free.then(|| self.root.of_cluster(uid))
    }

    /// Whether an operator trusts all copies on a cluster. The first use of an annotation value
    /// goes to the audit stream.
    pub fn are_trusted(&self, cluster: &str) -> bool {
        let Some(found) = self.clusters.get("", cluster) else { return false };
        let said = found.annotations().get(names::TRUST_COPIES);
        let Some(said) = said.filter(|said| is_trusting(said, self.clock.now())) else {
            return false;
        };
        let mut trusted = self.trusted.lock();
        if trusted.insert(cluster.to_owned(), said.clone()).as_ref() != Some(said) {
            let (object, why) = (format!("MultiKueueCluster/{cluster}"), said.clone());
            let operation = AuditOperation::TrustCopies;
            AuditRecord {
                operation,
                who: Actor::Unknown,
                object,
                why,
                result: AuditOutcome::Accepted,
            }
            .write();
        }
        true
    }

    /// Records why a cluster does not enforce its key.
    pub fn note(&self, cluster: &str, obstacle: &str) {
        let obstacle: String = obstacle.chars().take(MAX_TEXT).collect();
        let mut obstacles = self.obstacles.lock();
        let news = obstacles.get(cluster) != Some(&obstacle);
        obstacles.insert(cluster.to_owned(), obstacle);
        drop(obstacles);
        if news {
            self.changed.notify_one();
        }
    }

    /// The obstacle last recorded in this process.
    pub fn obstacle(&self, cluster: &str) -> Option<String> {
        self.obstacles.lock().get(cluster).cloned()
    }

    /// Forgets a deleted MultiKueueCluster.
    pub fn forget(&self, cluster: &str) {
        self.obstacles.lock().remove(cluster);
        self.trusted.lock().remove(cluster);
    }

    /// Whether the kubeconfig worker with this uid enforces its key.
    ///
    /// # Errors
    /// The API server refuses or does not answer.
    pub(crate) async fn is_enforced(&self, uid: &str) -> Result<bool, String> {
        in_time(store::is_proved(&self.secrets, uid)).await
    }

    /// Makes the kubeconfig worker with this uid enforce its key.
    ///
    /// # Errors
    /// As [`Self::is_enforced`].
    pub(crate) async fn enforce(&self, uid: &str) -> Result<(), String> {
        in_time(store::note_proved(&self.secrets, uid)).await
    }
}

/// Deadline of a read or write of the CA Secret.
const ANSWER: Duration = Duration::from_secs(15);

async fn in_time<T>(call: impl Future<Output = anyhow::Result<T>>) -> Result<T, String> {
    match tokio::time::timeout(ANSWER, call).await {
        Ok(done) => done.map_err(|error| format!("{error:#}")),
        Err(_) => Err(format!("no answer within {ANSWER:?}")),
    }
}

/// Operators' trust in the copies on one kubeconfig worker.
pub(crate) struct HostedOperators<'a> {
    pub(crate) keys: &'a CopyKeys,
    pub(crate) cluster: &'a str,
}

impl Operators for HostedOperators<'_> {
    fn report<'a>(&'a self, scan: &'a ScanResult) -> BoxFuture<'a, bool> {
        let obstacle = scan.obstacle();
        if !obstacle.is_empty() && self.keys.obstacle(self.cluster).as_ref() != Some(&obstacle) {
            tracing::warn!(cluster = self.cluster, obstacle, "marks alone make a copy there");
        }
        self.keys.note(self.cluster, &obstacle);
        std::future::ready(self.keys.are_trusted(self.cluster)).boxed()
    }
}

/// Whether the annotation's time is recent. An old annotation does not cover copies made since.
fn is_trusting(value: &str, now: Timestamp) -> bool {
    value.parse::<Timestamp>().is_ok_and(|said| now.duration_since(said).abs() < TRUST_FOR)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trust_annotation_counts_for_an_hour() {
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
