//! Releases the copies that a hub created or took over on a worker.
//!
//! Without the hub, nothing would remove their finalizer, and a deleted job would stay for ever. The
//! hub's marks go, too: a later takeover knows a copy of MultiKueue by their absence. A Workload that
//! an agent suspended becomes active, because only the agent would resume it.
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

/// Whether the hub created or took over the object. Pods of a serving copy have the hub's label from
/// its template, but a controller creates them, without the finalizer.
fn is_copy(resource: &ApiResource, object: &PartialObjectMeta<DynamicObject>) -> bool {
    let is_pod = resource.group.is_empty() && resource.kind == "Pod";
    let is_controlled =
        object.owner_references().iter().any(|owner| owner.controller == Some(true));
    let has_finalizer = object.finalizers().iter().any(|it| it == names::TERMINAL_STATE);
    !is_pod || !is_controlled || has_finalizer
}

/// The copies of a kind, by the hub's label.
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
        marked.extend(list.items.into_iter().filter(|object| is_copy(resource, object)));
        match list.metadata.continue_ {
            Some(token) if !token.is_empty() => page = page.continue_token(&token),
            _ => break,
        }
    }
    Ok(marked)
}

/// Removes finalizer and marks from these objects, resumes suspended Workloads, and counts the
/// objects.
async fn release_all(
    client: &Client,
    resource: &ApiResource,
    marked: Vec<PartialObjectMeta<DynamicObject>>,
    dry_run: bool,
) -> anyhow::Result<usize> {
    let count = marked.len();
    for object in marked.into_iter().filter(|_| !dry_run) {
        let namespace = object.namespace().unwrap_or_default();
        let api = Api::namespaced_with(client.clone(), &namespace, resource);
        release_one(&api, resource, object).await?;
    }
    Ok(count)
}

/// A merge patch without the hub's finalizer and marks, for the version that was read. It also
/// resumes a Workload that the agent suspended.
fn release_patch(resource: &ApiResource, object: &PartialObjectMeta<DynamicObject>) -> Value {
    let finalizers = object.finalizers().iter().filter(|it| *it != names::TERMINAL_STATE);
    let mut annotations: Map<String, Value> =
        MARKS.iter().map(|&mark| (mark.to_owned(), Value::Null)).collect();
    let workload = ApiResource::erase::<Workload>(&());
    let is_suspended = (&resource.group, &resource.kind) == (&workload.group, &workload.kind)
        && object.annotations().contains_key(names::SUSPENDED);
    if is_suspended {
        annotations.insert(names::SUSPENDED.to_owned(), Value::Null);
    }
    let mut patch = json!({"metadata": {
        "uid": object.metadata.uid, "resourceVersion": object.metadata.resource_version,
        "finalizers": finalizers.collect::<Vec<_>>(),
        "labels": {names::HUB_ID: null},
        "annotations": annotations,
    }});
    if is_suspended {
        patch["spec"] = json!({"active": true});
    }
    patch
}

async fn release_one(
    api: &Api<DynamicObject>,
    resource: &ApiResource,
    mut object: PartialObjectMeta<DynamicObject>,
) -> anyhow::Result<()> {
    let name = object.name_any();
    for _ in 0..MAX_ATTEMPTS {
        // The answer has metadata alone, but the patch may change all of the object.
        let patch = Patch::Merge(release_patch(resource, &object));
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

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Pod;

    use super::*;

    fn object(metadata: &Value) -> PartialObjectMeta<DynamicObject> {
        let text = json!({"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": metadata});
        serde_json::from_value(text).unwrap()
    }

    #[test]
    fn pod_of_a_controller_is_no_copy() {
        let pods = ApiResource::erase::<Pod>(&());
        let owner = json!([{
            "apiVersion": "apps/v1", "kind": "StatefulSet", "name": "web", "uid": "s", "controller": true,
        }]);
        let controlled = object(&json!({"name": "web-0", "ownerReferences": owner}));
        assert!(!is_copy(&pods, &controlled));
        assert!(is_copy(&ApiResource::erase::<Workload>(&()), &controlled));
        let taken_over = json!({
            "name": "web-0", "ownerReferences": owner, "finalizers": [names::TERMINAL_STATE],
        });
        assert!(is_copy(&pods, &object(&taken_over)));
        assert!(is_copy(&pods, &object(&json!({"name": "alone"}))));
    }

    #[test]
    fn suspended_workload_resumes_without_marks() {
        let workloads = ApiResource::erase::<Workload>(&());
        let metadata = |annotations: &Value| {
            object(&json!({
                "name": "train", "uid": "u", "resourceVersion": "7", "annotations": annotations,
                "labels": {names::HUB_ID: "hub"}, "finalizers": [names::TERMINAL_STATE, "other"],
            }))
        };
        let suspended = metadata(&json!({names::SUSPENDED: "true", names::ATTEMPT: "1"}));
        let patch = release_patch(&workloads, &suspended);
        assert_eq!(patch["spec"], json!({"active": true}));
        let expected = json!({"uid": "u", "resourceVersion": "7", "finalizers": ["other"]});
        for field in ["uid", "resourceVersion", "finalizers"] {
            assert_eq!(patch["metadata"][field], expected[field], "{field}");
        }
        let annotations = patch["metadata"]["annotations"].as_object().unwrap();
        assert_eq!(annotations.get(names::SUSPENDED), Some(&Value::Null));
        assert_eq!(annotations.get(names::ATTEMPT), Some(&Value::Null));
        // A user deactivated it, or it is no Workload.
        let by_user = release_patch(&workloads, &metadata(&json!({names::ATTEMPT: "1"})));
        assert!(by_user.get("spec").is_none(), "{by_user}");
        let pod = release_patch(&ApiResource::erase::<Pod>(&()), &suspended);
        assert!(pod.get("spec").is_none(), "{pod}");
    }
}
