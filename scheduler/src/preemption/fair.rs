//! Preemption by fair shares: the queues that borrow most lose workloads first. Kueue:
//! `pkg/scheduler/preemption/fairsharing`.

mod walk;

use walk::{CandidateSupply, QueueWalk};

use super::Target;
use super::candidates::{Candidate, Preemptor, shift};
use super::victim_search::{LastSearch, Need, VictimSearch};
use crate::flavor_resource::FlavorResource;
use crate::ids::{NodeId, WorkloadId};
use crate::tree::{QuotaTree, Share};
use crate::workloads::QuotaReservation;
use crate::{Amount, FairStrategy, Obstacle};

pub(crate) struct FairPreemption<'a> {
    pub(crate) preemptor: Preemptor<'a>,
    strategies: &'a [FairStrategy],
    last_search: LastSearch,
}

/// The victims so far, and the candidates that the first strategy rejected.
#[derive(Default)]
struct Chosen<'a> {
    targets: Vec<Target>,
    spared: Vec<Candidate<'a>>,
}

/// The shares that the strategies compare: of the children of the lowest common ancestor. Kueue:
/// `least_common_ancestor.go`.
struct Shares {
    preemptor: Share,
    target: Share,
    /// The node of the target's share.
    node: NodeId,
}

impl VictimSearch for FairPreemption<'_> {
    fn preemptor(&self) -> &Preemptor<'_> {
        &self.preemptor
    }

    fn last_search(&mut self) -> &mut LastSearch {
        &mut self.last_search
    }

    fn victims(&self, tree: &mut QuotaTree, need: &Need<'_>) -> Vec<Target> {
        let Some(first) = self.strategies.first() else { return Vec::new() };
        // Shares include the preemptor's request.
        self.shift_own(tree, need, 1);
        let mut chosen = Chosen::default();
        let mut found = self.by_strategy(tree, need, *first, &mut chosen);
        if !found && self.strategies.len() > 1 {
            found = self.by_initial_share(tree, need, &mut chosen);
        }
        self.shift_own(tree, need, -1);
        let mut targets = chosen.targets;
        if found {
            self.preemptor.fill_back(tree, need, &mut targets, true);
        }
        self.preemptor.shift_all(tree, &targets, 1);
        if found { targets } else { Vec::new() }
    }
}

impl<'a> FairPreemption<'a> {
    pub(crate) fn new(preemptor: Preemptor<'a>, strategies: &'a [FairStrategy]) -> Self {
        Self { preemptor, strategies, last_search: LastSearch::default() }
    }

    /// The shares, if no strategy allows to preempt this workload of `queue` for `amount` of a
    /// pair.
    pub(super) fn protecting_shares(
        &self,
        tree: &mut QuotaTree,
        (fr, amount): (FlavorResource, Amount),
        queue: NodeId,
        id: WorkloadId,
    ) -> Option<Obstacle> {
        let need = Need { contested: &[fr], usage: &[(fr, amount)], pods_fit: None };
        self.shift_own(tree, &need, 1);
        let nominal = self.within_nominal(tree, &[fr]);
        let shares = QueueWalk::new(tree, &self.preemptor, CandidateSupply::listed(Vec::new()))
            .shares(tree, queue);
        let reservation = self.preemptor.workloads.get(id).and_then(|wl| wl.reservation.as_deref());
        let passes = nominal
            || reservation.is_some_and(|reservation| {
                self.strategies.iter().any(|rule| passes(tree, &shares, reservation, *rule))
            });
        self.shift_own(tree, &need, -1);
        (!passes).then(|| Obstacle::FairShare {
            own: shares.preemptor.rounded(),
            theirs: shares.target.rounded(),
        })
    }

    /// Whether the gate is on and the preemptor's queue stays within nominal quota.
    fn within_nominal(&self, tree: &QuotaTree, flavor_resources: &[FlavorResource]) -> bool {
        let nominal = |fr: &FlavorResource| {
            tree.quota(self.own(), *fr).nominal >= tree.usage(self.own(), *fr)
        };
        self.preemptor.gates.preempt_within_nominal && flavor_resources.iter().all(nominal)
    }

    fn own(&self) -> NodeId {
        self.preemptor.cq.node
    }

    fn shift_own(&self, tree: &mut QuotaTree, need: &Need<'_>, sign: i128) {
        for (fr, amount) in need.usage {
            tree.shift(self.own(), *fr, i128::from(amount.get()) * sign);
        }
    }

    fn fits(&self, tree: &mut QuotaTree, need: &Need<'_>, gone: &[Target]) -> bool {
        self.shift_own(tree, need, -1);
        let fits = self.preemptor.fits(tree, need, true, gone);
        self.shift_own(tree, need, 1);
        fits
    }

    /// Takes one workload at a time from the queue with the highest share, while the strategy
    /// allows it.
    fn by_strategy<'n>(
        &self,
        tree: &mut QuotaTree,
        need: &Need<'n>,
        strategy: FairStrategy,
        chosen: &mut Chosen<'n>,
    ) -> bool
    where
        'a: 'n,
    {
        let within_nominal = self.within_nominal(tree, need.contested);
        let mut walk = QueueWalk::new(
            tree,
            &self.preemptor,
            CandidateSupply::Fresh { contested: need.contested },
        );
        while let Some(queue) = walk.next(tree) {
            let reason = match queue == self.own() {
                true => Some("InClusterQueue"),
                // A queue within nominal quota reclaims without a comparison of shares.
                false => within_nominal.then_some("InCohortReclamation"),
            };
            let taken = match reason {
                Some(reason) => walk.pop().map(|candidate| (candidate, reason)),
                None => {
                    let candidate =
                        self.by_shares(tree, &mut walk, queue, strategy, &mut chosen.spared);
                    candidate.map(|candidate| (candidate, "InCohortFairSharing"))
                }
            };
            let Some((candidate, reason)) = taken else { continue };
            if self.take(tree, need, &candidate, reason, chosen) {
                return true;
            }
            walk.changed(tree, candidate.cq);
        }
        false
    }

    /// The first workload of a queue that the strategy allows to preempt. Rejected workloads go to
    /// the second strategy, which takes at most one of each queue.
    fn by_shares<'n>(
        &self,
        tree: &mut QuotaTree,
        walk: &mut QueueWalk<'n>,
        queue: NodeId,
        strategy: FairStrategy,
        spared: &mut Vec<Candidate<'n>>,
    ) -> Option<Candidate<'n>> {
        let shares = walk.shares(tree, queue);
        if !shares.may_pass(strategy) {
            spared.extend(walk.pop());
            walk.drop_queue();
            return None;
        }
        // Many workloads have one size, and the tree does not change here: one check per size is
        // enough.
        let mut refused: Vec<&[(FlavorResource, i64)]> = Vec::new();
        while let Some(candidate) = walk.pop() {
            let size = &candidate.reservation.charge[..];
            if !refused.contains(&size) {
                if passes(tree, &shares, candidate.reservation, strategy) {
                    return Some(candidate);
                }
                refused.push(size);
                spared.push(candidate);
            }
        }
        None
    }

    /// The second strategy over the rejected candidates, with at most one workload of each queue.
    fn by_initial_share<'n>(
        &self,
        tree: &mut QuotaTree,
        need: &Need<'n>,
        chosen: &mut Chosen<'n>,
    ) -> bool
    where
        'a: 'n,
    {
        let mut walk = QueueWalk::new(
            tree,
            &self.preemptor,
            CandidateSupply::listed(std::mem::take(&mut chosen.spared)),
        );
        while let Some(queue) = walk.next(tree) {
            let shares = walk.shares(tree, queue);
            let candidate = walk.pop();
            walk.drop_queue();
            let Some(candidate) =
                candidate.filter(|_| shares.preemptor.compare(&shares.target).is_lt())
            else {
                continue;
            };
            if self.take(tree, need, &candidate, "InCohortFairSharing", chosen) {
                return true;
            }
            walk.changed(tree, candidate.cq);
        }
        false
    }

    /// Removes a candidate from the tree. Returns true if the preemptor fits.
    fn take(
        &self,
        tree: &mut QuotaTree,
        need: &Need<'_>,
        candidate: &Candidate<'_>,
        reason: &'static str,
        chosen: &mut Chosen<'_>,
    ) -> bool {
        shift(tree, candidate.reservation, -1);
        chosen.targets.push(Target { id: candidate.id, reason });
        self.fits(tree, need, &chosen.targets)
    }
}

fn passes(
    tree: &mut QuotaTree,
    shares: &Shares,
    candidate: &QuotaReservation,
    strategy: FairStrategy,
) -> bool {
    match strategy {
        _ if !shares.may_pass(strategy) => false,
        FairStrategy::LessThanOrEqualToFinalShare => {
            shift(tree, candidate, -1);
            let after = tree.share(shares.node);
            shift(tree, candidate, 1);
            shares.preemptor.compare(&after).is_le()
        }
        FairStrategy::LessThanInitialShare => true,
    }
}

impl Shares {
    /// Whether the strategy can allow any workload: removing a workload never raises a share.
    fn may_pass(&self, strategy: FairStrategy) -> bool {
        let order = self.preemptor.compare(&self.target);
        let hopeless = self.preemptor.is_infinite() && !self.target.is_infinite();
        !hopeless
            && if strategy == FairStrategy::LessThanInitialShare {
                order.is_lt()
            } else {
                order.is_le()
            }
    }

    fn of(tree: &QuotaTree, preemptor: NodeId, target: NodeId) -> Self {
        Self { preemptor: tree.share(preemptor), target: tree.share(target), node: target }
    }
}
