//! What clusters last reported, for their status and for those who count with it.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use switchyard_proto::v1 as proto;
use tokio::sync::Notify;

use crate::dispatch::{Open, OrphanView};

/// What was last reported of each cluster, for its status.
#[derive(Debug, Default)]
pub struct Reports {
    capacity: Mutex<BTreeMap<String, Arc<proto::Capacity>>>,
    /// The same of clusters that are away by now, and exist.
    last: Mutex<BTreeMap<String, Arc<proto::Capacity>>>,
    breaker: Mutex<Option<Open>>,
    orphans: Mutex<BTreeMap<String, Vec<OrphanView>>>,
    /// Rung when something of a cluster changed: capacity or session.
    pub bell: Notify,
}

impl Reports {
    /// The last report of a cluster.
    pub fn capacity(&self, cluster: &str) -> Option<Arc<proto::Capacity>> {
        lock(&self.capacity).get(cluster).cloned()
    }

    /// The last report of a cluster that was connected in this term and is away.
    pub fn last_capacity(&self, cluster: &str) -> Option<Arc<proto::Capacity>> {
        lock(&self.last).get(cluster).cloned()
    }

    /// Why nothing is given up at present.
    pub fn breaker(&self) -> Option<Open> {
        lock(&self.breaker).clone()
    }

    /// Workloads on a cluster that the hub does not know, as the cluster last told; none if it has not told in this term.
    pub fn orphans(&self, cluster: &str) -> Option<Vec<OrphanView>> {
        lock(&self.orphans).get(cluster).cloned()
    }

    /// A cluster is gone: its MultiKueueCluster was deleted.
    pub fn forget(&self, cluster: &str) {
        lock(&self.last).remove(cluster);
        lock(&self.orphans).remove(cluster);
    }

    pub(crate) fn set_orphans(&self, cluster: &str, orphans: Vec<OrphanView>) {
        let mut known = lock(&self.orphans);
        if known.get(cluster) == Some(&orphans) {
            return;
        }
        known.insert(cluster.to_owned(), orphans);
        drop(known);
        self.bell.notify_one();
    }

    /// A term has ended.
    pub(crate) fn forget_all(&self) {
        lock(&self.last).clear();
        lock(&self.orphans).clear();
    }

    pub(crate) fn set_breaker(&self, open: Option<&Open>) {
        *lock(&self.breaker) = open.cloned();
        self.bell.notify_one();
    }

    pub(crate) fn set(&self, cluster: &str, capacity: proto::Capacity) {
        lock(&self.capacity).insert(cluster.to_owned(), Arc::new(capacity));
        self.bell.notify_one();
    }

    /// Its session has ended. What it reported is kept if its MultiKueueCluster is still there: that of one which was
    /// deleted must not come back.
    pub(crate) fn left(&self, cluster: &str, exists: bool) {
        let gone = lock(&self.capacity).remove(cluster);
        if let Some(gone) = gone.filter(|_| exists) {
            lock(&self.last).insert(cluster.to_owned(), gone);
        }
        self.bell.notify_one();
    }
}

// A panic while one is held would have been between two plain changes: what is there can be used.
fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_cluster_last_reported_is_kept_as_long_as_it_exists() {
        type Story = fn(&Reports);
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
            let reports = Reports::default();
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
