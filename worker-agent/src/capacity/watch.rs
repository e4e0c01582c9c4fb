//! Watches the objects that determine the capacity of a cluster.

use std::fmt::Debug;
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use kube::api::Api;
use kube::runtime::{WatchStreamExt, reflector, watcher};
use kube::{Client, Resource};
use serde::de::DeserializeOwned;
use switchyard_api::v1beta2::{ClusterQueue, Cohort, LocalQueue, ResourceFlavor};
use switchyard_platform::readable::Readable;
use switchyard_proto::v1;
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::CapacityReceiver;
use super::compute::{Snapshot, compute};
use super::{RoomSource, replace};
use crate::executor::is_out_of_reach;

/// The shortest time between two computations.
const INTERVAL: Duration = Duration::from_millis(200);

/// The capacity of the cluster, computed again when its objects change.
///
/// None before all kinds are listed, since a part of them would report queues as missing. Flavors
/// and Cohorts that may not be read are left out: the rights in Kueue's documentation for a manager
/// do not include them. The tasks end with the returned set.
pub(crate) fn watch(client: &Client) -> (CapacityReceiver, JoinSet<()>) {
    let (sender, receiver) = watch::channel(None);
    let mut tasks = JoinSet::new();
    let changed = Arc::new(Notify::new());
    let cluster_queues = follow::<ClusterQueue>(client, &changed, &mut tasks);
    let local_queues = follow::<LocalQueue>(client, &changed, &mut tasks);
    let flavors = follow::<ResourceFlavor>(client, &changed, &mut tasks);
    let cohorts = follow::<Cohort>(client, &changed, &mut tasks);
    let of_nodes = flavors.store.clone();
    let of_nodes = move || readable(&of_nodes);
    let room_source = RoomSource::of_cluster(client.clone(), of_nodes);
    tasks.spawn(async move {
        let mut rooms = room_source.subscribe();
        let listed = tokio::try_join!(
            cluster_queues.store.wait_until_ready(),
            local_queues.store.wait_until_ready(),
            flavors.listed_or_refused(),
            cohorts.listed_or_refused(),
        );
        // A watch that ended before its list ends this task too.
        if listed.is_err() {
            return;
        }
        loop {
            let snapshot = Snapshot {
                cluster_queues: readable(&cluster_queues.store),
                local_queues: readable(&local_queues.store),
                flavors: readable(&flavors.store),
                cohorts: readable(&cohorts.store),
            };
            let rooms_now = rooms.borrow_and_update().to_vec();
            replace(&sender, v1::Capacity { rooms: rooms_now, ..compute(&snapshot) });
            tokio::time::sleep(INTERVAL).await;
            tokio::select! {
                () = changed.notified() => {}
                Ok(()) = rooms.changed() => {}
            }
        }
    });
    (receiver, tasks)
}

/// The objects of one kind, and whether they may not be read.
struct Followed<K>
where
    K: Resource<DynamicType = ()> + Clone + 'static,
{
    store: reflector::Store<Readable<K>>,
    refused: CancellationToken,
}

impl<K> Followed<K>
where
    K: Resource<DynamicType = ()> + Clone + Send + Sync + 'static,
{
    /// Returns once the first list is complete, or was forbidden.
    async fn listed_or_refused(&self) -> Result<(), reflector::store::WriterDropped> {
        tokio::select! {
            listed = self.store.wait_until_ready() => listed,
            () = self.refused.cancelled() => Ok(()),
        }
    }
}

fn follow<K>(client: &Client, changed: &Arc<Notify>, tasks: &mut JoinSet<()>) -> Followed<K>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + Sync + 'static,
    K::DynamicType: Hash + Eq + Clone,
{
    let (store, writer) = reflector::store();
    let events = watcher(Api::<Readable<K>>::all(client.clone()), watcher::Config::default())
        .default_backoff()
        .reflect(writer);
    let refused = CancellationToken::new();
    let (changed, told) = (changed.clone(), refused.clone());
    tasks.spawn(async move {
        let mut events = events.boxed();
        while let Some(event) = events.next().await {
            match event {
                Ok(watcher::Event::Init) => {}
                Ok(watcher::Event::InitApply(object)) => {
                    object.or_warn(&K::kind(&()));
                }
                Ok(watcher::Event::Apply(object)) => {
                    object.or_warn(&K::kind(&()));
                    changed.notify_one();
                }
                Ok(_) => changed.notify_one(),
                Err(error) if is_out_of_reach(&error) => {
                    // The watch continues, because the rights may come.
                    if !told.is_cancelled() {
                        tracing::info!(kind = %K::kind(&()), "may not be read here, done without");
                    }
                    told.cancel();
                }
                Err(error) => {
                    tracing::warn!(kind = %K::kind(&()), %error, "watch failed, trying again")
                }
            }
        }
    });
    Followed { store, refused }
}

fn readable<K>(store: &reflector::Store<Readable<K>>) -> Vec<K>
where
    K: Resource<DynamicType = ()> + Clone + 'static,
{
    let object = |it: &Readable<K>| match it {
        Readable::Object(object) => Some(object.clone()),
        Readable::Unreadable(_) => None,
    };
    store.state().iter().filter_map(|it| object(it)).collect()
}
