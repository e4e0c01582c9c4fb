//! Watches the objects that determine the capacity of a cluster.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use kube::api::Api;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Client, Resource};
use serde::de::DeserializeOwned;
use switchyard_api::v1beta2::{ClusterQueue, Cohort, LocalQueue, ResourceFlavor};
use switchyard_platform::readable::Readable;
use switchyard_platform::store::Store;
use switchyard_platform::watch::feed;
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
    let cluster_queues = follow::<ClusterQueue>(client, false, &changed, &mut tasks);
    let local_queues = follow::<LocalQueue>(client, false, &changed, &mut tasks);
    let flavors = follow::<ResourceFlavor>(client, true, &changed, &mut tasks);
    let cohorts = follow::<Cohort>(client, true, &changed, &mut tasks);
    let room_source = RoomSource::of_cluster(client.clone(), flavors.clone());
    tasks.spawn(async move {
        let mut rooms = room_source.subscribe();
        tokio::join!(
            cluster_queues.ready(),
            local_queues.ready(),
            flavors.ready(),
            cohorts.ready()
        );
        loop {
            let snapshot = Snapshot {
                cluster_queues: cluster_queues.all(),
                local_queues: local_queues.all(),
                flavors: flavors.all(),
                cohorts: cohorts.all(),
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

/// Watches the objects of one kind. If the kind is `optional`, a first list that is forbidden, or
/// whose kind is unknown, counts as empty.
fn follow<K>(
    client: &Client,
    optional: bool,
    changed: &Arc<Notify>,
    tasks: &mut JoinSet<()>,
) -> Store<K>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + Sync + 'static,
{
    let store = Store::default();
    let changed = changed.clone();
    store.subscribe(move |_| changed.notify_one());
    let kind = K::plural(&()).into_owned();
    let (refused, refused_kind, mut is_logged) = (store.clone(), kind.clone(), false);
    let api = Api::<Readable<K>>::all(client.clone());
    let events = watcher(api, watcher::Config::default()).default_backoff();
    // The watch continues, because the rights may come.
    let events = events.filter(move |event| {
        let is_refused = optional && event.as_ref().is_err_and(is_out_of_reach);
        if is_refused && !std::mem::replace(&mut is_logged, true) {
            tracing::info!(kind = refused_kind, "may not be read here, done without");
            refused.set_ready();
        }
        std::future::ready(!is_refused)
    });
    let fed = feed(events, kind, optional, store.clone(), |_| (), CancellationToken::new());
    tasks.spawn(async move {
        if let Err(error) = fed.await {
            tracing::warn!(error = format!("{error:#}"), "no longer watched");
        }
    });
    store
}
