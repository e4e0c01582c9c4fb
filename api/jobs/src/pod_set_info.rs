//! The additions of admission to a job's pods: node selectors and tolerations of the flavors,
//! Kueue's labels, and updates of admission checks.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{PodSchedulingGate, Toleration};
use serde_json::{Map, Value};

use super::{JobError, meta};
use switchyard_api::{
    slices,
    v1beta2::{PodSet, PodSetAssignment, ResourceFlavor, Workload},
};
use switchyard_syntax::{conditions, names};

/// Annotations of pods with the name of their Workload. Only a start writes them. Slices of an
/// elastic job have different names, and a job that lost all Workloads restarts with the additions
/// of its last one.
const NAMES_OF_WORKLOADS: [&str; 2] = [names::WORKLOAD, names::WORKLOAD_SLICE_NAME];

/// Additions to the pod template of one pod set when its job starts.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PodSetInfo {
    /// Name of the pod set.
    pub name: String,
    /// Admitted pods. Fewer than requested after partial admission.
    pub count: i32,
    /// Node labels of the flavors.
    pub node_selector: BTreeMap<String, String>,
    /// Tolerations of the flavors.
    pub tolerations: Vec<Toleration>,
    /// Labels of the pods.
    pub labels: BTreeMap<String, String>,
    /// Annotations of the pods.
    pub annotations: BTreeMap<String, String>,
    /// Scheduling gates of the pods.
    pub scheduling_gates: Vec<PodSchedulingGate>,
}

/// The infos of all pod sets of a Workload with reserved quota, in the order of its assignments.
///
/// `flavor` looks up a ResourceFlavor by name.
///
/// # Errors
/// [`JobError::FlavorNotFound`] if a flavor does not exist (worth a retry), and
/// [`JobError::PodSetUpdateConflict`] if an admission check contradicts a flavor or another check
/// (permanent).
pub fn pod_set_infos<'f>(
    workload: &Workload,
    flavor: impl Fn(&str) -> Option<&'f ResourceFlavor>,
) -> Result<Vec<PodSetInfo>, JobError> {
    let Some(status) = &workload.status else { return Ok(Vec::new()) };
    let Some(admission) = &status.admission else { return Ok(Vec::new()) };
    let common = common_labels(workload, &admission.cluster_queue);
    let mut infos = Vec::with_capacity(admission.pod_set_assignments.len());
    for assignment in &admission.pod_set_assignments {
        let pod_set = workload.spec.pod_sets.iter().find(|p| p.name == assignment.name);
        let mut info = PodSetInfo::of_flavors(assignment, pod_set, &flavor)?;
        info.annotations
            .insert(names::WORKLOAD.into(), workload.metadata.name.clone().unwrap_or_default());
        info.labels.insert(names::POD_SET.into(), assignment.name.clone());
        if assignment.topology_assignment.is_some() {
            info.await_places(pod_set);
        }
        if slices::is_slice(workload) {
            info.annotations
                .insert(names::WORKLOAD_SLICE_NAME.into(), slices::slice_name(workload).to_owned());
            info.labels.insert(names::ELASTIC_POD.into(), "true".into());
        }
        info.labels.extend(common.clone());
        for check in &status.admission_checks {
            if let Some(update) = check.pod_set_updates.iter().find(|u| u.name == assignment.name) {
                let update = PodSetInfo {
                    node_selector: update.node_selector.clone(),
                    tolerations: update.tolerations.clone(),
                    labels: update.labels.clone(),
                    annotations: update.annotations.clone(),
                    ..PodSetInfo::default()
                };
                info.merge(&update).map_err(|conflict| match conflict {
                    JobError::PodSetUpdateConflict { what, detail, .. } => {
                        JobError::PodSetUpdateConflict {
                            check: Some(check.name.clone()),
                            what,
                            detail,
                        }
                    }
                    other => other,
                })?;
            }
        }
        infos.push(info);
    }
    Ok(infos)
}

impl PodSetInfo {
    /// Removes the queue labels, as Kueue does without its gate `AssignQueueLabelsForPods`.
    #[must_use]
    pub fn without_queue_labels(mut self) -> Self {
        self.labels
            .retain(|key, _| key != names::LOCAL_QUEUE_NAME && key != names::CLUSTER_QUEUE_NAME);
        self
    }
}

/// Annotations of a template that request a topology, each alone.
const TOPOLOGY_ANNOTATIONS: [&str; 3] = [
    names::POD_SET_REQUIRED_TOPOLOGY,
    names::POD_SET_PREFERRED_TOPOLOGY,
    names::POD_SET_UNCONSTRAINED_TOPOLOGY,
];

impl PodSetInfo {
    /// Gates the pods until their topology domains are chosen. Pods without a topology annotation
    /// get one, which marks them for the ungater.
    fn await_places(&mut self, pod_set: Option<&PodSet>) {
        let gate = PodSchedulingGate { name: names::TOPOLOGY_SCHEDULING_GATE.into() };
        self.scheduling_gates.push(gate);
        let template = pod_set.map(|pod_set| pod_set.template.value());
        let asks = |key: &&str| {
            let annotations =
                template.as_ref().and_then(|template| template.pointer("/metadata/annotations"));
            annotations.and_then(|all| all.get(*key)).is_some()
        };
        if !TOPOLOGY_ANNOTATIONS.iter().any(asks) {
            self.annotations.insert(names::POD_SET_UNCONSTRAINED_TOPOLOGY.into(), "true".into());
        }
    }
}

/// Labels for every pod set of the Workload.
fn common_labels(workload: &Workload, cluster_queue: &str) -> BTreeMap<String, String> {
    let mut labels = BTreeMap::new();
    if let Some(queue) = &workload.spec.queue_name {
        labels.insert(names::LOCAL_QUEUE_NAME.into(), queue.clone());
    }
    // The name of a ClusterQueue may be too long for a label value.
    if is_dns_label(cluster_queue) {
        labels.insert(names::CLUSTER_QUEUE_NAME.into(), cluster_queue.to_owned());
    }
    let own = workload.metadata.labels.as_ref();
    if own.is_some_and(|labels| labels.contains_key(names::MULTIKUEUE_ORIGIN)) {
        labels.insert(names::MULTIKUEUE_WORKER_WORKLOAD_POD.into(), "true".into());
    }
    labels
}

impl PodSetInfo {
    /// The additions of one assignment's flavors. `pod_set` is its pod set.
    ///
    /// # Errors
    /// [`JobError::FlavorNotFound`].
    pub fn of_flavors<'f>(
        assignment: &PodSetAssignment,
        pod_set: Option<&PodSet>,
        flavor: &impl Fn(&str) -> Option<&'f ResourceFlavor>,
    ) -> Result<Self, JobError> {
        let mut info = Self {
            name: assignment.name.clone(),
            count: assignment.count.or(pod_set.map(|p| p.count)).unwrap_or_default(),
            ..Self::default()
        };
        let names: std::collections::BTreeSet<&String> = assignment.flavors.values().collect();
        for name in names {
            let found =
                flavor(name).ok_or_else(|| JobError::FlavorNotFound { name: name.clone() })?;
            for (key, value) in &found.spec.node_labels {
                info.node_selector.insert(key.clone(), value.clone());
            }
            for toleration in &found.spec.tolerations {
                if !contains(&info.tolerations, toleration) {
                    info.tolerations.push(toleration.clone());
                }
            }
        }
        Ok(info)
    }

    /// Adds the additions of `other`.
    ///
    /// # Errors
    /// [`JobError::PodSetUpdateConflict`] if a key already has another value. Then nothing has
    /// changed.
    pub fn merge(&mut self, other: &Self) -> Result<(), JobError> {
        conflict("annotations", &self.annotations, &other.annotations)?;
        conflict("labels", &self.labels, &other.labels)?;
        conflict("nodeSelector", &self.node_selector, &other.node_selector)?;
        self.annotations.extend(other.annotations.clone());
        self.labels.extend(other.labels.clone());
        self.node_selector.extend(other.node_selector.clone());
        for toleration in &other.tolerations {
            if !contains(&self.tolerations, toleration) {
                self.tolerations.push(toleration.clone());
            }
        }
        for gate in &other.scheduling_gates {
            if !self.scheduling_gates.contains(gate) {
                self.scheduling_gates.push(gate.clone());
            }
        }
        Ok(())
    }

    /// Merges this into a pod template (an object with `metadata` and `spec`). Existing tolerations
    /// and gates keep their order and all their fields. Workload names from an earlier start are
    /// overwritten.
    ///
    /// # Errors
    /// [`JobError::PodSetUpdateConflict`] if the template has another value for a key. Then the
    /// template has not changed.
    pub fn merge_into(&self, template: &mut Value) -> Result<(), JobError> {
        let mut annotations = meta::string_map(template, "/metadata/annotations");
        annotations.retain(|key, _| !NAMES_OF_WORKLOADS.contains(&key.as_str()));
        conflict("annotations", &annotations, &self.annotations)?;
        conflict("labels", &meta::string_map(template, "/metadata/labels"), &self.labels)?;
        conflict(
            "nodeSelector",
            &meta::string_map(template, "/spec/nodeSelector"),
            &self.node_selector,
        )?;
        put_all(template, &["metadata", "annotations"], &self.annotations);
        put_all(template, &["metadata", "labels"], &self.labels);
        put_all(template, &["spec", "nodeSelector"], &self.node_selector);
        append_missing(template, "tolerations", &self.tolerations, |have: &Toleration, want| {
            same_toleration(have, want)
        });
        append_missing(
            template,
            "schedulingGates",
            &self.scheduling_gates,
            |have: &PodSchedulingGate, want| have == want,
        );
        Ok(())
    }
}

/// Restores the parts of a job's pod template that [`PodSetInfo::merge_into`] may have changed from
/// the Workload's pod set. `keep_labels` names labels of the job's own controller. Returns true if
/// the template changed.
pub fn restore_template(template: &mut Value, original: &Value, keep_labels: &[&str]) -> bool {
    let before = template.clone();
    let kept: Vec<(String, Value)> = keep_labels
        .iter()
        .filter_map(|key| {
            Some(((*key).to_owned(), template.get("metadata")?.get("labels")?.get(key)?.clone()))
        })
        .collect();
    for (parent, field) in [
        ("metadata", "annotations"),
        ("metadata", "labels"),
        ("spec", "nodeSelector"),
        ("spec", "tolerations"),
        ("spec", "schedulingGates"),
    ] {
        let wanted = original.get(parent).and_then(|p| p.get(field)).filter(|v| !is_empty(v));
        let Some(map) = meta::object_mut(template, &[parent]) else { continue };
        match wanted {
            Some(value) => {
                map.insert(field.to_owned(), value.clone());
            }
            None if map.get(field).is_some_and(is_empty) => {}
            None => {
                map.remove(field);
            }
        }
    }
    if !kept.is_empty()
        && let Some(labels) = meta::object_mut(template, &["metadata", "labels"])
    {
        labels.extend(kept);
    }
    *template != before
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(map) => map.is_empty(),
        Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

fn put_all(template: &mut Value, path: &[&str], entries: &BTreeMap<String, String>) {
    if entries.is_empty() {
        return;
    }
    if let Some(map) = meta::object_mut(template, path) {
        for (key, value) in entries {
            map.insert(key.clone(), Value::from(value.as_str()));
        }
    }
}

fn append_missing<T>(template: &mut Value, field: &str, wanted: &[T], same: impl Fn(&T, &T) -> bool)
where
    T: serde::Serialize + serde::de::DeserializeOwned,
{
    if wanted.is_empty() {
        return;
    }
    let Some(spec) = meta::object_mut(template, &["spec"]) else { return };
    let list = spec.entry(field.to_owned()).or_insert_with(|| Value::Array(Vec::new()));
    if list.is_null() {
        *list = Value::Array(Vec::new());
    }
    let Some(list) = list.as_array_mut() else { return };
    let have: Vec<T> = list.iter().filter_map(|v| serde_json::from_value(v.clone()).ok()).collect();
    for item in wanted {
        if !have.iter().any(|h| same(h, item)) {
            list.push(serde_json::to_value(item).unwrap_or_else(|_| Value::Object(Map::new())));
        }
    }
}

fn conflict(
    what: &'static str,
    have: &BTreeMap<String, String>,
    want: &BTreeMap<String, String>,
) -> Result<(), JobError> {
    for (key, value) in have {
        if let Some(other) = want.get(key).filter(|other| *other != value) {
            return Err(JobError::PodSetUpdateConflict {
                check: None,
                what,
                detail: format!("conflict for key={key}, value1={value}, value2={other}"),
            });
        }
    }
    Ok(())
}

fn contains(list: &[Toleration], wanted: &Toleration) -> bool {
    list.iter().any(|have| same_toleration(have, wanted))
}

/// Two tolerations are equal if all fields but `tolerationSeconds` agree. The default operator is
/// `Equal`.
fn same_toleration(a: &Toleration, b: &Toleration) -> bool {
    let operator = |t: &Toleration| {
        t.operator.clone().filter(|o| !o.is_empty()).unwrap_or_else(|| "Equal".into())
    };
    let text = |t: &Option<String>| t.clone().unwrap_or_default();
    text(&a.key) == text(&b.key)
        && operator(a) == operator(b)
        && text(&a.value) == text(&b.value)
        && text(&a.effect) == text(&b.effect)
}

/// True for a DNS label (RFC 1123), the syntax of label values that come from names.
#[must_use]
pub fn is_dns_label(name: &str) -> bool {
    let ok = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    !name.is_empty()
        && name.len() <= 63
        && name.chars().all(|c| ok(c) || c == '-')
        && name.starts_with(ok)
        && name.ends_with(ok)
}

/// The pod sets as they look in a running job: the Workload's pod sets with the infos merged in.
/// `None` without a reservation, or if the infos do not match the pod sets.
#[must_use]
pub fn running_pod_sets(workload: &Workload, infos: &[PodSetInfo]) -> Option<Vec<PodSet>> {
    let status = workload.status.as_ref()?;
    if !conditions::is_true(&status.conditions, conditions::QUOTA_RESERVED) {
        return None;
    }
    let mut running = workload.spec.pod_sets.clone();
    for pod_set in &mut running {
        let info = infos.iter().find(|info| info.name == pod_set.name)?;
        info.merge_into(pod_set.template.value_mut()).ok()?;
        if pod_set.min_count.is_some() {
            pod_set.count = info.count;
        }
    }
    Some(running)
}
