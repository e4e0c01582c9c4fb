//! Finds Workloads whose job changed on the hub: a change of its spec goes to the worker, and an end
//! keeps the job from being sent again.

use std::sync::Arc;

use kube::api::ApiResource;
use switchyard_api::v1beta2::Workload;
use switchyard_jobs::{JobKind, elastic, kind_for, meta, workload_name};
use switchyard_platform::object::Object;
use switchyard_platform::store::{Change, Key};

/// The Workload of an object whose spec changed, if its kind propagates fields such as the number
/// of replicas.
pub(super) fn workload_of_changed_spec(
    resource: &ApiResource,
    change: &Change<Object>,
) -> Option<Key> {
    let object = change.new.as_ref()?;
    let before = change.old.as_ref().and_then(|old| old.metadata.generation);
    if before.is_some() && before == object.metadata.generation {
        return None;
    }
    let kind = kind_for(&resource.group, &resource.kind)?;
    match kind.serving() {
        Some(serving) => {
            let metadata = &object.metadata;
            let first = serving.first_group(metadata.name.as_deref()?, metadata.uid.as_deref()?)?;
            Some(Key::new(metadata.namespace.as_deref()?, &first))
        }
        None if kind.propagated_fields().is_empty() => None,
        None => only_workload(kind, object),
    }
}

/// The Workload of a job that shows its end and did not before. Another process may have written
/// the status, and then this one knows of the end by this change only.
pub(super) fn workload_of_ended_job(
    resource: &ApiResource,
    change: &Change<Object>,
) -> Option<Key> {
    let kind = kind_for(&resource.group, &resource.kind)?;
    let job = change.new.as_ref().filter(|_| shows_end_now(kind, change))?;
    only_workload(kind, job)
}

/// Namespace and uid of an elastic job that shows its end and did not before.
pub(super) fn ended_elastic_job(
    resource: &ApiResource,
    change: &Change<Object>,
) -> Option<(String, String)> {
    let kind = kind_for(&resource.group, &resource.kind).filter(|kind| kind.resizes())?;
    let job = change.new.as_ref().filter(|_| shows_end_now(kind, change))?;
    let is_elastic = elastic::is_marked(&job.value());
    is_elastic.then(|| Some((job.metadata.namespace.clone()?, job.metadata.uid.clone()?)))?
}

fn shows_end_now(kind: &dyn JobKind, change: &Change<Object>) -> bool {
    let shows_end = |job: &Arc<Object>| kind.finished(&job.value()).is_some();
    change.new.as_ref().is_some_and(shows_end) && !change.old.as_ref().is_some_and(shows_end)
}

/// The Workload of a job whose kind has one for each job.
fn only_workload(kind: &dyn JobKind, object: &Object) -> Option<Key> {
    let (metadata, id) = (&object.metadata, kind.id());
    let name = match meta::prebuilt_workload_name(&object.value()) {
        "" => {
            let (name, uid) = (metadata.name.as_deref()?, metadata.uid.as_deref()?);
            workload_name(id.kind, id.group, name, uid)
        }
        prebuilt => prebuilt.to_owned(),
    };
    Some(Key::new(metadata.namespace.as_deref()?, &name))
}

/// Namespace and uid of an elastic job that was resized. If the number of pods stays the same, its
/// Workload does not change, so this is the only signal.
pub(super) fn resized_elastic_job(
    resource: &ApiResource,
    change: &Change<Object>,
) -> Option<(String, String)> {
    let (old, new) = (change.old.as_ref()?, change.new.as_ref()?);
    let kind = kind_for(&resource.group, &resource.kind).filter(|kind| kind.resizes())?;
    if old.metadata.generation == new.metadata.generation {
        return None;
    }
    // The new value is parsed already; the old one may not be.
    let value = new.value();
    if !elastic::is_marked(&value) {
        return None;
    }
    elastic::resizing(kind, &value, &old.value())?;
    Some((new.metadata.namespace.clone()?, new.metadata.uid.clone()?))
}

/// Whether a Workload is a slice of the elastic job with this uid.
pub(super) fn is_slice_of(workload: &Workload, uid: &str) -> bool {
    let mut owners = workload.metadata.owner_references.iter().flatten();
    elastic::is_slice(workload) && owners.any(|owner| owner.uid == uid)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn spec_change_requeues_the_first_replica() {
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
            let told = workload_of_changed_spec(
                &kind_for(group, kind).unwrap().id().api_resource(),
                &change,
            );
            assert_eq!(told, looked_at.then(|| Key::new("ns", &first)), "{case}");
        }
    }

    #[test]
    fn ray_service_spec_change_requeues_its_workload() {
        let object = |generation: u32, labels: Value| {
            let metadata = json!({
                "name": "llm", "namespace": "ns", "uid": "u", "generation": generation, "labels": labels,
            });
            Arc::new(Object::new(json!({ "metadata": metadata })).unwrap())
        };
        let looked_at = |kind: &str, new: u32, labels: Value| {
            let (old, new) = (Some(object(1, labels.clone())), Some(object(new, labels)));
            let resource = kind_for("ray.io", kind).unwrap().id().api_resource();
            workload_of_changed_spec(&resource, &Change { key: Key::new("ns", "llm"), old, new })
        };
        let own = workload_name("RayService", "ray.io", "llm", "u");
        assert_eq!(looked_at("RayService", 2, json!({})), Some(Key::new("ns", &own)));
        let named = json!({"kueue.x-k8s.io/prebuilt-workload-name": "w"});
        assert_eq!(looked_at("RayService", 2, named), Some(Key::new("ns", "w")));
        assert_eq!(looked_at("RayService", 1, json!({})), None, "another status");
        assert_eq!(looked_at("RayCluster", 2, json!({})), None, "nothing of its spec follows");
    }

    #[test]
    fn elastic_job_resize_requeues_its_workloads() {
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
            let told =
                resized_elastic_job(&cluster, &Change { key: Key::new("ns", "ray"), old, new });
            assert_eq!(told, looked_at.then(|| ("ns".to_owned(), "u".to_owned())), "{case}");
        }
    }

    #[test]
    fn end_of_a_job_requeues_its_workloads() {
        let object = |elastic: &str, has_ended: bool| {
            let annotations = json!({"kueue.x-k8s.io/elastic-job": elastic});
            let metadata =
                json!({"name": "train", "namespace": "ns", "uid": "u", "annotations": annotations});
            let conditions = match has_ended {
                true => json!([{"type": "Complete", "status": "True"}]),
                false => json!([]),
            };
            let job = json!({"metadata": metadata, "status": {"conditions": conditions}});
            Arc::new(Object::new(job).unwrap())
        };
        let resource = kind_for("batch", "Job").unwrap().id().api_resource();
        for (case, elastic, old, new, looked_at) in [
            ("it ends", "false", Some(false), Some(true), true),
            ("its end is read first", "false", None, Some(true), true),
            ("it had ended", "false", Some(true), Some(true), false),
            ("it runs", "false", Some(false), Some(false), false),
            ("it is gone", "false", Some(true), None, false),
            ("it is elastic", "true", Some(false), Some(true), true),
        ] {
            let change = Change {
                key: Key::new("ns", "train"),
                old: old.map(|has_ended| object(elastic, has_ended)),
                new: new.map(|has_ended| object(elastic, has_ended)),
            };
            let own = Key::new("ns", &workload_name("Job", "batch", "train", "u"));
            let told = workload_of_ended_job(&resource, &change);
            assert_eq!(told, looked_at.then_some(own), "{case}");
            let slices =
                (looked_at && elastic == "true").then(|| ("ns".to_owned(), "u".to_owned()));
            assert_eq!(ended_elastic_job(&resource, &change), slices, "{case}");
        }
    }

    #[test]
    fn slice_belongs_to_the_job_with_its_owner_uid() {
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
