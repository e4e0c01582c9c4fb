//! From which queue the next victim comes: down from the root to the child with the highest share.

use std::cmp::{Ordering, Reverse};
use std::collections::{BTreeMap, BinaryHeap};

use super::Shares;
use crate::PreemptionPolicy;
use crate::flavor_resource::Fr;
use crate::preemption::candidates::{Candidate, Line, Preemptor};
use crate::tree::{NodeId, Share, Tree};

/// A walk over the queues that have candidates. Between two calls of [`Walk::next`] a candidate of the queue must be
/// popped or the queue dropped, so that it ends; and when a candidate is taken out of the tree, [`Walk::changed`] must
/// be called.
pub(super) struct Walk<'n> {
    preemptor: Preemptor<'n>,
    /// The preemptor's queue and the Cohorts above it.
    path: Vec<NodeId>,
    supply: Supply<'n>,
    /// By Cohort that was looked at.
    open: BTreeMap<NodeId, Open<'n>>,
    /// The queue that the last call found, and its Cohort.
    current: Option<(NodeId, Offer<'n>)>,
    /// No more candidates will come.
    over: bool,
}

/// Where a walk has its candidates from.
pub(super) enum Supply<'n> {
    /// All whom the policy allows to preempt: of the preemptor's queue and of those that borrow. Found when their queue
    /// is looked at: until then nobody of it was taken, so it borrows if it did when the walk began.
    Fresh {
        /// The pairs of which there is too little.
        contested: &'n [Fr],
    },
    /// These, in their order.
    Listed(BTreeMap<NodeId, Vec<Candidate<'n>>>),
}

/// What candidates may still come from below a Cohort.
#[derive(Default)]
struct Open<'n> {
    /// The highest share first; the others' shares do not change when somebody of one is taken.
    queues: BinaryHeap<Offer<'n>>,
    cohorts: Vec<Child>,
}

/// A queue with its share and its candidates.
struct Offer<'n> {
    queue: NodeId,
    is_own: bool,
    share: Share,
    first: Option<Candidate<'n>>,
    rest: Line<'n>,
}

/// A Cohort below a Cohort.
struct Child {
    id: NodeId,
    /// As it is now, if it was asked for since it changed.
    share: Option<Share>,
}

impl<'n> Supply<'n> {
    /// These, sorted by queue.
    pub(super) fn listed(candidates: Vec<Candidate<'n>>) -> Self {
        let mut by_queue: BTreeMap<NodeId, Vec<Candidate<'n>>> = BTreeMap::new();
        for candidate in candidates {
            by_queue.entry(candidate.cq).or_default().push(candidate);
        }
        Self::Listed(by_queue)
    }
}

impl<'n> Walk<'n> {
    pub(super) fn new(tree: &Tree, preemptor: &Preemptor<'n>, supply: Supply<'n>) -> Self {
        let path = tree.path(preemptor.cq.node);
        Self {
            preemptor: *preemptor,
            path,
            supply,
            open: BTreeMap::new(),
            current: None,
            over: false,
        }
    }

    /// The next candidate of the queue that was found.
    pub(super) fn pop(&mut self) -> Option<Candidate<'n>> {
        let (_, offer) = self.current.as_mut()?;
        std::mem::replace(&mut offer.first, offer.rest.next())
    }

    /// Leaves the rest of the queue's candidates alone.
    pub(super) fn drop_queue(&mut self) {
        self.current = None;
    }

    /// Usage of a queue changed: so did the shares of the Cohorts above.
    pub(super) fn changed(&mut self, tree: &Tree, queue: NodeId) {
        for node in tree.path(queue) {
            let siblings = tree.parent(node).and_then(|parent| self.open.get_mut(&parent));
            let child =
                siblings.and_then(|open| open.cohorts.iter_mut().find(|child| child.id == node));
            if let Some(child) = child {
                child.share = None;
            }
        }
    }

    /// The queue that the next victim comes from.
    pub(super) fn next(&mut self, tree: &Tree) -> Option<NodeId> {
        if let Some((cohort, mut offer)) = self.current.take() {
            offer.share = tree.share(offer.queue);
            if let Some(open) = self.open.get_mut(&cohort).filter(|_| offer.is_good()) {
                open.queues.push(offer);
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

    /// The shares that are compared for a victim of `queue`.
    pub(super) fn shares(&self, tree: &Tree, queue: NodeId) -> Shares {
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

    /// One walk down. `None` if it only found out that some Cohort has nothing more to give.
    fn descend(&mut self, tree: &Tree, root: NodeId) -> Option<NodeId> {
        let mut at = root;
        loop {
            let mut open = match self.open.remove(&at) {
                Some(open) => open,
                None => self.look(tree, at),
            };
            let queue = open.queues.peek().map(|offer| offer.share);
            let cohort = highest_cohort(tree, &self.path, &mut open.cohorts);
            // On a tie the Cohort, in which the worst can be chosen.
            let down =
                cohort.filter(|(_, share)| queue.is_none_or(|queue| share.compare(&queue).is_ge()));
            let found = if down.is_none() { open.queues.pop() } else { None };
            self.open.insert(at, open);
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

    /// Nothing more will come from below a Cohort.
    fn close(&mut self, cohort: NodeId) {
        self.over |= self.path.last() == Some(&cohort);
        for open in self.open.values_mut() {
            open.cohorts.retain(|child| child.id != cohort);
        }
    }

    /// What is below a Cohort: active queues that have something to give, and Cohorts. A preemptor's queue without a
    /// Cohort stands for itself.
    fn look(&mut self, tree: &Tree, cohort: NodeId) -> Open<'n> {
        let alone = [cohort];
        let below = if cohort == self.own() { &alone[..] } else { tree.children(cohort) };
        let mut open = Open::default();
        for id in below {
            if tree.is_queue(*id) {
                open.queues.extend(self.offer(tree, *id, *id == cohort));
            } else {
                open.cohorts.push(Child { id: *id, share: None });
            }
        }
        open
    }

    /// A queue, if it has something to give.
    fn offer(&mut self, tree: &Tree, queue: NodeId, alone: bool) -> Option<Offer<'n>> {
        let is_own = queue == self.own();
        if !is_own && !tree.borrows(queue) {
            return None;
        }
        self.preemptor.cqs.get(&queue).filter(|cq| alone || cq.is_active())?;
        let mut rest = self.line(tree, queue)?;
        Some(Offer { queue, is_own, share: tree.share(queue), first: rest.next(), rest })
            .filter(Offer::is_good)
    }

    fn line(&mut self, tree: &Tree, queue: NodeId) -> Option<Line<'n>> {
        let contested = match &mut self.supply {
            Supply::Fresh { contested } => *contested,
            Supply::Listed(by_queue) => {
                return Some(Box::new(by_queue.remove(&queue)?.into_iter()));
            }
        };
        let cq = self.preemptor.cqs.get(&queue)?;
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

/// The Cohort with the highest share; the last of equals. Those that have nothing to give are not looked at again.
fn highest_cohort(
    tree: &Tree,
    path: &[NodeId],
    children: &mut Vec<Child>,
) -> Option<(NodeId, Share)> {
    let mut highest: Option<(NodeId, Share)> = None;
    children.retain_mut(|child| {
        // Within a Cohort of the preemptor's, others may borrow from each other although it does not borrow.
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

impl Offer<'_> {
    /// Whether it has something to give.
    fn is_good(&self) -> bool {
        self.first.is_some() && (self.is_own || self.share.is_borrowing())
    }

    /// What decides between two of the same share.
    fn order(&self) -> impl Ord {
        Reverse(self.first.as_ref().map(|first| first.order(self.is_own)))
    }
}

impl PartialEq for Offer<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}
impl Eq for Offer<'_> {}
impl PartialOrd for Offer<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Offer<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.share.compare(&other.share).then_with(|| self.order().cmp(&other.order()))
    }
}
