//! KubeRay's kinds, `ray.io/v1`: RayCluster, and RayJob and RayService, which contain the spec of
//! one.
//!
//! This module has the shared code: the pod sets of a RayCluster's spec, and KubeRay's additions to
//! its pods.

mod child;
mod cluster;
mod job;

use serde_json::{Map, Value, json};

pub use cluster::{RAY_CLUSTER, RAY_SERVICE};
pub use job::RayJob;

use super::meta::{annotation, count_at, list_at, object_mut, str_at};
use super::plain::Slot;
use super::topology::PodRanks;
use super::{JobError, KindId, MAX_POD_SETS};
use switchyard_api::v1beta2::PodSet;
use switchyard_syntax::field::{FieldError, Path};
use switchyard_syntax::quantity;

/// KubeRay's name in `managedBy`.
const KUBERAY: &str = "ray.io/kuberay-operator";
/// Name of the head's pod set.
const HEAD: &str = "head";
/// Annotation of a cluster whose state outlives its head.
const FAULT_TOLERANT: &str = "ray.io/ft-enabled";

const fn id(kind: &'static str, plural: &'static str, framework: &'static str) -> KindId {
    KindId { group: "ray.io", version: "v1", kind, plural, framework }
}

const CLUSTER_ID: KindId = id("RayCluster", "rayclusters", "ray.io/raycluster");

/// The pod sets of the RayCluster spec at a JSON pointer: the head, then one for each worker group.
fn cluster_slots(job: &Value, at: &str) -> Result<Vec<Slot>, JobError> {
    if !job.pointer(at).is_some_and(Value::is_object) {
        return Err(JobError::malformed(at, "is missing; the job needs the spec of a RayCluster"));
    }
    let head = format!("{at}/headGroupSpec");
    let mut slots = vec![Slot {
        name: HEAD.to_owned(),
        template: format!("{head}/template"),
        replicas: head,
        count: 1,
        ranks: PodRanks::default(),
    }];
    for (index, group) in list_at(job, &format!("{at}/workerGroupSpecs")).iter().enumerate() {
        let group_at = format!("{at}/workerGroupSpecs/{index}");
        slots.push(Slot {
            name: str_at(group, "/groupName").to_owned(),
            template: format!("{group_at}/template"),
            replicas: format!("{group_at}/replicas"),
            count: workers(group),
            ranks: PodRanks::default(),
        });
    }
    if autoscales(job, at) {
        child::take_counts(job, &mut slots);
    }
    Ok(slots)
}

/// Pods of a worker group: replicas times hosts per replica.
fn workers(group: &Value) -> i64 {
    count_at(group, "/replicas", 1).saturating_mul(count_at(group, "/numOfHosts", 1).max(1))
}

/// Sets the counts of the worker groups' pod sets, which follow the head's.
fn resize_groups(job: &mut Value, at: &str, pod_sets: &[PodSet]) {
    let groups = job.pointer_mut(&format!("{at}/workerGroupSpecs")).and_then(Value::as_array_mut);
    for (group, pod_set) in groups.into_iter().flatten().zip(pod_sets.iter().skip(1)) {
        let hosts = count_at(group, "/numOfHosts", 1).max(1);
        if workers(group) != i64::from(pod_set.count)
            && let Some(fields) = group.as_object_mut()
        {
            fields.insert("replicas".to_owned(), Value::from(i64::from(pod_set.count) / hosts));
        }
    }
}

/// Sets the sizes of another cluster's worker groups with equal names. Replicas and hosts are set
/// separately: equal pod counts with different hosts per replica are different sizes.
fn size_groups_as(job: &mut Value, at: &str, other: &Value) {
    let at = format!("{at}/workerGroupSpecs");
    let others = list_at(other, &at);
    for group in job.pointer_mut(&at).and_then(Value::as_array_mut).into_iter().flatten() {
        let same =
            others.iter().find(|other| str_at(other, "/groupName") == str_at(group, "/groupName"));
        let Some(same) = same else { continue };
        for field in ["replicas", "numOfHosts"] {
            // Absent means one, and an API server may have written the default.
            let count = |group: &Value| count_at(group, &format!("/{field}"), 1);
            let changes = count(same) != count(group);
            let Some(fields) = group.as_object_mut().filter(|_| changes) else { continue };
            match same.get(field) {
                Some(value) => drop(fields.insert(field.to_owned(), value.clone())),
                None => drop(fields.remove(field)),
            }
        }
    }
}

/// The pod templates of the RayCluster spec at a JSON pointer. The head is included, although it
/// has a fixed size.
fn cluster_templates(job: &Value, at: &str) -> Vec<String> {
    let groups = 0..list_at(job, &format!("{at}/workerGroupSpecs")).len();
    let head = format!("{at}/headGroupSpec/template");
    std::iter::once(head)
        .chain(groups.map(|index| format!("{at}/workerGroupSpecs/{index}/template")))
        .collect()
}

/// The field that enables Ray's autoscaler, if it is enabled.
fn autoscaling(job: &Value, at: &str) -> Option<Path> {
    let path = at.split('/').skip(1).fold(Path::root(), |path, field| path.child(field));
    autoscales(job, at).then(|| path.child("enableInTreeAutoscaling"))
}

/// Adds KubeRay's additions to the pod sets. To the head: room for the job that cleans up an
/// external store after a fault-tolerant cluster, and the autoscaler's sidecar. To all pods: the
/// collector of the history server.
fn account_for_additions(job: &Value, at: &str, pod_sets: &mut [PodSet]) {
    let Some(head) = pod_sets.first_mut() else { return };
    if is_fault_tolerant(job, at) {
        request_at_least(head.template.value_mut(), &[("cpu", "200m"), ("memory", "256Mi")]);
    }
    if autoscales(job, at) {
        let own = job
            .pointer(&format!("{at}/autoscalerOptions/resources"))
            .filter(|value| value.is_object());
        let usual = json!({"cpu": "500m", "memory": "512Mi"});
        let resources = own.cloned().unwrap_or_else(|| json!({"requests": usual, "limits": usual}));
        add_container(head, json!({"name": "autoscaler", "resources": resources}));
    }
    if let Some(collector) = collector(job, at) {
        let of_cluster = 1 + list_at(job, &format!("{at}/workerGroupSpecs")).len();
        pod_sets
            .iter_mut()
            .take(of_cluster)
            .for_each(|pod_set| add_container(pod_set, collector.clone()));
    }
}

/// The sidecar that KubeRay 1.7 adds to every pod of a cluster with a history server.
fn collector(job: &Value, at: &str) -> Option<Value> {
    let options = job
        .pointer(&format!("{at}/historyServerOptions/collectorOptions"))
        .filter(|it| it.is_object())?;
    let own = options.get("resources").filter(|value| value.is_object());
    let usual = json!({"requests": {"cpu": "50m", "memory": "64Mi"}, "limits": {"cpu": "200m", "memory": "256Mi"}});
    let resources = own.cloned().unwrap_or(usual);
    Some(json!({"name": "ray-history-collector", "resources": resources}))
}

/// Whether an external store keeps the cluster's state beyond its head. KubeRay then runs a
/// clean-up Job when the cluster is deleted.
fn is_fault_tolerant(job: &Value, at: &str) -> bool {
    let annotated =
        annotation(job, FAULT_TOLERANT).is_some_and(|value| value.eq_ignore_ascii_case("true"));
    annotated
        || job
            .pointer(&format!("{at}/gcsFaultToleranceOptions"))
            .is_some_and(|value| !value.is_null())
}

fn autoscales(job: &Value, at: &str) -> bool {
    job.pointer(&format!("{at}/enableInTreeAutoscaling")).and_then(Value::as_bool).unwrap_or(false)
}

fn add_container(pod_set: &mut PodSet, container: Value) {
    if let Some(Value::Array(containers)) =
        pod_set.template.value_mut().pointer_mut("/spec/containers")
    {
        containers.push(container);
    }
}

/// Raises the requests of Ray's own container, which is the first.
fn request_at_least(template: &mut Value, wanted: &[(&str, &str)]) {
    let Some(container) = template.pointer_mut("/spec/containers/0") else { return };
    let Some(requests) = object_mut(container, &["resources", "requests"]) else { return };
    for (resource, amount) in wanted {
        if amount_of(requests, resource) < quantity::parse(amount).map_or(0, quantity::Exact::nanos)
        {
            requests.insert((*resource).to_owned(), Value::from(*amount));
        }
    }
}

fn amount_of(requests: &Map<String, Value>, resource: &str) -> i128 {
    let text = requests.get(resource).and_then(Value::as_str).unwrap_or("0");
    // An invalid quantity stays, and its own error follows later.
    quantity::parse(text).map_or(i128::MAX, quantity::Exact::nanos)
}

/// Errors of the RayCluster spec.
fn validate_cluster(job: &Value, at: &str, path: &Path) -> Vec<FieldError> {
    let mut errors = Vec::new();
    // KubeRay adds to the head's first container.
    if list_at(job, &format!("{at}/headGroupSpec/template/spec/containers")).is_empty() {
        let path = ["headGroupSpec", "template", "spec", "containers"]
            .into_iter()
            .fold(path.clone(), |it, key| it.child(key));
        errors.push(FieldError::required(&path, "the head needs a container"));
    }
    let groups = list_at(job, &format!("{at}/workerGroupSpecs"));
    let groups_path = path.child("workerGroupSpecs");
    if groups.len() + 1 > MAX_POD_SETS {
        errors.push(FieldError::too_many(&groups_path, groups.len() + 1, MAX_POD_SETS));
    }
    for (index, _) in
        groups.iter().enumerate().filter(|(_, group)| str_at(group, "/groupName") == HEAD)
    {
        let path = groups_path.index(index).child("groupName");
        errors.push(FieldError::forbidden(&path, "\"head\" is reserved for the head group"));
    }
    errors
}
