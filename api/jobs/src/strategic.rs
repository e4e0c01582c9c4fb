//! Strategic merge patches of pod templates, as Kubernetes merges them: lists of named things by
//! name, other lists as a whole.

use serde_json::Value;

/// The field that identifies the items of a list. `None` for lists that are replaced.
fn key_of(list: &str) -> Option<&'static str> {
    match list {
        "containers" | "initContainers" | "volumes" | "env" | "imagePullSecrets"
        | "schedulingGates" => Some("name"),
        "volumeMounts" => Some("mountPath"),
        _ => None,
    }
}

/// Applies a patch to a pod template, or to an object that contains one. Null removes a field.
pub(super) fn patch(target: &mut Value, with: &Value) {
    let Value::Object(changes) = with else {
        *target = with.clone();
        return;
    };
    if !target.is_object() {
        *target = Value::Object(serde_json::Map::new());
    }
    let Some(map) = target.as_object_mut() else { return };
    for (field, change) in changes {
        match (change, key_of(field)) {
            (Value::Null, _) => {
                map.remove(field);
            }
            (Value::Array(items), Some(key)) => {
                patch_list(map.entry(field.clone()).or_insert(Value::Null), items, key)
            }
            _ => patch(map.entry(field.clone()).or_insert(Value::Null), change),
        }
    }
}

fn patch_list(target: &mut Value, items: &[Value], key: &str) {
    if !target.is_array() {
        *target = Value::Array(Vec::new());
    }
    let Some(list) = target.as_array_mut() else { return };
    for item in items {
        let same = |have: &&mut Value| have.get(key).is_some() && have.get(key) == item.get(key);
        match list.iter_mut().find(same) {
            Some(have) => patch(have, item),
            None => list.push(item.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    #[rstest]
    #[case::maps_are_merged(json!({"labels": {"a": "1"}}), json!({"labels": {"b": "2"}}), json!({"labels": {"a": "1", "b": "2"}}))]
    #[case::containers_by_name(json!({"containers": [{"name": "a", "image": "i"}, {"name": "b"}]}), json!({"containers": [{"name": "b", "image": "j"}, {"name": "c"}]}),
        json!({"containers": [{"name": "a", "image": "i"}, {"name": "b", "image": "j"}, {"name": "c"}]}))]
    #[case::tolerations_as_a_whole(json!({"tolerations": [{"key": "a"}]}), json!({"tolerations": [{"key": "b"}]}), json!({"tolerations": [{"key": "b"}]}))]
    #[case::null_takes_away(json!({"a": 1, "b": 2}), json!({"a": null}), json!({"b": 2}))]
    #[case::what_was_not_there(json!({}), json!({"spec": {"env": [{"name": "a"}]}}), json!({"spec": {"env": [{"name": "a"}]}}))]
    fn patched(#[case] mut target: Value, #[case] with: Value, #[case] want: Value) {
        patch(&mut target, &with);
        assert_eq!(target, want);
    }
}
