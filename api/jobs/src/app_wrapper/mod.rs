//! `workload.codeflare.dev/v1beta2` AppWrapper: objects of any kind that run together.
//!
//! Its pod sets are the pod templates inside the wrapped objects, at the paths that it declares or
//! that are known for a kind. Admission is not written into the templates but into `podSetInfos`
//! beside them, which the AppWrapper's controller merges.

mod template;

use serde_json::{Map, Value, json};

use super::meta::{self, count_at, list_at, object_mut, str_at};
use super::plain::{PlainKind, Slot};
use super::status::true_condition;
use super::template::own_template;
use super::topology::{JOB_COMPLETION_INDEX, PodRanks, REPLICA_INDEX};
use super::{JobEnd, JobError, KindId, KindProfile, PodSetInfo};
use switchyard_api::v1beta2::PodSet;

/// The kind `workload.codeflare.dev/v1beta2` AppWrapper.
#[derive(Debug, Clone, Copy)]
pub struct AppWrapper;

const COMPONENTS: &str = "/spec/components";

/// Annotations of a declared pod set with the labels that number its pods (AppWrapper's
/// `pkg/utils/utils.go`).
const POD_INDEX_LABEL: &str = "workload.codeflare.dev.appwrapper/tas-pod-index-label";
const SUB_GROUP_INDEX_LABEL: &str = "workload.codeflare.dev.appwrapper/tas-sub-group-index-label";
const SUB_GROUP_COUNT: &str = "workload.codeflare.dev.appwrapper/tas-sub-group-count";

/// A pod template: JSON pointer below the wrapped object, number of pods, and labels that number
/// them.
struct TemplateLocation {
    pointer: String,
    count: i64,
    ranks: PodRanks,
}

/// The labels that number the pods of a declared pod set. An invalid count is ignored, as in Kueue.
fn declared_ranks(pod_set: &Value) -> PodRanks {
    let value_of =
        |key: &str| pod_set.get("annotations").and_then(|it| it.get(key)).and_then(Value::as_str);
    PodRanks {
        pod_index_label: value_of(POD_INDEX_LABEL).map(str::to_owned),
        sub_group_index_label: value_of(SUB_GROUP_INDEX_LABEL).map(str::to_owned),
        sub_group_count: value_of(SUB_GROUP_COUNT).and_then(|count| count.parse().ok()),
    }
}

/// The pod templates that a wrapped object declares, or that are known for its kind.
fn places(job: &Value, index: usize, component: &Value) -> Result<Vec<TemplateLocation>, JobError> {
    // The controller records what it found in the status, so that later edits of the spec cannot
    // change it.
    let found = list_at(job, "/status/componentStatus");
    let found = found.get(index).filter(|_| found.len() == list_at(job, COMPONENTS).len());
    let declared = found.map(|status| list_at(status, "/podSets")).filter(|list| !list.is_empty());
    let declared = declared.unwrap_or_else(|| list_at(component, "/podSets"));
    if declared.is_empty() {
        return Ok(known_places(component.get("template").unwrap_or(&Value::Null)));
    }
    let place = |(at, pod_set): (usize, &Value)| {
        let path = str_at(pod_set, "/path");
        let pointer = pointer_of(path).ok_or_else(|| {
            let field = format!("{COMPONENTS}/{index}/podSets/{at}/path");
            JobError::malformed(
                &field,
                format!("{path:?} is no path like template.spec.template or template.spec.jobs[0].template"),
            )
        })?;
        Ok(TemplateLocation {
            pointer,
            count: count_at(pod_set, "/replicas", 1),
            ranks: declared_ranks(pod_set),
        })
    };
    declared.iter().enumerate().map(place).collect()
}

/// Converts `template.spec.jobs[0].template` to a JSON pointer below the wrapped object, which is
/// `template` itself.
fn pointer_of(path: &str) -> Option<String> {
    let rest = path.strip_prefix("template")?;
    let mut pointer = String::new();
    for part in rest.split('.').enumerate() {
        let (at, part) = part;
        let mut pieces = part.split('[');
        let name = pieces.next().unwrap_or_default();
        // The text after `template` starts with a dot or `[`, so the first part has no name, and
        // all others need one.
        if (at == 0) != name.is_empty() {
            return None;
        }
        if at > 0 {
            pointer = format!("{pointer}/{name}");
        }
        for piece in pieces {
            let number: usize = piece.strip_suffix(']')?.parse().ok()?;
            pointer = format!("{pointer}/{number}");
        }
    }
    Some(pointer)
}

/// The pod templates of known kinds.
fn known_places(object: &Value) -> Vec<TemplateLocation> {
    let numbered = |pointer: &str, count: i64, ranks| {
        vec![TemplateLocation { pointer: pointer.to_owned(), count, ranks }]
    };
    let one = |pointer: &str, count: i64| numbered(pointer, count, PodRanks::default());
    let present = |places: Vec<TemplateLocation>| {
        places.into_iter().filter(|it| object.pointer(&it.pointer).is_some()).collect()
    };
    let places = match (str_at(object, "/apiVersion"), str_at(object, "/kind")) {
        ("v1", "Pod") => one("", 1),
        ("apps/v1", "Deployment" | "StatefulSet") => {
            one("/spec/template", count_at(object, "/spec/replicas", 1))
        }
        ("batch/v1", "Job") => {
            numbered("/spec/template", pods_of_job(object), PodRanks::by(JOB_COMPLETION_INDEX))
        }
        ("jobset.x-k8s.io/v1alpha2", "JobSet") => {
            let group = |(at, group): (usize, &Value)| TemplateLocation {
                pointer: format!("/spec/replicatedJobs/{at}/template/spec/template"),
                count: count_at(group, "/replicas", 1)
                    .saturating_mul(pods_of_job(group.get("template").unwrap_or(&Value::Null))),
                ranks: PodRanks::of_job_set(count_at(group, "/replicas", 1)),
            };
            list_at(object, "/spec/replicatedJobs").iter().enumerate().map(group).collect()
        }
        ("kubeflow.org/v1", "PyTorchJob") => {
            let replicas = |type_: &str| {
                let at = format!("/spec/pytorchReplicaSpecs/{type_}");
                let count = count_at(object, &format!("{at}/replicas"), 1);
                TemplateLocation {
                    pointer: format!("{at}/template"),
                    count,
                    ranks: PodRanks::by(REPLICA_INDEX),
                }
            };
            ["Master", "Worker"].map(replicas).into()
        }
        ("ray.io/v1", "RayCluster") => ray_places(object, "/spec"),
        ("ray.io/v1", "RayJob") => ray_places(object, "/spec/rayClusterSpec"),
        _ => Vec::new(),
    };
    present(places)
}

fn pods_of_job(object: &Value) -> i64 {
    let parallelism = count_at(object, "/spec/parallelism", 1);
    parallelism.min(count_at(object, "/spec/completions", parallelism))
}

fn ray_places(object: &Value, at: &str) -> Vec<TemplateLocation> {
    let head = format!("{at}/headGroupSpec/template");
    let mut places = vec![TemplateLocation { pointer: head, count: 1, ranks: PodRanks::default() }];
    let groups = list_at(object, &format!("{at}/workerGroupSpecs")).iter().enumerate();
    places.extend(groups.map(|(index, group)| TemplateLocation {
        pointer: format!("{at}/workerGroupSpecs/{index}/template"),
        count: count_at(group, "/replicas", 1),
        ranks: PodRanks::default(),
    }));
    places
}

/// An info in the AppWrapper's format.
fn info_value(info: &PodSetInfo) -> Value {
    let mut value = json!({
        "annotations": info.annotations,
        "labels": info.labels,
        "nodeSelector": info.node_selector,
        "tolerations": info.tolerations,
        "schedulingGates": info.scheduling_gates,
    });
    if let Some(map) = value.as_object_mut() {
        map.retain(|_, part| match part {
            Value::Object(map) => !map.is_empty(),
            Value::Array(items) => !items.is_empty(),
            _ => true,
        });
    }
    value
}

/// Index of the component with a slot's template.
fn component_of(slot: &Slot) -> Option<usize> {
    slot.template.strip_prefix(COMPONENTS)?.split('/').nth(1)?.parse().ok()
}

fn component_mut(job: &mut Value, index: usize) -> Option<&mut Map<String, Value>> {
    object_mut(job.pointer_mut(&format!("{COMPONENTS}/{index}"))?, &[])
}

impl KindProfile for AppWrapper {
    fn id(&self) -> KindId {
        KindId {
            group: "workload.codeflare.dev",
            version: "v1beta2",
            kind: "AppWrapper",
            plural: "appwrappers",
            framework: "workload.codeflare.dev/appwrapper",
        }
    }

    fn is_active(&self, job: &Value) -> bool {
        true_condition(job, &["QuotaReserved"]).is_some()
    }

    fn finished(&self, job: &Value) -> Option<JobEnd> {
        let end =
            |success: bool, message: &str| Some(JobEnd { success, message: message.to_owned() });
        match str_at(job, "/status/phase") {
            "Succeeded" => end(true, "AppWrapper finished successfully"),
            // It keeps its quota until its resources are deleted.
            "Failed" if true_condition(job, &["ResourcesDeployed"]).is_none() => {
                end(false, "AppWrapper failed")
            }
            _ => None,
        }
    }

    fn pods_ready(&self, job: &Value) -> bool {
        true_condition(job, &["PodsReady"]).is_some()
    }
}

impl PlainKind for AppWrapper {
    fn own_controller(&self) -> &'static str {
        "workload.codeflare.dev/appwrapper-controller"
    }

    fn slots(&self, job: &Value) -> Result<Vec<Slot>, JobError> {
        let mut slots = Vec::new();
        for (index, component) in list_at(job, COMPONENTS).iter().enumerate() {
            let at = format!("{COMPONENTS}/{index}");
            for place in places(job, index, component)? {
                slots.push(Slot {
                    name: format!("{}-{}", meta::name(job), slots.len()),
                    template: format!("{at}/template{}", place.pointer),
                    replicas: format!("{at}/podSets"),
                    count: place.count,
                    ranks: place.ranks,
                });
            }
        }
        Ok(slots)
    }

    fn template(&self, job: &Value, slot: &Slot) -> Result<Value, JobError> {
        Ok(template::for_quota(&own_template(job, &slot.template, self.id())?))
    }

    fn merge(&self, job: &mut Value, slots: &[Slot], infos: &[PodSetInfo]) -> Result<(), JobError> {
        self.unmerge(job, slots, &[]);
        for (slot, info) in slots.iter().zip(infos) {
            let Some(component) = component_of(slot).and_then(|index| component_mut(job, index))
            else {
                continue;
            };
            let list = component.entry("podSetInfos").or_insert_with(|| json!([]));
            if let Some(list) = list.as_array_mut() {
                list.push(info_value(info));
            }
        }
        Ok(())
    }

    fn unmerge(&self, job: &mut Value, _slots: &[Slot], _pod_sets: &[PodSet]) -> bool {
        let mut changed = false;
        for index in 0..list_at(job, COMPONENTS).len() {
            changed |= component_mut(job, index)
                .is_some_and(|component| component.remove("podSetInfos").is_some());
        }
        changed
    }
}
