//! JSON merge patches (RFC 7386) between two states of one object.

use serde_json::{Map, Value};

/// The merge patch from `from` to `to`, or `None` if they are equal.
///
/// Applying the result to `from` gives `to`, provided that objects in `to` contain no nulls. Arrays
/// are replaced whole. Equal fields are left out, so unknown fields stay as they are.
#[must_use]
pub fn merge_diff(from: &Value, to: &Value) -> Option<Value> {
    match (from, to) {
        (Value::Object(from), Value::Object(to)) => {
            let mut patch = Map::new();
            for (key, new) in to {
                match from.get(key) {
                    Some(old) => {
                        if let Some(change) = merge_diff(old, new) {
                            patch.insert(key.clone(), change);
                        }
                    }
                    None if new.is_null() => {}
                    None => {
                        patch.insert(key.clone(), new.clone());
                    }
                }
            }
            for key in from.keys().filter(|key| !to.contains_key(*key)) {
                patch.insert(key.clone(), Value::Null);
            }
            (!patch.is_empty()).then_some(Value::Object(patch))
        }
        _ if from == to => None,
        _ => Some(to.clone()),
    }
}

/// Applies a merge patch in place (RFC 7386, section 2).
pub fn apply_merge(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let Some(map) = target.as_object_mut() else { return };
    for (key, change) in patch {
        if change.is_null() {
            map.remove(key);
        } else {
            apply_merge(map.entry(key.clone()).or_insert(Value::Null), change);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    #[rstest]
    #[case::equal_objects_need_no_patch(json!({"a": 1}), json!({"a": 1}), None)]
    #[case::a_changed_leaf_alone(json!({"a": {"b": 1, "c": 2}}), json!({"a": {"b": 3, "c": 2}}), Some(json!({"a": {"b": 3}})))]
    #[case::a_removed_key_becomes_null(json!({"a": {"b": 1, "c": 2}}), json!({"a": {"c": 2}}), Some(json!({"a": {"b": null}})))]
    #[case::lists_are_replaced_whole(json!({"l": [1, 2]}), json!({"l": [1]}), Some(json!({"l": [1]})))]
    #[case::a_new_object(json!({}), json!({"a": {"b": 1}}), Some(json!({"a": {"b": 1}})))]
    fn diff(#[case] from: Value, #[case] to: Value, #[case] want: Option<Value>) {
        assert_eq!(merge_diff(&from, &to), want);
    }

    fn tree() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            any::<bool>().prop_map(Value::from),
            (0..5i64).prop_map(Value::from),
            "[a-c]{0,2}".prop_map(Value::from)
        ];
        leaf.prop_recursive(3, 24, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
                prop::collection::btree_map("[a-d]", inner, 0..4)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn applying_the_diff_gives_the_target(from in tree(), to in tree()) {
            let mut state = from.clone();
            match merge_diff(&from, &to) {
                Some(patch) => apply_merge(&mut state, &patch),
                None => prop_assert_eq!(&from, &to),
            }
            prop_assert_eq!(state, to);
        }
    }
}
