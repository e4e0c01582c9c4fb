//! Converts API objects into events of the engine. Pure: equal objects give equal events.

pub mod nodes;
pub(crate) mod pods;
mod queue;
mod requests;
pub(crate) mod selector;
pub mod time;
pub(crate) mod topology;
pub(crate) mod variant_policy;
mod workload;

use std::collections::{BTreeMap, BTreeSet};

pub(crate) use requests::RequestRules;
use switchyard_api::{
    conditions,
    quantity::{Exact, amount_of, parse},
    v1beta2, variants,
};
use switchyard_config::Configuration;
use switchyard_jobs::elastic;
use switchyard_scheduler::{self as engine, Event, LocalQueueKey, Name, WorkloadKey};
pub(crate) use workload::Ordering;

use super::settings;
use crate::{
    context::Context,
    stores::{Stores, TOPOLOGY_GATE},
};
use switchyard_platform::store::Key;

/// The kinds that the engine reads besides Workloads. A batch is applied in this order: referenced
/// kinds come first, Workloads last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ObjectKind {
    Namespace,
    Topology,
    Node,
    ResourceFlavor,
    AdmissionCheck,
    Cohort,
    ClusterQueue,
    LocalQueue,
}

/// The event for an object's current state, or for its deletion.
pub(crate) fn object(stores: &Stores, kind: ObjectKind, key: &Key) -> Event {
    let name = || Name::from(&*key.name);
    match kind {
        ObjectKind::Namespace => stores.namespaces.by_key(key).map_or_else(
            || Event::NamespaceDeleted { name: name() },
            |namespace| Event::Namespace {
                name: name(),
                labels: namespace.metadata.labels.clone().unwrap_or_default(),
            },
        ),
        ObjectKind::Topology => {
            stores.topologies.by_key(key).filter(|_| !stores.awaits_nodes()).map_or_else(
                || Event::TopologyDeleted { name: name() },
                |topology| Event::Topology { name: name(), levels: queue::levels(&topology) },
            )
        }
        ObjectKind::Node => nodes::event(stores, key),
        ObjectKind::ResourceFlavor => stores.resource_flavors.by_key(key).map_or_else(
            || Event::ResourceFlavorDeleted { name: name() },
            |flavor| Event::ResourceFlavor(queue::resource_flavor(&flavor)),
        ),
        ObjectKind::AdmissionCheck => stores.admission_checks.by_key(key).map_or_else(
            || Event::AdmissionCheckDeleted { name: name() },
            |check| Event::AdmissionCheck(admission_check(&check)),
        ),
        ObjectKind::Cohort => stores.cohorts.by_key(key).map_or_else(
            || Event::CohortDeleted { name: name() },
            |cohort| Event::Cohort(queue::cohort(&cohort)),
        ),
        ObjectKind::ClusterQueue => stores.cluster_queues.by_key(key).map_or_else(
            || Event::ClusterQueueDeleted { name: name() },
            |cluster_queue| Event::ClusterQueue(queue::cluster_queue(&cluster_queue)),
        ),
        ObjectKind::LocalQueue => stores.local_queues.by_key(key).map_or_else(
            || Event::LocalQueueDeleted {
                key: LocalQueueKey { namespace: key.namespace.clone(), name: key.name.clone() },
            },
            |local_queue| Event::LocalQueue(queue::local_queue(&local_queue)),
        ),
    }
}

/// The event for a LocalQueue's past usage, if its status has any.
pub(crate) fn past_usage(queue: &v1beta2::LocalQueue) -> Option<Event> {
    let sharing = queue.status.as_ref()?.fair_sharing.as_ref()?;
    let consumed = &sharing.admission_fair_sharing_status.as_ref()?.consumed_resources;
    // A controller writes only valid quantities. Others count as zero.
    let nanos = |text: &str| parse(text).map_or(0, Exact::nanos);
    Some(Event::PastUsage {
        queue: queue::local_queue(queue).key,
        consumed: consumed
            .iter()
            .map(|(name, used)| (Name::from(name.as_str()), nanos(&used.0)))
            .collect(),
    })
}

/// The event for a workload's current state, or for its deletion.
pub(crate) fn workload(ctx: &Context, key: &Key) -> Event {
    match ctx.stores.workloads.by_key(key) {
        None => Event::WorkloadDeleted { key: workload_key(key) },
        Some(workload) => known_workload(&ctx.stores, &ctx.config, &workload),
    }
}

/// The event for an existing workload.
pub(crate) fn known_workload(
    stores: &Stores,
    config: &Configuration,
    object: &v1beta2::Workload,
) -> Event {
    let rules =
        RequestRules::of(stores, config, object.metadata.namespace.as_deref().unwrap_or_default());
    let mut known = workload::workload(object, &rules, ordering(config));
    if config.enabled(variants::FEATURE_GATE) {
        variant_policy::set_engine_fields(stores, object, &mut known);
    }
    Event::Workload(Box::new(known))
}

fn ordering(config: &Configuration) -> Ordering {
    Ordering {
        by_eviction: settings::requeues_by_eviction_time(config),
        by_priority: config.enabled("PrioritySortingWithinCohort"),
        priority_boost: config.enabled("PriorityBoost"),
        slices: config.enabled(elastic::FEATURE_GATE),
        preemption_gates: config.preemption_gates(),
        reclaims: config.enabled("ReclaimablePods"),
        admission_gates: config.enabled("AdmissionGatedBy"),
        places: config.enabled(TOPOLOGY_GATE),
        patience: config.wait_for_pods_ready.timeout.std(),
    }
}

/// The effective priority of a workload.
pub(crate) fn priority(config: &Configuration, object: &v1beta2::Workload) -> i32 {
    workload::priority(object, ordering(config))
}

/// The pod sets of a workload as the engine counts them.
pub fn pod_sets(ctx: &Context, object: &v1beta2::Workload) -> Vec<engine::PodSet> {
    let namespace = object.metadata.namespace.as_deref().unwrap_or_default();
    workload::pod_sets(object, &RequestRules::of(&ctx.stores, &ctx.config, namespace), false)
}

/// The first resource of which a workload's pods now request more than they are charged, and the
/// pod set. LimitRanges and RuntimeClasses may change after admission.
pub(crate) fn exceeded(ctx: &Context, object: &v1beta2::Workload) -> Option<(String, String)> {
    let admission = object.status.as_ref()?.admission.as_ref()?;
    let queue = ctx.stores.cluster_queues.get("", &admission.cluster_queue)?;
    let covered = queue.spec.resource_groups.iter().flat_map(|group| &group.covered_resources);
    let covered: BTreeSet<&str> = covered.map(String::as_str).collect();
    above_charge(admission, &pod_sets(ctx, object), &covered)
}

/// The first covered resource of which a pod set requests more than its assignment, and the pod
/// set.
fn above_charge(
    admission: &v1beta2::Admission,
    pod_sets: &[engine::PodSet],
    covered: &BTreeSet<&str>,
) -> Option<(String, String)> {
    admission.pod_set_assignments.iter().find_map(|assigned| {
        let pod_set = pod_sets.iter().find(|pod_set| *pod_set.name == *assigned.name)?;
        let count = i64::from(assigned.count.unwrap_or(pod_set.count));
        let exceeds = |resource: &&str| {
            let charged = assigned
                .resource_usage
                .get(resource)
                .map_or(0, |charged| amount_of(resource, charged));
            let asked = pod_set.requests.get(*resource).map_or(0, |amount| amount.get());
            asked.saturating_mul(count) > charged
        };
        let resource = covered.iter().copied().find(exceeds)?;
        Some((resource.to_owned(), assigned.name.clone()))
    })
}

pub(crate) fn workload_key(key: &Key) -> WorkloadKey {
    WorkloadKey { namespace: key.namespace.clone(), name: key.name.clone() }
}

pub(crate) fn is_deletion(event: &Event) -> bool {
    matches!(
        event,
        Event::NamespaceDeleted { .. }
            | Event::TopologyDeleted { .. }
            | Event::CapacityLeafDeleted { .. }
            | Event::ResourceFlavorDeleted { .. }
            | Event::AdmissionCheckDeleted { .. }
            | Event::CohortDeleted { .. }
            | Event::ClusterQueueDeleted { .. }
            | Event::LocalQueueDeleted { .. }
            | Event::WorkloadDeleted { .. }
    )
}

fn admission_check(check: &v1beta2::AdmissionCheck) -> engine::AdmissionCheck {
    let status = check.status.as_ref();
    engine::AdmissionCheck {
        name: name_of(check),
        controller: check.spec.controller_name.clone(),
        active: status
            .is_some_and(|status| conditions::is_true(&status.conditions, conditions::ACTIVE)),
    }
}

fn name_of<K: kube::Resource>(object: &K) -> Name {
    Name::from(object.meta().name.as_deref().unwrap_or_default())
}

fn names(texts: &[String]) -> Vec<Name> {
    texts.iter().map(|text| Name::from(text.as_str())).collect()
}

fn labels(map: Option<&BTreeMap<String, String>>) -> BTreeMap<String, String> {
    map.cloned().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;

    fn told(assignment: &Value, requests: &[(&str, i64)]) -> Option<(String, String)> {
        let admission = json!({"clusterQueue": "all", "podSetAssignments": [assignment]});
        let requests = requests
            .iter()
            .map(|(resource, amount)| (Name::from(*resource), engine::Amount::new(*amount)));
        let pod_set =
            engine::PodSet { requests: requests.collect(), ..engine::PodSet::new("main", 3) };
        above_charge(
            &serde_json::from_value(admission).unwrap(),
            &[pod_set],
            &BTreeSet::from(["cpu", "memory"]),
        )
    }

    #[rstest]
    #[case::equal_to_charge(json!({"cpu": "3"}), 3, &[("cpu", 1_000)], None)]
    #[case::below_charge(json!({"cpu": "3"}), 3, &[("cpu", 500)], None)]
    #[case::more_overhead(json!({"cpu": "3"}), 3, &[("cpu", 1_250)], Some("cpu"))]
    #[case::more_per_pod_with_fewer_pods(json!({"cpu": "2"}), 2, &[("cpu", 1_000)], None)]
    #[case::too_much_for_fewer_pods(json!({"cpu": "2"}), 2, &[("cpu", 1_001)], Some("cpu"))]
    #[case::new_resource(json!({"cpu": "3"}), 3, &[("cpu", 1_000), ("memory", 1)], Some("memory"))]
    #[case::resource_without_quota(json!({"cpu": "3"}), 3, &[("cpu", 1_000), ("disk", 1)], None)]
    fn requests_above_the_charge_are_found(
        #[case] usage: Value,
        #[case] count: i32,
        #[case] requests: &[(&str, i64)],
        #[case] above: Option<&str>,
    ) {
        let assignment = json!({"name": "main", "count": count, "resourceUsage": usage, "flavors": {"cpu": "default"}});
        let above = above.map(|resource| (resource.to_owned(), "main".to_owned()));
        assert_eq!(told(&assignment, requests), above);
    }
}
