use std::collections::BTreeMap;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "record", derive(serde::Serialize, serde::Deserialize))]
pub enum Operator {
    In,
    /// Also true if the label is missing.
    NotIn,
    Exists,
    DoesNotExist,
    /// The label's value and the only value are integers.
    Gt,
    /// The label's value and the only value are integers.
    Lt,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "record", derive(serde::Serialize, serde::Deserialize))]
pub struct Requirement {
    pub key: String,
    pub operator: Operator,
    pub values: Vec<String>,
}

/// All parts must match. An empty selector matches everything.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "record", derive(serde::Serialize, serde::Deserialize))]
pub struct LabelSelector {
    pub match_labels: BTreeMap<String, String>,
    pub match_expressions: Vec<Requirement>,
}

/// One alternative of a required node affinity. All its expressions must match.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "record", derive(serde::Serialize, serde::Deserialize))]
pub struct NodeSelectorTerm {
    /// Over node labels.
    pub match_expressions: Vec<Requirement>,
    /// Over node fields (`metadata.name`). Flavors have no fields, so these never exclude a flavor.
    pub match_fields: Vec<Requirement>,
}

impl Requirement {
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
    pub fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        self.match_labels.iter().all(|(key, value)| labels.get(key) == Some(value))
            && self.match_expressions.iter().all(|requirement| requirement.matches(labels))
    }

    pub fn label(key: impl Into<String>, value: impl Into<String>) -> Self {
        Self {
            match_labels: BTreeMap::from([(key.into(), value.into())]),
            match_expressions: Vec::new(),
        }
    }
}
