//! Releases the copies that a hub created on a worker: without the hub, nothing would remove their
//! finalizer, and a deleted job would stay for ever.

use anyhow::{Context as _, bail};
use kube::api::{Api, DynamicObject, ListParams, Patch, PatchParams};
use kube::core::PartialObjectMeta;
use kube::{Client, ResourceExt as _};
use serde_json::json;
use switchyard_api::names;

use super::{MAX_ATTEMPTS, PAGE};

/// Removes the finalizer from the jobs of a hub, or only counts them. Returns their number.
///
/// # Errors
/// If the caller may not list or patch a kind, or an object keeps changing.
pub(super) async fn release(client: &Client, dry_run: bool) -> anyhow::Result<usize> {
    let mut released = 0;
    for kind in switchyard_jobs::kinds() {
        let resource = kind.id().api_resource();
        let all: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
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
            for object in list.items.into_iter().filter(is_held) {
                if !dry_run {
                    let namespace = object.namespace().unwrap_or_default();
                    let api = Api::namespaced_with(client.clone(), &namespace, &resource);
                    release_one(&api, object).await?;
                }
                released += 1;
            }
            match list.metadata.continue_ {
                Some(token) if !token.is_empty() => page = page.continue_token(&token),
                _ => break,
            }
        }
    }
    Ok(released)
}

fn is_held(object: &PartialObjectMeta<DynamicObject>) -> bool {
    object.finalizers().iter().any(|it| it == names::TERMINAL_STATE)
}

async fn release_one(
    api: &Api<DynamicObject>,
    mut object: PartialObjectMeta<DynamicObject>,
) -> anyhow::Result<()> {
    let name = object.name_any();
    for _ in 0..MAX_ATTEMPTS {
        let kept: Vec<&String> =
            object.finalizers().iter().filter(|it| *it != names::TERMINAL_STATE).collect();
        let metadata = json!({
            "uid": object.metadata.uid, "resourceVersion": object.metadata.resource_version, "finalizers": kept,
        });
        let patch = Patch::Merge(json!({"metadata": metadata}));
        match api.patch_metadata(&name, &PatchParams::default(), &patch).await {
            Ok(_) => return Ok(()),
            Err(kube::Error::Api(status)) if status.is_conflict() => {}
            Err(kube::Error::Api(status)) if status.is_not_found() => return Ok(()),
            Err(error) => return Err(error).with_context(|| format!("releasing {name}")),
        }
        let Some(current) = api.get_metadata_opt(&name).await? else { return Ok(()) };
        if !is_held(&current) {
            return Ok(());
        }
        object = current;
    }
    bail!("{name} keeps changing: stop Switchyard before its jobs are handed back")
}
