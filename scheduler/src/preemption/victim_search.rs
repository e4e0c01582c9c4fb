//! The search for victims: the part that all kinds of preemption share.

use std::cell::RefCell;

use super::candidates::Preemptor;
use super::{Target, TargetSelector};
use crate::Amount;
use crate::flavor_resource::FlavorResource;
use crate::flavors::{Assignment, PreemptionOracle, PreemptionPossibility, VictimPlacement};
use crate::ids::WorkloadId;
use crate::tree::QuotaTree;
use crate::workloads::{QuotaReservation, Workloads};

/// The need of a preemptor.
pub(super) struct Need<'a> {
    /// The pairs without enough quota.
    pub(super) contested: &'a [FlavorResource],
    /// The whole usage of the preemptor.
    pub(super) usage: &'a [(FlavorResource, Amount)],
    /// Pods that need topology domains besides quota.
    pub(super) pods: Option<&'a (dyn PodsFit + 'a)>,
}

/// Whether the pods of a preemptor fit the topology without some workloads.
pub(super) trait PodsFit {
    fn fit_without(&self, victims: &[WorkloadId], workloads: &Workloads) -> bool;
}

/// The trial follows the victims.
impl PodsFit for RefCell<VictimPlacement<'_>> {
    fn fit_without(&self, victims: &[WorkloadId], workloads: &Workloads) -> bool {
        self.borrow_mut().fits(victims, workloads)
    }
}

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
            self.victims(tree, &Need { contested: &[fr], usage: &[(fr, amount)], pods: None });
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
        let placement = self.preemptor().placement;
        let pods = placement.and_then(|placement| placement.victim_search(assignment));
        let pods = pods.map(RefCell::new);
        let fits = pods.as_ref().map(|pods| pods as &dyn PodsFit);
        let victims = self.victims(tree, &Need { contested, usage, pods: fits });
        if let Some(pods) = pods {
            pods.into_inner().end();
        }
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
        let Some(pods) = &need.pods else { return true };
        let gone: Vec<_> = gone.iter().map(|target| target.id).collect();
        pods.fit_without(&gone, self.workloads)
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
