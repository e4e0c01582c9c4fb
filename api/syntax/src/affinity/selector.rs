//! Label selectors in one line, as for `kubectl -l`: `region=eu,tier!=spot,gpu in
//! (a100,h100),!test`.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};
use thiserror::Error;

use crate::labels::{label_key_error, label_value_error};

/// Longest selector, in bytes.
const MAX_LEN: usize = 4096;
/// The syntax of a selector, for messages.
const EXAMPLE: &str = "write requirements such as region=eu, tier!=spot, gpu in (a100,h100), zone notin (a,b), fast or !test with a comma between two";

/// Why a text is not a selector, with a remedy.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum SelectorError {
    /// An empty requirement: two commas in a row, or one at an end.
    #[error("a requirement is empty: {EXAMPLE}")]
    Empty,
    /// A misplaced or missing parenthesis.
    #[error("{0:?} has no matching parentheses, or something after them: {EXAMPLE}")]
    Parentheses(String),
    /// A list of values after an operator other than `in` and `notin`.
    #[error("{0:?} has values in parentheses, which only `in` and `notin` take: {EXAMPLE}")]
    Operator(String),
    /// A numeric comparison, which label selectors do not have.
    #[error(
        "{0:?} compares numbers, which selectors of clusters cannot: name the values, such as gpus in (4,8)"
    )]
    Comparison(String),
    /// An empty list of values.
    #[error("{0:?} has an empty list of values: name at least one")]
    NoValues(String),
    /// A key that is not a label key.
    #[error("{key:?} is no key of a label: {why}")]
    Key {
        /// The text.
        key: String,
        /// The error, in Kubernetes' words.
        why: String,
    },
    /// A value that is not a label value.
    #[error("{value:?} is no value of a label: {why}")]
    Value {
        /// The text.
        value: String,
        /// The error, in Kubernetes' words.
        why: &'static str,
    },
    /// A text longer than the limit.
    #[error("{0} bytes are more than {MAX_LEN}: give the clusters a label of their own")]
    TooLong(usize),
}

/// Parses a selector.
///
/// # Errors
/// Names the wrong requirement and the remedy.
pub fn parse_selector(text: &str) -> Result<LabelSelector, SelectorError> {
    if text.len() > MAX_LEN {
        return Err(SelectorError::TooLong(text.len()));
    }
    let requirements = split(text)?.into_iter().map(requirement).collect::<Result<Vec<_>, _>>()?;
    Ok(LabelSelector { match_labels: None, match_expressions: Some(requirements) })
}

/// Splits at commas outside parentheses.
fn split(text: &str) -> Result<Vec<&str>, SelectorError> {
    let (mut parts, mut from, mut within) = (Vec::new(), 0, false);
    for (at, character) in text.char_indices() {
        match character {
            '(' if !within => within = true,
            ')' if within => within = false,
            '(' | ')' => return Err(SelectorError::Parentheses(text.to_owned())),
            ',' if !within => {
                parts.push(text.get(from..at).unwrap_or_default().trim());
                from = at + 1;
            }
            _ => {}
        }
    }
    parts.push(text.get(from..).unwrap_or_default().trim());
    if within { Err(SelectorError::Parentheses(text.to_owned())) } else { Ok(parts) }
}

fn requirement(text: &str) -> Result<LabelSelectorRequirement, SelectorError> {
    if text.is_empty() {
        return Err(SelectorError::Empty);
    }
    if let Some((before, values)) = text.split_once('(') {
        return listed(text, before.trim(), values);
    }
    if text.contains(['<', '>']) {
        return Err(SelectorError::Comparison(text.to_owned()));
    }
    if let Some((key, value)) = text.split_once("!=") {
        return make(key, "NotIn", &[value]);
    }
    if let Some((key, value)) = text.split_once("==").or_else(|| text.split_once('=')) {
        return make(key, "In", &[value]);
    }
    match text.strip_prefix('!') {
        Some(key) => make(key, "DoesNotExist", &[]),
        None => make(text, "Exists", &[]),
    }
}

/// `KEY in (VALUES)` or `KEY notin (VALUES)`.
fn listed(
    text: &str,
    before: &str,
    values: &str,
) -> Result<LabelSelectorRequirement, SelectorError> {
    let Some(values) = values.trim().strip_suffix(')') else {
        return Err(SelectorError::Parentheses(text.to_owned()));
    };
    let values: Vec<&str> = values.split(',').collect();
    if values.iter().all(|value| value.trim().is_empty()) {
        return Err(SelectorError::NoValues(text.to_owned()));
    }
    let operator =
        |word: &str| before.strip_suffix(word).filter(|key| key.ends_with(char::is_whitespace));
    match (operator("notin"), operator("in")) {
        (Some(key), _) => make(key, "NotIn", &values),
        (None, Some(key)) => make(key, "In", &values),
        (None, None) => Err(SelectorError::Operator(text.to_owned())),
    }
}

fn make(
    key: &str,
    operator: &str,
    values: &[&str],
) -> Result<LabelSelectorRequirement, SelectorError> {
    let key = key.trim();
    if let Some(why) = label_key_error(key) {
        return Err(SelectorError::Key { key: key.to_owned(), why });
    }
    let value = |value: &&str| match label_value_error(value.trim()) {
        Some(why) => Err(SelectorError::Value { value: value.trim().to_owned(), why }),
        None => Ok(value.trim().to_owned()),
    };
    let values = values.iter().map(value).collect::<Result<Vec<_>, _>>()?;
    let values = Some(values).filter(|values| !values.is_empty());
    Ok(LabelSelectorRequirement { key: key.to_owned(), operator: operator.to_owned(), values })
}

/// A selector in one line.
#[must_use]
pub fn selector_text(selector: &LabelSelector) -> String {
    let equal = selector.match_labels.iter().flatten().map(|(key, value)| format!("{key}={value}"));
    let expressions = selector.match_expressions.iter().flatten().map(expression_text);
    let all: Vec<String> = equal.chain(expressions).collect();
    if all.is_empty() { "any cluster".to_owned() } else { all.join(",") }
}

fn expression_text(requirement: &LabelSelectorRequirement) -> String {
    let LabelSelectorRequirement { key, operator, values } = requirement;
    let values = values.as_deref().unwrap_or_default();
    match (operator.as_str(), values) {
        ("In", [one]) => format!("{key}={one}"),
        ("NotIn", [one]) => format!("{key}!={one}"),
        ("In", all) => format!("{key} in ({})", all.join(",")),
        ("NotIn", all) => format!("{key} notin ({})", all.join(",")),
        ("Exists", _) => key.clone(),
        ("DoesNotExist", _) => format!("!{key}"),
        (other, _) => format!("{key} {other}"),
    }
}
