//! Label selectors of namespaces and nodes.

use std::collections::BTreeMap;

/// How a [`Requirement`] compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "record", derive(serde::Serialize, serde::Deserialize))]
pub enum Operator {
    /// The label exists and its value is one of the values.
    In,
    /// The label is missing or its value is none of the values.
    NotIn,
    /// The label exists.
    Exists,
    /// The label is missing.
    DoesNotExist,
    /// The label's value, read as an integer, is greater than the only value.
    Gt,
    /// The label's value, read as an integer, is less than the only value.
    Lt,
}

/// One expression over one label.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "record", derive(serde::Serialize, serde::Deserialize))]
pub struct Requirement {
    /// The label's key.
    pub key: String,
    /// The comparison.
    pub operator: Operator,
    /// What it compares to.
    pub values: Vec<String>,
}

/// A selector over labels; all parts must match. The empty selector matches everything.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "record", derive(serde::Serialize, serde::Deserialize))]
pub struct LabelSelector {
    /// Labels that must have these values.
    pub match_labels: BTreeMap<String, String>,
    /// Expressions that must hold.
    pub match_expressions: Vec<Requirement>,
}

/// One alternative of a required node affinity; all its expressions must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "record", derive(serde::Serialize, serde::Deserialize))]
pub struct NodeSelectorTerm {
    /// Expressions over node labels.
    pub match_expressions: Vec<Requirement>,
    /// Expressions over node fields (`metadata.name`). No flavor defines them, so they never restrict a flavor.
    pub match_fields: Vec<Requirement>,
}

impl Requirement {
    /// Whether `labels` satisfy this expression.
    pub fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        self.matches_value(labels.get(&self.key).map(String::as_str))
    }

    pub(crate) fn matches_value(&self, value: Option<&str>) -> bool {
        let listed = |value: &str| self.values.iter().any(|v| v == value);
        match self.operator {
            Operator::In => value.is_some_and(listed),
            Operator::NotIn => !value.is_some_and(listed),
            Operator::Exists => value.is_some(),
            Operator::DoesNotExist => value.is_none(),
            Operator::Gt => self.compare(value).is_some_and(|(have, want)| have > want),
            Operator::Lt => self.compare(value).is_some_and(|(have, want)| have < want),
        }
    }

    fn compare(&self, value: Option<&str>) -> Option<(i64, i64)> {
        let [want] = self.values.as_slice() else { return None };
        Some((value?.parse().ok()?, want.parse().ok()?))
    }
}

impl LabelSelector {
    /// Whether `labels` satisfy every part.
    pub fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        self.match_labels.iter().all(|(key, value)| labels.get(key) == Some(value))
            && self.match_expressions.iter().all(|requirement| requirement.matches(labels))
    }

    /// A selector of one label, for the common case.
    pub fn label(key: impl Into<String>, value: impl Into<String>) -> Self {
        Self {
            match_labels: BTreeMap::from([(key.into(), value.into())]),
            match_expressions: Vec::new(),
        }
    }
}
