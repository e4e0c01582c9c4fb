//! Collects changes for the dispatcher's task. While this replica dispatches, it loses none, and holds
//! at most one entry for each object and reservation.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use kube::ResourceExt as _;
use parking_lot::Mutex;
use switchyard_api::v1beta2::ClusterQueue;
use switchyard_controller::engine::placement::{Placement, Reservation};
use switchyard_controller::stores::Stores;
use switchyard_platform::store::Key;
use tokio::sync::Notify;

use super::job_changes;

/// Changes since the task last took them.
#[derive(Debug, Default)]
pub struct Changes {
    /// In the order of the engine's decisions.
    pub reservations: Vec<Reservation>,
    /// Reservations that the engine withdraws, with the uids of their workloads.
    pub withdrawn: BTreeSet<(Key, String)>,
    /// Changed workloads.
    pub workloads: BTreeSet<Key>,
    /// Uids of elastic jobs that were resized, have ended or were read for the first time, by
    /// namespace.
    pub elastic_jobs: BTreeMap<String, BTreeSet<String>>,
    /// Uids of deleted workloads.
    pub gone: BTreeSet<String>,
    /// A MultiKueueCluster, MultiKueueConfig or AdmissionCheck changed.
    pub cluster_set: bool,
    /// ClusterQueues whose `onDisconnect`, `onStuck` or cluster affinity changed.
    pub queues: BTreeSet<String>,
}

#[derive(Debug, Default)]
struct State {
    batch: Changes,
    /// Whether anything is accepted: this replica dispatches.
    open: bool,
    /// The index of each workload's reservation, so that a newer one replaces it.
    positions: BTreeMap<String, usize>,
}

/// Receives changes. Never blocks the sender.
#[derive(Debug, Default)]
pub struct Inbox {
    state: Mutex<State>,
    wake: Notify,
}

impl Inbox {
    /// Subscribes to the stores. With `has_store_loss`, decisions depend on the ends of jobs
    /// ([`WorkloadFacts::job_ended`](switchyard_dispatcher::WorkloadFacts)).
    pub fn connect(self: &Arc<Self>, stores: &Stores, has_store_loss: bool) {
        let inbox = self.clone();
        stores.workloads.subscribe(move |change| {
            let uid = |object: &Option<Arc<switchyard_api::v1beta2::Workload>>| {
                object.as_ref().and_then(|o| o.uid())
            };
            inbox.note(|batch| {
                let old = uid(&change.old).filter(|old| uid(&change.new).as_ref() != Some(old));
                batch.gone.extend(old);
                batch.workloads.extend(change.new.is_some().then(|| change.key.clone()));
            });
        });
        for jobs in &stores.jobs {
            let (inbox, resource) = (self.clone(), jobs.resource.clone());
            jobs.store.subscribe(move |change| {
                let concerned = job_changes::find_concerned(&resource, change, has_store_loss);
                if concerned.workloads.is_empty() && concerned.elastic_job.is_none() {
                    return;
                }
                inbox.note(|batch| {
                    batch.workloads.extend(concerned.workloads);
                    if let Some((namespace, uid)) = concerned.elastic_job {
                        batch.elastic_jobs.entry(namespace).or_default().insert(uid);
                    }
                });
            });
        }
        let inbox = self.clone();
        stores.cluster_queues.subscribe(move |change| {
            let rule = |queue: &Option<Arc<ClusterQueue>>| {
                let spec = &queue.as_ref()?.spec;
                let policies = (spec.on_disconnect.clone(), spec.on_stuck.clone());
                Some((policies, spec.cluster_affinity.clone()))
            };
            if rule(&change.old) != rule(&change.new) {
                inbox.note(|batch| {
                    batch.queues.insert(change.key.name.to_string());
                });
            }
        });
        let inbox = self.clone();
        stores.multi_kueue_clusters.subscribe(move |_| inbox.cluster_set());
        let inbox = self.clone();
        stores.multi_kueue_configs.subscribe(move |_| inbox.cluster_set());
        let inbox = self.clone();
        stores.admission_checks.subscribe(move |_| inbox.cluster_set());
    }

    /// Notes a change. A replica that does not dispatch notes none: it reads the stores when it
    /// begins to.
    fn note(&self, change: impl FnOnce(&mut Changes)) {
        let mut state = self.state.lock();
        if !state.open {
            return;
        }
        change(&mut state.batch);
        drop(state);
        self.wake.notify_one();
    }

    /// Starts to accept reservations and changes of stores. The caller reads the stores afterwards.
    pub fn open(&self) {
        *self.state.lock() = State { open: true, ..State::default() };
    }

    /// Stops accepting anything. Returns the reservations that were accepted and not taken.
    pub fn close(&self) -> Vec<Reservation> {
        std::mem::take(&mut *self.state.lock()).batch.reservations
    }

    pub fn take(&self) -> Changes {
        let mut state = self.state.lock();
        state.positions.clear();
        std::mem::take(&mut state.batch)
    }

    /// Waits until there may be a change.
    pub async fn changed(&self) {
        self.wake.notified().await;
    }

    fn cluster_set(&self) {
        self.note(|batch| batch.cluster_set = true);
    }
}

impl Placement for Inbox {
    fn reserved(&self, reservation: Reservation) -> bool {
        let mut state = self.state.lock();
        if !state.open {
            return false;
        }
        let uid = reservation.workload.uid().unwrap_or_default();
        let position = state.batch.reservations.len();
        match state.positions.get(&uid).copied() {
            Some(earlier) => state.batch.reservations[earlier] = reservation,
            None => {
                state.positions.insert(uid, position);
                state.batch.reservations.push(reservation);
            }
        }
        drop(state);
        self.wake.notify_one();
        true
    }

    fn withdraw(&self, key: &Key, uid: &str) {
        let mut state = self.state.lock();
        if state.open {
            state.batch.withdrawn.insert((key.clone(), uid.to_owned()));
            drop(state);
            self.wake.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

    use jiff::Timestamp;
    use serde_json::json;
    use switchyard_api::v1beta2::Workload;
    use switchyard_config::Configuration;

    use super::*;

    fn workload(uid: usize) -> Workload {
        let metadata = json!({"name": "w", "namespace": "ns", "uid": uid.to_string()});
        serde_json::from_value(json!({"metadata": metadata, "spec": {"podSets": []}})).unwrap()
    }

    fn reservation(uid: usize) -> Reservation {
        Reservation {
            workload: Arc::new(workload(uid)),
            cycle: 1,
            admission: Default::default(),
            check: "mk".to_owned(),
            other_checks: false,
            waited_since: Timestamp::UNIX_EPOCH,
            note: String::new(),
        }
    }

    #[test]
    fn replica_that_does_not_dispatch_notes_no_changes() {
        let (inbox, stores) = (Arc::new(Inbox::default()), Stores::new(&Configuration::default()));
        inbox.connect(&stores, false);
        let changes = |uid: usize| {
            stores.workloads.insert(workload(uid));
            stores.workloads.remove(&Key::new("ns", "w"));
            let changes = inbox.take();
            (changes.workloads.len(), changes.gone.len())
        };
        assert_eq!(changes(1), (0, 0));
        inbox.open();
        assert_eq!(changes(2), (1, 1));
        inbox.close();
        assert_eq!(changes(3), (0, 0));
    }

    /// A reservation that is accepted and not returned holds its quota for ever.
    #[test]
    fn each_accepted_reservation_is_taken_or_returned() {
        let (inbox, accepted, has_ended) =
            (Inbox::default(), AtomicUsize::new(0), AtomicBool::new(false));
        let mut returned = 0;
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for uid in 0.. {
                    if has_ended.load(Ordering::SeqCst) {
                        break;
                    }
                    if inbox.reserved(reservation(uid)) {
                        accepted.fetch_add(1, Ordering::SeqCst);
                    }
                }
            });
            // Terms begin and end.
            while accepted.load(Ordering::SeqCst) < 1_000 {
                inbox.open();
                returned += inbox.take().reservations.len();
                returned += inbox.close().len();
            }
            has_ended.store(true, Ordering::SeqCst);
        });
        assert_eq!(returned, accepted.into_inner());
    }

    #[test]
    fn closed_inbox_refuses_reservations() {
        let (inbox, key) = (Inbox::default(), Key::new("ns", "w"));
        assert!(!inbox.reserved(reservation(1)));
        inbox.open();
        assert!(inbox.reserved(reservation(1)) && inbox.reserved(reservation(2)));
        assert!(inbox.reserved(reservation(1)), "a newer one of the same workload");
        inbox.withdraw(&key, "1");
        assert_eq!(inbox.close().len(), 2);
        assert!(!inbox.reserved(reservation(1)));
        inbox.open();
        let changes = inbox.take();
        assert!(changes.reservations.is_empty() && changes.withdrawn.is_empty());
    }
}
