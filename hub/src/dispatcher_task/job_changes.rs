//! Finds Workloads whose job changed on the hub.
//!
//! A change of its spec goes to the worker. Its end keeps the job from being sent again. If a job
//! is read after its committed Workload, it can be sent now.

use std::collections::BTreeSet;
use std::sync::Arc;

use kube::api::ApiResource;
use serde_json::Value;
use switchyard_api::v1beta2::Workload;
use switchyard_jobs::{JobKind, elastic, kind_for, meta, workload_name};
use switchyard_platform::object::Object;
use switchyard_platform::store::{Change, Key};

/// The Workloads to read again after a change of a job.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct ConcernedWorkloads {
    pub(super) workloads: Vec<Key>,
    /// Namespace and uid of an elastic job: all its slices.
    pub(super) elastic_job: Option<(String, String)>,
}

/// The Workloads that a change of a job concerns. The end of a job that is not elastic concerns
/// its Workload only if `needs_ends`.
pub(super) fn find_concerned(
    resource: &ApiResource,
    change: &Change<Object>,
    needs_ends: bool,
) -> ConcernedWorkloads {
    let Some((kind, new)) = kind_for(&resource.group, &resource.kind).zip(change.new.as_ref())
    else {
        return ConcernedWorkloads::default();
    };
    let is_same = |old: &&Arc<Object>| old.metadata.uid == new.metadata.uid;
    let Some(old) = change.old.as_ref().filter(is_same) else {
        let (workloads, elastic_job) = (all_workloads(kind, new), elastic_job(kind, new));
        return ConcernedWorkloads { workloads, elastic_job };
    };
    let has_new_spec = old.metadata.generation != new.metadata.generation;
    let has_ended = |job: &Object| kind.finished(&job.value()).is_some();
    let ends = || has_ended(new) && !has_ended(old);
    // If the number of pods stays the same, no slice changes, so this is the only signal.
    let is_resized =
        || has_new_spec && elastic::resizing(kind, &new.value(), &old.value()).is_some();
    let followed = has_new_spec.then(|| followed_workload(kind, new)).flatten();
    let ended = (needs_ends && ends()).then(|| only_workload(kind, new)).flatten();
    ConcernedWorkloads {
        workloads: followed.into_iter().chain(ended).collect(),
        elastic_job: elastic_job(kind, new).filter(|_| is_resized() || ends()),
    }
}

/// Whether a Workload is a slice of one of the elastic jobs with these uids.
pub(super) fn is_slice_of(workload: &Workload, uids: &BTreeSet<String>) -> bool {
    let mut owners = workload.metadata.owner_references.iter().flatten();
    elastic::is_slice(workload) && owners.any(|owner| uids.contains(&owner.uid))
}

/// Namespace and uid of an elastic job.
fn elastic_job(kind: &dyn JobKind, job: &Object) -> Option<(String, String)> {
    if !(kind.resizes() && elastic::is_marked(&job.value())) {
        return None;
    }
    Some((job.metadata.namespace.clone()?, job.metadata.uid.clone()?))
}

/// The Workload that is sent when fields of the job change that its kind propagates.
fn followed_workload(kind: &dyn JobKind, job: &Object) -> Option<Key> {
    let metadata = &job.metadata;
    match kind.serving() {
        Some(serving) => {
            let first = serving.first_group(metadata.name.as_deref()?, metadata.uid.as_deref()?)?;
            Some(Key::new(metadata.namespace.as_deref()?, &first))
        }
        None if kind.propagated_fields().is_empty() => None,
        None => only_workload(kind, job),
    }
}

/// All Workloads whose payload has the object, except slices.
fn all_workloads(kind: &dyn JobKind, object: &Object) -> Vec<Key> {
    let Some(namespace) = object.metadata.namespace.as_deref() else { return Vec::new() };
    let value: &Value = &object.value();
    if let Some(serving) = kind.serving() {
        let groups = serving.groups(value).into_iter().map(|group| group.name);
        let groups = groups.chain(serving.older_group(value));
        return groups.map(|group| Key::new(namespace, &group)).collect();
    }
    match kind.group_of(value) {
        Some(group) => vec![Key::new(namespace, group)],
        None => only_workload(kind, object).into_iter().collect(),
    }
}

/// The Workload of a job that has one.
fn only_workload(kind: &dyn JobKind, job: &Object) -> Option<Key> {
    let (metadata, id) = (&job.metadata, kind.id());
    let name = match meta::prebuilt_workload_name(&job.value()) {
        "" => {
            let (name, uid) = (metadata.name.as_deref()?, metadata.uid.as_deref()?);
            workload_name(id.kind, id.group, name, uid)
        }
        prebuilt => prebuilt.to_owned(),
    };
    Some(Key::new(metadata.namespace.as_deref()?, &name))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn resource(group: &str, kind: &str) -> ApiResource {
        kind_for(group, kind).unwrap().id().api_resource()
    }

    #[test]
    fn spec_change_requeues_the_first_replica() {
        let object = |generation: u32| {
            let metadata =
                json!({"name": "llm", "namespace": "ns", "uid": "u", "generation": generation});
            Arc::new(Object::new(json!({"metadata": metadata, "spec": {"replicas": 2}})).unwrap())
        };
        let kind = kind_for("leaderworkerset.x-k8s.io", "LeaderWorkerSet").unwrap();
        let sets = ("leaderworkerset.x-k8s.io", "LeaderWorkerSet");
        let groups = kind.serving().unwrap().groups(&object(1).value()).into_iter();
        let groups: Vec<Key> = groups.map(|group| Key::new("ns", &group.name)).collect();
        let first = || vec![groups[0].clone()];
        for (case, (group, kind), old, new, expected) in [
            ("it is new", sets, None, Some(1), groups.clone()),
            ("it has another spec", sets, Some(1), Some(2), first()),
            ("it has another status", sets, Some(1), Some(1), Vec::new()),
            ("it is gone", sets, Some(1), None, Vec::new()),
            ("its kind has one group", ("apps", "StatefulSet"), Some(1), Some(2), Vec::new()),
        ] {
            let change =
                Change { key: Key::new("ns", "llm"), old: old.map(object), new: new.map(object) };
            let found = find_concerned(&resource(group, kind), &change, true).workloads;
            assert_eq!(found, expected, "{case}");
        }
    }

    #[test]
    fn object_that_is_read_late_requeues_its_workload() {
        let object = |uid: &str, labels: Value, annotations: Value| {
            let metadata = json!({
                "name": "train", "namespace": "ns", "uid": uid, "labels": labels, "annotations": annotations,
            });
            Arc::new(Object::new(json!({ "metadata": metadata })).unwrap())
        };
        let changed = |(group, kind): (&str, &str), old, new| {
            let change = Change { key: Key::new("ns", "train"), old, new: Some(new) };
            find_concerned(&resource(group, kind), &change, false)
        };
        let read = |of, labels, annotations| changed(of, None, object("u", labels, annotations));
        let (pod, job, none) = (("", "Pod"), ("batch", "Job"), json!({}));
        let named = |name: &str| vec![Key::new("ns", name)];
        let own = workload_name("Job", "batch", "train", "u");
        assert_eq!(read(job, none.clone(), none.clone()).workloads, named(&own));
        let plain = |uid: &str| object(uid, json!({}), json!({}));
        let recreated = changed(job, Some(plain("old")), plain("u")).workloads;
        assert_eq!(recreated, named(&own), "a list shows another job of its name");
        assert_eq!(changed(job, Some(plain("u")), plain("u")), ConcernedWorkloads::default());
        let group = json!({"kueue.x-k8s.io/pod-group-name": "gang"});
        assert_eq!(read(pod, group, none.clone()).workloads, named("gang"));
        let elastic = json!({"kueue.x-k8s.io/elastic-job": "true"});
        let slices = read(job, none.clone(), elastic).elastic_job;
        assert_eq!(slices, Some(("ns".to_owned(), "u".to_owned())));
        let older = read(("apps", "StatefulSet"), none.clone(), none).workloads;
        assert_eq!(older.len(), 2, "an older Kueue gave its Workload another name: {older:?}");
    }

    #[test]
    fn ray_service_spec_change_requeues_its_workload() {
        let object = |generation: u32, labels: Value| {
            let metadata = json!({
                "name": "llm", "namespace": "ns", "uid": "u", "generation": generation, "labels": labels,
            });
            Arc::new(Object::new(json!({ "metadata": metadata })).unwrap())
        };
        let expected = |kind: &str, new: u32, labels: Value| {
            let (old, new) = (Some(object(1, labels.clone())), Some(object(new, labels)));
            let change = Change { key: Key::new("ns", "llm"), old, new };
            find_concerned(&resource("ray.io", kind), &change, true).workloads
        };
        let own = workload_name("RayService", "ray.io", "llm", "u");
        assert_eq!(expected("RayService", 2, json!({})), [Key::new("ns", &own)]);
        let named = json!({"kueue.x-k8s.io/prebuilt-workload-name": "w"});
        assert_eq!(expected("RayService", 2, named), [Key::new("ns", "w")]);
        assert_eq!(expected("RayService", 1, json!({})), [], "another status");
        assert_eq!(expected("RayCluster", 2, json!({})), [], "nothing of its spec follows");
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
        for (case, generation, elastic, size, expected) in [
            ("it has more pods", 2, "true", (4, 2), true),
            ("as many, of other hosts", 2, "true", (6, 1), true),
            ("as large as before", 2, "true", (3, 2), false),
            ("only its status has changed", 1, "true", (3, 2), false),
            ("it is not elastic", 2, "false", (6, 1), false),
        ] {
            let (old, new) =
                (Some(object(1, elastic, (3, 2))), Some(object(generation, elastic, size)));
            let change = Change { key: Key::new("ns", "ray"), old, new };
            let found =
                find_concerned(&resource("ray.io", "RayCluster"), &change, true).elastic_job;
            assert_eq!(found, expected.then(|| ("ns".to_owned(), "u".to_owned())), "{case}");
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
        for (case, elastic, old, new, expected) in [
            ("it ends", "false", Some(false), Some(true), true),
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
            let found = |needs_ends| find_concerned(&resource("batch", "Job"), &change, needs_ends);
            assert_eq!(found(true).workloads, Vec::from_iter(expected.then_some(own)), "{case}");
            assert!(found(false).workloads.is_empty(), "{case}");
            let slices = (expected && elastic == "true").then(|| ("ns".to_owned(), "u".to_owned()));
            assert_eq!(found(false).elastic_job, slices, "{case}");
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
        let uids = BTreeSet::from(["u".to_owned()]);
        assert!(is_slice_of(&workload("true", "u"), &uids));
        assert!(!is_slice_of(&workload("true", "other"), &uids));
        assert!(!is_slice_of(&workload("false", "u"), &uids));
    }
}
