//! Preemption by priority and by what queues borrow. Kueue's `preemption/classical` is the rule.

use std::collections::BTreeSet;

use super::Target;
use super::candidates::{Candidate, Line, Merged, Preemptor, shift, within_nominal};
use super::victim_search::{Choice, Need, Remembered};
use crate::cluster_queue::Cq;
use crate::flavor_resource::Fr;
use crate::tree::{NodeId, Tree};
use crate::workloads::WlId;
use crate::{Amount, PreemptionPolicy};

/// Finds victims for one workload.
pub(crate) struct Classical<'a> {
    pub(crate) preemptor: Preemptor<'a>,
    remembered: Remembered,
}

/// On what ground a candidate may be preempted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ground {
    /// It is in the same ClusterQueue.
    SameQueue,
    /// It uses quota that the preemptor is nearer to.
    Hierarchy,
    /// It borrows, and the preemptor would not.
    ReclaimWithoutBorrowing,
    /// It borrows, and gives way even to a borrower.
    ReclaimWhileBorrowing,
}

impl Ground {
    fn reason(self) -> &'static str {
        match self {
            Self::SameQueue => "InClusterQueue",
            Self::Hierarchy | Self::ReclaimWithoutBorrowing => "InCohortReclamation",
            Self::ReclaimWhileBorrowing => "InCohortReclaimWhileBorrowing",
        }
    }
}

/// A queue with candidates, seen from the preemptor.
#[derive(Clone, Copy)]
struct Source<'n> {
    cq: &'n Cq,
    /// The preemptor's claim is nearer.
    nearer: bool,
    /// The Cohort where the queue's path and the preemptor's meet.
    meeting: NodeId,
}

/// The queues in which candidates may be, by the preemptor's claim against them.
#[derive(Default)]
struct Sources<'n> {
    hierarchy: Vec<Source<'n>>,
    priority: Vec<Source<'n>>,
}

impl Choice for Classical<'_> {
    fn preemptor(&self) -> &Preemptor<'_> {
        &self.preemptor
    }

    fn remembered(&mut self) -> &mut Remembered {
        &mut self.remembered
    }

    fn victims(&self, tree: &mut Tree, need: &Need<'_>) -> Vec<Target> {
        let forbidden = !self.may_borrow();
        let full = forbidden && !self.under_nominal(tree, need);
        let sources = self.sources(tree, need, full);
        let by_hierarchy = self.any(need, &sources.hierarchy);
        let elsewhere = by_hierarchy || self.any(need, &sources.priority);
        let attempts: &[bool] = if !elsewhere || full {
            &[true]
        } else if forbidden && !by_hierarchy {
            &[false, true]
        } else {
            &[true, false]
        };
        let attempts = attempts.iter();
        attempts
            .into_iter()
            .find_map(|borrowing| self.attempt(tree, need, &sources, *borrowing))
            .unwrap_or_default()
    }
}

impl<'a> Classical<'a> {
    pub(crate) fn new(preemptor: Preemptor<'a>) -> Self {
        Self { preemptor, remembered: Remembered::default() }
    }

    /// Takes candidates out in order until the preemptor fits, then puts back whom it fits without.
    fn attempt(
        &self,
        tree: &mut Tree,
        need: &Need<'_>,
        sources: &Sources<'_>,
        borrowing: bool,
    ) -> Option<Vec<Target>> {
        if !borrowing && !self.may_stop_borrowing(tree, need) {
            return None;
        }
        let mut targets = Vec::new();
        let found = self.take_until_fits(tree, need, sources, borrowing, &mut targets);
        if found {
            self.preemptor.fill_back(tree, need, &mut targets, borrowing);
        }
        self.preemptor.shift_all(tree, &targets, 1);
        found.then_some(targets)
    }

    /// Those that are being evicted go first; of each, those that the preemptor has a nearer claim against, then those
    /// of other queues, then those of its own.
    fn take_until_fits(
        &self,
        tree: &mut Tree,
        need: &Need<'_>,
        sources: &Sources<'_>,
        borrowing: bool,
        targets: &mut Vec<Target>,
    ) -> bool {
        for running in [false, true] {
            for list in [&sources.hierarchy, &sources.priority] {
                let mut merged = Merged::new(
                    list.iter().map(|source| (self.line(need, source.cq, running), *source)),
                );
                while let Some((candidate, source)) = merged.first() {
                    let ground = self.ground(&candidate, source.nearer);
                    let forbidden = borrowing && ground == Ground::ReclaimWithoutBorrowing;
                    // Usage only goes down and priorities up, but where past use goes before them: the rest of this
                    // queue will not do either.
                    if !self.still_exceeds(tree, need, source)
                        || (forbidden && !source.cq.queue.weighs_use())
                    {
                        merged.drop_line();
                        continue;
                    }
                    merged.pop();
                    if forbidden {
                        continue;
                    }
                    if self.take(tree, need, &candidate, ground, borrowing, targets) {
                        return true;
                    }
                }
            }
            for candidate in self.own_line(need).filter(|candidate| candidate.evicted != running) {
                if self.take(tree, need, &candidate, Ground::SameQueue, borrowing, targets) {
                    return true;
                }
            }
        }
        false
    }

    /// Takes a candidate out of the tree. Whether that is enough.
    fn take(
        &self,
        tree: &mut Tree,
        need: &Need<'_>,
        candidate: &Candidate<'_>,
        ground: Ground,
        borrowing: bool,
        targets: &mut Vec<Target>,
    ) -> bool {
        shift(tree, candidate.hold, -1);
        targets.push(Target { id: candidate.id, reason: ground.reason() });
        self.preemptor.fits(tree, need, borrowing, targets)
    }

    /// Whether the preemptor would be within its own quota if all candidates of its queue went. Those of other queues
    /// do not matter for that, so a search among them that must fail is not even begun.
    fn may_stop_borrowing(&self, tree: &mut Tree, need: &Need<'_>) -> bool {
        let exceeds = |tree: &Tree| {
            need.usage.iter().any(|(fr, amount)| tree.exceeds(self.preemptor.cq.node, *fr, *amount))
        };
        let mut out = Vec::new();
        let mut own = self.own_line(need);
        while exceeds(tree)
            && let Some(candidate) = own.next()
        {
            shift(tree, candidate.hold, -1);
            out.push(candidate.hold);
        }
        let stops = !exceeds(tree);
        for hold in out {
            shift(tree, hold, 1);
        }
        stops
    }

    /// Whether candidates of a queue still are some after others were taken out: the queue, and the Cohorts up to where
    /// its path meets the preemptor's, still use more than they have.
    fn still_exceeds(&self, tree: &Tree, need: &Need<'_>, source: Source<'_>) -> bool {
        // The preemptor's tree has no cycle, or there would be no candidates but its own.
        let up = std::iter::successors(Some(source.cq.node), |node| tree.parent(*node));
        let mut below_meeting = up.take_while(|node| *node != source.meeting);
        below_meeting.all(|node| !within_nominal(tree, node, need.contested))
    }

    /// The candidates of the preemptor's own queue.
    fn own_line<'n>(&self, need: &Need<'n>) -> Line<'n>
    where
        'a: 'n,
    {
        let cq = self.preemptor.cq;
        self.preemptor.candidates_in(cq, cq.object.preemption.within_cluster_queue, need.contested)
    }

    /// The candidates of another queue.
    fn line<'n>(&self, need: &Need<'n>, cq: &'n Cq, running: bool) -> Line<'n>
    where
        'a: 'n,
    {
        let policy = self.preemptor.cq.object.preemption.reclaim_within_cohort;
        self.preemptor.candidates_of(cq, policy, need.contested, running)
    }

    fn any(&self, need: &Need<'_>, list: &[Source<'_>]) -> bool {
        list.iter().any(|source| {
            [false, true].into_iter().any(|r| self.line(need, source.cq, r).next().is_some())
        })
    }

    /// The candidates that may only be preempted by one who does not borrow.
    pub(super) fn only_without_borrowing(&self, tree: &Tree, need: &Need<'_>) -> BTreeSet<WlId> {
        let sources = self.sources(tree, need, false);
        let all = sources.priority.iter().flat_map(|source| {
            let lines =
                [false, true].into_iter().flat_map(|running| self.line(need, source.cq, running));
            lines.map(|candidate| (candidate.id, self.ground(&candidate, source.nearer)))
        });
        all.filter(|(_, ground)| *ground == Ground::ReclaimWithoutBorrowing)
            .map(|(id, _)| id)
            .collect()
    }

    fn may_borrow(&self) -> bool {
        self.preemptor.cq.object.preemption.borrow_within_cohort.policy != PreemptionPolicy::Never
    }

    /// Whether the queue uses less than it has, of all contested pairs.
    fn under_nominal(&self, tree: &Tree, need: &Need<'_>) -> bool {
        let node = self.preemptor.cq.node;
        need.contested.iter().all(|fr| tree.quota(node, *fr).nominal > tree.usage(node, *fr))
    }

    /// The queues in which candidates may be; `only_nearer` leaves out those where only a preemptor that does not borrow
    /// would find some.
    fn sources(&self, tree: &Tree, need: &Need<'_>, only_nearer: bool) -> Sources<'a> {
        let mut sources = Sources::default();
        let cq = self.preemptor.cq;
        if cq.object.preemption.reclaim_within_cohort == PreemptionPolicy::Never {
            return sources;
        }
        let mut below = cq.node;
        let mut rest = need.usage.to_vec();
        // The preemptor's claim is nearer from the first subtree on whose own quota covers what it needs.
        let mut nearer = covers(tree, below, &mut rest);
        for cohort in tree.path(cq.node).into_iter().skip(1) {
            let list = if nearer { &mut sources.hierarchy } else { &mut sources.priority };
            if nearer || !only_nearer {
                self.in_subtree(tree, need, cohort, below, nearer, list);
            }
            nearer |= covers(tree, cohort, &mut rest);
            below = cohort;
        }
        sources
    }

    /// The active queues below `top`, leaving out the subtree that was looked through already, and those whose Cohorts
    /// or that themselves use no more than they have.
    fn in_subtree(
        &self,
        tree: &Tree,
        need: &Need<'_>,
        top: NodeId,
        skip: NodeId,
        nearer: bool,
        list: &mut Vec<Source<'a>>,
    ) {
        let mut cohorts = vec![top];
        while let Some(cohort) = cohorts.pop() {
            for child in tree.children(cohort) {
                if *child == skip || within_nominal(tree, *child, need.contested) {
                    continue;
                }
                let Some(cq) = self.preemptor.cqs.get(child) else {
                    cohorts.push(*child);
                    continue;
                };
                if cq.is_active() && cq.node != self.preemptor.cq.node {
                    list.push(Source { cq, nearer, meeting: top });
                }
            }
        }
    }

    fn ground(&self, candidate: &Candidate<'_>, nearer: bool) -> Ground {
        let rule = self.preemptor.cq.object.preemption.borrow_within_cohort;
        let too_important = candidate.priority() >= self.preemptor.class.priority
            || rule
                .max_priority_threshold
                .is_some_and(|threshold| candidate.priority() > threshold);
        match nearer {
            true => Ground::Hierarchy,
            false if !self.may_borrow() || too_important => Ground::ReclaimWithoutBorrowing,
            false => Ground::ReclaimWhileBorrowing,
        }
    }
}

/// Whether a subtree's own quota covers a need; takes off what it keeps for itself of it.
fn covers(tree: &Tree, node: NodeId, rest: &mut [(Fr, Amount)]) -> bool {
    let covers = !rest.iter().any(|(fr, amount)| tree.exceeds(node, *fr, *amount));
    for (fr, amount) in rest {
        *amount = (*amount - tree.local_available(node, *fr)).max(Amount::ZERO);
    }
    covers
}
