//! Syntax of names, labels, annotations and label selectors.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};

use schemars::{Schema, SchemaGenerator, json_schema};

use crate::field::{FieldError, Path};

/// Kubernetes' message for a text that is not a DNS subdomain.
pub const SUBDOMAIN_MESSAGE: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const NAME_MESSAGE: &str = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const KEY_MESSAGE: &str = "a valid label key must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]') with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')";
const VALUE_MESSAGE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";
/// Most bytes of all annotations of one object.
const ANNOTATIONS_BYTES: usize = 256 * 1024;

/// Whether a text is a DNS-1123 subdomain of at most 253 bytes.
#[must_use]
pub fn is_subdomain(text: &str) -> bool {
    let edge = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    text.len() <= 253
        && text.split('.').all(|label| {
            label.starts_with(edge)
                && label.ends_with(edge)
                && label.chars().all(|c| edge(c) || c == '-')
        })
}

/// Whether a text is non-empty, alphanumeric at both ends, and otherwise of alphanumerics, `-`, `_`
/// and `.`.
fn is_name(text: &str) -> bool {
    let edge = |c: char| c.is_ascii_alphanumeric();
    text.starts_with(edge)
        && text.ends_with(edge)
        && text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'))
}

/// The first error of a label key, in Kubernetes' words.
#[must_use]
pub fn label_key_error(key: &str) -> Option<String> {
    let name = match key.split('/').collect::<Vec<_>>().as_slice() {
        [name] => *name,
        ["", _] => return Some("prefix part must be non-empty".to_owned()),
        [prefix, _] if prefix.len() > 253 => {
            return Some("prefix part must be no more than 253 bytes".to_owned());
        }
        [prefix, _] if !is_subdomain(prefix) => {
            return Some(format!("prefix part {SUBDOMAIN_MESSAGE}"));
        }
        [_, name] => *name,
        _ => return Some(KEY_MESSAGE.to_owned()),
    };
    match name.len() {
        0 => Some("name part must be non-empty".to_owned()),
        64.. => Some("name part must be no more than 63 bytes".to_owned()),
        _ if !is_name(name) => Some(NAME_MESSAGE.to_owned()),
        _ => None,
    }
}

/// The first error of a label value, in Kubernetes' words.
#[must_use]
pub fn label_value_error(value: &str) -> Option<&'static str> {
    if value.len() > 63 {
        return Some("must be no more than 63 bytes");
    }
    (!value.is_empty() && !is_name(value)).then_some(VALUE_MESSAGE)
}

/// Appends the error of a label key, if it has one.
pub fn key(key: &str, path: &Path, errors: &mut Vec<FieldError>) {
    if let Some(detail) = label_key_error(key) {
        errors.push(FieldError::invalid(path, key, detail));
    }
}

/// Appends the error of a label value, if it has one.
pub fn value(value: &str, path: &Path, errors: &mut Vec<FieldError>) {
    if let Some(detail) = label_value_error(value) {
        errors.push(FieldError::invalid(path, value, detail));
    }
}

/// Appends the errors of labels.
pub fn labels<'a>(
    map: impl IntoIterator<Item = (&'a str, &'a str)>,
    path: &Path,
    errors: &mut Vec<FieldError>,
) {
    for (name, text) in map {
        key(name, path, errors);
        value(text, path, errors);
    }
}

/// Appends the errors of annotation keys, and one if the annotations are too large together.
pub fn annotations<'a>(
    map: impl IntoIterator<Item = (&'a str, &'a str)>,
    path: &Path,
    errors: &mut Vec<FieldError>,
) {
    let mut bytes = 0;
    for (name, text) in map {
        bytes += name.len() + text.len();
        if let Some(detail) = label_key_error(&name.to_lowercase()) {
            errors.push(FieldError::invalid(path, name, detail));
        }
    }
    if bytes > ANNOTATIONS_BYTES {
        errors.push(FieldError::new(
            path,
            format!("Too long: may not be more than {ANNOTATIONS_BYTES} bytes"),
        ));
    }
}

/// Appends the errors of a label selector.
pub fn label_selector(selector: &LabelSelector, path: &Path, errors: &mut Vec<FieldError>) {
    let equal =
        selector.match_labels.iter().flatten().map(|(name, text)| (name.as_str(), text.as_str()));
    labels(equal, &path.child("matchLabels"), errors);
    for (index, requirement) in selector.match_expressions.iter().flatten().enumerate() {
        expression(requirement, &path.child("matchExpressions").index(index), errors);
    }
}

fn expression(requirement: &LabelSelectorRequirement, path: &Path, errors: &mut Vec<FieldError>) {
    let values = requirement.values.as_deref().unwrap_or_default();
    match requirement.operator.as_str() {
        "In" | "NotIn" if values.is_empty() => {
            let detail = "must be specified when `operator` is 'In' or 'NotIn'";
            errors.push(FieldError::required(&path.child("values"), detail));
        }
        "Exists" | "DoesNotExist" if !values.is_empty() => {
            let detail = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
            errors.push(FieldError::forbidden(&path.child("values"), detail));
        }
        "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
        other => errors.push(FieldError::invalid(
            &path.child("operator"),
            other,
            "not a valid selector operator",
        )),
    }
    key(&requirement.key, &path.child("key"), errors);
    for (index, text) in values.iter().enumerate() {
        value(text, &path.child("values").index(index), errors);
    }
}

/// Whether a label selector selects an object with these labels. An unknown operator selects
/// nothing.
#[must_use]
pub fn selector_matches(selector: &LabelSelector, labels: &BTreeMap<String, String>) -> bool {
    let equal =
        selector.match_labels.iter().flatten().all(|(key, value)| labels.get(key) == Some(value));
    equal
        && selector.match_expressions.iter().flatten().all(|requirement| {
            let value = labels.get(&requirement.key);
            let listed = || {
                value.is_some_and(|value| {
                    requirement.values.iter().flatten().any(|one| one == value)
                })
            };
            match requirement.operator.as_str() {
                "In" => listed(),
                "NotIn" => !listed(),
                "Exists" => value.is_some(),
                "DoesNotExist" => value.is_none(),
                _ => false,
            }
        })
}

/// The schema of a label selector that server-side apply replaces as a whole (`atomic`).
#[must_use]
pub fn label_selector_schema(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "x-kubernetes-map-type": "atomic",
        "properties": {
            "matchExpressions": {
                "type": "array",
                "x-kubernetes-list-type": "atomic",
                "items": {
                    "type": "object",
                    "required": ["key", "operator"],
                    "properties": {
                        "key": {"type": "string"},
                        "operator": {"type": "string"},
                        "values": {"type": "array", "x-kubernetes-list-type": "atomic", "items": {"type": "string"}},
                    },
                },
            },
            "matchLabels": {"type": "object", "additionalProperties": {"type": "string"}},
        },
    })
}
