//! Preemption by fair shares: those who borrow the most give way first. Kueue's `preemption/fairsharing` is the rule.

mod walk;

use std::collections::BTreeMap;

use walk::Walk;

use super::Target;
use super::candidates::{Candidate, Preemptor};
use super::room::{Choice, Need};
use crate::intern::Fr;
use crate::tree::{NodeId, Share, Tree};
use crate::workloads::WlId;
use crate::{Amount, FairStrategy, Obstacle, PreemptionPolicy};

/// Finds victims for one workload.
pub(crate) struct Fair<'a> {
    pub(crate) preemptor: Preemptor<'a>,
    pub(crate) strategies: &'a [FairStrategy],
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

    fn victims(&self, tree: &mut Tree, need: &Need<'_>) -> Vec<Target> {
        let candidates = self.candidates(tree, need);
        let Some(first) = self.strategies.first().filter(|_| !candidates.is_empty()) else { return Vec::new() };
        // Shares count the preemptor as if it were in.
        self.shift_own(tree, need, 1);
        let mut chosen = Chosen::default();
        let mut found = self.by_strategy(tree, need, candidates, *first, &mut chosen);
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
    /// The shares, if they forbid that this workload of `queue` goes for `amount` of a pair.
    pub(super) fn spares(
        &self,
        tree: &mut Tree,
        (fr, amount): (Fr, Amount),
        queue: NodeId,
        id: WlId,
    ) -> Option<Obstacle> {
        let usage = BTreeMap::from([(fr, amount)]);
        let need = Need { contested: &[fr], usage: &usage };
        self.shift_own(tree, &need, 1);
        let nominal = tree.quota(self.own(), fr).nominal >= tree.usage(self.own(), fr);
        let shares = Walk::new(tree, &self.preemptor, Vec::new()).shares(tree, queue);
        let hopeless = shares.preemptor.is_infinite() && !shares.target.is_infinite();
        let passes =
            nominal || !hopeless && self.strategies.iter().any(|strategy| self.passes(tree, &shares, id, *strategy));
        self.shift_own(tree, &need, -1);
        (!passes).then(|| Obstacle::FairShare { own: shares.preemptor.rounded(), theirs: shares.target.rounded() })
    }

    fn own(&self) -> NodeId {
        self.preemptor.cq.node
    }

    fn shift_own(&self, tree: &mut Tree, need: &Need<'_>, sign: i128) {
        for (fr, amount) in need.usage {
            tree.shift(self.own(), *fr, i128::from(amount.get()) * sign);
        }
    }

    fn fits(&self, tree: &mut Tree, need: &Need<'_>) -> bool {
        self.shift_own(tree, need, -1);
        let fits = self.preemptor.fits(tree, need, true);
        self.shift_own(tree, need, 1);
        fits
    }

    /// Those of the own queue, and those of all borrowing queues of the tree, by policy.
    fn candidates(&self, tree: &Tree, need: &Need<'_>) -> Vec<Candidate<'a>> {
        let (cq, rules) = (self.preemptor.cq, self.preemptor.cq.object.preemption);
        let mut all = self.preemptor.candidates_in(cq, rules.within_cluster_queue, need.contested);
        if tree.parent(self.own()).is_some() && rules.reclaim_within_cohort != PreemptionPolicy::Never {
            for id in tree.queues_of_tree(self.own()).into_iter().filter(|id| *id != self.own()) {
                let borrows = need.contested.iter().any(|fr| tree.usage(id, *fr) > tree.quota(id, *fr).nominal);
                let Some(cq) = self.preemptor.cqs.get(&id).filter(|cq| borrows && cq.is_active()) else { continue };
                all.extend(self.preemptor.candidates_in(cq, rules.reclaim_within_cohort, need.contested));
            }
        }
        all.sort_unstable_by(|a, b| a.order(self.own()).cmp(&b.order(self.own())));
        all
    }

    /// Takes one workload after the other from the queue with the highest share, as far as the strategy allows.
    fn by_strategy(
        &self,
        tree: &mut Tree,
        need: &Need<'_>,
        candidates: Vec<Candidate<'a>>,
        strategy: FairStrategy,
        chosen: &mut Chosen<'a>,
    ) -> bool {
        let nominal = |fr| tree.quota(self.own(), fr).nominal >= tree.usage(self.own(), fr);
        let within_nominal = need.contested.iter().all(|fr| nominal(*fr));
        let mut walk = Walk::new(tree, &self.preemptor, candidates);
        while let Some(queue) = walk.next(tree) {
            let reason = match queue == self.own() {
                true => Some("InClusterQueue"),
                // What it has is its own, whatever the shares.
                false => within_nominal.then_some("InCohortReclamation"),
            };
            let taken = match reason {
                Some(reason) => walk.pop(queue).map(|candidate| (candidate, reason)),
                None => {
                    let candidate = self.by_shares(tree, &mut walk, queue, strategy, &mut chosen.spared);
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

    /// The first workload of a queue that the strategy lets go; those before it are spared.
    fn by_shares(
        &self,
        tree: &mut Tree,
        walk: &mut Walk<'a>,
        queue: NodeId,
        strategy: FairStrategy,
        spared: &mut Vec<Candidate<'a>>,
    ) -> Option<Candidate<'a>> {
        let shares = walk.shares(tree, queue);
        let hopeless = shares.preemptor.is_infinite() && !shares.target.is_infinite();
        while let Some(candidate) = walk.pop(queue) {
            if !hopeless && self.passes(tree, &shares, candidate.id, strategy) {
                return Some(candidate);
            }
            spared.push(candidate);
        }
        None
    }

    fn passes(&self, tree: &mut Tree, shares: &Shares, candidate: WlId, strategy: FairStrategy) -> bool {
        match strategy {
            FairStrategy::LessThanOrEqualToFinalShare => {
                self.preemptor.shift(tree, candidate, -1);
                let after = tree.share(shares.node);
                self.preemptor.shift(tree, candidate, 1);
                shares.preemptor.compare(&after).is_le()
            }
            FairStrategy::LessThanInitialShare => shares.preemptor.compare(&shares.target).is_lt(),
        }
    }

    /// The second strategy, over those whom the first one spared: one workload of each queue at most.
    fn by_initial_share(&self, tree: &mut Tree, need: &Need<'_>, chosen: &mut Chosen<'a>) -> bool {
        let mut walk = Walk::new(tree, &self.preemptor, std::mem::take(&mut chosen.spared));
        while let Some(queue) = walk.next(tree) {
            let shares = walk.shares(tree, queue);
            let candidate = walk.pop(queue);
            walk.drop_queue(queue);
            let Some(candidate) = candidate.filter(|_| shares.preemptor.compare(&shares.target).is_lt()) else {
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
        chosen: &mut Chosen<'a>,
    ) -> bool {
        self.preemptor.shift(tree, candidate.id, -1);
        chosen.targets.push(Target { id: candidate.id, reason });
        self.fits(tree, need)
    }
}

impl Shares {
    fn of(tree: &Tree, preemptor: NodeId, target: NodeId) -> Self {
        Self { preemptor: tree.share(preemptor), target: tree.share(target), node: target }
    }
}
