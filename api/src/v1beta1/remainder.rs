//! The remainder: what only v1beta1 can express, kept in an annotation of the v1beta2 object.
//!
//! Several v1beta1 objects have the same v1beta2 object, such as those with `Borrow` and with
//! `MayStopSearch`. The annotation holds a JSON merge patch from the result of
//! [`Conversion::to_v1beta1`] to the object that was written. The patch is used only if its result
//! still converts to the v1beta2 object at hand, so a stale or foreign annotation has no effect.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use sha1::{Digest, Sha1};

use super::Conversion;
use crate::{field::FieldError, names};

/// Longest annotation, in bytes. Longer remainders are dropped, which another annotation records.
/// All annotations of an object may have 256 KiB together, and an object that cannot be converted
/// cannot be read.
const LONGEST: usize = 64 << 10;

/// The remainder: merge patches of the v1beta1 form.
#[derive(Serialize, Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct Remainder {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    spec: Option<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    status: Option<StatusRemainder>,
}

/// The remainder of a status. It is valid only for the v1beta2 status that it was made with.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StatusRemainder {
    of: String,
    patch: Value,
}

/// Converts to v1beta2 and keeps the remainder.
pub(super) fn to_v1beta2(object: &mut Value, conversion: &Conversion) -> Result<(), FieldError> {
    let written = object.clone();
    (conversion.to_v1beta2)(object)?;
    let mut back = object.clone();
    (conversion.to_v1beta1)(&mut back)?;
    let status = difference(&back["status"], &written["status"]);
    let kept = Remainder {
        spec: difference(&back["spec"], &written["spec"]),
        status: status.map(|patch| StatusRemainder { of: fingerprint(&object["status"]), patch }),
    };
    let (kept, dropped) = kept.fit();
    for (name, text) in [(names::V1BETA1, kept), (names::V1BETA1_DROPPED, dropped)] {
        if let Some(text) = text {
            annotate(object, name, text);
        }
    }
    Ok(())
}

impl Remainder {
    /// The annotation's value, if there is a remainder, and the value of the `dropped` annotation,
    /// if it is too long. The status is dropped before the spec.
    fn fit(mut self) -> (Option<String>, Option<String>) {
        let mut dropped = Vec::new();
        let mut written = self.text();
        while let Some(length) =
            written.as_ref().map(String::len).filter(|length| *length > LONGEST)
        {
            let part = if self.status.take().is_some() { "status" } else { "spec" };
            if part == "spec" {
                self.spec = None;
            }
            dropped.push(format!(
                "{part}: what only v1beta1 can say is not kept, {length} bytes of {LONGEST} at most"
            ));
            written = self.text();
        }
        (written, Some(dropped.join("; ")).filter(|text| !text.is_empty()))
    }

    fn text(&self) -> Option<String> {
        let something = self.spec.is_some() || self.status.is_some();
        something.then(|| serde_json::to_string(self).ok()).flatten()
    }
}

/// Converts to v1beta1 and applies the remainder.
pub(super) fn to_v1beta1(object: &mut Value, conversion: &Conversion) -> Result<(), FieldError> {
    let kept = take(object);
    let of = kept.status.as_ref().map(|_| fingerprint(&object["status"]));
    (conversion.to_v1beta1)(object)?;
    let status =
        kept.status.filter(|status| Some(&status.of) == of.as_ref()).map(|status| status.patch);
    for (part, patch) in [("spec", kept.spec), ("status", status)] {
        let Some(patch) = patch else { continue };
        let mut candidate = object.clone();
        merge(&mut candidate[part], &patch);
        if means_the_same(&candidate, object, conversion) {
            *object = candidate;
        }
    }
    Ok(())
}

fn means_the_same(a: &Value, b: &Value, conversion: &Conversion) -> bool {
    let (mut a, mut b) = (a.clone(), b.clone());
    (conversion.to_v1beta2)(&mut a).is_ok() && (conversion.to_v1beta2)(&mut b).is_ok() && a == b
}

fn annotate(object: &mut Value, name: &str, text: String) {
    let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) else { return };
    let annotations = metadata.entry("annotations").or_insert(Value::Null);
    if annotations.is_null() {
        *annotations = Value::Object(Map::new());
    }
    if let Some(annotations) = annotations.as_object_mut() {
        annotations.insert(name.to_owned(), text.into());
    }
}

/// Removes the annotation. An unreadable one is foreign and stays.
fn take(object: &mut Value) -> Remainder {
    let Some(annotations) =
        object.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut)
    else {
        return Remainder::default();
    };
    let text = annotations.get(names::V1BETA1).and_then(Value::as_str);
    let Some(kept) = text.and_then(|text| serde_json::from_str(text).ok()) else {
        return Remainder::default();
    };
    annotations.remove(names::V1BETA1);
    if annotations.is_empty() {
        super::remove(object.get_mut("metadata"), "annotations");
    }
    kept
}

/// The JSON merge patch (RFC 7386) from one value to another. `None` if they are equal.
fn difference(from: &Value, to: &Value) -> Option<Value> {
    if from == to {
        return None;
    }
    let (Value::Object(from), Value::Object(to)) = (from, to) else { return Some(to.clone()) };
    let gone =
        from.keys().filter(|name| !to.contains_key(*name)).map(|name| (name.clone(), Value::Null));
    let changed = to.iter().filter_map(|(name, to)| {
        Some((name.clone(), difference(from.get(name).unwrap_or(&Value::Null), to)?))
    });
    Some(Value::Object(gone.chain(changed).collect()))
}

/// Applies a JSON merge patch.
fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let Some(target) = target.as_object_mut() else { return };
    for (name, value) in patch {
        if value.is_null() {
            target.remove(name);
        } else {
            merge(target.entry(name.clone()).or_insert(Value::Null), value);
        }
    }
}

/// A hash that is equal for equal values, whatever the order of their fields.
fn fingerprint(value: &Value) -> String {
    fn feed(value: &Value, hash: &mut Sha1) {
        match value {
            Value::Object(map) => {
                let mut fields: Vec<_> = map.iter().collect();
                fields.sort_by_key(|(name, _)| *name);
                hash.update([b'{']);
                for (name, value) in fields {
                    hash.update(name);
                    hash.update([0]);
                    feed(value, hash);
                }
                hash.update([b'}']);
            }
            Value::Array(items) => {
                hash.update([b'[']);
                items.iter().for_each(|item| feed(item, hash));
                hash.update([b']']);
            }
            simple => hash.update(simple.to_string()),
        }
    }
    let mut hash = Sha1::new();
    feed(value, &mut hash);
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    #[rstest]
    #[case::equal(json!({"a": 1}), json!({"a": 1}), None)]
    #[case::a_field_more(json!({"a": 1}), json!({"a": 1, "b": {"c": 2}}), Some(json!({"b": {"c": 2}})))]
    #[case::a_field_less(json!({"a": 1, "b": 2}), json!({"a": 1}), Some(json!({"b": null})))]
    #[case::an_empty_object_more(json!({}), json!({"a": {}}), Some(json!({"a": {}})))]
    #[case::a_list_is_one_value(json!({"a": [1, 2]}), json!({"a": [1]}), Some(json!({"a": [1]})))]
    #[case::deep(json!({"a": {"b": 1, "c": 1}}), json!({"a": {"b": 2, "c": 1}}), Some(json!({"a": {"b": 2}})))]
    fn merge_patches_lead_from_one_to_the_other(
        #[case] from: Value,
        #[case] to: Value,
        #[case] patch: Option<Value>,
    ) {
        assert_eq!(difference(&from, &to), patch);
        let mut target = from;
        if let Some(patch) = &patch {
            merge(&mut target, patch);
        }
        assert_eq!(target, to);
    }

    #[test]
    fn too_long_remainder_drops_the_status_before_the_spec() {
        let long = |bytes: usize| json!({"x": "y".repeat(bytes)});
        let status = |bytes: usize| StatusRemainder { of: String::new(), patch: long(bytes) };
        for (sentence, spec, of_status, kept_spec, kept_status, dropped) in [
            ("both fit", 10, 10, true, true, &[][..]),
            ("the status is too long", 10, LONGEST, true, false, &["status"][..]),
            ("both together are", LONGEST / 2, LONGEST / 2, true, false, &["status"]),
            ("each is", LONGEST, LONGEST, false, false, &["status", "spec"]),
        ] {
            let kept = Remainder { spec: Some(long(spec)), status: Some(status(of_status)) };
            let (text, said) = kept.fit();
            let text = text.unwrap_or_default();
            assert_eq!(
                (text.contains("\"spec\""), text.contains("\"status\"")),
                (kept_spec, kept_status),
                "{sentence}"
            );
            assert!(text.len() <= LONGEST);
            let said = said.unwrap_or_default();
            let named: Vec<&str> =
                said.split("; ").filter_map(|it| Some(it.split_once(':')?.0)).collect();
            assert_eq!(named, dropped, "{sentence}");
        }
        let (text, said) = Remainder { spec: Some(long(LONGEST)), status: None }.fit();
        assert_eq!((text, said.is_some()), (None, true));
    }

    #[test]
    fn fingerprints_tell_values_apart_and_not_their_order() {
        let of = |text: &str| fingerprint(&serde_json::from_str(text).unwrap());
        assert_eq!(of(r#"{"a": 1, "b": [1]}"#), of(r#"{"b": [1], "a": 1}"#));
        assert_ne!(of(r#"{"a": 1}"#), of(r#"{"a": "1"}"#));
        assert_ne!(of(r#"{"a": {"b": 1}}"#), of(r#"{"a": {}, "b": 1}"#));
    }
}
