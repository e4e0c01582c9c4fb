//! Which leaves pods may use. Only hosts have taints and node labels.

use std::collections::BTreeMap;

use super::failure::ExcludedLeaves;
use crate::{CapacityLeaf, NodeSelectorTerm, Taint, TaintEffect, Toleration};

/// Tolerations and selectors of pods.
#[derive(Clone, Debug, Default)]
pub(crate) struct PodFilter<'a> {
    pub(crate) tolerations: Vec<&'a Toleration>,
    pub(crate) node_selector: BTreeMap<&'a str, &'a str>,
    /// Alternatives. Empty matches every leaf.
    pub(crate) affinity: &'a [NodeSelectorTerm],
}

impl PodFilter<'_> {
    /// Whether the pods may use a leaf. If not, counts it in `excluded`.
    pub(super) fn admits(&self, leaf: &CapacityLeaf, excluded: &mut ExcludedLeaves) -> bool {
        if let Some(taint) = leaf.taints.iter().find(|taint| self.is_repelled_by(taint)) {
            *excluded.taints.entry(taint.clone()).or_default() += 1;
            return false;
        }
        let has =
            |(key, value): (&&str, &&str)| leaf.labels.get(*key).is_some_and(|have| have == *value);
        if !self.node_selector.iter().all(has) {
            excluded.node_selector += 1;
            return false;
        }
        if !self.affinity.is_empty() && !self.affinity.iter().any(|term| admits(term, leaf)) {
            excluded.affinity += 1;
            return false;
        }
        true
    }

    fn is_repelled_by(&self, taint: &Taint) -> bool {
        taint.effect != TaintEffect::PreferNoSchedule
            && !self.tolerations.iter().any(|toleration| toleration.tolerates(taint))
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
