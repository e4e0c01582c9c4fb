//! `sparkoperator.k8s.io/v1beta2` SparkApplication: a driver and its executors.
//!
//! Its pods are described by the fields of `driver` and `executor`, not by pod templates. The pod
//! sets are built from these fields and from Spark's own additions. The kind has no managedBy
//! field, so on a hub only its suspension keeps it from running.

mod resources;
mod template;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::meta::{Keys, count_at, object_mut, str_at, string_map, time_at};
use super::plain::{PlainKind, Slot};
use super::topology::PodRanks;
use super::{JobEnd, JobError, KindId, KindProfile, PodSetInfo};
use switchyard_api::v1beta2::PodSet;
use switchyard_syntax::field::{FieldError, Path};

/// Its name in `integrations.frameworks` of the configuration file.
pub const FRAMEWORK: &str = "sparkoperator.k8s.io/sparkapplication";

/// The kind `sparkoperator.k8s.io/v1beta2` SparkApplication.
#[derive(Debug, Clone, Copy)]
pub struct SparkApplication;

/// A role: the driver or the executors.
struct Role {
    name: &'static str,
    container: &'static str,
}

const ROLES: [Role; 2] = [
    Role { name: "driver", container: "spark-kubernetes-driver" },
    Role { name: "executor", container: "spark-kubernetes-executor" },
];

fn role_of(slot: &Slot) -> Option<&'static Role> {
    ROLES.iter().find(|role| role.name == slot.name)
}

fn state(job: &Value) -> &str {
    str_at(job, "/status/applicationState/state")
}

/// A role's own values of the fields that admission changes.
fn own_info(job: &Value, spec: &Value) -> PodSetInfo {
    let list = |pointer: &str| spec.pointer(pointer).cloned();
    PodSetInfo {
        labels: string_map(spec, "/labels"),
        annotations: string_map(spec, "/annotations"),
        node_selector: string_map(
            &json!({"selector": template::node_selector(job, spec)}),
            "/selector",
        ),
        tolerations: list("/tolerations")
            .and_then(|it| serde_json::from_value(it).ok())
            .unwrap_or_default(),
        scheduling_gates: list("/template/spec/schedulingGates")
            .and_then(|it| serde_json::from_value(it).ok())
            .unwrap_or_default(),
        ..PodSetInfo::default()
    }
}

fn write_info(job: &mut Value, role: &Role, info: &PodSetInfo) {
    let Some(spec) = object_mut(job, &["spec", role.name]) else { return };
    for (field, value) in [
        ("labels", json!(info.labels)),
        ("annotations", json!(info.annotations)),
        ("nodeSelector", json!(info.node_selector)),
        ("tolerations", json!(info.tolerations)),
    ] {
        set_or_remove(spec, field, value);
    }
    let gated = spec.get("template").and_then(|it| it.pointer("/spec/schedulingGates")).is_some();
    if gated || !info.scheduling_gates.is_empty() {
        let template = spec
            .entry("template")
            .or_insert_with(|| json!({"spec": {"containers": [{"name": role.container}]}}));
        if let Some(pod) = object_mut(template, &["spec"]) {
            set_or_remove(pod, "schedulingGates", json!(info.scheduling_gates));
        }
    }
}

fn set_or_remove(map: &mut Map<String, Value>, field: &str, value: Value) {
    let empty =
        value.as_object().is_some_and(Map::is_empty) || value.as_array().is_some_and(Vec::is_empty);
    if empty {
        map.remove(field);
    } else {
        map.insert(field.to_owned(), value);
    }
}

impl KindProfile for SparkApplication {
    fn id(&self) -> KindId {
        KindId {
            group: "sparkoperator.k8s.io",
            version: "v1beta2",
            kind: "SparkApplication",
            plural: "sparkapplications",
            framework: FRAMEWORK,
        }
    }

    fn is_active(&self, job: &Value) -> bool {
        state(job) == "RUNNING"
    }

    fn finished(&self, job: &Value) -> Option<JobEnd> {
        // The operator retries a failed submission and reports when it gives up.
        let submitted_again =
            matches!(str_at(job, "/spec/restartPolicy/type"), "OnFailure" | "Always");
        let ended = match state(job) {
            "COMPLETED" | "FAILED" => true,
            "SUBMISSION_FAILED" => !submitted_again,
            _ => false,
        };
        ended.then(|| JobEnd {
            success: state(job) == "COMPLETED",
            message: str_at(job, "/status/applicationState/errorMessage").to_owned(),
        })
    }

    /// A SparkApplication has no conditions.
    fn ended_at(&self, job: &Value) -> Option<Timestamp> {
        time_at(job, "/status/terminationTime")
    }

    /// The driver runs once the application does. The executors must run, too.
    fn pods_ready(&self, job: &Value) -> bool {
        let executors = job.pointer("/status/executorState").and_then(Value::as_object);
        let runs = |state: &&Value| matches!(state.as_str(), Some("RUNNING" | "COMPLETED"));
        let running = executors.map_or(0, |all| all.values().filter(runs).count());
        let wanted =
            usize::try_from(count_at(job, "/spec/executor/instances", 0)).unwrap_or_default();
        state(job) == "RUNNING" && running >= wanted
    }

    fn validate(&self, job: &Value) -> Vec<FieldError> {
        let (spec, mut errors) = (Path::new("spec"), Vec::new());
        let mode = str_at(job, "/spec/mode");
        if !matches!(mode, "" | "cluster") {
            let detail = "only Cluster mode is supported for a kueue managed job";
            errors.push(FieldError::invalid(&spec.child("mode"), mode, detail));
        }
        if job.pointer("/spec/dynamicAllocation/enabled").and_then(Value::as_bool).unwrap_or(false)
        {
            errors.push(FieldError::invalid(
                &spec.child("dynamicAllocation").child("enabled"),
                Value::from(true),
                "a kueue managed job can use dynamicAllocation only when the ElasticJobsViaWorkloadSlices feature gate is on \
                 and the job is an elastic job: a SparkApplication cannot be one",
            ));
        }
        errors
    }
}

impl PlainKind for SparkApplication {
    fn managed_by_at(&self) -> Option<Keys> {
        None
    }

    fn own_controller(&self) -> &'static str {
        ""
    }

    fn slots(&self, job: &Value) -> Result<Vec<Slot>, JobError> {
        let slot = |role: &Role| Slot {
            name: role.name.to_owned(),
            template: format!("/spec/{}", role.name),
            replicas: format!("/spec/{}/instances", role.name),
            count: if role.name == "driver" {
                1
            } else {
                count_at(job, "/spec/executor/instances", 0)
            },
            ranks: PodRanks::default(),
        };
        Ok(ROLES.iter().map(slot).collect())
    }

    fn template(&self, job: &Value, slot: &Slot) -> Result<Value, JobError> {
        role_of(slot).map_or_else(|| Ok(Value::Null), |role| template::of_role(job, role))
    }

    fn metadata_path(&self, slot: &Slot) -> Path {
        Path::new("spec").child(&slot.name)
    }

    fn merge(&self, job: &mut Value, slots: &[Slot], infos: &[PodSetInfo]) -> Result<(), JobError> {
        let before = job.clone();
        for (slot, info) in slots.iter().zip(infos) {
            let Some(role) = role_of(slot) else { continue };
            let mut all = own_info(&before, before.pointer(&slot.template).unwrap_or(&Value::Null));
            all.merge(info)?;
            write_info(job, role, &all);
        }
        // Each role now has its own selector, and Spark's operator rejects one of the application
        // beside it.
        if let Some(spec) = object_mut(job, &["spec"]) {
            spec.remove("nodeSelector");
        }
        Ok(())
    }

    fn unmerge(&self, job: &mut Value, slots: &[Slot], pod_sets: &[PodSet]) -> bool {
        let before = job.clone();
        for (slot, pod_set) in slots.iter().zip(pod_sets) {
            let Some(role) = role_of(slot) else { continue };
            let template = &*pod_set.template.value();
            let list = |pointer: &str| template.pointer(pointer).cloned();
            let own = PodSetInfo {
                labels: string_map(template, "/metadata/labels"),
                annotations: string_map(template, "/metadata/annotations"),
                node_selector: string_map(template, "/spec/nodeSelector"),
                tolerations: list("/spec/tolerations")
                    .and_then(|it| serde_json::from_value(it).ok())
                    .unwrap_or_default(),
                ..PodSetInfo::default()
            };
            write_info(job, role, &own);
        }
        if let Some(spec) = object_mut(job, &["spec"]) {
            spec.remove("nodeSelector");
        }
        *job != before
    }

    /// The CRD requires it in every status.
    fn required_status(&self) -> &'static [&'static str] {
        &["driverInfo"]
    }
}
