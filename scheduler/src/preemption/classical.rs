//! Preemption by priority and borrowing. Kueue: `pkg/scheduler/preemption/classical`.

use std::collections::BTreeSet;

use super::Target;
use super::candidates::{
    Candidate, CandidateIter, MergedCandidates, Preemptor, shift, within_nominal,
};
use super::victim_search::{LastSearch, Need, VictimSearch};
use crate::cluster_queue::ClusterQueueEntry;
use crate::flavor_resource::FlavorResource;
use crate::ids::{NodeId, WorkloadId};
use crate::tree::QuotaTree;
use crate::{Amount, PreemptionPolicy};

pub(crate) struct ClassicalPreemption<'a> {
    pub(crate) preemptor: Preemptor<'a>,
    last_search: LastSearch,
}

/// Why a candidate may be preempted. Kueue: `preemptionVariant` in `hierarchical_preemption.go`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PreemptionVariant {
    /// Same ClusterQueue.
    SameQueue,
    /// It uses quota of a subtree to which the preemptor is closer.
    Hierarchy,
    /// It borrows; the preemptor must not borrow.
    ReclaimWithoutBorrowing,
    /// It borrows; the preemptor may borrow too.
    ReclaimWhileBorrowing,
}

impl PreemptionVariant {
    fn reason(self) -> &'static str {
        match self {
            Self::SameQueue => "InClusterQueue",
            Self::Hierarchy | Self::ReclaimWithoutBorrowing => "InCohortReclamation",
            Self::ReclaimWhileBorrowing => "InCohortReclaimWhileBorrowing",
        }
    }
}

#[derive(Clone, Copy)]
struct CandidateQueue<'n> {
    cq: &'n ClusterQueueEntry,
    /// The preemptor has the hierarchical advantage.
    nearer: bool,
    /// The lowest common ancestor of this queue and the preemptor's.
    meeting: NodeId,
}

/// Queues with candidates, by the hierarchical advantage of the preemptor.
#[derive(Default)]
struct CandidateQueues<'n> {
    hierarchy: Vec<CandidateQueue<'n>>,
    priority: Vec<CandidateQueue<'n>>,
}

impl VictimSearch for ClassicalPreemption<'_> {
    fn preemptor(&self) -> &Preemptor<'_> {
        &self.preemptor
    }

    fn last_search(&mut self) -> &mut LastSearch {
        &mut self.last_search
    }

    fn victims(&self, tree: &mut QuotaTree, need: &Need<'_>) -> Vec<Target> {
        let forbidden = !self.may_borrow();
        let full = forbidden && !self.under_nominal(tree, need);
        let candidate_queues = self.candidate_queues(tree, need, full);
        let by_hierarchy = self.any(need, &candidate_queues.hierarchy);
        let elsewhere = by_hierarchy || self.any(need, &candidate_queues.priority);
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
            .find_map(|borrowing| self.attempt(tree, need, &candidate_queues, *borrowing))
            .unwrap_or_default()
    }
}

impl<'a> ClassicalPreemption<'a> {
    pub(crate) fn new(preemptor: Preemptor<'a>) -> Self {
        Self { preemptor, last_search: LastSearch::default() }
    }

    /// Removes candidates in order until the preemptor fits, then returns the ones that it does not
    /// need.
    fn attempt(
        &self,
        tree: &mut QuotaTree,
        need: &Need<'_>,
        candidate_queues: &CandidateQueues<'_>,
        borrowing: bool,
    ) -> Option<Vec<Target>> {
        if !borrowing && !self.may_stop_borrowing(tree, need) {
            return None;
        }
        let mut targets = Vec::new();
        let found = self.take_until_fits(tree, need, candidate_queues, borrowing, &mut targets);
        if found {
            self.preemptor.fill_back(tree, need, &mut targets, borrowing);
        }
        self.preemptor.shift_all(tree, &targets, 1);
        found.then_some(targets)
    }

    /// Candidates that are being evicted go first. Among these, and among the others: those of the
    /// hierarchy, then those of other queues, then those of the preemptor's own queue.
    fn take_until_fits(
        &self,
        tree: &mut QuotaTree,
        need: &Need<'_>,
        candidate_queues: &CandidateQueues<'_>,
        borrowing: bool,
        targets: &mut Vec<Target>,
    ) -> bool {
        for running in [false, true] {
            for list in [&candidate_queues.hierarchy, &candidate_queues.priority] {
                let mut merged = MergedCandidates::new(
                    list.iter().map(|source| (self.line(need, source.cq, running), *source)),
                );
                while let Some((candidate, source)) = merged.first() {
                    let variant = self.variant(&candidate, source.nearer);
                    let forbidden =
                        borrowing && variant == PreemptionVariant::ReclaimWithoutBorrowing;
                    // Usage only shrinks and priority only grows along the line, unless past usage
                    // takes precedence. So the rest of this queue is excluded too.
                    if !self.still_exceeds(tree, need, source)
                        || (forbidden && !source.cq.queue.weighs_usage())
                    {
                        merged.drop_line();
                        continue;
                    }
                    merged.pop();
                    if forbidden {
                        continue;
                    }
                    if self.take(tree, need, &candidate, variant, borrowing, targets) {
                        return true;
                    }
                }
            }
            for candidate in self.own_line(need).filter(|candidate| candidate.evicted != running) {
                if self.take(
                    tree,
                    need,
                    &candidate,
                    PreemptionVariant::SameQueue,
                    borrowing,
                    targets,
                ) {
                    return true;
                }
            }
        }
        false
    }

    /// Removes a candidate from the tree. Returns true if the preemptor fits.
    fn take(
        &self,
        tree: &mut QuotaTree,
        need: &Need<'_>,
        candidate: &Candidate<'_>,
        variant: PreemptionVariant,
        borrowing: bool,
        targets: &mut Vec<Target>,
    ) -> bool {
        shift(tree, candidate.reservation, -1);
        targets.push(Target { id: candidate.id, reason: variant.reason() });
        self.preemptor.fits(tree, need, borrowing, targets)
    }

    /// Whether the preemptor stays within nominal quota once all candidates of its own queue are
    /// gone. Other queues cannot change this, so a hopeless search does not start.
    fn may_stop_borrowing(&self, tree: &mut QuotaTree, need: &Need<'_>) -> bool {
        let exceeds = |tree: &QuotaTree| {
            need.usage.iter().any(|(fr, amount)| tree.exceeds(self.preemptor.cq.node, *fr, *amount))
        };
        let mut out = Vec::new();
        let mut own = self.own_line(need);
        while exceeds(tree)
            && let Some(candidate) = own.next()
        {
            shift(tree, candidate.reservation, -1);
            out.push(candidate.reservation);
        }
        let stops = !exceeds(tree);
        for reservation in out {
            shift(tree, reservation, 1);
        }
        stops
    }

    /// Whether a queue still provides candidates after some were removed: the queue, and each
    /// Cohort below the common ancestor, must still exceed its quota.
    fn still_exceeds(&self, tree: &QuotaTree, need: &Need<'_>, source: CandidateQueue<'_>) -> bool {
        // On a cycle all candidates are of the preemptor's own queue, so this walk ends.
        let up = std::iter::successors(Some(source.cq.node), |node| tree.parent(*node));
        let mut below_meeting = up.take_while(|node| *node != source.meeting);
        below_meeting.all(|node| !within_nominal(tree, node, need.contested))
    }

    fn own_line<'n>(&self, need: &Need<'n>) -> CandidateIter<'n>
    where
        'a: 'n,
    {
        let cq = self.preemptor.cq;
        self.preemptor.candidates_in(cq, cq.object.preemption.within_cluster_queue, need.contested)
    }

    fn line<'n>(
        &self,
        need: &Need<'n>,
        cq: &'n ClusterQueueEntry,
        running: bool,
    ) -> CandidateIter<'n>
    where
        'a: 'n,
    {
        let policy = self.preemptor.cq.object.preemption.reclaim_within_cohort;
        self.preemptor.candidates_of(cq, policy, need.contested, running)
    }

    fn any(&self, need: &Need<'_>, list: &[CandidateQueue<'_>]) -> bool {
        list.iter().any(|source| {
            [false, true].into_iter().any(|r| self.line(need, source.cq, r).next().is_some())
        })
    }

    /// The candidates that only a preemptor without borrowing may preempt.
    pub(super) fn only_without_borrowing(
        &self,
        tree: &QuotaTree,
        need: &Need<'_>,
    ) -> BTreeSet<WorkloadId> {
        let candidate_queues = self.candidate_queues(tree, need, false);
        let all = candidate_queues.priority.iter().flat_map(|source| {
            let lines =
                [false, true].into_iter().flat_map(|running| self.line(need, source.cq, running));
            lines.map(|candidate| (candidate.id, self.variant(&candidate, source.nearer)))
        });
        all.filter(|(_, variant)| *variant == PreemptionVariant::ReclaimWithoutBorrowing)
            .map(|(id, _)| id)
            .collect()
    }

    fn may_borrow(&self) -> bool {
        self.preemptor.cq.object.preemption.borrow_within_cohort.policy != PreemptionPolicy::Never
    }

    /// Whether the queue's usage is below nominal quota for all contested pairs.
    fn under_nominal(&self, tree: &QuotaTree, need: &Need<'_>) -> bool {
        let node = self.preemptor.cq.node;
        need.contested.iter().all(|fr| tree.quota(node, *fr).nominal > tree.usage(node, *fr))
    }

    /// The queues with candidates. `only_nearer` skips queues without hierarchical advantage.
    fn candidate_queues(
        &self,
        tree: &QuotaTree,
        need: &Need<'_>,
        only_nearer: bool,
    ) -> CandidateQueues<'a> {
        let mut candidate_queues = CandidateQueues::default();
        let cq = self.preemptor.cq;
        if cq.object.preemption.reclaim_within_cohort == PreemptionPolicy::Never {
            return candidate_queues;
        }
        let mut below = cq.node;
        let mut rest = need.usage.to_vec();
        // The advantage starts at the first subtree whose quota covers the need.
        let mut nearer = covers(tree, below, &mut rest);
        for cohort in tree.path(cq.node).into_iter().skip(1) {
            let list = if nearer {
                &mut candidate_queues.hierarchy
            } else {
                &mut candidate_queues.priority
            };
            if nearer || !only_nearer {
                self.in_subtree(tree, need, cohort, below, nearer, list);
            }
            nearer |= covers(tree, cohort, &mut rest);
            below = cohort;
        }
        candidate_queues
    }

    /// The active queues below `top` that exceed their quota, as does each Cohort above them. Skips
    /// the subtree `skip`.
    fn in_subtree(
        &self,
        tree: &QuotaTree,
        need: &Need<'_>,
        top: NodeId,
        skip: NodeId,
        nearer: bool,
        list: &mut Vec<CandidateQueue<'a>>,
    ) {
        let mut cohorts = vec![top];
        while let Some(cohort) = cohorts.pop() {
            for child in tree.children(cohort) {
                if *child == skip || within_nominal(tree, *child, need.contested) {
                    continue;
                }
                let Some(cq) = self.preemptor.cluster_queues.get(child) else {
                    cohorts.push(*child);
                    continue;
                };
                if cq.is_active() && cq.node != self.preemptor.cq.node {
                    list.push(CandidateQueue { cq, nearer, meeting: top });
                }
            }
        }
    }

    fn variant(&self, candidate: &Candidate<'_>, nearer: bool) -> PreemptionVariant {
        let rule = self.preemptor.cq.object.preemption.borrow_within_cohort;
        let too_important = candidate.priority() >= self.preemptor.class.priority
            || rule
                .max_priority_threshold
                .is_some_and(|threshold| candidate.priority() > threshold);
        match nearer {
            true => PreemptionVariant::Hierarchy,
            false if !self.may_borrow() || too_important => {
                PreemptionVariant::ReclaimWithoutBorrowing
            }
            false => PreemptionVariant::ReclaimWhileBorrowing,
        }
    }
}

/// Whether a subtree's own quota covers a need. Subtracts the free quota that the subtree does not
/// lend.
fn covers(tree: &QuotaTree, node: NodeId, rest: &mut [(FlavorResource, Amount)]) -> bool {
    let covers = !rest.iter().any(|(fr, amount)| tree.exceeds(node, *fr, *amount));
    for (fr, amount) in rest {
        *amount = (*amount - tree.local_available(node, *fr)).max(Amount::ZERO);
    }
    covers
}
