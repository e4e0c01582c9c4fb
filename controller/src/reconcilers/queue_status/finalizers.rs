//! Finalizers of referenced objects. A ClusterQueue keeps its ResourceFlavors and AdmissionChecks,
//! a ResourceFlavor its Topology.

use std::{fmt::Debug, sync::Arc};

use k8s_openapi::ClusterResourceScope;
use kube::{Api, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use switchyard_api::{names, v1beta2::ClusterQueue};

use super::{deletion_events::DeletionEvents, outcome};
use crate::{context::Context, stores::Stores};
use switchyard_platform::{
    store::{Key, Store},
    work_queue::{Outcome, Queue},
    write::Target,
};

/// A ClusterQueue's change queues the objects that it references. A list after a broken watch may
/// bring a recreated queue of the same generation.
pub(super) fn follow_cluster_queues(stores: &Stores, flavors: &Queue<Key>, checks: &Queue<Key>) {
    let (flavors, checks) = (flavors.clone(), checks.clone());
    stores.cluster_queues.subscribe(move |change| {
        if let (Some(old), Some(new)) = (&change.old, &change.new)
            && old.metadata.uid == new.metadata.uid
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

/// A ResourceFlavor's change or deletion queues its Topology.
pub(super) fn follow_flavors(ctx: &Arc<Context>, topologies: &Queue<Key>) {
    let topologies = topologies.clone();
    ctx.stores.resource_flavors.subscribe(move |change| {
        let named = change
            .old
            .iter()
            .chain(&change.new)
            .filter_map(|flavor| flavor.spec.topology_name.as_deref());
        named.for_each(|name| topologies.add(Key::new("", name)));
    });
}

fn flavor_names(queue: &ClusterQueue) -> impl Iterator<Item = &str> {
    queue
        .spec
        .resource_groups
        .iter()
        .flat_map(|group| &group.flavors)
        .map(|flavor| flavor.name.as_str())
}

fn check_names(queue: &ClusterQueue) -> impl Iterator<Item = &str> {
    queue.spec.admission_checks().iter().map(|rule| rule.name.as_str())
}

const IN_USE: &str = "it is in use by";

/// Names of the matching ClusterQueues.
fn users(ctx: &Context, uses: impl Fn(&ClusterQueue) -> bool) -> Vec<String> {
    ctx.stores.cluster_queues.filter(uses).iter().map(|queue| queue.name_any()).collect()
}

pub(super) async fn flavor(ctx: &Context, deletions: &DeletionEvents, key: Key) -> Outcome {
    let users = |name: &str| users(ctx, |queue| flavor_names(queue).any(|it| it == name));
    let store = &ctx.stores.resource_flavors;
    let kept = ReferencedObject {
        kind: "ResourceFlavor",
        user: "ClusterQueue",
        what: "resourceflavor",
        users,
    };
    kept.reconcile(ctx, store, deletions, key).await
}

pub(super) async fn check(ctx: &Context, deletions: &DeletionEvents, key: Key) -> Outcome {
    let users = |name: &str| users(ctx, |queue| check_names(queue).any(|it| it == name));
    let store = &ctx.stores.admission_checks;
    let kept = ReferencedObject {
        kind: "AdmissionCheck",
        user: "ClusterQueue",
        what: "admissioncheck",
        users,
    };
    kept.reconcile(ctx, store, deletions, key).await
}

/// Keeps a Topology while a ResourceFlavor references it.
pub(super) async fn topology(ctx: &Context, deletions: &DeletionEvents, key: Key) -> Outcome {
    let users = |name: &str| {
        let users = ctx
            .stores
            .resource_flavors
            .filter(|flavor| flavor.spec.topology_name.as_deref() == Some(name));
        users.iter().map(|flavor| flavor.name_any()).collect()
    };
    let kept =
        ReferencedObject { kind: "Topology", user: "ResourceFlavor", what: "topology", users };
    kept.reconcile(ctx, &ctx.stores.topologies, deletions, key).await
}

/// An object that is kept while others reference it.
struct ReferencedObject<U> {
    kind: &'static str,
    /// Kind of the referencing objects.
    user: &'static str,
    /// Label of its writes.
    what: &'static str,
    /// Names of the referencing objects.
    users: U,
}

impl<U: Fn(&str) -> Vec<String>> ReferencedObject<U> {
    async fn reconcile<K>(
        &self,
        ctx: &Context,
        store: &Store<K>,
        deletions: &DeletionEvents,
        key: Key,
    ) -> Outcome
    where
        K: Resource<DynamicType = (), Scope = ClusterResourceScope>
            + Clone
            + DeserializeOwned
            + Debug
            + 'static,
    {
        let Some(object) = store.by_key(&key) else {
            deletions.forget(&key);
            return Outcome::Done;
        };
        if !ctx.leading() {
            return Outcome::Done;
        }
        let deleting = object.meta().deletion_timestamp.is_some();
        let users = if deleting { (self.users)(&key.name) } else { Vec::new() };
        // A deleted object accepts no new finalizer.
        if !users.is_empty() {
            return Outcome::Done
                .at_latest(deletions.publish(ctx, &*object, IN_USE, self.user, &users));
        }
        let api = Api::all(ctx.client.clone());
        let target =
            Target { api, store, object: &*object, manager: names::FIELD_MANAGER, what: self.what };
        let result = target.finalizer(ctx, names::RESOURCE_IN_USE, !deleting).await;
        outcome(self.kind, &key, result.map(drop))
    }
}

#[cfg(test)]
mod tests {
    use switchyard_api::v1beta2::StopPolicy;

    use super::*;
    use crate::fixtures;

    fn version(uid: &str, generation: i64, check: &str) -> ClusterQueue {
        let mut queue = fixtures::cluster_queue(StopPolicy::None, &[check]);
        queue.metadata.uid = Some(uid.into());
        queue.metadata.generation = Some(generation);
        queue
    }

    #[rstest::rstest]
    #[case::its_status_changed(version("a", 1, "old"), "")]
    #[case::its_spec_changed(version("a", 2, "new"), "new old")]
    #[case::recreated(version("b", 1, "new"), "new old")]
    #[tokio::test]
    async fn changed_cluster_queue_queues_what_it_referenced(
        #[case] after: ClusterQueue,
        #[case] queued: &str,
    ) {
        let stores = Stores::default();
        let (flavors, checks) = (Queue::default(), Queue::default());
        stores.cluster_queues.insert(version("a", 1, "old"));
        follow_cluster_queues(&stores, &flavors, &checks);
        fixtures::drain(&flavors).await;
        fixtures::drain(&checks).await;
        stores.cluster_queues.insert(after);
        assert_eq!(flavors.is_empty(), queued.is_empty());
        let checks = fixtures::drain(&checks).await;
        let checks: Vec<&str> = checks.iter().map(|key| &*key.name).collect();
        assert_eq!(checks.join(" "), queued);
    }
}
