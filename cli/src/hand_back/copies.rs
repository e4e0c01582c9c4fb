//! Releases the copies that a hub created or took over on a worker.
//!
//! Without the hub, nothing would remove their finalizer, and a deleted job would stay for ever. The
//! hub's marks go, too: a later takeover knows a copy of MultiKueue by their absence.
//!
//! External frameworks are kinds of which only the hub's configuration knew. So every namespaced
//! kind of a group with a domain is searched, besides the kinds that Switchyard knows.

use anyhow::{Context as _, bail};
use kube::api::{Api, DynamicObject, ListParams, Patch, PatchParams};
use kube::core::PartialObjectMeta;
use kube::core::discovery::{Scope, verbs};
use kube::discovery::{self, ApiCapabilities, ApiResource};
use kube::{Client, ResourceExt as _};
use serde_json::{Map, Value, json};
use switchyard_api::names;
use switchyard_api::v1beta2::Workload;

use super::{MAX_ATTEMPTS, PAGE};

/// Groups without jobs, of which the first has Workloads: no hub puts a finalizer on them.
const SKIPPED: [&str; 2] = ["kueue.x-k8s.io", "events.k8s.io"];
/// Annotations by which a hub and its agents know their copies. MultiKueue's own marks stay.
const MARKS: [&str; 7] = [
    names::WORKLOAD_UID,
    names::ATTEMPT,
    names::PROOF,
    names::POD_SETS_HASH,
    names::FOLLOWS,
    names::FENCE_AFTER,
    names::FLAVOR_PINS,
];
/// Longest cause of an unread kind.
const CAUSE: usize = 200;

/// Result of a release.
#[derive(Debug, Default)]
pub(super) struct Released {
    pub(super) jobs: usize,
    /// Kinds and groups that could not be read, each with the cause.
    pub(super) unread: Vec<String>,
}

/// Removes finalizer and marks from the jobs of a hub and from their Workloads, or only counts the
/// jobs.
///
/// # Errors
/// If the caller may not list or patch a known kind, or an object keeps changing.
pub(super) async fn release(client: &Client, dry_run: bool) -> anyhow::Result<Released> {
    let mut released = Released::default();
    let known: Vec<ApiResource> =
        switchyard_jobs::kinds().iter().map(|kind| kind.id().api_resource()).collect();
    for resource in &known {
        let jobs = marked(client, resource).await?;
        released.jobs += release_all(client, resource, jobs, dry_run).await?;
    }
    for resource in others(client, &known, &mut released.unread).await? {
        let name = format!("{}.{}", resource.plural, resource.group);
        match marked(client, &resource).await {
            Ok(jobs) => released.jobs += release_all(client, &resource, jobs, dry_run).await?,
            Err(error) => released.unread.push(unread(&name, &format!("{error:#}"))),
        }
    }
    // Last, because a run that fails before finds the jobs of marked Workloads again.
    let workloads = ApiResource::erase::<Workload>(&());
    let copies = marked(client, &workloads).await?;
    release_all(client, &workloads, copies, dry_run).await?;
    Ok(released)
}

/// The namespaced kinds that Switchyard does not know.
async fn others(
    client: &Client,
    known: &[ApiResource],
    left_out: &mut Vec<String>,
) -> anyhow::Result<Vec<ApiResource>> {
    let groups = client.list_api_groups().await.context("listing the API groups")?.groups;
    let is_foreign = |name: &str| name.contains('.') && !SKIPPED.contains(&name);
    let mut found = Vec::new();
    for group in groups.iter().filter(|group| is_foreign(&group.name)) {
        // An aggregated API may be away.
        match discovery::group(client, &group.name).await {
            Ok(group) => {
                let all = group.recommended_resources().into_iter();
                found
                    .extend(all.filter(|(it, can)| is_candidate(it, can, known)).map(|(it, _)| it));
            }
            Err(error) => left_out.push(unread(&group.name, &error.to_string())),
        }
    }
    Ok(found)
}

fn is_candidate(resource: &ApiResource, can: &ApiCapabilities, known: &[ApiResource]) -> bool {
    can.scope == Scope::Namespaced
        && can.supports_operation(verbs::LIST)
        && can.supports_operation(verbs::PATCH)
        && !known.iter().any(|it| (&it.group, &it.kind) == (&resource.group, &resource.kind))
}

fn unread(what: &str, why: &str) -> String {
    format!("{what}: {}", why.chars().take(CAUSE).collect::<String>())
}

/// The objects of a kind with a hub's mark.
async fn marked(
    client: &Client,
    resource: &ApiResource,
) -> anyhow::Result<Vec<PartialObjectMeta<DynamicObject>>> {
    let mut marked = Vec::new();
    let all: Api<DynamicObject> = Api::all_with(client.clone(), resource);
    let mut page = ListParams::default().labels(names::HUB_ID).limit(PAGE);
    loop {
        let list = match all.list_metadata(&page).await {
            Ok(list) => list,
            // The cluster has no such kind.
            Err(kube::Error::Api(status)) if status.code == 404 => break,
            Err(error) => {
                let doing = format!("listing {}", resource.plural);
                return Err(crate::with_required_right(&error, &doing, "list them"));
            }
        };
        marked.extend(list.items);
        match list.metadata.continue_ {
            Some(token) if !token.is_empty() => page = page.continue_token(&token),
            _ => break,
        }
    }
    Ok(marked)
}

/// Removes the finalizer from these objects, and counts them.
async fn release_all(
    client: &Client,
    resource: &ApiResource,
    marked: Vec<PartialObjectMeta<DynamicObject>>,
    dry_run: bool,
) -> anyhow::Result<usize> {
    let count = marked.len();
    for object in marked.into_iter().filter(|_| !dry_run) {
        let namespace = object.namespace().unwrap_or_default();
        release_one(&Api::namespaced_with(client.clone(), &namespace, resource), object).await?;
    }
    Ok(count)
}

/// A merge patch without the hub's finalizer and marks, for the version that was read.
fn release_patch(object: &PartialObjectMeta<DynamicObject>) -> Value {
    let finalizers = object.finalizers().iter().filter(|it| *it != names::TERMINAL_STATE);
    let annotations: Map<String, Value> =
        MARKS.iter().map(|&mark| (mark.to_owned(), Value::Null)).collect();
    json!({"metadata": {
        "uid": object.metadata.uid, "resourceVersion": object.metadata.resource_version,
        "finalizers": finalizers.collect::<Vec<_>>(),
        "labels": {names::HUB_ID: null},
        "annotations": annotations,
    }})
}

async fn release_one(
    api: &Api<DynamicObject>,
    mut object: PartialObjectMeta<DynamicObject>,
) -> anyhow::Result<()> {
    let name = object.name_any();
    for _ in 0..MAX_ATTEMPTS {
        let patch = Patch::Merge(release_patch(&object));
        match api.patch_metadata(&name, &PatchParams::default(), &patch).await {
            Ok(_) => return Ok(()),
            Err(kube::Error::Api(status)) if status.is_conflict() => {}
            Err(kube::Error::Api(status)) if status.code == 404 => return Ok(()),
            Err(error) => return Err(error).with_context(|| format!("releasing {name}")),
        }
        let Some(current) = api.get_metadata_opt(&name).await? else { return Ok(()) };
        if !current.labels().contains_key(names::HUB_ID) {
            return Ok(());
        }
        object = current;
    }
    bail!("{name} keeps changing: stop Switchyard before its jobs are handed back")
}
