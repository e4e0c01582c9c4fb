//! What the engine still has to be told, as keys: coalescing, and never longer than there are objects.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use kube::Resource;
use switchyard_api::v1beta2::Workload;
use switchyard_scheduler::{Name, RefusedReason, WorkloadKey};
use tokio::sync::Notify;

use crate::engine::device_claims::Claims;
use crate::stores::{Stores, pods::changes_usage};
use switchyard_platform::store::{Key, Store};

/// The kinds that the engine knows besides Workloads, in the order in which a batch is told: what others refer to comes
/// first, Workloads last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    Namespace,
    Topology,
    Node,
    ResourceFlavor,
    AdmissionCheck,
    Cohort,
    ClusterQueue,
    LocalQueue,
}

/// Everything that came in since the last look.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    pub(crate) objects: BTreeSet<(Kind, Key)>,
    pub(crate) workloads: BTreeSet<Key>,
    /// Pods of others, which use capacity of nodes.
    pub(crate) pods: BTreeSet<Key>,
    pub(crate) refused: BTreeMap<WorkloadKey, (Name, RefusedReason)>,
    pub(crate) retries: BTreeSet<WorkloadKey>,
    pub(crate) preemption_failed: BTreeSet<WorkloadKey>,
}

impl Batch {
    pub(crate) fn is_empty(&self) -> bool {
        self.objects.is_empty()
            && self.workloads.is_empty()
            && self.pods.is_empty()
            && self.refused.is_empty()
            && self.retries.is_empty()
            && self.preemption_failed.is_empty()
    }
}

#[derive(Debug, Default)]
pub(crate) struct Inbox {
    batch: Mutex<Batch>,
    notify: Notify,
}

impl Inbox {
    pub(crate) fn take(&self) -> Batch {
        std::mem::take(&mut *self.lock())
    }

    /// Returns when something came in since the last `take`.
    pub(crate) async fn changed(&self) {
        self.notify.notified().await;
    }

    pub(crate) fn add(&self, kind: Kind, key: Key) {
        self.lock().objects.insert((kind, key));
        self.notify.notify_one();
    }

    pub(crate) fn add_workload(&self, key: Key) {
        self.lock().workloads.insert(key);
        self.notify.notify_one();
    }

    fn add_pod(&self, key: Key) {
        self.lock().pods.insert(key);
        self.notify.notify_one();
    }

    /// Whether the engine has not seen this workload's newest state.
    pub(crate) fn holds_workload(&self, key: &Key) -> bool {
        self.lock().workloads.contains(key)
    }

    pub(crate) fn refuse(&self, key: WorkloadKey, uid: Name, reason: RefusedReason) {
        self.lock().refused.insert(key, (uid, reason));
        self.notify.notify_one();
    }

    /// An eviction that was decided was not written.
    pub(crate) fn preemption_failed(&self, key: WorkloadKey) {
        self.lock().preemption_failed.insert(key);
        self.notify.notify_one();
    }

    pub(crate) fn retry(&self, key: WorkloadKey) {
        self.lock().retries.insert(key);
        self.notify.notify_one();
    }

    /// Has every change in the stores put into this inbox.
    pub(crate) fn connect(self: &Arc<Self>, stores: &Stores) {
        self.follow(&stores.namespaces, Kind::Namespace);
        self.follow(&stores.topologies, Kind::Topology);
        self.follow(&stores.nodes, Kind::Node);
        self.follow(&stores.resource_flavors, Kind::ResourceFlavor);
        self.follow(&stores.admission_checks, Kind::AdmissionCheck);
        self.follow(&stores.cohorts, Kind::Cohort);
        self.follow(&stores.cluster_queues, Kind::ClusterQueue);
        self.follow(&stores.local_queues, Kind::LocalQueue);
        let inbox = self.clone();
        stores.workloads.subscribe(move |change| inbox.add_workload(change.key.clone()));
        let inbox = self.clone();
        stores.pods.subscribe(move |change| {
            if changes_usage(change) {
                inbox.add_pod(change.key.clone());
            }
        });
        // The requests of pending workloads depend on these.
        self.requests_follow(&stores.limit_ranges, &stores.workloads);
        self.requests_follow(&stores.runtime_classes, &stores.workloads);
        self.requests_follow(&stores.device_classes, &stores.workloads);
        // There may be a template for each job.
        let claims = Arc::new(Claims::default());
        let (inbox, followed) = (self.clone(), claims.clone());
        stores.workloads.subscribe(move |change| followed.follow(change));
        stores.claim_templates.subscribe(move |change| {
            claims.of(&change.key).into_iter().for_each(|workload| inbox.add_workload(workload));
        });
    }

    /// Has a change of what requests depend on put the workloads of its namespace into the inbox, or all if it has none.
    fn requests_follow<K: Resource + 'static>(
        self: &Arc<Self>,
        store: &Store<K>,
        workloads: &Store<Workload>,
    ) {
        let (inbox, workloads) = (self.clone(), workloads.clone());
        store.subscribe(move |change| {
            let namespace = &change.key.namespace;
            let touched = if namespace.is_empty() {
                workloads.all()
            } else {
                workloads.in_namespace(namespace)
            };
            touched.iter().for_each(|workload| inbox.add_workload(Key::of(&**workload)));
        });
    }

    fn follow<K: Resource + 'static>(self: &Arc<Self>, store: &Store<K>, kind: Kind) {
        let inbox = self.clone();
        store.subscribe(move |change| inbox.add(kind, change.key.clone()));
    }

    fn lock(&self) -> MutexGuard<'_, Batch> {
        self.batch.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_batch_names_each_object_once_and_references_first() {
        let inbox = Inbox::default();
        for _ in 0..3 {
            inbox.add_workload(Key::new("ns", "a"));
        }
        inbox.add(Kind::ClusterQueue, Key::new("", "cq"));
        inbox.add(Kind::ResourceFlavor, Key::new("", "default"));
        inbox.retry(WorkloadKey::new("ns", "a"));
        inbox.changed().await;
        let batch = inbox.take();
        let told: Vec<_> =
            batch.objects.iter().map(|(kind, key)| format!("{kind:?} {key}")).collect();
        assert_eq!(told, ["ResourceFlavor default", "ClusterQueue cq"]);
        assert_eq!(batch.workloads.len(), 1);
        assert_eq!(batch.retries.len(), 1);
        assert!(inbox.take().is_empty());
    }
}
