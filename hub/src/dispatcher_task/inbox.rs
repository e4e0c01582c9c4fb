//! What changed, for the dispatcher's task: keys and reservations, never lost, never more than there are workloads.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use kube::ResourceExt as _;
use parking_lot::{Mutex, MutexGuard};
use switchyard_api::v1beta2::ClusterQueue;
use switchyard_controller::engine::placement::{Placement, Reservation};
use switchyard_controller::stores::Stores;
use switchyard_platform::store::Key;
use tokio::sync::Notify;

use super::spec_propagation;

/// What has come in since the last look.
#[derive(Debug, Default)]
pub struct Batch {
    /// In the order in which the engine decided.
    pub reservations: Vec<Reservation>,
    /// Reservations that the engine wants back, with the uids of their workloads.
    pub withdrawn: BTreeSet<(Key, String)>,
    /// Workloads that changed.
    pub workloads: BTreeSet<Key>,
    /// Elastic jobs that are of another size, by namespace and uid.
    pub resized: BTreeSet<(String, String)>,
    /// Uids of workloads that are gone.
    pub gone: BTreeSet<String>,
    /// Clusters, configurations or checks changed.
    pub topology: bool,
    /// ClusterQueues whose jobs are now to be treated otherwise when their cluster is lost, or have other rules about clusters.
    pub queues: BTreeSet<String>,
}

#[derive(Debug, Default)]
struct State {
    batch: Batch,
    /// Whether reservations are taken over now.
    open: bool,
    /// Position of each workload's reservation in the batch: the newest counts.
    positions: BTreeMap<String, usize>,
}

/// Where changes come in. Pushing never waits.
#[derive(Debug, Default)]
pub struct Inbox {
    state: Mutex<State>,
    bell: Notify,
}

impl Inbox {
    /// Listens to the stores.
    pub fn connect(self: &Arc<Self>, stores: &Stores) {
        let inbox = self.clone();
        stores.workloads.subscribe(move |change| {
            let uid = |object: &Option<Arc<switchyard_api::v1beta2::Workload>>| {
                object.as_ref().and_then(|o| o.uid())
            };
            let mut state = inbox.lock();
            if let Some(old) = uid(&change.old)
                && uid(&change.new).as_ref() != Some(&old)
            {
                state.batch.gone.insert(old);
            }
            if change.new.is_some() {
                state.batch.workloads.insert(change.key.clone());
            }
            drop(state);
            inbox.bell.notify_one();
        });
        for jobs in &stores.jobs {
            let (inbox, resource) = (self.clone(), jobs.resource.clone());
            jobs.store.subscribe(move |change| {
                if let Some(first) = spec_propagation::changed(&resource, change) {
                    inbox.lock().batch.workloads.insert(first);
                    inbox.bell.notify_one();
                }
                if let Some(job) = spec_propagation::resized(&resource, change) {
                    inbox.lock().batch.resized.insert(job);
                    inbox.bell.notify_one();
                }
            });
        }
        let inbox = self.clone();
        stores.cluster_queues.subscribe(move |change| {
            let rule = |queue: &Option<Arc<ClusterQueue>>| {
                queue
                    .as_ref()
                    .map(|it| (it.spec.on_disconnect.clone(), it.spec.cluster_affinity.clone()))
            };
            if rule(&change.old) != rule(&change.new) {
                inbox.lock().batch.queues.insert(change.key.name.to_string());
                inbox.bell.notify_one();
            }
        });
        let inbox = self.clone();
        stores.multi_kueue_clusters.subscribe(move |_| inbox.topology());
        let inbox = self.clone();
        stores.multi_kueue_configs.subscribe(move |_| inbox.topology());
        let inbox = self.clone();
        stores.admission_checks.subscribe(move |_| inbox.topology());
    }

    /// Takes reservations over from now on, or no more.
    pub fn set_open(&self, open: bool) {
        let mut state = self.lock();
        state.open = open;
        if !open {
            state.batch.reservations.clear();
            state.batch.withdrawn.clear();
            state.positions.clear();
        }
    }

    /// Everything since the last call.
    pub fn take(&self) -> Batch {
        let mut state = self.lock();
        state.positions.clear();
        std::mem::take(&mut state.batch)
    }

    /// Waits until there may be something.
    pub async fn rung(&self) {
        self.bell.notified().await;
    }

    fn topology(&self) {
        self.lock().batch.topology = true;
        self.bell.notify_one();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

impl Placement for Inbox {
    fn reserved(&self, reservation: Reservation) -> bool {
        let mut state = self.lock();
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
        self.bell.notify_one();
        true
    }

    fn withdraw(&self, key: &Key, uid: &str) {
        let mut state = self.lock();
        if state.open {
            state.batch.withdrawn.insert((key.clone(), uid.to_owned()));
            drop(state);
            self.bell.notify_one();
        }
    }
}
