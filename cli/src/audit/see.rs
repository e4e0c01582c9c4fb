//! Lists the objects of one cluster that an audit reads.

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
use crate::explain;

/// Objects in one answer.
const PAGE: u32 = 500;

/// Lists pods, the owners above them, Workloads, ClusterQueues, LocalQueues and Cohorts, of one namespace or of all.
///
/// It takes five requests and one for each kind of owner that the pods have, more only for long lists. All but those for owners
/// are sent at once.
///
/// # Errors
/// When a list is refused. The message names the right that it takes. A kind of owner, and Cohorts, may be missing on the cluster.
pub async fn see(client: &Client, name: &str, namespace: Option<&str>) -> anyhow::Result<Cluster> {
    let (pods, workloads, cluster_queues, local_queues, cohorts) = try_join!(
        all(namespaced(client, namespace)),
        all(namespaced(client, namespace)),
        all(Api::all(client.clone())),
        all(namespaced(client, namespace)),
        async {
            let api: Api<Cohort> = Api::all(client.clone());
            let cohorts = pages(in_pages(), |page| list(api.clone(), page)).await;
            if_served(cohorts).map_err(|error| refused(&error, "cohorts.kueue.x-k8s.io"))
        },
    )?;
    let owners = owners(client, namespace, &pods).await?;
    let (name, namespace) = (name.to_owned(), namespace.map(str::to_owned));
    Ok(Cluster { name, namespace, pods, owners, workloads, cluster_queues, local_queues, cohorts })
}

/// Reads what is stored, a page at a time: for lists that may be long, and for amounts that have to add up.
fn in_pages() -> ListParams {
    ListParams::default().limit(PAGE)
}

/// Reads what the API server has in its cache, which costs it least. It may be some milliseconds old and comes in one piece: for
/// metadata that hardly changes.
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
    found.map_err(|error| refused(&error, &resource_name(&K::plural(&()), &K::group(&()))))
}

async fn list<K>(api: Api<K>, page: ListParams) -> kube::Result<ObjectList<K>>
where
    K: Clone + DeserializeOwned + Debug,
{
    api.list(&page).await
}

/// As in the messages of the API server: `jobs.batch`.
pub(super) fn resource_name(plural: &str, group: &str) -> String {
    if group.is_empty() { plural.to_owned() } else { format!("{plural}.{group}") }
}

/// All pages of a list, without managed fields.
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

/// Nothing of a kind that the cluster does not serve.
pub(super) fn if_served<T>(list: kube::Result<Vec<T>>) -> kube::Result<Vec<T>> {
    match list {
        // What answers for an API group that is not there has no reason.
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(Vec::new()),
        list => list,
    }
}

/// Says why a list was refused, and which right it takes.
pub(super) fn refused(error: &kube::Error, resource: &str) -> anyhow::Error {
    match error {
        kube::Error::Api(status) if status.is_forbidden() => anyhow!(
            "listing {resource}: {}; it takes the right to list {resource}, as the role switchyard-viewer of deploy/rbac has it",
            status.message
        ),
        error => explain(error, &format!("listing {resource}")),
    }
}
