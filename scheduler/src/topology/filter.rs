//! Which leaves pods may run on at all. Only hosts have taints and labels that pods choose by.

use std::collections::BTreeMap;

use super::failure::Excluded;
use crate::{CapacityLeaf, NodeSelectorTerm, Taint, TaintEffect, Toleration};

/// What pods tolerate and select.
#[derive(Clone, Debug, Default)]
pub(crate) struct PodFilter<'a> {
    pub(crate) tolerations: Vec<&'a Toleration>,
    pub(crate) node_selector: BTreeMap<&'a str, &'a str>,
    /// Alternatives; empty restricts nothing.
    pub(crate) affinity: &'a [NodeSelectorTerm],
}

impl PodFilter<'_> {
    /// Whether a leaf does. If not, says so in `excluded`.
    pub(super) fn admits(&self, leaf: &CapacityLeaf, excluded: &mut Excluded) -> bool {
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

/// A term without expressions matches nothing, as in Kubernetes.
fn admits(term: &NodeSelectorTerm, leaf: &CapacityLeaf) -> bool {
    let is_empty = term.match_expressions.is_empty() && term.match_fields.is_empty();
    let name = |key: &str| (key == "metadata.name").then_some(&*leaf.name);
    !is_empty
        && term.match_expressions.iter().all(|expression| expression.matches(&leaf.labels))
        && term.match_fields.iter().all(|field| field.matches_value(name(&field.key)))
}
