//! Preemption by fair shares: those who borrow the most give way first. Kueue's `preemption/fairsharing` is the rule.

mod walk;

use walk::{Supply, Walk};

use super::Target;
use super::candidates::{Candidate, Preemptor, shift};
use super::victim_search::{Choice, Need, Remembered};
use crate::flavor_resource::Fr;
use crate::tree::{NodeId, Share, Tree};
use crate::workloads::{Hold, WlId};
use crate::{Amount, FairStrategy, Obstacle};

/// Finds victims for one workload.
pub(crate) struct Fair<'a> {
    pub(crate) preemptor: Preemptor<'a>,
    strategies: &'a [FairStrategy],
    remembered: Remembered,
}

/// Victims so far, and those whom the first strategy spared.
#[derive(Default)]
struct Chosen<'a> {
    targets: Vec<Target>,
    spared: Vec<Candidate<'a>>,
}

/// The shares of preemptor and target just below where their paths meet.
struct Shares {
    preemptor: Share,
    target: Share,
    /// The node whose share the target's is.
    node: NodeId,
}

impl Choice for Fair<'_> {
    fn preemptor(&self) -> &Preemptor<'_> {
        &self.preemptor
    }

    fn remembered(&mut self) -> &mut Remembered {
        &mut self.remembered
    }

    fn victims(&self, tree: &mut Tree, need: &Need<'_>) -> Vec<Target> {
        let Some(first) = self.strategies.first() else { return Vec::new() };
        // Shares count the preemptor as if it were in.
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

impl<'a> Fair<'a> {
    pub(crate) fn new(preemptor: Preemptor<'a>, strategies: &'a [FairStrategy]) -> Self {
        Self { preemptor, strategies, remembered: Remembered::default() }
    }

    /// The shares, if they forbid that this workload of `queue` goes for `amount` of a pair.
    pub(super) fn spares(
        &self,
        tree: &mut Tree,
        (fr, amount): (Fr, Amount),
        queue: NodeId,
        id: WlId,
    ) -> Option<Obstacle> {
        let need = Need { contested: &[fr], usage: &[(fr, amount)], pods: None };
        self.shift_own(tree, &need, 1);
        let nominal = self.within_nominal(tree, &[fr]);
        let shares =
            Walk::new(tree, &self.preemptor, Supply::listed(Vec::new())).shares(tree, queue);
        let hold = self.preemptor.workloads.get(id).and_then(|wl| wl.hold.as_deref());
        let passes = nominal
            || hold.is_some_and(|hold| {
                self.strategies.iter().any(|rule| passes(tree, &shares, hold, *rule))
            });
        self.shift_own(tree, &need, -1);
        (!passes).then(|| Obstacle::FairShare {
            own: shares.preemptor.rounded(),
            theirs: shares.target.rounded(),
        })
    }

    /// Whether the preemptor's queue has what it asks for of its own, and that counts.
    fn within_nominal(&self, tree: &Tree, frs: &[Fr]) -> bool {
        let nominal = |fr: &Fr| tree.quota(self.own(), *fr).nominal >= tree.usage(self.own(), *fr);
        self.preemptor.gates.preempt_within_nominal && frs.iter().all(nominal)
    }

    fn own(&self) -> NodeId {
        self.preemptor.cq.node
    }

    fn shift_own(&self, tree: &mut Tree, need: &Need<'_>, sign: i128) {
        for (fr, amount) in need.usage {
            tree.shift(self.own(), *fr, i128::from(amount.get()) * sign);
        }
    }

    fn fits(&self, tree: &mut Tree, need: &Need<'_>, gone: &[Target]) -> bool {
        self.shift_own(tree, need, -1);
        let fits = self.preemptor.fits(tree, need, true, gone);
        self.shift_own(tree, need, 1);
        fits
    }

    /// Takes one workload after the other from the queue with the highest share, as far as the strategy allows.
    fn by_strategy<'n>(
        &self,
        tree: &mut Tree,
        need: &Need<'n>,
        strategy: FairStrategy,
        chosen: &mut Chosen<'n>,
    ) -> bool
    where
        'a: 'n,
    {
        let within_nominal = self.within_nominal(tree, need.contested);
        let mut walk =
            Walk::new(tree, &self.preemptor, Supply::Fresh { contested: need.contested });
        while let Some(queue) = walk.next(tree) {
            let reason = match queue == self.own() {
                true => Some("InClusterQueue"),
                // What it has is its own, whatever the shares.
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

    /// The first workload of a queue that the strategy lets go. The first that it spares is remembered; of one queue the
    /// second strategy takes no more.
    fn by_shares<'n>(
        &self,
        tree: &mut Tree,
        walk: &mut Walk<'n>,
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
        // Many workloads are of one size, and nobody is taken meanwhile: one answer for all of them.
        let mut refused: Vec<&[(Fr, i64)]> = Vec::new();
        while let Some(candidate) = walk.pop() {
            let size = &candidate.hold.charge[..];
            if !refused.contains(&size) {
                if passes(tree, &shares, candidate.hold, strategy) {
                    return Some(candidate);
                }
                refused.push(size);
                spared.push(candidate);
            }
        }
        None
    }

    /// The second strategy, over those whom the first one spared: one workload of each queue at most.
    fn by_initial_share<'n>(
        &self,
        tree: &mut Tree,
        need: &Need<'n>,
        chosen: &mut Chosen<'n>,
    ) -> bool
    where
        'a: 'n,
    {
        let mut walk =
            Walk::new(tree, &self.preemptor, Supply::listed(std::mem::take(&mut chosen.spared)));
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

    /// Takes a candidate out of the tree. Whether that is enough.
    fn take(
        &self,
        tree: &mut Tree,
        need: &Need<'_>,
        candidate: &Candidate<'_>,
        reason: &'static str,
        chosen: &mut Chosen<'_>,
    ) -> bool {
        shift(tree, candidate.hold, -1);
        chosen.targets.push(Target { id: candidate.id, reason });
        self.fits(tree, need, &chosen.targets)
    }
}

/// Whether the strategy lets a workload go.
fn passes(tree: &mut Tree, shares: &Shares, candidate: &Hold, strategy: FairStrategy) -> bool {
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
    /// Whether the strategy could let anybody go: without a workload a share is not higher than with it.
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

    fn of(tree: &Tree, preemptor: NodeId, target: NodeId) -> Self {
        Self { preemptor: tree.share(preemptor), target: tree.share(target), node: target }
    }
}
