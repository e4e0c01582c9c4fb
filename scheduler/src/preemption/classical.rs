//! Preemption by priority and by what queues borrow. Kueue's `preemption/classical` is the rule.

use std::collections::{BTreeMap, BTreeSet};

use super::Target;
use super::candidates::{Candidate, Preemptor, within_nominal};
use super::room::{Choice, Need};
use crate::intern::Fr;
use crate::tree::{NodeId, Tree};
use crate::workloads::WlId;
use crate::{Amount, PreemptionPolicy};

/// Finds victims for one workload.
pub(crate) struct Classical<'a> {
    pub(crate) preemptor: Preemptor<'a>,
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

/// A candidate with its ground, and the Cohort where its path and the preemptor's meet.
struct Grounded<'a> {
    candidate: Candidate<'a>,
    ground: Ground,
    meeting: Option<NodeId>,
}

/// All candidates in the order they are tried.
struct Candidates<'a> {
    all: Vec<Grounded<'a>>,
    none_elsewhere: bool,
    none_by_hierarchy: bool,
}

impl Choice for Classical<'_> {
    fn preemptor(&self) -> &Preemptor<'_> {
        &self.preemptor
    }

    fn victims(&self, tree: &mut Tree, need: &Need<'_>) -> Vec<Target> {
        let forbidden = !self.may_borrow();
        let full = forbidden && !self.under_nominal(tree, need);
        let candidates = self.candidates(tree, need, full);
        if candidates.all.is_empty() {
            return Vec::new();
        }
        let attempts: &[bool] = if candidates.none_elsewhere || full {
            &[true]
        } else if forbidden && candidates.none_by_hierarchy {
            &[false, true]
        } else {
            &[true, false]
        };
        let attempts = attempts.iter();
        attempts
            .into_iter()
            .find_map(|borrowing| self.attempt(tree, need, &candidates.all, *borrowing))
            .unwrap_or_default()
    }
}

impl<'a> Classical<'a> {
    /// Takes candidates out in order until the preemptor fits, then puts back whom it fits without.
    fn attempt(&self, tree: &mut Tree, need: &Need<'_>, all: &[Grounded<'_>], borrowing: bool) -> Option<Vec<Target>> {
        let mut targets: Vec<Target> = Vec::new();
        let mut found = false;
        let all = if borrowing || self.may_stop_borrowing(tree, need, all) { all } else { &[] };
        for grounded in all {
            if !self.is_valid(tree, need, grounded, borrowing) {
                continue;
            }
            self.preemptor.shift(tree, grounded.candidate.id, -1);
            targets.push(Target { id: grounded.candidate.id, reason: grounded.ground.reason() });
            if self.preemptor.fits(tree, need, borrowing) {
                found = true;
                break;
            }
        }
        if found {
            self.preemptor.fill_back(tree, need, &mut targets, borrowing);
        }
        self.preemptor.shift_all(tree, &targets, 1);
        found.then_some(targets)
    }

    /// Whether the preemptor would be within its own quota if all candidates of its queue went. Those of other queues
    /// do not matter for that, so a search among them that must fail is not even begun.
    fn may_stop_borrowing(&self, tree: &mut Tree, need: &Need<'_>, all: &[Grounded<'_>]) -> bool {
        let own = all.iter().filter(|grounded| grounded.ground == Ground::SameQueue);
        let ids: Vec<_> = own.map(|grounded| grounded.candidate.id).collect();
        let exceeds =
            |tree: &Tree| need.usage.iter().any(|(fr, amount)| tree.exceeds(self.preemptor.cq.node, *fr, *amount));
        if !exceeds(tree) || ids.is_empty() {
            return !exceeds(tree);
        }
        for id in &ids {
            self.preemptor.shift(tree, *id, -1);
        }
        let stops = !exceeds(tree);
        for id in &ids {
            self.preemptor.shift(tree, *id, 1);
        }
        stops
    }

    /// Whether a candidate is still one after those before it were taken out: its queue, and the Cohorts up to where
    /// its path meets the preemptor's, still use more than they have.
    fn is_valid(&self, tree: &Tree, need: &Need<'_>, grounded: &Grounded<'_>, borrowing: bool) -> bool {
        if grounded.ground == Ground::SameQueue {
            return true;
        }
        if borrowing && grounded.ground == Ground::ReclaimWithoutBorrowing {
            return false;
        }
        // The preemptor's tree has no cycle, or there would be no candidates but its own.
        let up = std::iter::successors(Some(grounded.candidate.cq), |node| tree.parent(*node));
        let mut below_meeting = up.take_while(|node| Some(*node) != grounded.meeting);
        below_meeting.all(|node| !within_nominal(tree, node, need.contested))
    }

    /// The candidates that may only be preempted by one who does not borrow.
    pub(super) fn only_without_borrowing(&self, tree: &Tree, need: &Need<'_>) -> BTreeSet<WlId> {
        let all = self.candidates(tree, need, false).all.into_iter();
        all.filter(|grounded| grounded.ground == Ground::ReclaimWithoutBorrowing)
            .map(|grounded| grounded.candidate.id)
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

    /// The candidates; `only_nearer` leaves out those whom only a preemptor that does not borrow could preempt.
    fn candidates(&self, tree: &Tree, need: &Need<'_>, only_nearer: bool) -> Candidates<'a> {
        let cq = self.preemptor.cq;
        let own = self.preemptor.candidates_in(cq, cq.object.preemption.within_cluster_queue, need.contested);
        let same = own.into_iter().map(|candidate| Grounded { candidate, ground: Ground::SameQueue, meeting: None });
        let (hierarchy, priority) = self.elsewhere(tree, need, only_nearer);
        let (none_elsewhere, none_by_hierarchy) = (hierarchy.is_empty() && priority.is_empty(), hierarchy.is_empty());
        let mut evicted = Vec::new();
        let mut running = Vec::new();
        for mut list in [hierarchy, priority, same.collect()] {
            list.sort_unstable_by(|a, b| a.candidate.order(cq.node).cmp(&b.candidate.order(cq.node)));
            let (gone, stays): (Vec<_>, Vec<_>) = list.into_iter().partition(|grounded| grounded.candidate.evicted);
            evicted.extend(gone);
            running.extend(stays);
        }
        evicted.extend(running);
        Candidates { all: evicted, none_elsewhere, none_by_hierarchy }
    }

    /// The candidates in other queues: those that the preemptor has a nearer claim against, and the others.
    fn elsewhere(&self, tree: &Tree, need: &Need<'_>, only_nearer: bool) -> (Vec<Grounded<'a>>, Vec<Grounded<'a>>) {
        let (mut hierarchy, mut priority) = (Vec::new(), Vec::new());
        let cq = self.preemptor.cq;
        if cq.object.preemption.reclaim_within_cohort == PreemptionPolicy::Never {
            return (hierarchy, priority);
        }
        let mut below = cq.node;
        let mut rest = need.usage.clone();
        // The preemptor's claim is nearer from the first subtree on whose own quota covers what it needs.
        let mut nearer = covers(tree, below, &mut rest);
        for cohort in tree.path(cq.node).into_iter().skip(1) {
            let list = if nearer { &mut hierarchy } else { &mut priority };
            if nearer || !only_nearer {
                self.in_subtree(tree, need, cohort, below, nearer, list);
            }
            nearer |= covers(tree, cohort, &mut rest);
            below = cohort;
        }
        (hierarchy, priority)
    }

    /// The candidates below `top`, leaving out the subtree that was looked through already, and those whose Cohorts
    /// and queues use no more than they have.
    fn in_subtree(
        &self,
        tree: &Tree,
        need: &Need<'_>,
        top: NodeId,
        skip: NodeId,
        nearer: bool,
        list: &mut Vec<Grounded<'a>>,
    ) {
        let policy = self.preemptor.cq.object.preemption.reclaim_within_cohort;
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
                    let found = self.preemptor.candidates_in(cq, policy, need.contested).into_iter();
                    list.extend(found.map(|candidate| {
                        let ground = self.ground(&candidate, nearer);
                        Grounded { candidate, ground, meeting: Some(top) }
                    }));
                }
            }
        }
    }

    fn ground(&self, candidate: &Candidate<'_>, nearer: bool) -> Ground {
        let rule = self.preemptor.cq.object.preemption.borrow_within_cohort;
        let too_important = candidate.priority() >= self.preemptor.class.priority
            || rule.max_priority_threshold.is_some_and(|threshold| candidate.priority() > threshold);
        match nearer {
            true => Ground::Hierarchy,
            false if !self.may_borrow() || too_important => Ground::ReclaimWithoutBorrowing,
            false => Ground::ReclaimWhileBorrowing,
        }
    }
}

/// Whether a subtree's own quota covers a need; takes off what it keeps for itself of it.
fn covers(tree: &Tree, node: NodeId, rest: &mut BTreeMap<Fr, Amount>) -> bool {
    let covers = !rest.iter().any(|(fr, amount)| tree.exceeds(node, *fr, *amount));
    for (fr, amount) in rest {
        *amount = (*amount - tree.local_available(node, *fr)).max(Amount::ZERO);
    }
    covers
}
