//! Replacement of a failed node: its pods move, all others stay.

use std::collections::BTreeMap;

use super::counts::{Assumed, Within};
use super::failure::PlacementFailure;
use super::place::{LeaderAndWorkers, PlacementRequest, Placer};
use super::plan::{RequestKind, slice_size};
use super::tree::DomainId;
use crate::{AssignedDomain, Name, SliceLayer, TopologyAssignment, TopologyRequest};

impl Placer<'_> {
    /// The whole assignment without the node, and its new part.
    pub(super) fn replace(
        &self,
        ask: &PlacementRequest<'_>,
        own: &TopologyAssignment,
        node: &Name,
        assumed: &Assumed,
    ) -> Result<(TopologyAssignment, TopologyAssignment), PlacementFailure> {
        let (rest, lost) = without_node(own, node);
        if let Some(stale) = self.stale_domain(&rest) {
            return Err(PlacementFailure::Stale {
                domain: stale.values.first().cloned().unwrap_or_default(),
            });
        }
        let layers = ask.request.map(TopologyRequest::layers).unwrap_or_default();
        let size = slice_size(&layers)?;
        let is_broken = !layers.is_empty() && lost % size != 0;
        let peers = ask.peer.into_iter().flat_map(|peer| &peer.domains);
        let peer = peers.into_iter().find(|domain| domain.values.last() != Some(node));
        let broken = is_broken.then_some(lost);
        let within = self.replacement_domain(ask, &layers, (&rest, peer), broken);
        let request = ask.request.filter(|_| is_broken && within != Within::Anywhere);
        let request = request.map(|request| request_for_part(request, &layers, lost));
        let part = PlacementRequest {
            count: lost,
            request: request.as_ref().or(ask.request),
            ..ask.clone()
        };
        let (new, _) =
            self.search(&LeaderAndWorkers { workers: &part, leader: None }, within, assumed)?;
        if new.domains.is_empty() {
            return Err(PlacementFailure::NoReplacement { node: node.clone() });
        }
        Ok((self.merge(&new, &rest), new))
    }

    /// The domain for the replacement, so that the constraints of the whole assignment still hold.
    /// `broken`: the lost pods, if a slice lacks them. The replacement stays in the required
    /// domain even if no slice can be completed, and if only the group's other pod set is left
    /// there, as in Kueue 0.20.
    fn replacement_domain(
        &self,
        ask: &PlacementRequest<'_>,
        layers: &[SliceLayer],
        (rest, peer): (&TopologyAssignment, Option<&AssignedDomain>),
        broken: Option<i32>,
    ) -> Within {
        let kind = RequestKind::new(ask.request, ask.implied);
        let level = kind.level(self.tree).and_then(|key| self.tree.level(key));
        let (Some(level), Some(first)) = (level, rest.domains.first().or(peer)) else {
            return Within::Anywhere;
        };
        if let Some(lost) = broken {
            let innermost =
                layers.iter().rev().find(|layer| layer.size > 0 && lost % layer.size != 0);
            let broken = if layers.len() > 1 { innermost } else { layers.first() };
            let domain = broken.and_then(|layer| self.incomplete(layer, rest, lost));
            if let Some(id) = domain {
                return self.within(id);
            }
        }
        if !kind.required() {
            return Within::Anywhere;
        }
        let domain = self.leaf_of(first).and_then(|leaf| self.tree.ancestor(leaf, level));
        domain.map_or(Within::Anywhere, |id| self.within(id))
    }

    fn within(&self, id: DomainId) -> Within {
        let is_host = self.tree.is_by_host() && self.tree.lowest() > 0;
        let level = self.tree.domain(id).map_or(0, |domain| domain.level);
        if is_host && level == self.tree.lowest() { Within::Nowhere } else { Within::Below(id) }
    }

    /// The first domain of a layer that the lost pods complete.
    fn incomplete(
        &self,
        layer: &SliceLayer,
        rest: &TopologyAssignment,
        lost: i32,
    ) -> Option<DomainId> {
        let level = self.tree.level(&layer.topology)?;
        let mut pods: BTreeMap<u64, (DomainId, i32)> = BTreeMap::new();
        for domain in &rest.domains {
            let Some(id) = self.leaf_of(domain).and_then(|leaf| self.tree.ancestor(leaf, level))
            else {
                continue;
            };
            let (_, sum) = pods.entry(self.tree.rank(id)).or_insert((id, 0));
            *sum = sum.saturating_add(domain.count);
        }
        pods.into_values()
            .find(|(_, pods)| pods.saturating_add(lost) % layer.size == 0)
            .map(|(id, _)| id)
    }
}

/// The assignment without a node, and the number of its pods.
fn without_node(assignment: &TopologyAssignment, node: &Name) -> (TopologyAssignment, i32) {
    let mut lost = 0;
    let mut rest = assignment.clone();
    rest.domains.retain(|domain| {
        let stays = domain.values.last() != Some(node);
        if !stays {
            lost = domain.count;
        }
        stays
    });
    (rest, lost)
}

/// The request for pods that are not a whole slice: whole slices of the innermost layer that they
/// divide into.
fn request_for_part(
    request: &TopologyRequest,
    layers: &[SliceLayer],
    lost: i32,
) -> TopologyRequest {
    let whole = layers.iter().rev().find(|layer| layer.size > 0 && lost % layer.size == 0);
    TopologyRequest {
        slice_layers: Vec::new(),
        slice_topology: whole.map(|layer| layer.topology.clone()),
        slice_size: Some(whole.map_or(1, |layer| layer.size)),
        ..request.clone()
    }
}
