//! Whether pods may run on a flavor: its taints, and the pods' node selector and affinity.

use std::collections::BTreeMap;

use crate::{Cause, NodeSelectorTerm, PodSet, ResourceFlavor, TaintEffect};

/// `None` if the pods may use the flavor.
pub(crate) fn mismatch(flavor: &ResourceFlavor, pod_set: &PodSet) -> Option<Cause> {
    let tolerated = |taint| {
        let all = pod_set.tolerations.iter().chain(&flavor.tolerations);
        all.into_iter().any(|toleration| toleration.tolerates(taint))
    };
    let taint = (flavor.node_taints.iter())
        .filter(|taint| taint.effect != TaintEffect::PreferNoSchedule)
        .find(|taint| !tolerated(taint));
    if let Some(taint) = taint {
        return Some(Cause::UntoleratedTaint { flavor: flavor.name.clone(), taint: taint.clone() });
    }
    let labels = &flavor.node_labels;
    let selected = (pod_set.node_selector.iter())
        .all(|(key, value)| labels.get(key).is_none_or(|have| have == value));
    if !selected || !affinity_matches(&pod_set.affinity, labels) {
        return Some(Cause::AffinityMismatch { flavor: flavor.name.clone() });
    }
    None
}

/// Terms are alternatives. Expressions over labels that the flavor lacks do not count, because
/// nodes may have those labels. A term without remaining expressions matches every flavor. Kueue:
/// `flavorSelector` in `flavorassigner.go`.
fn affinity_matches(terms: &[NodeSelectorTerm], labels: &BTreeMap<String, String>) -> bool {
    let mut known = terms.iter().map(|term| {
        term.match_expressions
            .iter()
            .filter(|expression| labels.contains_key(&expression.key))
            .collect::<Vec<_>>()
    });
    terms.is_empty() || known.any(|term| term.iter().all(|expression| expression.matches(labels)))
}
