//! The search for victims: the part that all kinds of preemption share.

use std::cell::RefCell;

use super::candidates::Preemptor;
use super::{Target, TargetSelector};
use crate::Amount;
use crate::flavor_resource::FlavorResource;
use crate::flavors::{Assignment, PreemptionOracle, PreemptionPossibility};
use crate::ids::WorkloadId;
use crate::tree::QuotaTree;
use crate::workloads::QuotaReservation;

/// The need of a preemptor.
pub(super) struct Need<'a> {
    /// The pairs without enough quota.
    pub(super) contested: &'a [FlavorResource],
    /// The whole usage of the preemptor.
    pub(super) usage: &'a [(FlavorResource, Amount)],
    /// Whether the pods find topology domains without some workloads. `None` if they need none.
    pub(super) pods_fit: Option<&'a PodsFit<'a>>,
}

type PodsFit<'a> = dyn Fn(&[WorkloadId]) -> bool + 'a;

/// The victims of the last search for one pair. The flavor search asks first; for a workload with
/// one resource, the nomination asks the same again.
#[derive(Debug, Default)]
pub(crate) struct LastSearch(Option<(FlavorResource, Amount, Vec<Target>)>);

pub(super) trait VictimSearch {
    fn preemptor(&self) -> &Preemptor<'_>;

    fn last_search(&mut self) -> &mut LastSearch;

    /// A small set of workloads whose removal frees enough; empty if there is none. Leaves the tree
    /// as it found it.
    fn victims(&self, tree: &mut QuotaTree, need: &Need<'_>) -> Vec<Target>;
}

impl<T: VictimSearch> PreemptionOracle for T {
    fn simulate(
        &mut self,
        tree: &mut QuotaTree,
        fr: FlavorResource,
        amount: Amount,
    ) -> (PreemptionPossibility, usize) {
        let targets =
            self.victims(tree, &Need { contested: &[fr], usage: &[(fr, amount)], pods_fit: None });
        let preemptor = self.preemptor();
        preemptor.shift_all(tree, &targets, -1);
        let (borrow, _) = tree.borrow_height(preemptor.cq.node, fr, amount);
        preemptor.shift_all(tree, &targets, 1);
        let own = |target: &Target| preemptor.cq.workloads.contains(&target.id);
        let possibility = match &targets[..] {
            [] => PreemptionPossibility::NoCandidates,
            some if some.iter().any(own) => PreemptionPossibility::Preempt,
            _ => PreemptionPossibility::Reclaim,
        };
        *self.last_search() = LastSearch(Some((fr, amount, targets)));
        (possibility, borrow)
    }
}

impl<T: VictimSearch> TargetSelector for T {
    fn targets(&mut self, tree: &mut QuotaTree, assignment: &Assignment) -> Vec<Target> {
        let needs_places =
            self.preemptor().placement.is_some_and(|placement| placement.has_topology_request());
        // No charge happened since the last search.
        if let LastSearch(Some((fr, amount, targets))) = self.last_search()
            && assignment.usage == [(*fr, *amount)]
            && assignment.contested() == [*fr]
            && !needs_places
        {
            return targets.clone();
        }
        let (contested, usage) = (&assignment.contested()[..], &assignment.usage[..]);
        let Preemptor { placement, workloads, .. } = self.preemptor();
        let search = placement.and_then(|placement| placement.victim_search(assignment));
        let Some(search) = search.map(RefCell::new) else {
            return self.victims(tree, &Need { contested, usage, pods_fit: None });
        };
        let pods_fit = |victims: &[WorkloadId]| search.borrow_mut().fits(victims, workloads);
        let victims = self.victims(tree, &Need { contested, usage, pods_fit: Some(&pods_fit) });
        search.into_inner().end();
        victims
    }
}

impl Preemptor<'_> {
    /// Adds the usage of the targets to the tree (1) or removes it (-1).
    pub(super) fn shift_all(&self, tree: &mut QuotaTree, targets: &[Target], sign: i128) {
        for target in targets {
            self.shift(tree, target.id, sign);
        }
    }

    /// Whether the preemptor fits without `gone`.
    pub(super) fn fits(
        &self,
        tree: &QuotaTree,
        need: &Need<'_>,
        borrowing: bool,
        gone: &[Target],
    ) -> bool {
        let node = self.cq.node;
        need.usage.iter().all(|(fr, amount)| {
            (borrowing || !tree.exceeds(node, *fr, *amount))
                && *amount <= tree.available(node, *fr).max(Amount::ZERO)
        }) && self.has_domains(need, gone)
    }

    /// Whether the preemptor's pods fit the topology without `gone`.
    fn has_domains(&self, need: &Need<'_>, gone: &[Target]) -> bool {
        let Some(pods_fit) = need.pods_fit else { return true };
        let gone: Vec<_> = gone.iter().map(|target| target.id).collect();
        pods_fit(&gone)
    }

    pub(crate) fn reservations_of(&self, targets: &[Target]) -> Vec<&QuotaReservation> {
        targets
            .iter()
            .filter_map(|target| self.workloads.get(target.id)?.reservation.as_deref())
            .collect()
    }

    /// Returns victims that the preemptor does not need, from the last but one to the first. Kueue:
    /// `fillBackWorkloads` in `preemption.go`.
    pub(super) fn fill_back(
        &self,
        tree: &mut QuotaTree,
        need: &Need<'_>,
        targets: &mut Vec<Target>,
        borrowing: bool,
    ) {
        for at in (0..targets.len().saturating_sub(1)).rev() {
            let Some(id) = targets.get(at).map(|target| target.id) else { continue };
            self.shift(tree, id, 1);
            let spared = targets.swap_remove(at);
            if !self.fits(tree, need, borrowing, targets) {
                self.shift(tree, id, -1);
                targets.push(spared);
                let last = targets.len() - 1;
                targets.swap(at, last);
            }
        }
    }
}
