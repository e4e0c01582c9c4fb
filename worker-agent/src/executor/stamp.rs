//! Builds the objects to create: the payload's objects with the agent's marks. Pure.

use std::time::Duration;

use serde::Deserialize;
use serde_json::{Map, Value, json};
use switchyard_api::flavor_pins::{FlavorPins, FlavorPinsError};
use switchyard_api::names;
use switchyard_jobs::{JobKind, kind_of_owner, owner_gvk, sent_objects, serving::PodMetadata};
use thiserror::Error;

use switchyard_proto::v1::{FlavorPin, Payload};

/// The marks of an object.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stamp<'a> {
    pub(super) hub_id: &'a str,
    /// The value of `kueue.x-k8s.io/multikueue-origin` if the payload has none.
    pub(super) origin: &'a str,
    pub(super) workload_uid: &'a str,
    pub(super) attempt: u64,
    /// The assignment's namespace, which the payload must match.
    pub(super) namespace: &'a str,
    /// The Workload's name.
    pub(super) name: &'a str,
    /// For a Workload: its fence.
    pub(super) fence_after: Option<Duration>,
    /// For a Workload: whether it has the hub's preemption gate.
    pub(super) gated: bool,
    /// For a Workload: the only flavors that its pods may use.
    pub(super) pins: &'a [FlavorPin],
}

/// The fence as a Workload records it.
pub(super) fn fence_text(after: Duration) -> String {
    format!("{}ms", after.as_millis())
}

/// Why a payload cannot be created.
#[derive(Debug, Error)]
pub(super) enum BadPayload {
    #[error("the payload is not JSON: {0}")]
    Json(#[from] serde_json::Error),
    #[error("the payload holds {0}, which this agent does not create")]
    Kind(String),
    #[error("the payload is a List without items")]
    Empty,
    #[error("the payload's objects are not one job: a List has to hold pods of one group")]
    Group,
    #[error(
        "jobs of this kind are not managed on this cluster; add {0} to integrations.frameworks of its configuration"
    )]
    Disabled(&'static str),
    #[error("the hub's flavor pins: {0}")]
    Pins(#[from] FlavorPinsError),
    #[error("the payload's metadata.{field} is {got:?}; the assignment says {expected:?}")]
    Elsewhere { field: &'static str, got: String, expected: String },
}

/// The Workload to create, with the name of its job. It keeps only the labels and annotations of the
/// payload's metadata.
///
/// # Errors
///
/// The payload is not a Workload of the assignment's namespace and name.
pub(super) fn workload_to_create(payload: &Payload, stamp: Stamp<'_>) -> Result<Value, BadPayload> {
    let mut object: Value = serde_json::from_slice(&payload.workload)?;
    let (version, kind) = type_of(&object);
    if kind != "Workload" || !version.starts_with("kueue.x-k8s.io/") {
        return Err(BadPayload::Kind(format!("{version} {kind}")));
    }
    require(&object, "namespace", stamp.namespace)?;
    require(&object, "name", stamp.name)?;
    without_marks(&mut object);
    restamp(&mut object, stamp, stamp.name.to_owned());
    if let Some(after) = stamp.fence_after {
        set(&mut object, "annotations", names::FENCE_AFTER, &fence_text(after));
    }
    if !stamp.pins.is_empty() {
        let rows = stamp.pins.iter().map(|pin| (&*pin.pod_set, &*pin.resource, &*pin.flavor));
        let pins = FlavorPins::from_rows(rows)?.to_text();
        set(&mut object, "annotations", names::FLAVOR_PINS, &pins);
    }
    if payload.job.is_empty() {
        set(&mut object, "annotations", names::FOLLOWS, "true");
    }
    // An unreadable job is refused when it is to be created. A group has its Workload's name.
    if let Some((kind, name)) = named(&payload.job) {
        set(&mut object, "annotations", names::JOB_OWNER_GVK, &owner_gvk(kind.id()));
        set(
            &mut object,
            "annotations",
            names::JOB_OWNER_NAME,
            name.as_deref().unwrap_or(stamp.name),
        );
    }
    if let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) {
        spec.remove("active");
        if stamp.gated {
            spec.insert(
                "preemptionGates".to_owned(),
                json!([{"name": names::MULTIKUEUE_PREEMPTION_GATE}]),
            );
        }
    }
    if let Some(labels) = object.pointer_mut("/metadata/labels").and_then(Value::as_object_mut) {
        // The job's uid on the hub has no meaning here.
        labels.remove(names::JOB_UID);
    }
    Ok(object)
}

/// The objects of a job to create, suspended and with the agent's finalizer, and their kind.
/// Several objects form a group.
///
/// # Errors
///
/// The payload is not a job of a known kind in the assignment's namespace.
pub(super) fn job_to_create(
    payload: &[u8],
    stamp: Stamp<'_>,
) -> Result<(Vec<Value>, &'static dyn JobKind), BadPayload> {
    let job: Value = serde_json::from_slice(payload)?;
    let is_list = type_of(&job).1 == "List";
    let made = sent_objects(job).into_iter().map(|object| one_to_create(object, stamp));
    let made = made.collect::<Result<Vec<_>, _>>()?;
    let Some(kind) = made.first().map(|(_, kind)| *kind) else { return Err(BadPayload::Empty) };
    let objects: Vec<Value> = made.into_iter().map(|(object, _)| object).collect();
    if objects.iter().any(|object| {
        kind.group_of(object).is_some() != is_list || type_of(object).1 != kind.id().kind
    }) {
        return Err(BadPayload::Group);
    }
    Ok((objects, kind))
}

fn one_to_create(
    mut object: Value,
    stamp: Stamp<'_>,
) -> Result<(Value, &'static dyn JobKind), BadPayload> {
    let (version, kind) = type_of(&object);
    let Some(job_kind) = kind_of_owner(&version, &kind) else {
        return Err(BadPayload::Kind(format!("{version} {kind}")));
    };
    require(&object, "namespace", stamp.namespace)?;
    let name = text(&object, "/metadata/name");
    without_marks(&mut object);
    restamp(&mut object, stamp, name);
    job_kind.suspend(&mut object);
    if let Some(serving) = job_kind.serving() {
        // The agent watches its pods for their statuses.
        let attempt = stamp.attempt.to_string();
        let annotations = [(names::WORKLOAD_UID, stamp.workload_uid), (names::ATTEMPT, &attempt)];
        let marks =
            PodMetadata { labels: &[(names::HUB_ID, stamp.hub_id)], annotations: &annotations };
        serving.mark_pods(&mut object, &marks);
    }
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.insert("finalizers".to_owned(), json!([names::TERMINAL_STATE]));
    }
    switchyard_jobs::meta::set_prebuilt_workload_name(&mut object, stamp.name);
    Ok((object, job_kind))
}

pub(super) fn job_kind(payload: &[u8]) -> Option<&'static dyn JobKind> {
    named(payload).map(|(kind, _)| kind)
}

/// The kind of a payload's job, and its name if it is one object.
fn named(payload: &[u8]) -> Option<(&'static dyn JobKind, Option<String>)> {
    let job: Named = serde_json::from_slice(payload).ok()?;
    match job.items.first() {
        Some(member) => Some((kind_of_owner(&member.api_version, &member.kind)?, None)),
        None => Some((kind_of_owner(&job.api_version, &job.kind)?, Some(job.metadata.name))),
    }
}

/// The type and name of a payload's job; the rest is not parsed.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Named {
    api_version: String,
    kind: String,
    #[serde(default)]
    metadata: NamedMeta,
    #[serde(default)]
    items: Vec<Self>,
}

#[derive(Default, Deserialize)]
struct NamedMeta {
    name: String,
}

fn type_of(object: &Value) -> (String, String) {
    (text(object, "/apiVersion"), text(object, "/kind"))
}

fn text(object: &Value, path: &str) -> String {
    object.pointer(path).and_then(Value::as_str).unwrap_or_default().to_owned()
}

fn require(object: &Value, field: &'static str, expected: &str) -> Result<(), BadPayload> {
    let got = text(object, &format!("/metadata/{field}"));
    if got == expected {
        return Ok(());
    }
    Err(BadPayload::Elsewhere { field, got, expected: expected.to_owned() })
}

/// Rebuilds the metadata from name, namespace, the payload's labels and annotations, and the marks.
fn restamp(object: &mut Value, stamp: Stamp<'_>, name: String) {
    let take =
        |key: &str| object.pointer(&format!("/metadata/{key}")).cloned().filter(Value::is_object);
    let labels = take("labels").unwrap_or_else(|| json!({}));
    let annotations = take("annotations").unwrap_or_else(|| json!({}));
    if let Some(fields) = object.as_object_mut() {
        fields.remove("status");
        let metadata: Map<String, Value> = Map::from_iter([
            ("name".to_owned(), name.into()),
            ("namespace".to_owned(), stamp.namespace.into()),
            ("labels".to_owned(), labels),
            ("annotations".to_owned(), annotations),
        ]);
        fields.insert("metadata".to_owned(), metadata.into());
    }
    set(object, "labels", names::HUB_ID, stamp.hub_id);
    // The hub's value takes precedence.
    if text(object, &format!("/metadata/labels/{}", names::MULTIKUEUE_ORIGIN.replace('/', "~1")))
        .is_empty()
    {
        set(object, "labels", names::MULTIKUEUE_ORIGIN, stamp.origin);
    }
    set(object, "annotations", names::WORKLOAD_UID, stamp.workload_uid);
    set(object, "annotations", names::ATTEMPT, &stamp.attempt.to_string());
}

/// The marks by which an agent recognizes its objects.
const MARKS: [&str; 8] = [
    names::HUB_ID,
    names::WORKLOAD_UID,
    names::ATTEMPT,
    names::PROOF,
    names::FOLLOWS,
    names::FENCE_AFTER,
    names::FLAVOR_PINS,
    names::SUSPENDED,
];

/// Removes marks that a user wrote, from the object and from its pod templates, which controllers
/// copy to pods.
fn without_marks(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for (name, field) in fields.iter_mut() {
                if let ("labels" | "annotations", Value::Object(texts)) =
                    (name.as_str(), &mut *field)
                {
                    texts.retain(|key, _| !MARKS.contains(&key.as_str()));
                } else {
                    without_marks(field);
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(without_marks),
        _ => {}
    }
}

fn set(object: &mut Value, map: &str, key: &str, value: &str) {
    if let Some(map) =
        object.pointer_mut(&format!("/metadata/{map}")).and_then(Value::as_object_mut)
    {
        map.insert(key.to_owned(), value.into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAMP: Stamp<'_> = Stamp {
        hub_id: "hub",
        origin: "multikueue",
        workload_uid: "u",
        attempt: 7,
        namespace: "ns",
        name: "job-a",
        fence_after: None,
        gated: false,
        pins: &[],
    };

    /// Controllers copy templates to pods, and the agent watches pods for marks.
    #[test]
    fn forged_marks_in_templates_are_removed() {
        let forged = json!({
            "labels": {"switchyard.dev/hub-id": "hub", "team": "x"},
            "annotations": {
                "switchyard.dev/workload-uid": "x", "switchyard.dev/attempt": "18446744073709551615", "note": "n",
                "switchyard.dev/fence-after": "1h", "switchyard.dev/follows": "true",
                "switchyard.dev/flavor-pins": r#"{"main":{"cpu":"free"}}"#,
            },
        });
        let kept = json!({"labels": {"team": "x"}, "annotations": {"note": "n"}});
        let job = json!({
            "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "a", "namespace": "ns"},
            "spec": {"template": {"metadata": forged, "spec": {"containers": [{"name": "c"}]}}},
        });
        let (made, _) = job_to_create(job.to_string().as_bytes(), STAMP).unwrap();
        assert_eq!(made[0].pointer("/spec/template/metadata"), Some(&kept));
        assert_eq!(
            made[0].pointer("/metadata/annotations/switchyard.dev~1attempt"),
            Some(&json!("7"))
        );
        let workload = json!({
            "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload",
            "metadata": {"name": "job-a", "namespace": "ns", "annotations": {
                "switchyard.dev/follows": "true", "switchyard.dev/flavor-pins": r#"{"main":{"cpu":"free"}}"#,
            }},
            "spec": {"podSets": [{"name": "main", "template": {"metadata": forged}}]},
        });
        let payload = Payload::new(workload.to_string().into_bytes(), job.to_string().into_bytes());
        let made = workload_to_create(&payload, STAMP).unwrap();
        assert_eq!(made.pointer("/spec/podSets/0/template/metadata"), Some(&kept));
        assert_eq!(made.pointer("/metadata/annotations/switchyard.dev~1follows"), None);
        let pins = "/metadata/annotations/switchyard.dev~1flavor-pins";
        assert_eq!(made.pointer(pins), None, "a user of the hub wrote it");
        let pin = |flavor: &str| {
            let flavor = flavor.to_owned();
            [FlavorPin { pod_set: "main".into(), resource: "cpu".into(), flavor }]
        };
        let made = workload_to_create(&payload, Stamp { pins: &pin("spot"), ..STAMP }).unwrap();
        assert_eq!(made.pointer(pins), Some(&json!(r#"{"main":{"cpu":"spot"}}"#)));
        let error = workload_to_create(&payload, Stamp { pins: &pin("a b"), ..STAMP }).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the hub's flavor pins: the flavor pinned for cpu of pod set main is no name of a ResourceFlavor"
        );
    }

    #[test]
    fn created_workload_keeps_only_spec_and_texts() {
        let payload = json!({
            "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload",
            "metadata": {
                "name": "job-a", "namespace": "ns", "uid": "hub's", "resourceVersion": "1",
                "labels": {"team": "x", "kueue.x-k8s.io/job-uid": "j"}, "ownerReferences": [{}], "finalizers": ["f"],
            },
            "spec": {"queueName": "q", "active": true}, "status": {"conditions": []},
        });
        let job = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "a", "namespace": "ns"}});
        let payload = Payload::new(payload.to_string().into_bytes(), job.to_string().into_bytes());
        let made = workload_to_create(&payload, STAMP).unwrap();
        let expected = json!({
            "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload",
            "metadata": {
                "name": "job-a", "namespace": "ns",
                "labels": {
                    "team": "x", "switchyard.dev/hub-id": "hub", "kueue.x-k8s.io/multikueue-origin": "multikueue",
                },
                "annotations": {
                    "switchyard.dev/workload-uid": "u", "switchyard.dev/attempt": "7",
                    "kueue.x-k8s.io/job-owner-gvk": "batch/v1, Kind=Job", "kueue.x-k8s.io/job-owner-name": "a",
                },
            },
            "spec": {"queueName": "q"},
        });
        assert_eq!(made, expected);
        let fence_after = Some(Duration::from_secs(90));
        let made = workload_to_create(&payload, Stamp { fence_after, ..STAMP }).unwrap();
        assert_eq!(
            made.pointer("/metadata/annotations/switchyard.dev~1fence-after"),
            Some(&json!("90000ms"))
        );
    }

    #[test]
    fn workload_without_job_is_marked_as_follower() {
        let marks = json!({"kueue.x-k8s.io/job-owner-name": "llm", "kueue.x-k8s.io/component-workload-index": "1"});
        let workload = json!({
            "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload",
            "metadata": {"name": "job-a", "namespace": "ns", "annotations": marks},
        });
        let made = |job: &[u8]| {
            let payload = Payload::new(workload.to_string().into_bytes(), job.to_vec());
            let annotations =
                workload_to_create(&payload, STAMP).unwrap()["metadata"]["annotations"].clone();
            let of = |key: &str| annotations[key].clone();
            (of("switchyard.dev/follows"), of("kueue.x-k8s.io/job-owner-name"))
        };
        assert_eq!(made(b""), (json!("true"), json!("llm")));
        let job = br#"{"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "a", "namespace": "ns"}}"#;
        assert_eq!(made(job), (Value::Null, json!("a")));
    }

    #[test]
    fn created_job_is_suspended_with_finalizer_and_link() {
        let payload = json!({
            "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "a", "namespace": "ns"},
            "spec": {"suspend": false},
        });
        let (made, kind) = job_to_create(payload.to_string().as_bytes(), STAMP).unwrap();
        let [made] = &*made else { panic!("{made:?}") };
        assert!(kind.is_suspended(made));
        assert_eq!(
            made.pointer("/metadata/finalizers"),
            Some(&json!(["switchyard.dev/terminal-state"]))
        );
        assert_eq!(
            made.pointer("/metadata/labels/kueue.x-k8s.io~1prebuilt-workload-name"),
            Some(&json!("job-a"))
        );
    }

    #[test]
    fn serving_pods_carry_marks() {
        let set = json!({
            "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "db", "namespace": "ns"},
            "spec": {"template": {"spec": {"containers": []}}},
        });
        let (made, _) = job_to_create(set.to_string().as_bytes(), STAMP).unwrap();
        let metadata = &made[0]["spec"]["template"]["metadata"];
        assert_eq!(metadata["labels"], json!({"switchyard.dev/hub-id": "hub"}));
        let annotations = &metadata["annotations"];
        let marks = [
            "switchyard.dev/workload-uid",
            "switchyard.dev/attempt",
            "kueue.x-k8s.io/pod-suspending-parent",
        ];
        assert_eq!(marks.map(|key| &annotations[key]), ["u", "7", "statefulset"]);
    }

    #[test]
    fn group_is_created_with_all_pods() {
        let pod = |name: &str, group: &str| {
            let labels = json!({"kueue.x-k8s.io/pod-group-name": group});
            let metadata = json!({"name": name, "namespace": "ns", "labels": labels});
            json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": []}})
        };
        let list = |items: Value| {
            json!({"apiVersion": "v1", "kind": "List", "items": items}).to_string().into_bytes()
        };
        let job = list(json!([pod("a", "job-a"), pod("b", "job-a")]));
        let (made, kind) = job_to_create(&job, STAMP).unwrap();
        assert!(made.len() == 2 && made.iter().all(|pod| kind.is_suspended(pod)));
        let workload = json!({
            "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload", "metadata": {"name": "job-a", "namespace": "ns"},
        });
        let workload =
            workload_to_create(&Payload::new(workload.to_string().into_bytes(), job), STAMP)
                .unwrap();
        let annotation = |key: &str| {
            workload["metadata"]["annotations"][format!("kueue.x-k8s.io/{key}")].clone()
        };
        assert_eq!(
            (annotation("job-owner-gvk"), annotation("job-owner-name")),
            (json!("v1, Kind=Pod"), json!("job-a"))
        );
        let bad = |job: &[u8]| job_to_create(job, STAMP).map(|_| ()).unwrap_err().to_string();
        assert!(bad(&list(json!([]))).contains("without items"));
        assert!(bad(&list(json!([pod("a", "")]))).contains("not one job"));
        assert!(bad(pod("a", "job-a").to_string().as_bytes()).contains("not one job"));
    }

    #[test]
    fn payload_not_matching_assignment_is_refused() {
        let workload = |kind: &str, namespace: &str, name: &str| {
            let metadata = json!({"name": name, "namespace": namespace});
            json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": kind, "metadata": metadata})
                .to_string()
        };
        let error = |workload: String| {
            let payload = Payload::new(workload.into_bytes(), Vec::new());
            workload_to_create(&payload, STAMP).unwrap_err().to_string()
        };
        let cases = [
            (
                error(workload("ClusterQueue", "ns", "job-a")),
                "holds kueue.x-k8s.io/v1beta2 ClusterQueue",
            ),
            (
                error(workload("Workload", "kube-system", "job-a")),
                "metadata.namespace is \"kube-system\"",
            ),
            (error(workload("Workload", "ns", "other")), "metadata.name is \"other\""),
            (error("{".to_owned()), "not JSON"),
        ];
        for (got, part) in cases {
            assert!(got.contains(part), "{got}");
        }
        let other = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"namespace": "ns"}})
            .to_string();
        assert!(matches!(job_to_create(other.as_bytes(), STAMP), Err(BadPayload::Kind(_))));
    }
}
