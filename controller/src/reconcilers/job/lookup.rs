//! Lookups of queues, classes and namespaces for the job reconciler and the webhook.

use std::{borrow::Cow, collections::BTreeMap};

use anyhow::Context as _;
use k8s_openapi::api::core::v1::Namespace;
use kube::core::{Selector, SelectorExt};
use switchyard_api::names;
use switchyard_config::Configuration;
use switchyard_jobs::{
    JobKind, PriorityLookup, SuspendMode, kind_of_owner, meta, pod, serving::Serving,
};

use crate::{stores::Stores, workload::is_group_workload};

/// Label of every namespace, with its name.
pub(crate) const NAMESPACE_NAME: &str = "kubernetes.io/metadata.name";

/// Namespaces in which jobs are managed (`managedJobsNamespaceSelector`).
///
/// # Errors
///
/// When the selector is invalid. Loading the configuration has checked it.
pub(crate) fn managed_namespaces(config: &Configuration, own: &str) -> anyhow::Result<Selector> {
    config.managed_jobs_namespace_selector(own).try_into().context("managedJobsNamespaceSelector")
}

/// Whether jobs of the namespace are managed. `false` for an unknown namespace.
pub(crate) fn is_managed_namespace(stores: &Stores, selector: &Selector, namespace: &str) -> bool {
    stores.namespaces.get("", namespace).is_some_and(|namespace| is_selected(selector, &namespace))
}

pub(super) fn is_selected(selector: &Selector, namespace: &Namespace) -> bool {
    selector.matches(namespace.metadata.labels.as_ref().unwrap_or(&BTreeMap::new()))
}

/// Whether the namespace has the default LocalQueue.
pub(crate) fn has_default_queue(stores: &Stores, namespace: &str) -> bool {
    stores.local_queues.get(namespace, names::DEFAULT).is_some()
}

/// Whether the job's kind is enabled only for objects that other kinds create, and this one is
/// neither such an object nor a hub's copy. It is ignored.
pub(crate) fn is_implied(
    config: &Configuration,
    kind: &dyn JobKind,
    job: &serde_json::Value,
) -> bool {
    let named = || config.integrations.frameworks.iter().any(|name| name == kind.id().framework);
    let sent = || meta::label(job, names::MULTIKUEUE_ORIGIN).is_some();
    kind.suspend_mode() == SuspendMode::Gate
        && !pod::is_suspended_by_parent(job)
        && !sent()
        && !named()
}

/// Whether the object's controller is of an enabled kind, whether or not it exists or is queued.
pub(crate) fn owned_by_job(
    stores: &Stores,
    config: &Configuration,
    object: &serde_json::Value,
) -> bool {
    let kind = meta::controller_of(object)
        .and_then(|owner| kind_of_owner(&owner.api_version, &owner.kind));
    kind.is_some_and(|kind| is_enabled(stores, config, kind))
}

/// Whether jobs of a kind are managed. Kinds that only the webhook handles have no store.
pub(super) fn is_enabled(stores: &Stores, config: &Configuration, kind: &dyn JobKind) -> bool {
    let named = || config.integrations.frameworks.iter().any(|name| name == kind.id().framework);
    stores.job(kind.id().group, kind.id().kind).is_some() || !kind.is_watched() && named()
}

/// A pod group owner whose group has the name of an older Kueue, while a Workload of that name
/// exists and none of the current name.
pub(crate) fn with_older_name<'a>(
    stores: &Stores,
    serving: &dyn Serving,
    object: &'a serde_json::Value,
) -> Cow<'a, serde_json::Value> {
    let workload = |name: &str| stores.workloads.get(meta::namespace(object), name);
    let Some(older) = serving.older_group(object) else { return Cow::Borrowed(object) };
    let is_older = workload(&older).is_some_and(|it| is_group_workload(&it))
        && serving.groups(object).iter().all(|group| workload(&group.name).is_none());
    if !is_older {
        return Cow::Borrowed(object);
    }
    let mut object = object.clone();
    serving.use_older_group_name(&mut object);
    Cow::Owned(object)
}

impl PriorityLookup for Stores {
    fn workload_class(&self, name: &str) -> Option<i32> {
        self.workload_priority_classes.get("", name).map(|class| class.spec.value)
    }

    fn pod_class(&self, name: &str) -> Option<i32> {
        self.priority_classes.get("", name).map(|class| class.value)
    }

    fn default_pod_class(&self) -> Option<(String, i32)> {
        let defaults = self.priority_classes.filter(|class| class.global_default == Some(true));
        // The API server rejects a second global default, but two may be created at once.
        let lowest = defaults.into_iter().min_by_key(|class| class.value)?;
        Some((lowest.metadata.name.clone()?, lowest.value))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use switchyard_api::v1beta2::Workload;
    use switchyard_jobs::kind_for;

    use super::*;

    #[test]
    fn group_keeps_older_kueues_name_while_its_workload_exists() {
        let kind = kind_for("apps", "StatefulSet").unwrap();
        let set = json!({"metadata": {"name": "a", "namespace": "ns", "uid": "uid-a"}, "spec": {"replicas": 2}});
        let group = |stores: &Stores| {
            let serving = kind.serving().unwrap();
            let named = with_older_name(stores, serving, &set);
            serving.groups(&named).remove(0).name
        };
        let insert = |stores: &Stores, name: &str, annotations: Value| {
            let workload = json!({
                "metadata": {"name": name, "namespace": "ns", "annotations": annotations}, "spec": {"podSets": []},
            });
            stores.workloads.insert(serde_json::from_value::<Workload>(workload).unwrap());
        };
        let of_group = || json!({"kueue.x-k8s.io/is-group-workload": "true"});
        // printf 'StatefulSet\napps\na\n' | sha1sum
        let (older, newer) = ("statefulset-a-8492c", "statefulset-a-98ec4");

        let stores = Stores::default();
        assert_eq!(group(&stores), newer);
        insert(&stores, older, json!({}));
        assert_eq!(group(&stores), newer, "that is somebody else's");
        insert(&stores, older, of_group());
        assert_eq!(group(&stores), older);
        insert(&stores, newer, of_group());
        assert_eq!(group(&stores), newer);
    }
}
