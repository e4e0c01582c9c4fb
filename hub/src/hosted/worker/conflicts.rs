//! Conflicts that keep a worker from use: another MultiKueueCluster has it, the kubeconfig leads to
//! the wrong cluster, or to the hub's own.

use kube::ResourceExt as _;
use switchyard_agent::cluster_uid;
use switchyard_api::conditions::reasons::multi_kueue_cluster as reasons;
use switchyard_api::names;
use tokio_util::sync::CancellationToken;

use super::super::duplicate_kubeconfigs::Claim;
use super::super::ranks;
use super::{CLAIM_POLL, POLL, PROBE_DEADLINE, Worker, pause};
use crate::api_objects::has_jobs;
use crate::reachability::{self, Reachability};

impl Worker {
    fn claim(&self) -> Claim {
        self.states.duplicates.lock().claim(&self.cluster, &ranks(&self.source, &self.clusters))
    }

    /// Whether no other MultiKueueCluster claims the worker, once the claims are known. Else reports
    /// it and waits a moment.
    pub(super) async fn alone(&self, shutdown: &CancellationToken) -> bool {
        while !shutdown.is_cancelled() {
            match self.claim() {
                Claim::Free => return true,
                Claim::Wait => pause(CLAIM_POLL, shutdown).await,
                Claim::Taken(by) => {
                    let message = format!(
                        "its kubeconfig names the same API server as MultiKueueCluster \"{by}\"; delete one of the two"
                    );
                    self.states.set(
                        &self.cluster,
                        Reachability::failed(reasons::DUPLICATE_CLUSTER, message),
                    );
                    pause(POLL, shutdown).await;
                    return false;
                }
            }
        }
        false
    }

    /// Returns when another MultiKueueCluster claims the worker.
    pub(super) async fn contested(&self) {
        while !matches!(self.claim(), Claim::Taken(_)) {
            tokio::time::sleep(POLL).await;
        }
    }

    /// The uid of the cluster in the status of the MultiKueueCluster.
    pub(in crate::hosted) fn known_uid(&self) -> Option<String> {
        self.clusters.get("", &self.cluster)?.status.as_ref()?.agent.as_ref()?.cluster_uid.clone()
    }

    /// The uid of the cluster that has the jobs, if not this one. This one would not report those
    /// jobs, and the hub would take that for their end.
    pub(super) fn known_elsewhere(&self, uid: &str) -> Option<String> {
        let known = self.known_uid()?;
        (is_another(&known, uid) && has_jobs(&self.ctx.stores.workloads, &self.cluster))
            .then_some(known)
    }

    /// Waits until no other MultiKueueCluster holds the worker, or the kubeconfig changes.
    pub(super) async fn wait_while_duplicate(
        &self,
        bytes: &[u8],
        uid: &str,
        shutdown: &CancellationToken,
    ) {
        let warn = |twin: &str| {
            tracing::warn!(
                cluster = self.cluster,
                twin,
                "not used: another MultiKueueCluster leads to the same cluster"
            );
        };
        let holder = || self.sessions.holder(&self.cluster, uid);
        self.wait_while(bytes, holder, reachability::duplicate_cluster, warn, shutdown).await;
    }

    /// Waits until the kubeconfig changes, or no job is left on the other cluster.
    pub(super) async fn wait_while_wrong_cluster(
        &self,
        bytes: &[u8],
        uid: &str,
        shutdown: &CancellationToken,
    ) {
        let warn = |known: &str| {
            tracing::warn!(
                cluster = self.cluster,
                known,
                found = uid,
                "not used: the kubeconfig leads to another cluster"
            );
        };
        let reach = |known: &str| reachability::wrong_kubeconfig_cluster(known, uid);
        self.wait_while(bytes, || self.known_elsewhere(uid), reach, warn, shutdown).await;
    }

    /// Shows the conflict as the worker's reachability until it is over or the kubeconfig changes.
    /// Meanwhile this MultiKueueCluster claims no API server.
    async fn wait_while(
        &self,
        bytes: &[u8],
        conflict: impl Fn() -> Option<String>,
        reach: impl Fn(&str) -> Reachability,
        warn: impl Fn(&str),
        shutdown: &CancellationToken,
    ) {
        self.states.duplicates.lock().record(&self.cluster, None);
        let conflicts = async {
            while let Some(other) = conflict() {
                let reach = reach(&other);
                if self.states.get(&self.cluster).as_ref() != Some(&reach) {
                    warn(&other);
                    self.states.set(&self.cluster, reach);
                }
                tokio::time::sleep(POLL).await;
            }
        };
        tokio::select! {
            () = shutdown.cancelled() => {}
            () = conflicts => {}
            () = self.changed(bytes) => {}
        }
    }

    /// Whether the annotation allows the hub's own cluster as a worker.
    fn may_be_own(&self) -> bool {
        let cluster = self.clusters.get("", &self.cluster);
        cluster.is_some_and(|it| {
            it.annotations().get(names::OWN_CLUSTER).is_some_and(|value| value == "allowed")
        })
    }

    /// Whether this uid is the hub's own cluster, and that is not allowed. After a restore from a
    /// backup, the hub's id may be the uid of another cluster.
    pub(super) async fn is_own(&self, uid: &str) -> bool {
        if self.may_be_own() || uid.is_empty() {
            return false;
        }
        let own = tokio::time::timeout(PROBE_DEADLINE, cluster_uid(&self.ctx.client))
            .await
            .unwrap_or_default();
        uid == own || (own.is_empty() && uid == self.hub_id)
    }

    /// Waits until the kubeconfig changes, or the annotation allows the hub's own cluster.
    pub(super) async fn wait_while_own(&self, bytes: &[u8], shutdown: &CancellationToken) {
        let warn = |_: &str| {
            tracing::warn!(
                cluster = self.cluster,
                "not used: the kubeconfig leads to the hub's own cluster"
            );
        };
        let refused = || (!self.may_be_own()).then(|| self.hub_id.clone());
        self.wait_while(bytes, refused, |_| reachability::own_cluster(), warn, shutdown).await;
    }
}

/// Whether two known uids differ. A cluster whose uid is unknown counts as the known one.
fn is_another(known: &str, found: &str) -> bool {
    !known.is_empty() && !found.is_empty() && known != found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cluster_differs_only_if_both_uids_are_known() {
        for (known, found, another) in
            [("a", "b", true), ("a", "a", false), ("", "b", false), ("a", "", false)]
        {
            assert_eq!(is_another(known, found), another, "{known:?} {found:?}");
        }
    }
}
