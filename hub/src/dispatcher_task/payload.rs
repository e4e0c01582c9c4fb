//! What a cluster is given to create for a workload. Pure, and the same for the same objects, so that its hash says
//! whether a cluster has it already.

use std::collections::BTreeSet;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use serde_json::{Value, json};
use switchyard_api::names::{self, MULTIKUEUE_CONTROLLER};
use switchyard_api::v1beta2::Workload;
use switchyard_controller::workload::{is_group_workload, pod_group_owner};
use switchyard_jobs::{
    JobKind, RemoteMeta, elastic, following, kind_of_owner, meta, pod::Pod, sent_objects,
};
use switchyard_proto::pod_sets_hash;
use thiserror::Error;

use crate::cluster_channel::Content;

/// Why nothing can be sent.
#[derive(Debug, Error)]
pub(super) enum PayloadError {
    /// The workload has no owner of a kind that we know.
    #[error("the workload's owner is no job of a kind that can be sent")]
    NoOwner,
    /// The owner is not there (any more).
    #[error("the {kind} {name} is not there")]
    OwnerMissing {
        /// Its kind.
        kind: String,
        /// Its name.
        name: String,
    },
    /// The owner runs here, as far as it says; it would then run twice. Only of kinds whose own webhook says who runs them.
    #[error(
        "the {kind} is not managed by Kueue: set its spec.managedBy to {MULTIKUEUE_CONTROLLER:?}, not {manager:?}"
    )]
    NotManaged {
        /// Its kind.
        kind: &'static str,
        /// What it names.
        manager: String,
    },
    /// More than an agent takes.
    #[error(
        "workload and job take {bytes} bytes together, more than can be sent; make the pod template smaller"
    )]
    TooLarge {
        /// Their size.
        bytes: usize,
    },
    /// A group without a pod that is to run.
    #[error(
        "all pods of the group are being deleted: delete its Workload, or create other pods in their place"
    )]
    NothingToRun,
    /// A fault of ours.
    #[error("not serializable: {0}")]
    Json(#[from] serde_json::Error),
}

/// Refuses an owner that would run here, too. For the kinds that we manage, the job's reconciler says so.
///
/// # Errors
/// [`PayloadError::NotManaged`].
pub(super) fn runs_elsewhere(kind: &dyn JobKind, job: &Value) -> Result<(), PayloadError> {
    let manager = kind.managed_by(job).unwrap_or_default();
    if kind.makes_workloads() || manager == MULTIKUEUE_CONTROLLER {
        return Ok(());
    }
    Err(PayloadError::NotManaged { kind: kind.id().kind, manager: manager.to_owned() })
}

/// The job that a workload stands for, by what owns it.
pub(super) struct Owned<'a> {
    pub(super) kind: &'static dyn JobKind,
    /// The job's; a group has that of its workload.
    pub(super) name: &'a str,
    /// The job, or the members of the group.
    pub(super) owners: Vec<&'a OwnerReference>,
    pub(super) is_group: bool,
}

impl<'a> Owned<'a> {
    fn one(kind: &'static dyn JobKind, owner: &'a OwnerReference) -> Self {
        Self { kind, name: &owner.name, owners: vec![owner], is_group: false }
    }
}

/// What is sent for a workload: its controller, of a kind that we know. For a group of pods what makes them, or all of
/// them.
pub(super) fn owner(workload: &Workload) -> Option<Owned<'_>> {
    match pod_group_owner(workload) {
        Some((kind, maker)) => kind.is_sent().then(|| Owned::one(kind, maker)),
        None => shown_on(workload),
    }
}

/// What shows how a workload goes elsewhere: its controller; for a group of pods, whoever makes them, the pods.
pub(super) fn shown_on(workload: &Workload) -> Option<Owned<'_>> {
    let owners = workload.metadata.owner_references.as_deref().unwrap_or_default();
    if is_group_workload(workload) {
        let owners: Vec<&OwnerReference> = owners.iter().filter(|owner| is_pod(owner)).collect();
        let name = workload.metadata.name.as_deref()?;
        return (!owners.is_empty()).then_some(Owned { kind: &Pod, name, owners, is_group: true });
    }
    let owner =
        owners.iter().find(|owner| owner.controller == Some(true)).or_else(|| owners.first())?;
    Some(Owned::one(kind_of_owner(&owner.api_version, &owner.kind)?, owner))
}

fn is_pod(owner: &OwnerReference) -> bool {
    owner.kind == "Pod" && owner.api_version == "v1"
}

/// What a cluster creates for a workload and its job. The agent adds its own marks. `sized`: the workload with the pods for which
/// it has quota, where that may be fewer than it asks for.
///
/// # Errors
/// [`PayloadError::NothingToRun`] and [`PayloadError::Json`].
pub(super) fn content(
    workload: &Workload,
    sized: Option<&Workload>,
    kind: &dyn JobKind,
    job: &Value,
    origin: &str,
) -> Result<Content, PayloadError> {
    let name = workload.metadata.name.as_deref().unwrap_or_default();
    let mut job = kind.remote_copy(job, RemoteMeta { workload: name, origin });
    if job.get("items").and_then(Value::as_array).is_some_and(Vec::is_empty) {
        return Err(PayloadError::NothingToRun);
    }
    if elastic::is_marked(&job) {
        fit(kind, workload, &mut job);
    }
    let mut annotations = workload.metadata.annotations.clone().unwrap_or_default();
    // A user may have written it.
    annotations.remove(names::POD_SETS_HASH);
    if let Some(sized) = sized {
        kind.shrink(&mut job, &sized.spec.pod_sets);
        // A hub that has forgotten what it sent knows the job again by what its user asked for.
        let asked = pod_sets_hash(&serde_json::to_value(&workload.spec.pod_sets)?);
        annotations.insert(names::POD_SETS_HASH.to_owned(), BASE64_STANDARD.encode(&asked));
    }
    let mut labels = workload.metadata.labels.clone().unwrap_or_default();
    // The uid of a job in this cluster.
    labels.remove(names::JOB_UID);
    let mut copy = json!({
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Workload",
        "metadata": {
            "name": name,
            "namespace": workload.metadata.namespace,
            "labels": labels,
            "annotations": annotations,
        },
        "spec": sized.unwrap_or(workload).spec,
    });
    // Whether it may preempt here says nothing of whether it may there; and here is where its gates are opened.
    if let Some(spec) = copy["spec"].as_object_mut() {
        spec.remove("preemptionGates");
    }
    Ok(Content::new(serde_json::to_vec(&copy)?, serde_json::to_vec(&job)?))
}

/// Whether a workload may be sent for fewer pods than it asks for, and for another number of them with each attempt.
pub(super) fn may_shrink(workload: &Workload) -> bool {
    workload.spec.pod_sets.iter().any(|pod_set| pod_set.min_count.is_some())
}

/// An elastic job is sent with the size for which it has quota. One that has no slices is of one size where it is sent.
fn fit(kind: &dyn JobKind, workload: &Workload, job: &mut Value) {
    if elastic::is_slice(workload) && kind.resizes() {
        kind.resize(job, &workload.spec.pod_sets);
    } else {
        meta::remove_annotation(job, names::ELASTIC_JOB);
    }
}

/// Whether the Workload's job has fields that go on being this cluster's when it was sent.
pub(super) fn has_followed_fields(workload: &Workload) -> bool {
    owner(workload).is_some_and(|owned| !owned.kind.followed_fields().is_empty())
}

/// Whether a job of several objects has some that it did not have before, an object of several groups of pods asks for another
/// number of them, an elastic job for another number of pods, or a field has changed that its kind has follow.
pub(super) fn has_changed(before: &[u8], now: &[u8]) -> bool {
    if before == now {
        return false;
    }
    let objects = |job: &[u8]| serde_json::from_slice(job).map(sent_objects).unwrap_or_default();
    let names = |objects: &[Value]| -> BTreeSet<String> {
        objects.iter().map(|it| meta::name(it).to_owned()).collect()
    };
    let (before, now) = (objects(before), objects(now));
    let follows = |(before, now): (&Value, &Value)| {
        kind_of(now).is_some_and(|it| following(it, now, before).is_some())
    };
    !names(&now).is_subset(&names(&before)) || before.first().zip(now.first()).is_some_and(follows)
}

/// Whether an elastic job that is sent is as large as its Workload. One whose groups of workers are of other hosts than those
/// for which it has quota may be of no such size.
pub(super) fn is_of_its_size(workload: &Workload, job: &[u8]) -> bool {
    let size = |job: &Value| {
        Some(elastic::compare(&kind_of(job)?.pod_sets(job).ok()?, &workload.spec.pod_sets))
    };
    let sent = || serde_json::from_slice(job).ok().as_ref().and_then(size);
    !elastic::is_slice(workload) || sent() == Some(elastic::Size::Same)
}

fn kind_of(object: &Value) -> Option<&'static dyn JobKind> {
    let text = |key: &str| object.get(key).and_then(Value::as_str);
    kind_of_owner(text("apiVersion")?, text("kind")?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_copy_has_what_was_asked_for_and_nothing_of_this_cluster() {
        let workload: Workload = serde_json::from_value(json!({
            "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload",
            "metadata": {
                "name": "job-a-12345", "namespace": "ns", "uid": "u", "resourceVersion": "1", "finalizers": ["x/y"],
                "labels": {"kueue.x-k8s.io/job-uid": "j", "team": "t"},
                "ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "name": "a", "uid": "j", "controller": true}],
            },
            "spec": {"queueName": "lq", "podSets": [], "preemptionGates": [{"name": "example.com/gate"}]},
            "status": {"clusterName": "east"},
        }))
        .unwrap();
        let job = json!({
            "apiVersion": "batch/v1", "kind": "Job",
            "metadata": {"name": "a", "namespace": "ns", "uid": "j", "labels": {"kueue.x-k8s.io/queue-name": "lq"}},
            "spec": {"suspend": true, "managedBy": "kueue.x-k8s.io/multikueue", "template": {}},
            "status": {"active": 1},
        });
        let owned = owner(&workload).unwrap();
        assert_eq!(owned.name, "a");
        let content = content(&workload, None, owned.kind, &job, "multikueue").unwrap();
        let copy: Value = serde_json::from_slice(&content.workload).unwrap();
        assert_eq!(
            copy["metadata"],
            json!({"name": "job-a-12345", "namespace": "ns", "labels": {"team": "t"}, "annotations": {}})
        );
        assert_eq!(copy["spec"]["queueName"], "lq");
        assert_eq!(copy["spec"].get("preemptionGates"), None, "they are this cluster's");
        assert!(copy.get("status").is_none());
        let job: Value = serde_json::from_slice(&content.job).unwrap();
        assert_eq!(job.pointer("/spec/managedBy"), None);
        assert_eq!(
            job.pointer("/metadata/labels/kueue.x-k8s.io~1prebuilt-workload-name"),
            Some(&json!("job-a-12345"))
        );
    }

    #[test]
    fn a_job_is_sent_with_as_many_pods_as_it_has_quota_for() {
        let pod_set = json!({"name": "main", "count": 6, "minCount": 1, "template": {"spec": {"containers": []}}});
        let assignment = json!({"name": "main", "count": 2});
        let workload: Workload = serde_json::from_value(json!({
            "metadata": {"name": "w", "namespace": "ns"},
            "spec": {"podSets": [pod_set]},
            "status": {
                "conditions": [{
                    "type": "QuotaReserved", "status": "True", "reason": "QuotaReserved", "message": "",
                    "lastTransitionTime": "2026-11-21T10:00:00Z",
                }],
                "admission": {"clusterQueue": "cq", "podSetAssignments": [assignment]},
            },
        }))
        .unwrap();
        let annotations = json!({names::JOB_MIN_PARALLELISM: "1"});
        let job = json!({
            "apiVersion": "batch/v1", "kind": "Job",
            "metadata": {"name": "a", "namespace": "ns", "annotations": annotations},
            "spec": {"parallelism": 6, "completions": 12, "template": {"spec": {"containers": []}}},
        });
        let kind = switchyard_jobs::kind_for("batch", "Job").unwrap();
        let sized = crate::dispatcher_task::facts::sized(&workload, None);
        let content = content(&workload, sized.as_ref(), kind, &job, "multikueue").unwrap();
        let (copy, job): (Value, Value) = (
            serde_json::from_slice(&content.workload).unwrap(),
            serde_json::from_slice(&content.job).unwrap(),
        );
        assert_eq!(
            (&copy["spec"]["podSets"][0]["count"], &copy["spec"]["podSets"][0]["minCount"]),
            (&json!(2), &json!(null))
        );
        let asked = pod_sets_hash(&serde_json::to_value(&workload.spec.pod_sets).unwrap());
        assert_eq!(
            copy["metadata"]["annotations"][names::POD_SETS_HASH],
            BASE64_STANDARD.encode(asked)
        );
        assert_eq!(
            (&job["spec"]["parallelism"], &job["spec"]["completions"]),
            (&json!(2), &json!(12))
        );
        assert_eq!(job["metadata"]["annotations"].get(names::JOB_MIN_PARALLELISM), None);
        // Its copy's Workload must be that of its copy's job.
        assert_eq!(kind.pod_sets(&job).unwrap()[0].count, 2);
        assert_eq!(kind.pod_sets(&job).unwrap()[0].min_count, None);
    }

    #[test]
    fn a_group_of_pods_is_sent_whole() {
        let workload = |annotations: Value| -> Workload {
            let owner =
                |name: &str| json!({"apiVersion": "v1", "kind": "Pod", "name": name, "uid": name});
            let owners = [owner("a"), owner("b")];
            let metadata = json!({"name": "g", "namespace": "ns", "annotations": annotations, "ownerReferences": owners});
            serde_json::from_value(json!({"metadata": metadata, "spec": {"podSets": []}})).unwrap()
        };
        let names = |workload: &Workload| {
            let owned = owner(workload).unwrap();
            (
                owned.name.to_owned(),
                owned.owners.iter().map(|owner| owner.name.clone()).collect::<Vec<_>>(),
            )
        };
        assert_eq!(names(&workload(json!({}))), ("a".to_owned(), vec!["a".to_owned()]));
        let group = workload(json!({"kueue.x-k8s.io/is-group-workload": "true"}));
        assert_eq!(names(&group), ("g".to_owned(), vec!["a".to_owned(), "b".to_owned()]));
        let pod = |name: &str| {
            let labels = json!({"kueue.x-k8s.io/pod-group-name": "g"});
            let metadata = json!({"name": name, "namespace": "ns", "uid": name, "labels": labels});
            json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": []}})
        };
        let job = Pod.compose(vec![pod("a"), pod("b")]);
        let content = content(&group, None, &Pod, &job, "multikueue").unwrap();
        let sent: Vec<Value> = sent_objects(serde_json::from_slice(&content.job).unwrap());
        let of = |pod: &Value| {
            let labels = &pod["metadata"]["labels"];
            (
                pod["metadata"]["name"].clone(),
                labels["kueue.x-k8s.io/prebuilt-workload-name"].clone(),
            )
        };
        assert_eq!(
            sent.iter().map(of).collect::<Vec<_>>(),
            [(json!("a"), json!("g")), (json!("b"), json!("g"))]
        );
        let with = |names: &[&str]| {
            let pods = names.iter().map(|name| pod(name)).collect();
            super::content(&group, None, &Pod, &Pod.compose(pods), "multikueue").unwrap().job
        };
        assert!(
            has_changed(&content.job, &with(&["a", "b", "c"]))
                && has_changed(&content.job, &with(&["b", "c"]))
        );
        assert!(
            !has_changed(&content.job, &with(&["a"])) && !has_changed(&content.job, &content.job)
        );
        let deleted = |name: &str| {
            let mut pod = pod(name);
            pod["metadata"]["deletionTimestamp"] = "2026-11-21T10:00:00Z".into();
            pod
        };
        let send = |pods| super::content(&group, None, &Pod, &Pod.compose(pods), "multikueue");
        assert!(send(vec![deleted("a"), pod("b")]).is_ok());
        let refused = send(vec![deleted("a"), deleted("b")]);
        assert!(
            matches!(refused, Err(PayloadError::NothingToRun)),
            "an agent takes no List without items"
        );
    }

    #[test]
    fn what_makes_the_pods_of_a_group_is_sent_in_their_place_and_shown_on_them() {
        let workload = |version: &str, kind: &str| -> Workload {
            let owner = |version: &str, kind: &str| json!({"apiVersion": version, "kind": kind, "name": "db", "uid": "u"});
            let metadata = json!({
                "name": "g", "annotations": {"kueue.x-k8s.io/is-group-workload": "true"},
                "ownerReferences": [owner("v1", "Pod"), owner(version, kind)],
            });
            serde_json::from_value(json!({"metadata": metadata, "spec": {"podSets": []}})).unwrap()
        };
        let set = workload("apps/v1", "StatefulSet");
        let (sent, shown) = (owner(&set).unwrap(), shown_on(&set).unwrap());
        assert_eq!((sent.kind.id().kind, sent.name, sent.is_group), ("StatefulSet", "db", false));
        assert_eq!((shown.kind.id().kind, shown.is_group), ("Pod", true));
        let set = workload("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet");
        assert_eq!(owner(&set).map(|owned| owned.kind.id().kind), Some("LeaderWorkerSet"));
    }

    #[test]
    fn another_serve_configuration_follows_and_nothing_else_of_a_ray_service() {
        let service = |kind: &str, config: Value, image: &str| {
            let spec = json!({"serveConfigV2": config, "rayClusterConfig": {"image": image}});
            serde_json::to_vec(&json!({"apiVersion": "ray.io/v1", "kind": kind, "spec": spec}))
                .unwrap()
        };
        let before = service("RayService", json!("a"), "x");
        assert!(has_changed(&before, &service("RayService", json!("b"), "x")));
        assert!(has_changed(&before, &service("RayService", Value::Null, "x")));
        assert!(!has_changed(&before, &service("RayService", json!("a"), "y")));
        assert!(!has_changed(
            &service("RayJob", json!("a"), "x"),
            &service("RayJob", json!("b"), "x")
        ));
    }

    #[test]
    fn another_number_of_replicas_follows_where_each_is_a_group_of_its_own() {
        let asks = |version: &str, kind: &str, replicas: u32, image: &str| {
            let object = json!({"apiVersion": version, "kind": kind, "spec": {"replicas": replicas, "image": image}});
            object.to_string().into_bytes()
        };
        for (version, kind, follows) in [
            ("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", true),
            ("apps/v1", "StatefulSet", false),
        ] {
            let before = asks(version, kind, 2, "a");
            for replicas in [1, 3] {
                assert_eq!(
                    has_changed(&before, &asks(version, kind, replicas, "a")),
                    follows,
                    "{kind} {replicas}"
                );
            }
            assert!(!has_changed(&before, &asks(version, kind, 2, "b")), "{kind}: something else");
        }
    }

    #[test]
    fn an_elastic_job_is_sent_with_the_size_for_which_it_has_quota() {
        let job = |parallelism: u32| {
            json!({
                "apiVersion": "batch/v1", "kind": "Job",
                "metadata": {"name": "a", "namespace": "ns", "annotations": {names::ELASTIC_JOB: "true"}},
                "spec": {"parallelism": parallelism, "template": {"spec": {"containers": []}}},
            })
        };
        let workload = |slice: bool, count: u32| -> Workload {
            let annotations = if slice { json!({names::ELASTIC_JOB: "true"}) } else { json!({}) };
            let metadata = json!({"name": "w", "namespace": "ns", "annotations": annotations});
            let template = json!({"spec": {"containers": []}});
            let pod_sets = json!([{"name": "main", "count": count, "template": template}]);
            serde_json::from_value(json!({"metadata": metadata, "spec": {"podSets": pod_sets}}))
                .unwrap()
        };
        let kind = switchyard_jobs::kind_for("batch", "Job").unwrap();
        let sent = |slice: bool, count: u32| {
            content(&workload(slice, count), None, kind, &job(5), "multikueue").unwrap().job
        };
        let of = |job: &[u8]| {
            let job: Value = serde_json::from_slice(job).unwrap();
            (job.pointer("/spec/parallelism").cloned(), elastic::is_marked(&job))
        };
        assert_eq!(of(&sent(true, 2)), (Some(json!(2)), true), "it grows once its workload does");
        assert_eq!(of(&sent(false, 5)), (Some(json!(5)), false), "of one size there");
        assert!(
            has_changed(&sent(true, 2), &sent(true, 3))
                && has_changed(&sent(true, 3), &sent(true, 2))
        );
        assert!(
            !has_changed(&sent(true, 2), &sent(true, 2))
                && !has_changed(&sent(false, 2), &sent(false, 3))
        );
        assert!(
            is_of_its_size(&workload(true, 2), &sent(true, 2))
                && is_of_its_size(&workload(false, 5), b"{}")
        );
    }

    #[test]
    fn a_group_of_workers_of_more_hosts_keeps_its_size_until_it_has_quota() {
        let kind = switchyard_jobs::kind_for("ray.io", "RayCluster").unwrap();
        let template = json!({"spec": {"containers": [{"name": "c"}]}});
        let group = json!({"groupName": "g", "replicas": 3, "numOfHosts": 2, "template": template});
        let cluster = json!({
            "apiVersion": "ray.io/v1", "kind": "RayCluster",
            "metadata": {"name": "a", "namespace": "ns", "annotations": {names::ELASTIC_JOB: "true"}},
            "spec": {"headGroupSpec": {"template": template}, "workerGroupSpecs": [group]},
        });
        let of_its_size = |count: u32| {
            let set = |name: &str, count: u32| json!({"name": name, "count": count, "template": template});
            let metadata = json!({"name": "w", "annotations": {names::ELASTIC_JOB: "true"}});
            let spec = json!({"podSets": [set("head", 1), set("g", count)]});
            let workload: Workload =
                serde_json::from_value(json!({"metadata": metadata, "spec": spec})).unwrap();
            is_of_its_size(
                &workload,
                &content(&workload, None, kind, &cluster, "multikueue").unwrap().job,
            )
        };
        assert_eq!([6, 4, 3].map(of_its_size), [true, true, false]);
    }

    #[test]
    fn a_job_of_an_external_framework_that_runs_here_is_not_sent() {
        let kind = switchyard_jobs::external_kind("Flock.v1.example.com").unwrap();
        let managed = |by: Value| {
            runs_elsewhere(kind, &json!({"spec": {"managedBy": by}})).map_err(|it| it.to_string())
        };
        assert_eq!(managed(json!("kueue.x-k8s.io/multikueue")), Ok(()));
        let said = managed(json!("example.com/flock")).unwrap_err();
        assert!(
            said.contains("\"kueue.x-k8s.io/multikueue\", not \"example.com/flock\""),
            "{said}"
        );
        assert!(managed(Value::Null).is_err());
        let job = switchyard_jobs::kind_for("batch", "Job").unwrap();
        assert!(runs_elsewhere(job, &json!({})).is_ok());
    }
}
