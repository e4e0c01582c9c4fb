//! The pod template of a job, for its Workload.

use serde_json::{Map, Value};

use super::{JobError, KindId};

/// The template with only labels and annotations in its metadata. The labels `drop`, which the
/// job's controller sets and which differ between clusters, are removed.
pub(super) fn clean_template(template: &Value, drop: &[&str]) -> Value {
    let mut metadata = Map::new();
    for field in ["labels", "annotations"] {
        let Some(Value::Object(map)) = template.get("metadata").and_then(|m| m.get(field)) else {
            continue;
        };
        let mut map = map.clone();
        map.retain(|key, _| !drop.contains(&key.as_str()));
        if !map.is_empty() {
            metadata.insert(field.to_owned(), Value::Object(map));
        }
    }
    let mut clean = Map::new();
    if !metadata.is_empty() {
        clean.insert("metadata".to_owned(), Value::Object(metadata));
    }
    clean.insert("spec".to_owned(), template.get("spec").cloned().unwrap_or_default());
    Value::Object(clean)
}

/// Converts numeric quantities anywhere in the template to text. The API server does so only for
/// built-in kinds. In a CRD it keeps `cpu: 1`, which typed readers cannot parse.
pub(super) fn quantities_as_text(template: &mut Value) {
    match template {
        Value::Object(map) => {
            for (key, value) in map {
                match (key.as_str(), value) {
                    ("requests" | "limits" | "overhead", Value::Object(amounts)) => {
                        amounts.values_mut().for_each(number_as_text);
                    }
                    ("sizeLimit" | "divisor", value) => number_as_text(value),
                    (_, value) => quantities_as_text(value),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(quantities_as_text),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// The pod template at a JSON pointer, with the user's labels and annotations, and with quantities
/// as text. `None` if it has no spec.
pub(super) fn template_at(object: &Value, pointer: &str) -> Option<Value> {
    let template = object.pointer(pointer);
    let template = template.filter(|it| it.get("spec").is_some_and(Value::is_object))?;
    let mut template = clean_template(template, &[]);
    quantities_as_text(&mut template);
    Some(template)
}

/// [`template_at`] of a job that needs a template there.
///
/// # Errors
/// [`JobError::Malformed`] if there is none.
pub(super) fn own_template(job: &Value, pointer: &str, id: KindId) -> Result<Value, JobError> {
    template_at(job, pointer).ok_or_else(|| {
        let problem = format!("is missing; {} needs a pod template here", id.kind);
        JobError::malformed(&format!("{pointer}/spec"), problem)
    })
}

fn number_as_text(value: &mut Value) {
    if let Value::Number(number) = value {
        *value = Value::from(number.to_string());
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn quantities_become_text_and_other_numbers_stay() {
        let mut template = json!({"spec": {
            "overhead": {"cpu": 1},
            "terminationGracePeriodSeconds": 30,
            "containers": [{
                "ports": [{"containerPort": 80}],
                "resources": {"requests": {"cpu": 1, "memory": "1Gi"}, "limits": {"cpu": 1.5}},
            }],
            "volumes": [{"emptyDir": {"sizeLimit": 1024}}],
        }});
        quantities_as_text(&mut template);
        let want = json!({"spec": {
            "overhead": {"cpu": "1"},
            "terminationGracePeriodSeconds": 30,
            "containers": [{
                "ports": [{"containerPort": 80}],
                "resources": {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "1.5"}},
            }],
            "volumes": [{"emptyDir": {"sizeLimit": "1024"}}],
        }});
        assert_eq!(template, want);
    }
}
