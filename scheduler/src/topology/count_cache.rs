//! Counts that are kept from one search to the next. Searches for pods of one shape differ by a few
//! leaves, so each counts only the leaves that changed.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::counts::{Assumed, Change, Counts, PlacementDemand, Within};
use super::plan::PlacementPlan;
use super::resources::{Amounts, Demand};
use super::tree::{DomainId, TopologyTree};
use crate::{NodeSelectorTerm, Toleration};

/// Shapes per tree. The one that was not used for longest goes first.
const SHAPES: usize = 32;

/// Length of the list of recent changes. Counts older than the list compare all domains.
const CHANGES: usize = 1 << 12;

/// The changes of a tree.
#[derive(Debug, Default)]
pub(super) struct ChangeLog {
    /// The number of changes that are no longer in `recent`.
    dropped: u64,
    recent: Vec<(DomainId, Change)>,
    /// By domain: the number of the last change of the whole, and of the usage.
    last: Vec<(u64, u64)>,
}

impl ChangeLog {
    pub(super) fn push(&mut self, id: DomainId, change: Change) {
        if self.recent.len() >= CHANGES {
            self.dropped = self.end();
            self.recent.clear();
        }
        self.recent.push((id, change));
        let end = self.end();
        if id.index() >= self.last.len() {
            self.last.resize(id.index() + 1, (0, 0));
        }
        if let Some((whole, usage)) = self.last.get_mut(id.index()) {
            match change {
                Change::Whole => *whole = end,
                Change::Usage => *usage = end,
            }
        }
    }

    /// The number of all changes so far.
    fn end(&self) -> u64 {
        self.dropped.saturating_add(u64::try_from(self.recent.len()).unwrap_or(u64::MAX))
    }

    fn since(&self, seen: u64) -> Cow<'_, [(DomainId, Change)]> {
        let kept = seen.checked_sub(self.dropped).and_then(|at| usize::try_from(at).ok());
        if let Some(recent) = kept.and_then(|at| self.recent.get(at..)) {
            return Cow::Borrowed(recent);
        }
        let change = |(index, (whole, usage)): (usize, &(u64, u64))| match () {
            () if *whole > seen => Some((DomainId::at(index)?, Change::Whole)),
            () if *usage > seen => Some((DomainId::at(index)?, Change::Usage)),
            () => None,
        };
        Cow::Owned(self.last.iter().enumerate().filter_map(change).collect())
    }
}

/// Everything that the counts of all domains depend on, besides the tree.
#[derive(Debug, PartialEq)]
struct Shape {
    worker: Demand,
    leader: Option<Demand>,
    tolerations: Vec<Toleration>,
    node_selector: BTreeMap<String, String>,
    affinity: Vec<NodeSelectorTerm>,
    empty: bool,
    size: i32,
    slice_level: usize,
    inner: Vec<i32>,
}

impl Shape {
    fn of(plan: &PlacementPlan, wanted: &PlacementDemand<'_>) -> Self {
        let filter = wanted.filter;
        let owned = |(key, value): (&&str, &&str)| ((*key).to_owned(), (*value).to_owned());
        Self {
            worker: wanted.worker.clone(),
            leader: wanted.leader.cloned(),
            tolerations: filter
                .tolerations
                .iter()
                .map(|toleration| (*toleration).clone())
                .collect(),
            node_selector: filter.node_selector.iter().map(owned).collect(),
            affinity: filter.affinity.to_vec(),
            empty: wanted.empty,
            size: plan.size,
            slice_level: plan.slice_level,
            inner: plan.inner_sizes().to_vec(),
        }
    }
}

#[derive(Debug)]
struct KeptCounts {
    shape: Shape,
    counts: Counts,
    /// Changes of the tree that the counts include.
    seen: u64,
}

/// The kept counts of one tree. A search takes them out and puts them back.
#[derive(Debug, Default)]
pub(super) struct CountCache(Mutex<Vec<KeptCounts>>);

impl CountCache {
    /// Nothing panics while the lock is held, so a poisoned lock has whole counts.
    fn lock(&self) -> MutexGuard<'_, Vec<KeptCounts>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self, shape: &Shape) -> Option<KeptCounts> {
        let mut kept = self.lock();
        let at = kept.iter().rposition(|kept| kept.shape == *shape)?;
        Some(kept.remove(at))
    }

    fn put(&self, counts: KeptCounts) {
        let mut kept = self.lock();
        if kept.len() >= SHAPES {
            kept.remove(0);
        }
        kept.push(counts);
    }
}

/// Counts that a search took out of the cache. Without a shape, they are for one search only.
#[derive(Debug, Default)]
pub(super) struct Loan(Option<(Shape, u64)>);

/// The counts of the tree as it is, with usage that the search assumes.
pub(super) fn borrow_counts(
    tree: &TopologyTree,
    plan: &PlacementPlan,
    wanted: &PlacementDemand<'_>,
    assumed: &Assumed,
) -> (Counts, Loan) {
    let (mut counts, loan) = match wanted.within {
        Within::Anywhere => up_to_date(tree, plan, wanted),
        // The place of one failed node: rarely the same again.
        Within::Below(_) | Within::Nowhere => (Counts::new(tree, plan, wanted), Loan(None)),
    };
    counts.record();
    if !assumed.is_empty() {
        let by_leaf = |(leaf, amounts)| Some((tree.leaf_id(leaf)?, amounts));
        let by_leaf: BTreeMap<DomainId, &Amounts> =
            assumed.iter().filter_map(|(leaf, amounts)| by_leaf((leaf, amounts))).collect();
        let changes: Vec<_> = by_leaf.keys().map(|id| (*id, Change::Usage)).collect();
        counts.recount(tree, plan, wanted, &changes, &|id| by_leaf.get(&id).copied());
    }
    (counts, loan)
}

fn up_to_date(
    tree: &TopologyTree,
    plan: &PlacementPlan,
    wanted: &PlacementDemand<'_>,
) -> (Counts, Loan) {
    let shape = Shape::of(plan, wanted);
    let counts = match tree.cache.take(&shape) {
        Some(KeptCounts { mut counts, seen, .. }) => {
            counts.follow(tree, plan, wanted, &tree.log.since(seen));
            counts
        }
        None => Counts::new(tree, plan, wanted),
    };
    (counts, Loan(Some((shape, tree.log.end()))))
}

impl Loan {
    /// Puts the counts back without the changes of the search.
    pub(super) fn give_back(self, tree: &TopologyTree, mut counts: Counts) {
        let Some((shape, seen)) = self.0 else { return };
        counts.revert();
        tree.cache.put(KeptCounts { shape, counts, seen });
    }
}
