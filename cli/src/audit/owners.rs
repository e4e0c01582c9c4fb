use std::collections::BTreeSet;

use futures::future::try_join_all;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Client;
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, ListParams};
use switchyard_audit::Owner;
use switchyard_jobs::kind_of_owner;

use super::list::{denied, from_cache, if_served, pages, resource_name};

/// Levels of owners above pods that are followed. Each level takes a round of requests.
const MAX_ROUNDS: usize = 16;

/// Metadata of the objects above the pods, of job kinds and ReplicaSets. A kind is listed only if
/// an object refers to it.
pub(super) async fn owners(
    client: &Client,
    namespace: Option<&str>,
    pods: &[Pod],
) -> anyhow::Result<Vec<Owner>> {
    let live = pods.iter().filter(|pod| !has_ended(pod));
    let mut wanted = kinds_above(live.map(|pod| &pod.metadata));
    let (mut listed, mut owners) = (BTreeSet::new(), Vec::new());
    for _ in 0..MAX_ROUNDS {
        wanted.retain(|kind| !listed.contains(kind));
        if wanted.is_empty() {
            break;
        }
        let lists =
            wanted.iter().filter_map(resource).map(|resource| list(client, namespace, resource));
        let found: Vec<Owner> = try_join_all(lists).await?.into_iter().flatten().collect();
        listed.append(&mut wanted);
        wanted = kinds_above(found.iter().map(|owner| &owner.metadata));
        owners.extend(found);
    }
    Ok(owners)
}

fn has_ended(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    matches!(phase, Some("Succeeded" | "Failed"))
}

type OwnerKind = (String, String);

fn kinds_above<'a>(objects: impl Iterator<Item = &'a ObjectMeta>) -> BTreeSet<OwnerKind> {
    let owners = objects.flat_map(|object| object.owner_references.iter().flatten());
    let controllers = owners.filter(|owner| owner.controller == Some(true));
    controllers.map(|owner| (owner.api_version.clone(), owner.kind.clone())).collect()
}

/// The resource to list for a kind; `None` for kinds that are never queued, and for pods.
fn resource((api_version, kind): &OwnerKind) -> Option<ApiResource> {
    if (api_version.as_str(), kind.as_str()) == ("apps/v1", "ReplicaSet") {
        return Some(ApiResource::from_gvk(&GroupVersionKind::gvk("apps", "v1", "ReplicaSet")));
    }
    let known = kind_of_owner(api_version, kind).map(|kind| kind.id());
    known.filter(|id| id.kind != "Pod").map(|id| id.api_resource())
}

async fn list(
    client: &Client,
    namespace: Option<&str>,
    resource: ApiResource,
) -> anyhow::Result<Vec<Owner>> {
    let api: Api<DynamicObject> = match namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    };
    let page = |page: ListParams| {
        let api = api.clone();
        async move { api.list_metadata(&page).await }
    };
    let found = if_served(pages(from_cache(), page).await);
    let found =
        found.map_err(|error| denied(&error, &resource_name(&resource.plural, &resource.group)))?;
    let ApiResource { api_version, kind, .. } = resource;
    let owner = |metadata| Owner { api_version: api_version.clone(), kind: kind.clone(), metadata };
    Ok(found.into_iter().map(|object| owner(object.metadata)).collect())
}
