//! Builds a job's pods as its controller would create them, one per template, for a dry run. Pure.

use super::references::{Reference, references};
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};
use switchyard_jobs::batch_job::CONTROLLER_LABELS;
use switchyard_jobs::{JobKind, job_pod_sets, kind_of_owner, meta, sent_objects};

/// The uid of an owner that does not exist yet.
const NO_UID: &str = "00000000-0000-4000-8000-000000000000";

/// The most templates of a job that are tried. A Workload has at most 18 pod sets.
const MAX_TEMPLATES: usize = 18;

/// How closely the created pods follow their template.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fidelity {
    /// The pods equal the template.
    Same,
    /// The pods contain the template, and additions, such as a volume that it mounts.
    Completed,
    /// An operator changes the pods. Only the account and the classes are certain.
    Changed,
}

impl Fidelity {
    fn of(kind: &dyn JobKind) -> Self {
        let id = kind.id();
        match (id.group, id.kind) {
            ("", "Pod") | ("batch", "Job") => Self::Same,
            ("jobset.x-k8s.io", "JobSet")
            | ("leaderworkerset.x-k8s.io", "LeaderWorkerSet")
            | ("apps", "StatefulSet") => Self::Completed,
            _ => Self::Changed,
        }
    }
}

/// A pod to try.
#[derive(Clone, Debug)]
pub(super) struct TrialPod {
    pub(super) namespace: String,
    pub(super) pod: Value,
    pub(super) fidelity: Fidelity,
    /// Required objects that admission does not check. Empty for pods that an operator changes: it
    /// may create them.
    pub(super) references: Vec<Reference>,
    /// A hash of the template, independent of the job's name.
    pub(super) template: [u8; 32],
    /// A hash of the template without commands, arguments and variables, so that such jobs share an
    /// answer.
    pub(super) shape: [u8; 32],
}

/// A pod of each template of a job. Empty if the kind's pods do not follow from the job alone.
pub(super) fn trial_pods(job: &[u8], namespace: &str) -> Vec<TrialPod> {
    let Ok(job) = serde_json::from_slice::<Value>(job) else { return Vec::new() };
    let mut trials: Vec<TrialPod> = Vec::new();
    for object in sent_objects(job) {
        let (version, name) = (meta_text(&object, "apiVersion"), meta_text(&object, "kind"));
        let Some(kind) = kind_of_owner(version, name) else { continue };
        for pod_set in job_pod_sets(kind, &object).unwrap_or_default() {
            let trial = trial(kind, &object, namespace, &pod_set.template.value());
            if trials.len() < MAX_TEMPLATES && trials.iter().all(|it| it.template != trial.template)
            {
                trials.push(trial);
            }
        }
    }
    trials
}

fn trial(kind: &dyn JobKind, job: &Value, namespace: &str, template: &Value) -> TrialPod {
    let id = kind.id();
    let name = meta::name(job);
    let owner = if id.kind == "JobSet" {
        ("batch/v1".to_owned(), "Job")
    } else {
        (id.api_version(), id.kind)
    };
    let mut metadata = Map::new();
    for field in ["labels", "annotations"] {
        let of_template = template.get("metadata").and_then(|metadata| metadata.get(field));
        metadata.extend(of_template.map(|map| (field.to_owned(), map.clone())));
    }
    let mut pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template.get("spec")});
    pod["metadata"]["generateName"] = format!("{name}-").into();
    pod["metadata"]["namespace"] = namespace.into();
    if id.kind != "Pod" {
        // Policies look for an owner. It is no controller, because Kueue's webhook would look for
        // the job, which does not exist yet.
        let owner = json!({"apiVersion": owner.0, "kind": owner.1, "name": name, "uid": NO_UID});
        pod["metadata"]["ownerReferences"] = json!([owner]);
    }
    let fidelity = Fidelity::of(kind);
    let references = if fidelity == Fidelity::Changed { Vec::new() } else { references(&pod) };
    let of = |template: &Value| hash(&[namespace, id.group, id.kind, &template.to_string()]);
    let template = unnamed(template);
    TrialPod {
        namespace: namespace.to_owned(),
        pod,
        fidelity,
        references,
        template: of(&template),
        shape: of(&shape(&template)),
    }
}

/// A template without the labels that differ between the templates of two equal jobs.
fn unnamed(template: &Value) -> Value {
    let mut unnamed = template.clone();
    if let Some(labels) = unnamed.pointer_mut("/metadata/labels").and_then(Value::as_object_mut) {
        labels.retain(|key, _| !CONTROLLER_LABELS.contains(&key.as_str()));
    }
    unnamed
}

/// A template without commands, arguments and the values of variables.
fn shape(template: &Value) -> Value {
    let mut shape = template.clone();
    for field in ["containers", "initContainers"] {
        let containers = shape
            .get_mut("spec")
            .and_then(|spec| spec.get_mut(field))
            .and_then(Value::as_array_mut);
        for container in containers.into_iter().flatten().filter_map(Value::as_object_mut) {
            container.remove("command");
            container.remove("args");
            let variables = container.get_mut("env").and_then(Value::as_array_mut);
            for variable in variables.into_iter().flatten().filter_map(Value::as_object_mut) {
                variable.remove("value");
            }
        }
    }
    shape
}

fn hash(parts: &[&str]) -> [u8; 32] {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update(part.len().to_be_bytes());
        hash.update(part);
    }
    hash.finalize().into()
}

fn meta_text<'a>(object: &'a Value, field: &str) -> &'a str {
    object.get(field).and_then(Value::as_str).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(name: &str, spec: &Value) -> Value {
        json!({
            "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name, "namespace": "ns"},
            "spec": {"template": {
                "metadata": {"labels": {"app": "a", "controller-uid": name, "batch.kubernetes.io/job-name": name}},
                "spec": spec,
            }},
        })
    }

    fn spec(args: &str, image: &str) -> Value {
        json!({"restartPolicy": "Never", "containers": [
            {"name": "main", "image": image, "args": [args], "env": [{"name": "A", "value": args}]},
        ]})
    }

    fn one(job: &Value) -> TrialPod {
        let mut trials = trial_pods(job.to_string().as_bytes(), "ns");
        assert_eq!(trials.len(), 1, "{trials:?}");
        trials.remove(0)
    }

    #[test]
    fn trial_pod_equals_controllers_pod() {
        let pod = one(&job("a", &spec("x", "i"))).pod;
        let owner = json!([{"apiVersion": "batch/v1", "kind": "Job", "name": "a", "uid": NO_UID}]);
        assert_eq!(pod["metadata"]["ownerReferences"], owner);
        assert_eq!(
            (pod["metadata"]["generateName"].as_str(), pod["kind"].as_str()),
            (Some("a-"), Some("Pod"))
        );
        assert_eq!(pod["spec"], spec("x", "i"));
        assert_eq!(pod["metadata"]["labels"]["app"], "a");
    }

    #[test]
    fn jobs_of_same_shape_share_an_answer() {
        let first = one(&job("a", &spec("x", "i")));
        for (case, other, same_template, same_shape) in [
            ("another name", job("b", &spec("x", "i")), true, true),
            ("other arguments", job("b", &spec("y", "i")), false, true),
            ("another image", job("b", &spec("x", "j")), false, false),
        ] {
            let other = one(&other);
            assert_eq!(first.template == other.template, same_template, "{case}");
            assert_eq!(first.shape == other.shape, same_shape, "{case}");
        }
        let elsewhere =
            trial_pods(job("a", &spec("x", "i")).to_string().as_bytes(), "other").remove(0);
        assert_ne!(first.shape, elsewhere.shape, "each namespace has rules of its own");
    }

    #[test]
    fn plain_pod_has_no_owner_and_invalid_job_no_trial() {
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "ns"},
            "spec": {"containers": [{"name": "main", "image": "i"}]},
        });
        let group = json!({"apiVersion": "v1", "kind": "List", "items": [pod, pod]});
        assert!(one(&group).pod["metadata"].get("ownerReferences").is_none());
        for other in ["{", "{}", r#"{"apiVersion": "example.com/v1", "kind": "Other"}"#] {
            assert!(trial_pods(other.as_bytes(), "ns").is_empty(), "{other}");
        }
    }

    #[test]
    fn repeated_template_is_tried_once() {
        let replicated = |name: &str| json!({"name": name, "template": {"spec": job("a", &spec("x", "i"))["spec"]}});
        let set = json!({
            "apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": {"name": "s", "namespace": "ns"},
            "spec": {"replicatedJobs": [replicated("one"), replicated("two")]},
        });
        let trial = one(&set);
        assert_eq!(trial.fidelity, Fidelity::Completed);
        assert_eq!(trial.pod["metadata"]["ownerReferences"][0]["kind"], "Job");
    }
}
