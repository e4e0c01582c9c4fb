//! The last reports of clusters, for their status, metrics and quota.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use switchyard_dispatcher::{BreakerTrip, OrphanView};
use switchyard_proto::v1 as proto;
use tokio::sync::Notify;

/// The last reports of each cluster, and the state of the circuit breaker.
#[derive(Debug, Default)]
pub struct ClusterReports {
    capacity: Mutex<BTreeMap<String, Arc<proto::Capacity>>>,
    /// Last capacity of clusters that exist and have no session.
    last: Mutex<BTreeMap<String, Arc<proto::Capacity>>>,
    breaker: Mutex<Option<BreakerTrip>>,
    orphans: Mutex<BTreeMap<String, Vec<OrphanView>>>,
    /// Notified when a cluster's capacity, session or orphans change, and with the circuit breaker.
    pub changed: Notify,
}

impl ClusterReports {
    /// The capacity of a connected cluster.
    pub fn capacity(&self, cluster: &str) -> Option<Arc<proto::Capacity>> {
        self.capacity.lock().get(cluster).cloned()
    }

    /// The last capacity of a cluster that was connected in this term and is not now.
    pub fn last_capacity(&self, cluster: &str) -> Option<Arc<proto::Capacity>> {
        self.last.lock().get(cluster).cloned()
    }

    /// Why the circuit breaker is open. None if it is closed.
    pub fn breaker(&self) -> Option<BreakerTrip> {
        self.breaker.lock().clone()
    }

    /// The orphans of a cluster. None if the cluster sent no inventory in this term.
    pub fn orphans(&self, cluster: &str) -> Option<Vec<OrphanView>> {
        self.orphans.lock().get(cluster).cloned()
    }

    /// Forgets a deleted MultiKueueCluster.
    pub fn forget(&self, cluster: &str) {
        self.last.lock().remove(cluster);
        self.orphans.lock().remove(cluster);
    }

    pub(crate) fn set_orphans(&self, cluster: &str, orphans: Vec<OrphanView>) {
        let mut known = self.orphans.lock();
        if known.get(cluster) == Some(&orphans) {
            return;
        }
        known.insert(cluster.to_owned(), orphans);
        drop(known);
        self.changed.notify_one();
    }

    /// Forgets all clusters at the end of a term.
    pub(crate) fn forget_all(&self) {
        self.last.lock().clear();
        self.orphans.lock().clear();
    }

    pub(crate) fn set_breaker(&self, open: Option<&BreakerTrip>) {
        *self.breaker.lock() = open.cloned();
        self.changed.notify_one();
    }

    pub(crate) fn set(&self, cluster: &str, capacity: proto::Capacity) {
        self.capacity.lock().insert(cluster.to_owned(), Arc::new(capacity));
        self.changed.notify_one();
    }

    /// A session has ended. Keeps its capacity report if the MultiKueueCluster still exists.
    pub(crate) fn left(&self, cluster: &str, exists: bool) {
        let gone = self.capacity.lock().remove(cluster);
        if let Some(gone) = gone.filter(|_| exists) {
            self.last.lock().insert(cluster.to_owned(), gone);
        }
        self.changed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_capacity_is_kept_while_the_cluster_exists() {
        type Story = fn(&ClusterReports);
        let cases: [(&str, Story, bool); 5] = [
            ("its session ends", |reports| reports.left("west", true), true),
            (
                "it is deleted, then its session ends",
                |reports| {
                    reports.forget("west");
                    reports.left("west", false);
                },
                false,
            ),
            (
                "it is deleted, reports once more, then its session ends",
                |reports| {
                    reports.forget("west");
                    reports.set("west", proto::Capacity::default());
                    reports.left("west", false);
                },
                false,
            ),
            (
                "its session ends, then it is deleted",
                |reports| {
                    reports.left("west", true);
                    reports.forget("west");
                },
                false,
            ),
            (
                "the term ends",
                |reports| {
                    reports.left("west", true);
                    reports.forget_all();
                },
                false,
            ),
        ];
        for (case, story, kept) in cases {
            let reports = ClusterReports::default();
            reports.set("west", proto::Capacity::default());
            story(&reports);
            assert_eq!(
                (reports.last_capacity("west").is_some(), reports.capacity("west")),
                (kept, None),
                "{case}"
            );
        }
    }
}
