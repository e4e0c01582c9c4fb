//! Questions about queues, classes and namespaces that the job reconciler and the webhook both ask.

use anyhow::Context as _;
use kube::core::{Selector, SelectorExt};
use switchyard_api::{
    config::Configuration,
    jobs::{Held, JobKind, PriorityLookup, kind_of_owner, meta, pod},
    names,
    v1beta2::AdmissionCheck,
};

use super::ancestor::{self, Top};
use crate::stores::Stores;

/// Label that every namespace has, with its name.
pub(crate) const NAMESPACE_NAME: &str = "kubernetes.io/metadata.name";

/// Namespaces in which jobs are managed at all (`managedJobsNamespaceSelector`).
///
/// # Errors
/// When the configured selector is not valid; loading the configuration has checked it.
pub(crate) fn managed_namespaces(config: &Configuration, own: &str) -> anyhow::Result<Selector> {
    config.managed_jobs_namespace_selector(own).try_into().context("managedJobsNamespaceSelector")
}

/// Whether jobs of the namespace are managed. A namespace that is not known is not.
pub(crate) fn is_managed_namespace(stores: &Stores, selector: &Selector, namespace: &str) -> bool {
    stores.namespaces.get("", namespace).is_some_and(|namespace| {
        selector.matches(namespace.metadata.labels.as_ref().unwrap_or(&std::collections::BTreeMap::new()))
    })
}

/// The MultiKueue check of the ClusterQueue behind a LocalQueue, active or not: what a job needs does not change with a
/// worker's connection.
pub(crate) fn multi_kueue_check(stores: &Stores, namespace: &str, queue: &str) -> Option<String> {
    let local = stores.local_queues.get(namespace, queue)?;
    let cluster_queue = stores.cluster_queues.get("", local.spec.cluster_queue.as_deref()?)?;
    let checks = cluster_queue.spec.admission_checks_strategy.as_ref()?;
    let is_multi_kueue = |check: &AdmissionCheck| check.spec.controller_name == names::MULTIKUEUE_CONTROLLER;
    checks
        .admission_checks
        .iter()
        .find(|rule| stores.admission_checks.get("", &rule.name).is_some_and(|check| is_multi_kueue(&check)))
        .map(|rule| rule.name.clone())
}

/// Whether the namespace has a LocalQueue that applies to jobs that name none.
pub(crate) fn has_default_queue(stores: &Stores, namespace: &str) -> bool {
    stores.local_queues.get(namespace, names::DEFAULT).is_some()
}

/// Whether a job is of a kind that is enabled only for what other kinds make, and is neither such a one nor sent by a hub: nothing is done
/// to it.
pub(crate) fn is_implied(config: &Configuration, kind: &dyn JobKind, job: &serde_json::Value) -> bool {
    let named = || config.integrations.frameworks.iter().any(|name| name == kind.id().framework);
    let sent = || meta::label(job, names::MULTIKUEUE_ORIGIN).is_some();
    kind.held() == Held::Gated && !pod::is_suspended_by_parent(job) && !sent() && !named()
}

/// Whether a job of ours rules the object: one above it is queued, or all are. An owner that has not been seen yet does.
pub(crate) fn has_ruler(stores: &Stores, config: &Configuration, object: &serde_json::Value) -> bool {
    let namespace = meta::namespace(object);
    let find = |kind: &'static dyn JobKind, name: &str| {
        stores.job(kind.id().group, kind.id().kind)?.store.get(namespace, name)
    };
    let Some(owner) = meta::controller_of(object) else { return false };
    let unseen = owned_by_job(stores, object)
        && kind_of_owner(&owner.api_version, &owner.kind).is_some_and(|kind| find(kind, &owner.name).is_none());
    let all = config.manage_jobs_without_queue_name;
    let top = ancestor::top(object, find, |parent| all || !meta::queue_name(parent).is_empty());
    unseen || !matches!(top, Top::None)
}

/// Whether a job of a managed kind owns the object.
pub(crate) fn owned_by_job(stores: &Stores, job: &serde_json::Value) -> bool {
    let kind = meta::controller_of(job).and_then(|owner| kind_of_owner(&owner.api_version, &owner.kind));
    kind.is_some_and(|kind| stores.job(kind.id().group, kind.id().kind).is_some())
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
        // The server lets only one be created, but two may slip through at once.
        let lowest = defaults.into_iter().min_by_key(|class| class.value)?;
        Some((lowest.metadata.name.clone()?, lowest.value))
    }
}
