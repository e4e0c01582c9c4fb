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
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;

use super::compute::{Snapshot, compute};
use super::replace;
use crate::core::CapacityReceiver;

/// The least time between two computations.
const INTERVAL: Duration = Duration::from_millis(200);

/// The capacity of the cluster, recomputed when its objects change; none before all of them have been listed, since half
/// of them would say that queues are missing. The tasks end with the returned set.
pub(crate) fn watch(client: &Client) -> (CapacityReceiver, JoinSet<()>) {
    let (sender, receiver) = watch::channel(None);
    let mut tasks = JoinSet::new();
    let changed = Arc::new(Notify::new());
    let cluster_queues = follow::<ClusterQueue>(client, &changed, &mut tasks);
    let local_queues = follow::<LocalQueue>(client, &changed, &mut tasks);
    let flavors = follow::<ResourceFlavor>(client, &changed, &mut tasks);
    let cohorts = follow::<Cohort>(client, &changed, &mut tasks);
    tasks.spawn(async move {
        let listed = tokio::try_join!(
            cluster_queues.wait_until_ready(),
            local_queues.wait_until_ready(),
            flavors.wait_until_ready(),
            cohorts.wait_until_ready(),
        );
        // A watch that ended before its list ends this, too.
        if listed.is_err() {
            return;
        }
        loop {
            let snapshot = Snapshot {
                cluster_queues: all(&cluster_queues),
                local_queues: all(&local_queues),
                flavors: all(&flavors),
                cohorts: all(&cohorts),
            };
            replace(&sender, compute(&snapshot));
            tokio::time::sleep(INTERVAL).await;
            changed.notified().await;
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
