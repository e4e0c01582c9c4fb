//! The pod template of a driver or executor, built from the fields of a SparkApplication. From a
//! given pod template (`driver.template`) it takes what affects requests.

use serde_json::{Value, json};

use super::{Role, resources};
use crate::JobError;
use crate::meta::{list_at, str_at, string_map};
use crate::template::quantities_as_text;

/// Volumes with this prefix are set up by Spark and left out.
const LOCAL_DIR: &str = "spark-local-dir-";

/// Fields of a given pod template that affect its pods' requests, beside the containers.
const ASKED_BY_TEMPLATE: [&str; 4] =
    ["resources", "runtimeClassName", "overhead", "resourceClaims"];

/// The resources of Spark's own container in a given template, and the other containers. Spark uses
/// the container with its name, or else the first.
fn spark_container(given: &Value, role: &Role) -> (Value, Vec<Value>) {
    let mut containers = list_at(given, "/containers").to_vec();
    let named =
        containers.iter().position(|container| str_at(container, "/name") == role.container);
    if containers.is_empty() {
        return (Value::Null, containers);
    }
    let own = containers.remove(named.unwrap_or(0));
    (own.get("resources").cloned().unwrap_or_default(), containers)
}

/// The pod template of a role, as far as it is known before Spark runs.
pub(super) fn of_role(job: &Value, role: &Role) -> Result<Value, JobError> {
    let at = format!("/spec/{}", role.name);
    let spec = job.pointer(&at).filter(|spec| spec.is_object());
    let spec = spec.ok_or_else(|| {
        JobError::malformed(&at, "is missing; a SparkApplication needs a driver and an executor")
    })?;
    let given = spec.pointer("/template/spec").unwrap_or(&Value::Null);
    let (own, others) = spark_container(given, role);
    let mut container = json!({"name": role.container});
    let (volumes, mounts) = volumes(job, spec);
    put(&mut container, "volumeMounts", Value::Array(mounts));
    put(&mut container, "resources", resources::of_role(job, role, spec, &own)?);
    let mut containers = vec![container];
    containers.extend(others);
    containers.extend(list_at(spec, "/sidecars").iter().cloned());
    let starting =
        [given, spec].into_iter().flat_map(|from| list_at(from, "/initContainers")).cloned();
    let mut pod = json!({ "containers": containers });
    put(&mut pod, "initContainers", starting.collect());
    put(&mut pod, "volumes", Value::Array(volumes));
    for field in ["affinity", "tolerations"] {
        put(&mut pod, field, spec.get(field).cloned().unwrap_or_default());
    }
    for field in ASKED_BY_TEMPLATE {
        put(&mut pod, field, given.get(field).cloned().unwrap_or_default());
    }
    put(&mut pod, "priorityClassName", spec.get("priorityClassName").cloned().unwrap_or_default());
    put(&mut pod, "nodeSelector", node_selector(job, spec));
    let mut metadata = json!({});
    for field in ["labels", "annotations"] {
        let mut all = string_map(spec, &format!("/template/metadata/{field}"));
        all.extend(string_map(spec, &format!("/{field}")));
        put(&mut metadata, field, json!(all));
    }
    let mut template = json!({ "spec": pod });
    put(&mut template, "metadata", metadata);
    quantities_as_text(&mut template);
    Ok(template)
}

/// Sets a field unless the value is empty.
pub(super) fn put(object: &mut Value, field: &str, value: Value) {
    let empty = match &value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(map) => map.is_empty(),
        Value::String(text) => text.is_empty(),
        Value::Bool(_) | Value::Number(_) => false,
    };
    if let Some(map) = object.as_object_mut().filter(|_| !empty) {
        map.insert(field.to_owned(), value);
    }
}

/// The node selector of a role's pods: the application's, else the role's. Only one may be set.
pub(super) fn node_selector(job: &Value, spec: &Value) -> Value {
    let of =
        |object: &Value, pointer: &str| object.pointer(pointer).filter(|it| !it.is_null()).cloned();
    of(job, "/spec/nodeSelector").or_else(|| of(spec, "/nodeSelector")).unwrap_or_default()
}

/// The volumes that a role mounts, and their mounts.
fn volumes(job: &Value, spec: &Value) -> (Vec<Value>, Vec<Value>) {
    let (mut volumes, mut mounts): (Vec<Value>, Vec<Value>) = (Vec::new(), Vec::new());
    for mount in list_at(spec, "/volumeMounts") {
        let name = str_at(mount, "/name");
        let known =
            list_at(job, "/spec/volumes").iter().find(|volume| str_at(volume, "/name") == name);
        let Some(volume) = known.filter(|_| !name.starts_with(LOCAL_DIR)) else { continue };
        if !volumes.contains(volume) {
            volumes.push(volume.clone());
        }
        mounts.push(mount.clone());
    }
    (volumes, mounts)
}
