//! Finalizers of ResourceFlavors and AdmissionChecks: they stay while a ClusterQueue names them.

use std::sync::Arc;

use kube::Api;
use switchyard_api::{
    names,
    v1beta2::{AdmissionCheck, ClusterQueue, ResourceFlavor},
};

use super::outcome;
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

pub(super) async fn flavor(ctx: &Context, key: Key) -> Outcome {
    let Some(flavor) = ctx.stores.resource_flavors.by_key(&key).filter(|_| ctx.leading()) else { return Outcome::Done };
    let used = || ctx.stores.cluster_queues.any(|queue| flavor_names(queue).any(|name| name == &*key.name));
    let keep = flavor.metadata.deletion_timestamp.is_none() || used();
    // A deleted object takes no new finalizer.
    if keep && flavor.metadata.deletion_timestamp.is_some() {
        return Outcome::Done;
    }
    let target: Target<'_, ResourceFlavor> = Target {
        api: Api::all(ctx.client.clone()),
        store: &ctx.stores.resource_flavors,
        object: &*flavor,
        manager: names::FIELD_MANAGER,
        what: "resourceflavor",
    };
    let result = target.finalizer(ctx, names::RESOURCE_IN_USE, keep).await;
    outcome("ResourceFlavor", &key, result.map(drop))
}

pub(super) async fn check(ctx: &Context, key: Key) -> Outcome {
    let Some(check) = ctx.stores.admission_checks.by_key(&key).filter(|_| ctx.leading()) else { return Outcome::Done };
    let used = || ctx.stores.cluster_queues.any(|queue| check_names(queue).any(|name| name == &*key.name));
    let keep = check.metadata.deletion_timestamp.is_none() || used();
    if keep && check.metadata.deletion_timestamp.is_some() {
        return Outcome::Done;
    }
    let target: Target<'_, AdmissionCheck> = Target {
        api: Api::all(ctx.client.clone()),
        store: &ctx.stores.admission_checks,
        object: &*check,
        manager: names::FIELD_MANAGER,
        what: "admissioncheck",
    };
    let result = target.finalizer(ctx, names::RESOURCE_IN_USE, keep).await;
    outcome("AdmissionCheck", &key, result.map(drop))
}
