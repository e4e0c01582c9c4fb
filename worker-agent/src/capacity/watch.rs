//! Follows the objects of a cluster that say what it could take.

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
use switchyard_proto::v1;
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;

use super::compute::{Snapshot, compute};

/// The least time between two computations.
const INTERVAL: Duration = Duration::from_millis(200);

/// The capacity of the cluster, recomputed when its objects change. The tasks end with the returned set.
pub(crate) fn watch(client: &Client) -> (watch::Receiver<Arc<v1::Capacity>>, JoinSet<()>) {
    let (sender, receiver) = watch::channel(Arc::default());
    let mut tasks = JoinSet::new();
    let changed = Arc::new(Notify::new());
    let cluster_queues = follow::<ClusterQueue>(client, &changed, &mut tasks);
    let local_queues = follow::<LocalQueue>(client, &changed, &mut tasks);
    let flavors = follow::<ResourceFlavor>(client, &changed, &mut tasks);
    let cohorts = follow::<Cohort>(client, &changed, &mut tasks);
    tasks.spawn(async move {
        loop {
            changed.notified().await;
            let snapshot = Snapshot {
                cluster_queues: all(&cluster_queues),
                local_queues: all(&local_queues),
                flavors: all(&flavors),
                cohorts: all(&cohorts),
            };
            let next = Arc::new(compute(&snapshot));
            sender.send_if_modified(|current| {
                let differs = *current != next;
                *current = next;
                differs
            });
            tokio::time::sleep(INTERVAL).await;
        }
    });
    (receiver, tasks)
}

fn follow<K>(client: &Client, changed: &Arc<Notify>, tasks: &mut JoinSet<()>) -> reflector::Store<K>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + Sync + 'static,
    K::DynamicType: Hash + Eq + Clone,
{
    let (store, writer) = reflector::store();
    let events = watcher(Api::<K>::all(client.clone()), watcher::Config::default()).default_backoff().reflect(writer);
    let changed = changed.clone();
    tasks.spawn(async move {
        let mut events = events.boxed();
        while let Some(event) = events.next().await {
            match event {
                Ok(watcher::Event::Init | watcher::Event::InitApply(_)) => {}
                Ok(_) => changed.notify_one(),
                Err(error) => tracing::warn!(kind = %K::kind(&()), %error, "watch failed, trying again"),
            }
        }
    });
    store
}

fn all<K>(store: &reflector::Store<K>) -> Vec<K>
where
    K: Resource<DynamicType = ()> + Clone + 'static,
{
    store.state().iter().map(|object| (**object).clone()).collect()
}
