//! Builds an engine from one list of each kind, with the conversion that the controller uses.
//!
//! For `switchyard why`, which shows the engine's view of a cluster without running a
//! controller. It needs only the right to list, and works on any cluster with Kueue's API.

use std::fmt::Debug;

use jiff::Timestamp;
use kube::{Api, Client, Resource, api::ListParams};
use serde::de::DeserializeOwned;
use switchyard_config::Configuration;
use switchyard_scheduler::{Engine, Event};

use super::{
    convert::{self, ObjectKind, time::engine_time},
    settings,
};
use crate::stores::Stores;
use switchyard_platform::{
    readable::Readable,
    store::{Key, Store},
};

/// Objects per list request.
const PAGE: u32 = 500;

#[derive(Debug, thiserror::Error)]
#[error("listing {kind}")]
pub struct LoadError {
    /// Plural name.
    pub kind: String,
    #[source]
    pub source: kube::Error,
}

/// Lists every kind that decisions depend on into `stores`, page by page. An optional kind that the
/// cluster does not serve counts as empty.
///
/// # Errors
/// If a kind cannot be listed, most often for want of rights.
pub async fn read_lists(client: &Client, stores: &Stores) -> Result<(), LoadError> {
    tokio::try_join!(
        list(client, &stores.workloads, true),
        list(client, &stores.cluster_queues, true),
        list(client, &stores.local_queues, true),
        list(client, &stores.resource_flavors, true),
        list(client, &stores.cohorts, false),
        list(client, &stores.topologies, false),
        list(client, &stores.admission_checks, false),
        list(client, &stores.workload_priority_classes, false),
        list(client, &stores.namespaces, true),
        list(client, &stores.priority_classes, true),
        list(client, &stores.limit_ranges, true),
        list(client, &stores.runtime_classes, true),
        list(client, &stores.claim_templates, false),
        list(client, &stores.device_classes, false),
    )?;
    if !stores.topologies.is_empty() {
        tokio::try_join!(list(client, &stores.nodes, true), list(client, &stores.pods, true))?;
    }
    Ok(())
}

/// Lists MultiKueue clusters and configurations into `stores`, to explain a hub's jobs.
///
/// # Errors
/// If they cannot be listed, most often for want of rights.
pub async fn read_fleet(client: &Client, stores: &Stores) -> Result<(), LoadError> {
    tokio::try_join!(
        list(client, &stores.multi_kueue_clusters, false),
        list(client, &stores.multi_kueue_configs, false),
    )?;
    Ok(())
}

async fn list<K>(client: &Client, store: &Store<K>, required: bool) -> Result<(), LoadError>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + Sync + 'static,
{
    let api: Api<Readable<K>> = Api::all(client.clone());
    let kind = K::plural(&());
    let mut params = ListParams::default().limit(PAGE);
    loop {
        let page = match api.list(&params).await {
            Ok(page) => page,
            // The 404 for an unknown version of a group has no reason.
            Err(kube::Error::Api(status)) if status.code == 404 && !required => break,
            Err(source) => return Err(LoadError { kind: K::plural(&()).into_owned(), source }),
        };
        for mut object in page.items.into_iter().filter_map(|object| object.or_warn(&kind)) {
            object.meta_mut().managed_fields = None;
            store.insert(object);
        }
        match page.metadata.continue_ {
            Some(token) if !token.is_empty() => params = params.continue_token(&token),
            _ => break,
        }
    }
    store.set_ready();
    Ok(())
}

/// The engine of a controller that has just read `stores` and decided nothing yet. Pure.
#[must_use]
pub fn build_engine(stores: &Stores, config: &Configuration, now: Timestamp) -> Engine {
    let mut engine = settings::new_engine(config);
    let now = engine_time(now);
    let mut apply = |event: Event| engine.apply(event, now);
    // Referenced objects come first, so that nothing is computed twice.
    for (kind, keys) in [
        (ObjectKind::Namespace, keys(&stores.namespaces)),
        (ObjectKind::Topology, keys(&stores.topologies)),
        (ObjectKind::Node, keys(&stores.nodes)),
        (ObjectKind::ResourceFlavor, keys(&stores.resource_flavors)),
        (ObjectKind::AdmissionCheck, keys(&stores.admission_checks)),
        (ObjectKind::Cohort, keys(&stores.cohorts)),
        (ObjectKind::ClusterQueue, keys(&stores.cluster_queues)),
        (ObjectKind::LocalQueue, keys(&stores.local_queues)),
    ] {
        keys.iter().for_each(|key| apply(convert::object(stores, kind, key)));
    }
    for key in keys(&stores.pods) {
        apply(convert::pods::event(stores, &key));
    }
    stores
        .local_queues
        .all()
        .iter()
        .filter_map(|queue| convert::past_usage(queue))
        .for_each(&mut apply);
    for workload in stores.workloads.all() {
        apply(convert::known_workload(stores, config, &workload));
    }
    engine
}

fn keys<K: Resource + 'static>(store: &Store<K>) -> Vec<Key> {
    store.all().iter().map(|object| Key::of(&**object)).collect()
}
