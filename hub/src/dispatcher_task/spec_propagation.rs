//! Whose spec goes on being this cluster's once it was sent: a change of it is to be brought after it.

use kube::api::ApiResource;
use switchyard_api::v1beta2::Workload;
use switchyard_jobs::{elastic, kind_for, meta, workload_name};
use switchyard_platform::object::Object;
use switchyard_platform::store::{Change, Key};

/// The Workload with which an object was sent whose spec has changed: what follows it may be another, such as its number of
/// replicas.
pub(super) fn changed(resource: &ApiResource, change: &Change<Object>) -> Option<Key> {
    let object = &change.new.as_ref()?.metadata;
    let before = change.old.as_ref().and_then(|old| old.metadata.generation);
    if before.is_some() && before == object.generation {
        return None;
    }
    let kind = kind_for(&resource.group, &resource.kind)?;
    let (name, uid) = (object.name.as_deref()?, object.uid.as_deref()?);
    let workload = match kind.serving() {
        Some(serving) => serving.first_group(name, uid)?,
        None if kind.followed_fields().is_empty() => return None,
        None => match meta::prebuilt_workload_name(&change.new.as_ref()?.value()) {
            "" => workload_name(kind.id().kind, kind.id().group, name, uid),
            prebuilt => prebuilt.to_owned(),
        },
    };
    Some(Key::new(object.namespace.as_deref()?, &workload))
}

/// The namespace and the uid of an elastic job that is of another size now. Of as many pods as before, its Workload stays as it
/// is, and nothing else tells of it.
pub(super) fn resized(resource: &ApiResource, change: &Change<Object>) -> Option<(String, String)> {
    let (old, new) = (change.old.as_ref()?, change.new.as_ref()?);
    let kind = kind_for(&resource.group, &resource.kind).filter(|kind| kind.resizes())?;
    if old.metadata.generation == new.metadata.generation {
        return None;
    }
    // What has just come is at hand; what was before it may have to be parsed.
    let value = new.value();
    if !elastic::is_marked(&value) {
        return None;
    }
    elastic::resizing(kind, &value, &old.value())?;
    Some((new.metadata.namespace.clone()?, new.metadata.uid.clone()?))
}

/// Whether a Workload is one of an elastic job, by the job's uid.
pub(super) fn is_slice_of(workload: &Workload, uid: &str) -> bool {
    let mut owners = workload.metadata.owner_references.iter().flatten();
    elastic::is_slice(workload) && owners.any(|owner| owner.uid == uid)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn the_first_is_looked_at_when_its_object_has_another_spec() {
        let object = |generation: u32| {
            let metadata =
                json!({"name": "llm", "namespace": "ns", "uid": "u", "generation": generation});
            Arc::new(Object::new(json!({ "metadata": metadata })).unwrap())
        };
        let kind = kind_for("leaderworkerset.x-k8s.io", "LeaderWorkerSet").unwrap();
        let first = kind.serving().unwrap().first_group("llm", "u").unwrap();
        let sets = ("leaderworkerset.x-k8s.io", "LeaderWorkerSet");
        for (case, (group, kind), old, new, looked_at) in [
            ("it is new", sets, None, Some(1), true),
            ("it has another spec", sets, Some(1), Some(2), true),
            ("it has another status", sets, Some(1), Some(1), false),
            ("it is gone", sets, Some(1), None, false),
            ("its kind has one group", ("apps", "StatefulSet"), Some(1), Some(2), false),
        ] {
            let change =
                Change { key: Key::new("ns", "llm"), old: old.map(object), new: new.map(object) };
            let told = changed(&kind_for(group, kind).unwrap().id().api_resource(), &change);
            assert_eq!(told, looked_at.then(|| Key::new("ns", &first)), "{case}");
        }
    }

    #[test]
    fn the_workload_of_a_ray_service_is_looked_at_when_its_spec_is_another() {
        let object = |generation: u32, labels: Value| {
            let metadata = json!({
                "name": "llm", "namespace": "ns", "uid": "u", "generation": generation, "labels": labels,
            });
            Arc::new(Object::new(json!({ "metadata": metadata })).unwrap())
        };
        let looked_at = |kind: &str, new: u32, labels: Value| {
            let (old, new) = (Some(object(1, labels.clone())), Some(object(new, labels)));
            let resource = kind_for("ray.io", kind).unwrap().id().api_resource();
            changed(&resource, &Change { key: Key::new("ns", "llm"), old, new })
        };
        let own = workload_name("RayService", "ray.io", "llm", "u");
        assert_eq!(looked_at("RayService", 2, json!({})), Some(Key::new("ns", &own)));
        let named = json!({"kueue.x-k8s.io/prebuilt-workload-name": "w"});
        assert_eq!(looked_at("RayService", 2, named), Some(Key::new("ns", "w")));
        assert_eq!(looked_at("RayService", 1, json!({})), None, "another status");
        assert_eq!(looked_at("RayCluster", 2, json!({})), None, "nothing of its spec follows");
    }

    #[test]
    fn the_workloads_of_an_elastic_job_are_looked_at_when_it_is_of_another_size() {
        let object = |generation: u32, elastic: &str, (replicas, hosts): (u32, u32)| {
            let pods = json!({"spec": {"containers": [{"name": "c", "image": "i"}]}});
            let group = json!({"groupName": "g", "replicas": replicas, "numOfHosts": hosts, "template": pods});
            let annotations = json!({"kueue.x-k8s.io/elastic-job": elastic});
            Arc::new(
                Object::new(json!({
                    "metadata": {
                        "name": "ray", "namespace": "ns", "uid": "u", "generation": generation, "annotations": annotations,
                    },
                    "spec": {"headGroupSpec": {"template": pods}, "workerGroupSpecs": [group]},
                }))
                .unwrap(),
            )
        };
        let cluster = kind_for("ray.io", "RayCluster").unwrap().id().api_resource();
        for (case, generation, elastic, size, looked_at) in [
            ("it has more pods", 2, "true", (4, 2), true),
            ("as many, of other hosts", 2, "true", (6, 1), true),
            ("as large as before", 2, "true", (3, 2), false),
            ("only its status has changed", 1, "true", (3, 2), false),
            ("it is not elastic", 2, "false", (6, 1), false),
        ] {
            let (old, new) =
                (Some(object(1, elastic, (3, 2))), Some(object(generation, elastic, size)));
            let told = resized(&cluster, &Change { key: Key::new("ns", "ray"), old, new });
            assert_eq!(told, looked_at.then(|| ("ns".to_owned(), "u".to_owned())), "{case}");
        }
    }

    #[test]
    fn the_slices_of_a_job_are_known_by_its_uid() {
        let workload = |elastic: &str, owner: &str| -> Workload {
            let owner = json!({"apiVersion": "ray.io/v1", "kind": "RayCluster", "name": "ray", "uid": owner});
            let annotations = json!({"kueue.x-k8s.io/elastic-job": elastic});
            let metadata =
                json!({"name": "w", "annotations": annotations, "ownerReferences": [owner]});
            let workload = json!({"metadata": metadata, "spec": {"podSets": []}});
            serde_json::from_value(workload).unwrap()
        };
        assert!(is_slice_of(&workload("true", "u"), "u"));
        assert!(
            !is_slice_of(&workload("true", "other"), "u")
                && !is_slice_of(&workload("false", "u"), "u")
        );
    }
}
