//! Finalizers of ResourceFlavors and AdmissionChecks: they stay while a ClusterQueue names them.

use std::sync::Arc;

use kube::{Api, ResourceExt};
use switchyard_api::{
    names,
    v1beta2::{AdmissionCheck, ClusterQueue, ResourceFlavor},
};

use super::{outcome, waits::Waits};
use crate::{
    context::Context,
    store::Key,
    work::{Outcome, Queue},
    write::Target,
};

/// What a ClusterQueue names may be let go, or must be kept, when the ClusterQueue changes.
pub(super) fn follow_cluster_queues(ctx: &Arc<Context>, flavors: &Queue<Key>, checks: &Queue<Key>) {
    let (flavors, checks) = (flavors.clone(), checks.clone());
    ctx.stores.cluster_queues.subscribe(move |change| {
        if let (Some(old), Some(new)) = (&change.old, &change.new)
            && old.metadata.generation == new.metadata.generation
        {
            return;
        }
        for queue in change.old.iter().chain(&change.new) {
            flavor_names(queue).for_each(|name| flavors.add(Key::new("", name)));
            check_names(queue).for_each(|name| checks.add(Key::new("", name)));
        }
    });
}

fn flavor_names(queue: &ClusterQueue) -> impl Iterator<Item = &str> {
    queue.spec.resource_groups.iter().flat_map(|group| &group.flavors).map(|flavor| flavor.name.as_str())
}

fn check_names(queue: &ClusterQueue) -> impl Iterator<Item = &str> {
    let strategy = queue.spec.admission_checks_strategy.iter();
    strategy.flat_map(|strategy| &strategy.admission_checks).map(|rule| rule.name.as_str())
}

const IN_USE: &str = "it is in use by";

/// The ClusterQueues of which this holds.
fn users(ctx: &Context, uses: impl Fn(&ClusterQueue) -> bool) -> Vec<String> {
    ctx.stores.cluster_queues.filter(uses).iter().map(|queue| queue.name_any()).collect()
}

pub(super) async fn flavor(ctx: &Context, deletions: &Waits, key: Key) -> Outcome {
    let Some(flavor) = ctx.stores.resource_flavors.by_key(&key) else {
        deletions.forget(&key);
        return Outcome::Done;
    };
    if !ctx.leading() {
        return Outcome::Done;
    }
    let deleting = flavor.metadata.deletion_timestamp.is_some();
    let users =
        if deleting { users(ctx, |queue| flavor_names(queue).any(|name| name == &*key.name)) } else { Vec::new() };
    // A deleted object takes no new finalizer.
    if !users.is_empty() {
        return Outcome::Done.at_latest(deletions.tell(ctx, &*flavor, IN_USE, "ClusterQueue", &users));
    }
    let target: Target<'_, ResourceFlavor> = Target {
        api: Api::all(ctx.client.clone()),
        store: &ctx.stores.resource_flavors,
        object: &*flavor,
        manager: names::FIELD_MANAGER,
        what: "resourceflavor",
    };
    let result = target.finalizer(ctx, names::RESOURCE_IN_USE, !deleting).await;
    outcome("ResourceFlavor", &key, result.map(drop))
}

pub(super) async fn check(ctx: &Context, deletions: &Waits, key: Key) -> Outcome {
    let Some(check) = ctx.stores.admission_checks.by_key(&key) else {
        deletions.forget(&key);
        return Outcome::Done;
    };
    if !ctx.leading() {
        return Outcome::Done;
    }
    let deleting = check.metadata.deletion_timestamp.is_some();
    let users =
        if deleting { users(ctx, |queue| check_names(queue).any(|name| name == &*key.name)) } else { Vec::new() };
    if !users.is_empty() {
        return Outcome::Done.at_latest(deletions.tell(ctx, &*check, IN_USE, "ClusterQueue", &users));
    }
    let target: Target<'_, AdmissionCheck> = Target {
        api: Api::all(ctx.client.clone()),
        store: &ctx.stores.admission_checks,
        object: &*check,
        manager: names::FIELD_MANAGER,
        what: "admissioncheck",
    };
    let result = target.finalizer(ctx, names::RESOURCE_IN_USE, !deleting).await;
    outcome("AdmissionCheck", &key, result.map(drop))
}
