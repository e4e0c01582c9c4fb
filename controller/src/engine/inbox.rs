//! Keys of objects that changed since the engine last read them. It holds each key at most once.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use kube::Resource;
use parking_lot::Mutex;
use switchyard_api::{v1beta2::Workload, variants};
use switchyard_config::Configuration;
use switchyard_scheduler::{RefusedReason, WorkloadKey};
use tokio::sync::Notify;

use super::{
    convert::{ObjectKind, variant_policy},
    device_claims::DeviceClaims,
};
use crate::stores::{Stores, pods::changes_usage};
use switchyard_platform::store::{Key, Store};

/// All that changed since the last [`Inbox::take`].
#[derive(Debug, Default)]
pub(crate) struct Batch {
    pub(crate) objects: BTreeSet<(ObjectKind, Key)>,
    pub(crate) workloads: BTreeSet<Key>,
    /// Pods that topology-aware scheduling did not place. They use capacity of nodes.
    pub(crate) pods: BTreeSet<Key>,
    /// The newest refusal of each workload, with the cycle that decided its reservation.
    pub(crate) refused: BTreeMap<WorkloadKey, (u64, RefusedReason)>,
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
        std::mem::take(&mut *self.batch.lock())
    }

    /// Returns when something was added since the last `take`.
    pub(crate) async fn changed(&self) {
        self.notify.notified().await;
    }

    pub(crate) fn add(&self, kind: ObjectKind, key: Key) {
        self.batch.lock().objects.insert((kind, key));
        self.notify.notify_one();
    }

    pub(crate) fn add_workload(&self, key: Key) {
        self.batch.lock().workloads.insert(key);
        self.notify.notify_one();
    }

    fn add_pod(&self, key: Key) {
        self.batch.lock().pods.insert(key);
        self.notify.notify_one();
    }

    /// Whether the engine has not read this workload's newest state.
    pub(crate) fn holds_workload(&self, key: &Key) -> bool {
        self.batch.lock().workloads.contains(key)
    }

    pub(crate) fn refuse(&self, key: WorkloadKey, cycle: u64, reason: RefusedReason) {
        let mut batch = self.batch.lock();
        // A late refusal of an earlier reservation must not hide that of a later one.
        if batch.refused.get(&key).is_none_or(|(newest, _)| *newest <= cycle) {
            batch.refused.insert(key, (cycle, reason));
        }
        drop(batch);
        self.notify.notify_one();
    }

    /// A decided eviction was not written.
    pub(crate) fn preemption_failed(&self, key: WorkloadKey) {
        self.batch.lock().preemption_failed.insert(key);
        self.notify.notify_one();
    }

    pub(crate) fn retry(&self, key: WorkloadKey) {
        self.batch.lock().retries.insert(key);
        self.notify.notify_one();
    }

    /// Subscribes this inbox to every change in the stores.
    pub(crate) fn connect(self: &Arc<Self>, stores: &Stores, config: &Configuration) {
        if config.enabled(variants::FEATURE_GATE) {
            // These decide whether a workload is held, and the rank of a variant. The workloads are
            // added before the queue, so that no cycle knows the queue alone.
            let inbox = self.clone();
            variant_policy::follow(stores, move |it| inbox.add_workload(Key::of(it)));
        }
        self.follow(&stores.namespaces, ObjectKind::Namespace);
        self.follow(&stores.topologies, ObjectKind::Topology);
        self.follow(&stores.nodes, ObjectKind::Node);
        self.follow(&stores.resource_flavors, ObjectKind::ResourceFlavor);
        self.follow(&stores.admission_checks, ObjectKind::AdmissionCheck);
        self.follow(&stores.cohorts, ObjectKind::Cohort);
        self.follow(&stores.cluster_queues, ObjectKind::ClusterQueue);
        self.follow(&stores.local_queues, ObjectKind::LocalQueue);
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
        // One template per job is possible, so a change queues only the workloads that name it.
        let claims = Arc::new(DeviceClaims::default());
        let (inbox, followed) = (self.clone(), claims.clone());
        stores.workloads.subscribe(move |change| followed.follow(change));
        stores.claim_templates.subscribe(move |change| {
            claims.of(&change.key).into_iter().for_each(|workload| inbox.add_workload(workload));
        });
    }

    /// Subscribes to a kind that requests depend on. A change queues the workloads of its
    /// namespace, or all for cluster-scoped kinds.
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

    fn follow<K: Resource + 'static>(self: &Arc<Self>, store: &Store<K>, kind: ObjectKind) {
        let inbox = self.clone();
        store.subscribe(move |change| inbox.add(kind, change.key.clone()));
    }
}

#[cfg(test)]
mod tests {
    use switchyard_api::v1beta2::StopPolicy;
    use switchyard_scheduler::Event;

    use super::*;
    use crate::{engine::convert, fixtures};

    #[test]
    fn workload_is_held_once_its_queue_has_a_policy() {
        let mut config = Configuration::default();
        config.feature_gates.insert(variants::FEATURE_GATE.to_owned(), true);
        let (stores, inbox) = (Stores::default(), Arc::new(Inbox::default()));
        stores.local_queues.insert(fixtures::local_queue(StopPolicy::None));
        stores.workloads.insert(fixtures::workload("a"));
        let is_held = || {
            let workload = stores.workloads.get("ns", "a").unwrap();
            match convert::known_workload(&stores, &config, &workload) {
                Event::Workload(workload) => workload.on_hold,
                event => panic!("{event:?}"),
            }
        };
        inbox.connect(&stores, &config);
        inbox.take();
        assert!(!is_held());
        stores.cluster_queues.insert(fixtures::cluster_queue_with_policy(&[]));
        assert!(is_held(), "the engine must learn that");
        assert_eq!(inbox.take().workloads, [Key::new("ns", "a")].into());
    }

    #[test]
    fn late_refusal_of_earlier_reservation_hides_no_later_one() {
        let (inbox, key) = (Inbox::default(), WorkloadKey::new("ns", "a"));
        for cycle in [2, 1] {
            let reason = RefusedReason::WriteFailed { message: String::new() };
            inbox.refuse(key.clone(), cycle, reason);
        }
        assert_eq!(inbox.take().refused[&key].0, 2);
    }

    #[tokio::test]
    async fn batch_has_each_object_once_and_references_first() {
        let inbox = Inbox::default();
        for _ in 0..3 {
            inbox.add_workload(Key::new("ns", "a"));
        }
        inbox.add(ObjectKind::ClusterQueue, Key::new("", "cq"));
        inbox.add(ObjectKind::ResourceFlavor, Key::new("", "default"));
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
