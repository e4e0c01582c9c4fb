//! Whether pods may run on a flavor: its taints, the pods' node selector and affinity, and the
//! flavors that a hub charged.

use std::collections::BTreeMap;

use crate::cluster_queue::FlavorGroup;
use crate::{Amount, Cause, Name, NodeSelectorTerm, PodSet, ResourceFlavor};

/// The pins of a pod set for its requested resources of a group: resource and flavor.
fn pins<'a>(
    group: &'a FlavorGroup,
    pod_set: &'a PodSet,
    requests: &'a BTreeMap<Name, Amount>,
) -> impl Iterator<Item = (&'a Name, &'a Name)> {
    pod_set.pins.iter().flat_map(move |pins| {
        let requested = group.resources.iter().filter(|it| requests.contains_key(*it));
        requested.filter_map(|resource| Some((resource, pins.get(resource)?)))
    })
}

/// Whether the hub charged a flavor for a resource that the pod set requests in the group.
pub(super) fn is_pinned(
    group: &FlavorGroup,
    pod_set: &PodSet,
    requests: &BTreeMap<Name, Amount>,
) -> bool {
    pins(group, pod_set, requests).next().is_some()
}

/// Why the pod set may not use the flavor: the hub charged another one.
pub(crate) fn pinned_elsewhere(
    flavor: &Name,
    group: &FlavorGroup,
    pod_set: &PodSet,
    requests: &BTreeMap<Name, Amount>,
) -> Option<Cause> {
    let (resource, pin) = pins(group, pod_set, requests).find(|(_, pin)| *pin != flavor)?;
    let (flavor, resource, pin) = (flavor.clone(), resource.clone(), pin.clone());
    Some(Cause::Pinned { flavor, resource, pin })
}

/// Set if the group lacks a flavor that the hub charged. `groups`: all of the queue.
pub(crate) fn pin_not_listed(
    groups: &[FlavorGroup],
    group: &FlavorGroup,
    pod_set: &PodSet,
    requests: &BTreeMap<Name, Amount>,
) -> Option<Cause> {
    let lists = |group: &FlavorGroup, pin: &Name| group.flavors.iter().any(|it| it.name == *pin);
    let (resource, pin) = pins(group, pod_set, requests).find(|(_, pin)| !lists(group, pin))?;
    let (resource, pin) = (resource.clone(), pin.clone());
    Some(match groups.iter().any(|group| lists(group, &pin)) {
        true => Cause::PinLacksResource { resource, pin },
        false => Cause::PinNotListed { resource, pin },
    })
}

/// `None` if the pods may use the flavor.
pub(crate) fn mismatch(flavor: &ResourceFlavor, pod_set: &PodSet) -> Option<Cause> {
    let tolerations = || pod_set.tolerations.iter().chain(&flavor.tolerations);
    if let Some(taint) = flavor.node_taints.iter().find(|taint| taint.repels(tolerations())) {
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
