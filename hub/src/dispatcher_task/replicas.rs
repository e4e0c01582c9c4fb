//! Objects with a Workload for each replica (LeaderWorkerSet): which replica a Workload stands for,
//! and where the first replica runs.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use switchyard_api::v1beta2::Workload;
use switchyard_controller::stores::Stores;
use switchyard_controller::workload as state;
use switchyard_dispatcher::Replica;
use switchyard_jobs::{JobKind, serving::Serving};
use switchyard_scheduler::PodSet;

/// The object whose pod groups have a Workload each.
struct ReplicatedOwner<'a> {
    kind: &'static dyn JobKind,
    serving: &'static dyn Serving,
    reference: &'a OwnerReference,
    /// The name of the first group, and of its Workload.
    first: String,
}

fn replicated_owner(workload: &Workload) -> Option<ReplicatedOwner<'_>> {
    let (kind, owner) = state::pod_group_owner(workload)?;
    let serving = kind.serving()?;
    Some(ReplicatedOwner {
        kind,
        serving,
        reference: owner,
        first: serving.first_group(&owner.name, &owner.uid)?,
    })
}

impl ReplicatedOwner<'_> {
    fn is_first(&self, workload: &Workload) -> bool {
        workload.metadata.name.as_ref() == Some(&self.first)
    }

    /// The names of all groups. Empty if the object is gone.
    fn groups(&self, stores: &Stores, namespace: &str) -> Vec<String> {
        let id = self.kind.id();
        let object = stores
            .job(id.group, id.kind)
            .and_then(|jobs| jobs.store.get(namespace, &self.reference.name));
        let object =
            object.filter(|object| object.metadata.uid.as_ref() == Some(&self.reference.uid));
        let groups = object.map(|object| self.serving.groups(&object.value())).unwrap_or_default();
        groups.into_iter().map(|group| group.name).collect()
    }
}

/// Whether the Workload goes where the first replica is. The object is sent with the first replica.
pub(crate) fn is_later_replica(workload: &Workload) -> bool {
    replicated_owner(workload).is_some_and(|owner| !owner.is_first(workload))
}

/// The Workload of the first replica, for a later one.
pub(crate) fn first_replica(stores: &Stores, workload: &Workload) -> Option<Arc<Workload>> {
    let owner = replicated_owner(workload).filter(|owner| !owner.is_first(workload))?;
    let first = stores.workloads.get(workload.metadata.namespace.as_deref()?, &owner.first)?;
    // Another owner may use that name.
    let same =
        state::pod_group_owner(&first).is_some_and(|(_, other)| other.uid == owner.reference.uid);
    same.then_some(first)
}

/// The Workloads of the later replicas, for the first one.
pub(super) fn later_replicas(stores: &Stores, workload: &Workload) -> Vec<Arc<Workload>> {
    let Some(owner) = replicated_owner(workload).filter(|owner| owner.is_first(workload)) else {
        return Vec::new();
    };
    let namespace = workload.metadata.namespace.as_deref().unwrap_or_default();
    let others = owner.groups(stores, namespace).into_iter().filter(|name| *name != owner.first);
    let others = others.filter_map(|name| stores.workloads.get(namespace, &name));
    others
        .filter(|other| {
            first_replica(stores, other).is_some_and(|it| it.metadata.uid == workload.metadata.uid)
        })
        .collect()
}

/// The replica that the Workload stands for. `has_quota`: whether the Workload with that uid has
/// quota reserved in memory.
pub(super) fn replica(
    stores: &Stores,
    workload: &Workload,
    pod_sets: &Arc<[PodSet]>,
    has_quota: impl Fn(&str) -> bool,
) -> Option<Replica> {
    let owner = replicated_owner(workload)?;
    if owner.is_first(workload) {
        let groups =
            owner.groups(stores, workload.metadata.namespace.as_deref().unwrap_or_default());
        return Some(Replica::First(multiply(pod_sets, groups.len())));
    }
    let first = first_replica(stores, workload);
    let in_memory =
        first.as_deref().and_then(|first| first.metadata.uid.as_deref()).is_some_and(has_quota);
    Some(later_replica_target(first.as_deref(), in_memory))
}

/// The pod sets of all replicas together.
fn multiply(pod_sets: &Arc<[PodSet]>, replicas: usize) -> Arc<[PodSet]> {
    let replicas = i32::try_from(replicas).unwrap_or(i32::MAX);
    if replicas <= 1 {
        return pod_sets.clone();
    }
    pod_sets
        .iter()
        .map(|set| PodSet { count: set.count.saturating_mul(replicas), ..set.clone() })
        .collect()
}

/// Where a later replica should go, given the Workload of the first.
fn later_replica_target(first: Option<&Workload>, in_memory: bool) -> Replica {
    let Some(first) = first.filter(|first| is_wanted(first)) else {
        return Replica::FirstWithoutQuota;
    };
    let is_evicted = state::is_evicted(first);
    match first
        .status
        .as_ref()
        .and_then(|status| status.cluster_name.as_deref())
        .filter(|_| !is_evicted)
    {
        Some(cluster) => Replica::FirstOnCluster(cluster.into()),
        // The last eviction stays visible until a reservation is written again.
        None if in_memory || (state::has_reservation(first) && !is_evicted) => {
            Replica::FirstWithoutCluster
        }
        None => Replica::FirstWithoutQuota,
    }
}

/// Whether the workload should run.
fn is_wanted(workload: &Workload) -> bool {
    workload.metadata.deletion_timestamp.is_none()
        && state::stays_active(workload)
        && !state::is_finished(workload)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};
    use switchyard_jobs::kind_for;

    /// The Workload of one replica of LeaderWorkerSet `llm`.
    fn workload(index: u32, status: &Value) -> Workload {
        let set = kind_for("leaderworkerset.x-k8s.io", "LeaderWorkerSet").unwrap();
        let object = json!({"metadata": {"name": "llm", "uid": "u"}, "spec": {"replicas": 3}});
        let name = &set.serving().unwrap().groups(&object)[index as usize].name;
        let owner = json!({"apiVersion": "leaderworkerset.x-k8s.io/v1", "kind": "LeaderWorkerSet", "name": "llm", "uid": "u"});
        let metadata = json!({
            "name": name, "namespace": "ns", "ownerReferences": [owner],
            "annotations": {"kueue.x-k8s.io/is-group-workload": "true"},
        });
        serde_json::from_value(
            json!({"metadata": metadata, "spec": {"podSets": []}, "status": status}),
        )
        .unwrap()
    }

    fn condition(kind: &str) -> Value {
        let at = "2026-01-01T00:00:00Z";
        json!([{"type": kind, "status": "True", "reason": "R", "message": "", "lastTransitionTime": at}])
    }

    #[test]
    fn only_the_first_replica_is_no_later_replica() {
        assert_eq!(
            [0, 1, 2].map(|index| is_later_replica(&workload(index, &json!({})))),
            [false, true, true]
        );
        let mut alone = workload(1, &json!({}));
        alone.metadata.owner_references = None;
        assert!(!is_later_replica(&alone), "it has no owner");
    }

    #[test]
    fn later_replica_target_follows_the_first() {
        let there = |more: Value| {
            let mut status = json!({"clusterName": "west"});
            switchyard_jobs::apply_merge(&mut status, &more);
            status
        };
        for (case, first, in_memory, expected) in [
            ("there is no first", None, false, Replica::FirstWithoutQuota),
            ("it waits for quota", Some(json!({})), false, Replica::FirstWithoutQuota),
            ("it has quota in memory", Some(json!({})), true, Replica::FirstWithoutCluster),
            (
                "it has quota",
                Some(json!({"conditions": condition("QuotaReserved")})),
                false,
                Replica::FirstWithoutCluster,
            ),
            (
                "it is on a cluster",
                Some(there(json!({}))),
                false,
                Replica::FirstOnCluster("west".into()),
            ),
            (
                "it leaves it",
                Some(there(json!({"conditions": condition("Evicted")}))),
                false,
                Replica::FirstWithoutQuota,
            ),
            (
                "it was evicted, and has quota again",
                Some(json!({"conditions": condition("Evicted")})),
                true,
                Replica::FirstWithoutCluster,
            ),
            (
                "it is over",
                Some(there(json!({"conditions": condition("Finished")}))),
                false,
                Replica::FirstWithoutQuota,
            ),
        ] {
            let first = first.map(|status| workload(0, &status));
            assert_eq!(later_replica_target(first.as_ref(), in_memory), expected, "{case}");
        }
        let mut going = workload(0, &there(json!({})));
        going.spec.active = Some(false);
        assert_eq!(
            later_replica_target(Some(&going), true),
            Replica::FirstWithoutQuota,
            "deactivated"
        );
    }

    #[test]
    fn replica_pod_sets_multiply_with_saturation() {
        let one: Arc<[PodSet]> =
            Arc::from(vec![PodSet::new("leader", 1), PodSet::new("worker", 3)]);
        let counts = |replicas: usize| {
            multiply(&one, replicas).iter().map(|set| set.count).collect::<Vec<_>>()
        };
        assert_eq!((counts(0), counts(1), counts(2)), (vec![1, 3], vec![1, 3], vec![2, 6]));
        assert_eq!(counts(usize::MAX), [i32::MAX, i32::MAX]);
    }
}
