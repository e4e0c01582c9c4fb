//! Lists the objects that an audit of one cluster reads.

use std::fmt::Debug;

use anyhow::anyhow;
use futures::try_join;
use k8s_openapi::NamespaceResourceScope;
use kube::api::{Api, ListParams, ObjectList};
use kube::{Client, Resource};
use serde::de::DeserializeOwned;
use switchyard_api::v1beta2::Cohort;
use switchyard_audit::Cluster;

use super::owners::owners;
use crate::with_hint;

/// Objects per list request.
const PAGE: u32 = 500;

/// Lists pods, their owners, Workloads, ClusterQueues, LocalQueues and Cohorts, of one namespace or
/// all.
///
/// It takes five requests and one per kind of owner, and more for long lists. All but those for
/// owners are sent at once.
///
/// # Errors
/// If a list is denied. The message names the missing right. Owner kinds and Cohorts may be missing
/// on the cluster.
pub async fn list_cluster(
    client: &Client,
    name: &str,
    namespace: Option<&str>,
) -> anyhow::Result<Cluster> {
    let (pods, workloads, cluster_queues, local_queues, cohorts) = try_join!(
        all(namespaced(client, namespace)),
        all(namespaced(client, namespace)),
        all(Api::all(client.clone())),
        all(namespaced(client, namespace)),
        async {
            let api: Api<Cohort> = Api::all(client.clone());
            let cohorts = pages(in_pages(), |page| list(api.clone(), page)).await;
            if_served(cohorts).map_err(|error| denied(&error, "cohorts.kueue.x-k8s.io"))
        },
    )?;
    let owners = owners(client, namespace, &pods).await?;
    let (name, namespace) = (name.to_owned(), namespace.map(str::to_owned));
    Ok(Cluster { name, namespace, pods, owners, workloads, cluster_queues, local_queues, cohorts })
}

/// A consistent read, page by page: for long lists, and for amounts that have to add up.
fn in_pages() -> ListParams {
    ListParams::default().limit(PAGE)
}

/// A read from the API server's cache, the cheapest one. It may be some milliseconds old and comes
/// in one piece, which is fine for metadata.
pub(super) fn from_cache() -> ListParams {
    ListParams::default().match_any()
}

fn namespaced<K>(client: &Client, namespace: Option<&str>) -> Api<K>
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
{
    match namespace {
        Some(namespace) => Api::namespaced(client.clone(), namespace),
        None => Api::all(client.clone()),
    }
}

async fn all<K>(api: Api<K>) -> anyhow::Result<Vec<K>>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug,
{
    let found = pages(in_pages(), |page| list(api.clone(), page)).await;
    found.map_err(|error| denied(&error, &resource_name(&K::plural(&()), &K::group(&()))))
}

async fn list<K>(api: Api<K>, page: ListParams) -> kube::Result<ObjectList<K>>
where
    K: Clone + DeserializeOwned + Debug,
{
    api.list(&page).await
}

/// As in the API server's messages: `jobs.batch`.
pub(super) fn resource_name(plural: &str, group: &str) -> String {
    if group.is_empty() { plural.to_owned() } else { format!("{plural}.{group}") }
}

pub(super) async fn pages<K, Page>(
    mut page: ListParams,
    list: impl Fn(ListParams) -> Page,
) -> kube::Result<Vec<K>>
where
    K: Resource + Clone,
    Page: Future<Output = kube::Result<ObjectList<K>>>,
{
    let mut objects = Vec::new();
    loop {
        let part = list(page.clone()).await?;
        objects.extend(part.items.into_iter().map(|mut object| {
            object.meta_mut().managed_fields = None;
            object
        }));
        match part.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => page = page.continue_token(&token),
            None => return Ok(objects),
        }
    }
}

/// Treats a kind that the cluster does not serve as an empty list.
pub(super) fn if_served<T>(list: kube::Result<Vec<T>>) -> kube::Result<Vec<T>> {
    match list {
        // The 404 for an unknown API group has no reason.
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(Vec::new()),
        list => list,
    }
}

/// An error that says why a list was denied and which right it needs.
pub(super) fn denied(error: &kube::Error, resource: &str) -> anyhow::Error {
    match error {
        kube::Error::Api(status) if status.code == 403 => anyhow!(
            "listing {resource}: {}; it takes the right to list {resource}, as the role switchyard-viewer of deploy/rbac has it",
            status.message
        ),
        error => with_hint(error, &format!("listing {resource}")),
    }
}
