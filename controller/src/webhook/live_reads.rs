//! Reads from the API server what the caches do not have yet. A Job may arrive just after its queue
//! was created, and `managedBy`, if the webhook leaves it out then, can never be set.

use std::{fmt::Debug, time::Duration};

use k8s_openapi::api::core::v1::Namespace;
use kube::{
    Api, Resource,
    core::{Selector, SelectorExt},
};
use serde::de::DeserializeOwned;
use serde_json::Value;
use switchyard_api::validate::is_subdomain;
use switchyard_jobs::meta;
use tokio::sync::Semaphore;

use crate::{context::Context, reconcilers::job::owners, stores::Stores};
use switchyard_platform::store::Store;

/// For all requests about one job. The user waits meanwhile.
const DEADLINE: Duration = Duration::from_secs(2);
/// Jobs that may ask the API server at once. Others wait for their turn, within the deadline.
const AT_ONCE: usize = 32;

static PERMITS: Semaphore = Semaphore::const_new(AT_ONCE);

async fn with_permit<T>(request: impl Future<Output = T>) -> T {
    // The semaphore is never closed.
    let _permit = PERMITS.acquire().await;
    request.await
}

/// Whether the caches have the namespace and every object from the queue to its admission checks.
pub(super) fn is_cached(stores: &Stores, namespace: &str, queue: &str) -> bool {
    let Some(local) = stores.local_queues.get(namespace, queue) else { return false };
    let Some(name) = local.spec.cluster_queue.as_deref() else { return true };
    let Some(cluster_queue) = stores.cluster_queues.get("", name) else { return false };
    let checks = cluster_queue.spec.admission_checks();
    stores.namespaces.get("", namespace).is_some()
        && checks.iter().all(|rule| stores.admission_checks.get("", &rule.name).is_some())
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct LiveQueue {
    pub(super) is_namespace_managed: bool,
    /// The queue dispatches to other clusters.
    pub(super) dispatches: bool,
}

/// Reads what the caches lack. `None` if the API server did not answer in time.
pub(super) async fn read_queue(
    ctx: &Context,
    managed: &Selector,
    namespace: &str,
    queue: &str,
) -> Option<LiveQueue> {
    let found =
        tokio::time::timeout(DEADLINE, with_permit(read_uncached(ctx, managed, namespace, queue)))
            .await;
    let problem = match found {
        Ok(Ok(found)) => return Some(found),
        Ok(Err(error)) => error.to_string(),
        Err(_) => format!("no answer within {DEADLINE:?}"),
    };
    tracing::warn!(
        namespace,
        queue,
        problem,
        "a job came before its queue was known, and the queue cannot be read"
    );
    None
}

/// Whether a queued job owns the object, with owners read that the caches lack. `None` if the API
/// server did not answer in time.
pub(super) async fn has_queued_owner(ctx: &Context, object: &Value) -> Option<bool> {
    let problem =
        match tokio::time::timeout(DEADLINE, with_permit(owners::is_ruled(ctx, object))).await {
            Ok(Ok(queued)) => return Some(queued),
            Ok(Err(error)) => error.to_string(),
            Err(_) => format!("no answer within {DEADLINE:?}"),
        };
    let (namespace, name) = (meta::namespace(object), meta::name(object));
    tracing::warn!(namespace, name, problem, "the owners of a job cannot be read");
    None
}

async fn read_uncached(
    ctx: &Context,
    managed: &Selector,
    namespace: &str,
    queue: &str,
) -> kube::Result<LiveQueue> {
    let (stores, client) = (&ctx.stores, &ctx.client);
    let all = |name| (Api::<Namespace>::all(client.clone()), "", name);
    let Some(labels) =
        get(&stores.namespaces, all(namespace)).await?.map(|it| it.metadata.labels.clone())
    else {
        return Ok(LiveQueue::default());
    };
    let is_namespace_managed = managed.matches(&labels.unwrap_or_default());
    let mut found = LiveQueue { is_namespace_managed, dispatches: false };
    let local =
        get(&stores.local_queues, (Api::namespaced(client.clone(), namespace), namespace, queue))
            .await?;
    let Some(name) = local.and_then(|local| local.spec.cluster_queue.clone()) else {
        return Ok(found);
    };
    let cluster_queue = get(&stores.cluster_queues, (Api::all(client.clone()), "", &name)).await?;
    let rules = cluster_queue.as_ref().map(|queue| queue.spec.admission_checks());
    for rule in rules.unwrap_or_default() {
        let check =
            get(&stores.admission_checks, (Api::all(client.clone()), "", &rule.name)).await?;
        found.dispatches |= check.is_some_and(|check| check.spec.is_multi_kueue());
    }
    Ok(found)
}

/// The cached object, or else the API server's.
async fn get<K>(
    store: &Store<K>,
    (api, namespace, name): (Api<K>, &str, &str),
) -> kube::Result<Option<std::sync::Arc<K>>>
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
{
    match store.get(namespace, name) {
        Some(known) => Ok(Some(known)),
        // No object can have such a name, and as a path it might address another resource.
        None if !is_subdomain(name) => Ok(None),
        None => Ok(api.get_opt(name).await?.map(std::sync::Arc::new)),
    }
}
