//! The order of queues as sources of victims: from the root to the child with the highest share.
//! Kueue: `TargetClusterQueueOrdering` in `pkg/scheduler/preemption/fairsharing/ordering.go`.

use std::cmp::{Ordering, Reverse};
use std::collections::{BTreeMap, BinaryHeap};

use super::Shares;
use crate::PreemptionPolicy;
use crate::flavor_resource::FlavorResource;
use crate::ids::NodeId;
use crate::preemption::candidates::{Candidate, CandidateIter, Preemptor};
use crate::tree::{QuotaTree, Share};

/// A walk over the queues with candidates.
///
/// Between two calls of [`QueueWalk::next`] the caller must pop a candidate or drop the queue, so
/// that the walk ends. After each removal of a candidate from the tree the caller must call
/// [`QueueWalk::changed`].
pub(super) struct QueueWalk<'n> {
    preemptor: Preemptor<'n>,
    path: Vec<NodeId>,
    supply: CandidateSupply<'n>,
    /// By visited Cohort.
    open_cohorts: BTreeMap<NodeId, OpenCohort<'n>>,
    /// The queue of the last call, and its Cohort.
    current: Option<(NodeId, QueueOffer<'n>)>,
    /// No candidates remain.
    over: bool,
}

/// Where the candidates come from.
pub(super) enum CandidateSupply<'n> {
    /// All candidates that the policy allows, of the preemptor's queue and of queues that borrow.
    /// Computed at the visit of their queue: no candidate of the queue was removed before, so the
    /// queue still borrows if it did at the start.
    Fresh { contested: &'n [FlavorResource] },
    /// A fixed list, in its order.
    Listed(BTreeMap<NodeId, Vec<Candidate<'n>>>),
}

/// The remaining sources below a Cohort.
#[derive(Default)]
struct OpenCohort<'n> {
    /// Highest share first. The removal of a candidate changes no other queue's share.
    queues: BinaryHeap<QueueOffer<'n>>,
    cohorts: Vec<Child>,
}

struct QueueOffer<'n> {
    queue: NodeId,
    is_own: bool,
    share: Share,
    first: Option<Candidate<'n>>,
    rest: CandidateIter<'n>,
}

struct Child {
    id: NodeId,
    /// Cached until a change below it.
    share: Option<Share>,
}

impl<'n> CandidateSupply<'n> {
    pub(super) fn listed(candidates: Vec<Candidate<'n>>) -> Self {
        let mut by_queue: BTreeMap<NodeId, Vec<Candidate<'n>>> = BTreeMap::new();
        for candidate in candidates {
            by_queue.entry(candidate.cq).or_default().push(candidate);
        }
        Self::Listed(by_queue)
    }
}

impl<'n> QueueWalk<'n> {
    pub(super) fn new(
        tree: &QuotaTree,
        preemptor: &Preemptor<'n>,
        supply: CandidateSupply<'n>,
    ) -> Self {
        let path = tree.path(preemptor.cq.node);
        Self {
            preemptor: *preemptor,
            path,
            supply,
            open_cohorts: BTreeMap::new(),
            current: None,
            over: false,
        }
    }

    /// The next candidate of the current queue.
    pub(super) fn pop(&mut self) -> Option<Candidate<'n>> {
        let (_, offer) = self.current.as_mut()?;
        std::mem::replace(&mut offer.first, offer.rest.next())
    }

    /// Skips the remaining candidates of the current queue.
    pub(super) fn drop_queue(&mut self) {
        self.current = None;
    }

    /// Usage of a queue changed: drops the cached shares of the Cohorts above.
    pub(super) fn changed(&mut self, tree: &QuotaTree, queue: NodeId) {
        for node in tree.path(queue) {
            let siblings = tree.parent(node).and_then(|parent| self.open_cohorts.get_mut(&parent));
            let child = siblings.and_then(|open_cohorts| {
                open_cohorts.cohorts.iter_mut().find(|child| child.id == node)
            });
            if let Some(child) = child {
                child.share = None;
            }
        }
    }

    /// The queue of the next victim.
    pub(super) fn next(&mut self, tree: &QuotaTree) -> Option<NodeId> {
        if let Some((cohort, mut offer)) = self.current.take() {
            offer.share = tree.share(offer.queue);
            if let Some(open_cohorts) =
                self.open_cohorts.get_mut(&cohort).filter(|_| offer.has_candidates())
            {
                open_cohorts.queues.push(offer);
            }
        }
        let root = *self.path.last()?;
        while !self.over {
            if let Some(queue) = self.descend(tree, root) {
                return Some(queue);
            }
        }
        None
    }

    /// The shares that the strategies compare for a victim of `queue`.
    pub(super) fn shares(&self, tree: &QuotaTree, queue: NodeId) -> Shares {
        let path = tree.path(queue);
        // Both paths end at the root, so they meet.
        let meeting = path.iter().find(|node| self.path.contains(node));
        let below =
            |path: &[NodeId]| path.iter().take_while(|node| Some(*node) != meeting).last().copied();
        Shares::of(tree, below(&self.path).unwrap_or(self.own()), below(&path).unwrap_or(queue))
    }

    fn own(&self) -> NodeId {
        self.preemptor.cq.node
    }

    /// One walk down. `None` if it only found a Cohort without remaining candidates.
    fn descend(&mut self, tree: &QuotaTree, root: NodeId) -> Option<NodeId> {
        let mut at = root;
        loop {
            let mut open_cohorts = match self.open_cohorts.remove(&at) {
                Some(open_cohorts) => open_cohorts,
                None => self.visit(tree, at),
            };
            let queue = open_cohorts.queues.peek().map(|offer| offer.share);
            let cohort = highest_cohort(tree, &self.path, &mut open_cohorts.cohorts);
            // On a tie the Cohort wins, because it contains queues of higher share.
            let down =
                cohort.filter(|(_, share)| queue.is_none_or(|queue| share.compare(&queue).is_ge()));
            let found = if down.is_none() { open_cohorts.queues.pop() } else { None };
            self.open_cohorts.insert(at, open_cohorts);
            match (down, found) {
                (Some((cohort, _)), _) => at = cohort,
                (None, Some(offer)) => {
                    let queue = offer.queue;
                    self.current = Some((at, offer));
                    return Some(queue);
                }
                (None, None) => {
                    self.close(at);
                    return None;
                }
            }
        }
    }

    /// Removes a Cohort without remaining candidates.
    fn close(&mut self, cohort: NodeId) {
        self.over |= self.path.last() == Some(&cohort);
        for open_cohorts in self.open_cohorts.values_mut() {
            open_cohorts.cohorts.retain(|child| child.id != cohort);
        }
    }

    /// The active queues with candidates and the Cohorts below a Cohort. A preemptor's queue
    /// without a Cohort counts as its own.
    fn visit(&mut self, tree: &QuotaTree, cohort: NodeId) -> OpenCohort<'n> {
        let alone = [cohort];
        let below = if cohort == self.own() { &alone[..] } else { tree.children(cohort) };
        let mut open_cohorts = OpenCohort::default();
        for id in below {
            if tree.is_queue(*id) {
                open_cohorts.queues.extend(self.offer(tree, *id, *id == cohort));
            } else {
                open_cohorts.cohorts.push(Child { id: *id, share: None });
            }
        }
        open_cohorts
    }

    fn offer(&mut self, tree: &QuotaTree, queue: NodeId, alone: bool) -> Option<QueueOffer<'n>> {
        let is_own = queue == self.own();
        if !is_own && !tree.borrows(queue) {
            return None;
        }
        self.preemptor.cluster_queues.get(&queue).filter(|cq| alone || cq.is_active())?;
        let mut rest = self.line(tree, queue)?;
        Some(QueueOffer { queue, is_own, share: tree.share(queue), first: rest.next(), rest })
            .filter(QueueOffer::has_candidates)
    }

    fn line(&mut self, tree: &QuotaTree, queue: NodeId) -> Option<CandidateIter<'n>> {
        let contested = match &mut self.supply {
            CandidateSupply::Fresh { contested } => *contested,
            CandidateSupply::Listed(by_queue) => {
                return Some(CandidateIter::Listed(by_queue.remove(&queue)?.into_iter()));
            }
        };
        let cq = self.preemptor.cluster_queues.get(&queue)?;
        let rules = self.preemptor.cq.object.preemption;
        if queue == self.own() {
            return Some(self.preemptor.candidates_in(cq, rules.within_cluster_queue, contested));
        }
        let borrows =
            contested.iter().any(|fr| tree.usage(queue, *fr) > tree.quota(queue, *fr).nominal);
        let allowed = borrows && rules.reclaim_within_cohort != PreemptionPolicy::Never;
        allowed.then(|| self.preemptor.candidates_in(cq, rules.reclaim_within_cohort, contested))
    }
}

/// The Cohort with the highest share; the last one of equals. Drops Cohorts without candidates.
fn highest_cohort(
    tree: &QuotaTree,
    path: &[NodeId],
    children: &mut Vec<Child>,
) -> Option<(NodeId, Share)> {
    let mut highest: Option<(NodeId, Share)> = None;
    children.retain_mut(|child| {
        // In a Cohort on the preemptor's path, siblings may borrow from each other although the
        // Cohort does not borrow.
        if !tree.borrows(child.id) && !path.contains(&child.id) {
            return false;
        }
        let share = *child.share.get_or_insert_with(|| tree.share(child.id));
        if highest.as_ref().is_none_or(|(_, most)| share.compare(most).is_ge()) {
            highest = Some((child.id, share));
        }
        true
    });
    highest
}

impl QueueOffer<'_> {
    /// Whether the queue has candidates.
    fn has_candidates(&self) -> bool {
        self.first.is_some() && (self.is_own || self.share.is_borrowing())
    }

    /// Breaks ties of equal shares.
    fn order(&self) -> impl Ord {
        Reverse(self.first.as_ref().map(|first| first.order(self.is_own)))
    }
}

impl PartialEq for QueueOffer<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}
impl Eq for QueueOffer<'_> {}
impl PartialOrd for QueueOffer<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for QueueOffer<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.share.compare(&other.share).then_with(|| self.order().cmp(&other.order()))
    }
}
