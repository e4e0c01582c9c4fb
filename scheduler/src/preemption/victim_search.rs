//! Making room: what every kind of preemption has in common.

use super::candidates::Preemptor;
use super::{Oracle, Possibility, Target};
use crate::Amount;
use crate::flavor_resource::Fr;
use crate::flavors::{Asks, Assignment};
use crate::tree::Tree;
use crate::workloads::Hold;

/// What a preemptor needs.
pub(super) struct Need<'a> {
    /// The pairs of which there is too little.
    pub(super) contested: &'a [Fr],
    /// All that it would use.
    pub(super) usage: &'a [(Fr, Amount)],
    /// Pods that need places beside quota.
    pub(super) pods: Option<&'a Asks<'a>>,
}

/// Who would have to go for an amount of one pair, as it was found out last. While flavors are searched that is asked
/// before, and for a workload of one resource again at the end.
#[derive(Debug, Default)]
pub(crate) struct Remembered(Option<(Fr, Amount, Vec<Target>)>);

/// A way to choose victims.
pub(super) trait Choice {
    fn preemptor(&self) -> &Preemptor<'_>;

    fn remembered(&mut self) -> &mut Remembered;

    /// A small set of workloads whose leaving makes room; empty if there is none. Leaves the tree as it found it.
    fn victims(&self, tree: &mut Tree, need: &Need<'_>) -> Vec<Target>;
}

impl<T: Choice> Oracle for T {
    fn simulate(&mut self, tree: &mut Tree, fr: Fr, amount: Amount) -> (Possibility, usize) {
        let targets =
            self.victims(tree, &Need { contested: &[fr], usage: &[(fr, amount)], pods: None });
        let preemptor = self.preemptor();
        preemptor.shift_all(tree, &targets, -1);
        let (borrow, _) = tree.borrow_height(preemptor.cq.node, fr, amount);
        preemptor.shift_all(tree, &targets, 1);
        let own = |target: &Target| preemptor.cq.workloads.contains(&target.id);
        let possibility = match &targets[..] {
            [] => Possibility::NoCandidates,
            some if some.iter().any(own) => Possibility::Preempt,
            _ => Possibility::Reclaim,
        };
        *self.remembered() = Remembered(Some((fr, amount, targets)));
        (possibility, borrow)
    }

    fn targets(&mut self, tree: &mut Tree, assignment: &Assignment) -> Vec<Target> {
        let needs_places = self.preemptor().site.is_some_and(|site| site.is_asked());
        // Nothing was charged in between.
        if let Remembered(Some((fr, amount, targets))) = self.remembered()
            && assignment.usage == [(*fr, *amount)]
            && assignment.contested() == [*fr]
            && !needs_places
        {
            return targets.clone();
        }
        let asks =
            self.preemptor().site.map(|site| site.asks(assignment)).filter(|asks| !asks.is_empty());
        let (contested, usage) = (&assignment.contested()[..], &assignment.usage[..]);
        self.victims(tree, &Need { contested, usage, pods: asks.as_ref() })
    }
}

impl Preemptor<'_> {
    /// Takes the usage of these workloads out of the tree (-1) or puts it back (1).
    pub(super) fn shift_all(&self, tree: &mut Tree, targets: &[Target], sign: i128) {
        for target in targets {
            self.shift(tree, target.id, sign);
        }
    }

    /// Whether the preemptor fits now, when these are gone.
    pub(super) fn fits(
        &self,
        tree: &Tree,
        need: &Need<'_>,
        borrowing: bool,
        gone: &[Target],
    ) -> bool {
        let node = self.cq.node;
        need.usage.iter().all(|(fr, amount)| {
            (borrowing || !tree.exceeds(node, *fr, *amount))
                && *amount <= tree.available(node, *fr).max(Amount::ZERO)
        }) && self.has_places(need, gone)
    }

    /// Whether the preemptor's pods have places when these are gone.
    fn has_places(&self, need: &Need<'_>, gone: &[Target]) -> bool {
        let Some((site, pods)) = self.site.zip(need.pods) else { return true };
        site.fits(pods, &self.holds(gone))
    }

    /// What these hold.
    pub(crate) fn holds(&self, targets: &[Target]) -> Vec<&Hold> {
        targets.iter().filter_map(|target| self.workloads.get(target.id)?.hold.as_deref()).collect()
    }

    /// Puts back, from the last but one to the first, whom the preemptor fits without.
    pub(super) fn fill_back(
        &self,
        tree: &mut Tree,
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
