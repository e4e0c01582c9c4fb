//! Which leaves pods may use. Only hosts have taints and node labels.

use std::collections::BTreeMap;

use crate::{CapacityLeaf, NodeSelectorTerm, Taint, Toleration};

/// Tolerations and selectors of pods.
#[derive(Clone, Debug, Default)]
pub(crate) struct PodFilter<'a> {
    pub(crate) tolerations: Vec<&'a Toleration>,
    pub(crate) node_selector: BTreeMap<&'a str, &'a str>,
    /// Alternatives. Empty matches every leaf.
    pub(crate) affinity: &'a [NodeSelectorTerm],
}

/// Why pods may not use a leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Exclusion<'a> {
    Taint(&'a Taint),
    NodeSelector,
    Affinity,
}

impl PodFilter<'_> {
    /// `None` if the pods may use a leaf.
    pub(super) fn exclusion<'a>(&self, leaf: &'a CapacityLeaf) -> Option<Exclusion<'a>> {
        let tolerations = || self.tolerations.iter().copied();
        if let Some(taint) = leaf.taints.iter().find(|taint| taint.repels(tolerations())) {
            return Some(Exclusion::Taint(taint));
        }
        let has =
            |(key, value): (&&str, &&str)| leaf.labels.get(*key).is_some_and(|have| have == *value);
        if !self.node_selector.iter().all(has) {
            return Some(Exclusion::NodeSelector);
        }
        let fits = self.affinity.is_empty() || self.affinity.iter().any(|term| admits(term, leaf));
        (!fits).then_some(Exclusion::Affinity)
    }
}

/// As in Kubernetes, a term without expressions matches nothing.
fn admits(term: &NodeSelectorTerm, leaf: &CapacityLeaf) -> bool {
    let is_empty = term.match_expressions.is_empty() && term.match_fields.is_empty();
    let name = |key: &str| (key == "metadata.name").then_some(&*leaf.name);
    !is_empty
        && term.match_expressions.iter().all(|expression| expression.matches(&leaf.labels))
        && term.match_fields.iter().all(|field| field.matches_value(name(&field.key)))
}
