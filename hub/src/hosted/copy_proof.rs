//! The key that proves this hub's copies on a kubeconfig worker.

use kube::Client;
use switchyard_agent::proof::Keys;
use switchyard_agent::signing::{
    Copies, MarkedObjects as _, Operators as _, Pace, ScanResult, settle,
};

use super::worker::Worker;
use crate::api_objects::has_jobs;
use crate::server::HostedOperators;

/// Pause after a failure to record that a key is enforced.
const RETRY: std::time::Duration = std::time::Duration::from_secs(10);

impl Worker {
    /// The keys to start with on the worker with this uid.
    ///
    /// `uid` is empty if the hub may not read it. Marks alone then make a copy: the rule must not
    /// depend on whether the uid could be read this time.
    pub(super) async fn initial_keys(&self, client: &Client, uid: &str) -> Keys {
        let known = self.known_uid();
        let named = if uid.is_empty() { known.as_deref().unwrap_or_default() } else { uid };
        let Some(key) = self.copy_keys.of(&self.cluster, named) else {
            self.report_obstacle(&ScanResult::Failed(
                "the uid of its namespace kube-system may not be read".to_owned(),
            ))
            .await;
            return Keys::none();
        };
        if uid.is_empty() {
            self.report_obstacle(&ScanResult::Failed(
                "the uid of its namespace kube-system may not be read now".to_owned(),
            ))
            .await;
            return Keys::new(&key, false);
        }
        let enforced = match self.copy_keys.is_enforced(uid).await {
            Ok(enforced) => enforced,
            Err(error) => {
                tracing::warn!(
                    cluster = self.cluster,
                    error,
                    "not known whether the key of copies is in force"
                );
                false
            }
        };
        let is_new = known.is_none() && !has_jobs(&self.ctx.stores.workloads, &self.cluster);
        let keys = Keys::new(&key, enforced);
        if !enforced && is_new && self.enforce_if_unmarked(client, &keys, uid).await {
            return Keys::new(&key, true);
        }
        keys
    }

    /// Enforces the key of a new worker that has no marked objects. Returns whether it does.
    async fn enforce_if_unmarked(&self, client: &Client, keys: &Keys, uid: &str) -> bool {
        let found = self.copies(client, keys).scan().await;
        found.is_ok_and(|unproved| unproved.count == 0) && self.copy_keys.enforce(uid).await.is_ok()
    }

    /// Returns when the key is enforced, if it was not at the start of the connection.
    pub(super) async fn proof_enforced(&self, client: &Client, keys: &Keys, uid: &str) {
        if keys.is_enforced() || keys.is_none() || uid.is_empty() {
            return std::future::pending().await;
        }
        settle(&self.copies(client, keys), &self.operators(), Pace::default()).await;
        while let Err(error) = self.copy_keys.enforce(uid).await {
            self.operators().report(&ScanResult::Failed(error)).await;
            tokio::time::sleep(RETRY).await;
        }
    }

    async fn report_obstacle(&self, scan: &ScanResult) {
        self.operators().report(scan).await;
    }

    fn copies(&self, client: &Client, keys: &Keys) -> Copies {
        Copies::new(client.clone(), &self.hub_id, keys.clone(), &self.frameworks)
    }

    fn operators(&self) -> HostedOperators<'_> {
        HostedOperators { keys: &self.copy_keys, cluster: &self.cluster }
    }
}
