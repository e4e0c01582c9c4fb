//! The order of entries under fair sharing: at each Cohort the child with the lowest share goes
//! first. Kueue: `pkg/scheduler/fair_sharing_iterator.go`.
//!
//! The winners are kept from one entry to the next. An entry changes usage only on its own path. So
//! the next winner costs as many comparisons as that path has siblings, whatever the number of
//! entries.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry as Slot;

use super::nominate::CycleEntry;
use crate::EngineGates;
use crate::ids::NodeId;
use crate::tree::{QuotaTree, Share};

/// The remaining entries, and the winner at each Cohort.
pub(super) struct Tournament {
    entries: Vec<Option<CycleEntry>>,
    /// No entries are left before this index.
    first: usize,
    at_queue: BTreeMap<NodeId, usize>,
    /// The winner by root, for roots whose contenders are computed.
    known: BTreeMap<NodeId, Option<usize>>,
    /// The winner below each node.
    contenders: BTreeMap<NodeId, Contender>,
    /// The queue of the last entry. Its usage may have changed.
    last: Option<NodeId>,
    gates: EngineGates,
}

/// An entry as it counts at one node of its path.
#[derive(Clone, Copy)]
struct Contender {
    number: usize,
    /// With the entry admitted, the node borrows a requested resource.
    borrows: bool,
    /// With the entry admitted.
    share: Share,
}

impl Tournament {
    pub(super) fn new(entries: Vec<CycleEntry>, gates: EngineGates) -> Self {
        let at_queue =
            entries.iter().enumerate().map(|(number, entry)| (entry.cq, number)).collect();
        Self {
            entries: entries.into_iter().map(Some).collect(),
            first: 0,
            at_queue,
            known: BTreeMap::new(),
            contenders: BTreeMap::new(),
            last: None,
            gates,
        }
    }

    /// Removes and returns the next entry. Shares include the entries that were admitted before.
    pub(super) fn next(&mut self, tree: &mut QuotaTree) -> Option<CycleEntry> {
        if let Some(queue) = self.last.take() {
            self.update(tree, queue);
        }
        let first = loop {
            match self.entries.get(self.first)? {
                Some(entry) => break entry.cq,
                None => self.first += 1,
            }
        };
        let winner = match tree.root(first) {
            Some(root) if root != first => self.winner(tree, root)?,
            _ => self.first,
        };
        let entry = self.entries.get_mut(winner)?.take()?;
        self.at_queue.remove(&entry.cq);
        self.last = Some(entry.cq);
        Some(entry)
    }

    fn winner(&mut self, tree: &mut QuotaTree, root: NodeId) -> Option<usize> {
        if let Slot::Vacant(unknown) = self.known.entry(root) {
            unknown.insert(None);
            // Children before parents.
            for node in tree.subtree(root).into_iter().rev() {
                self.settle(tree, node);
            }
        }
        self.known.get(&root).copied().flatten()
    }

    /// Recomputes the winners on the path of a processed entry's queue.
    fn update(&mut self, tree: &mut QuotaTree, queue: NodeId) {
        for node in tree.path(queue) {
            self.settle(tree, node);
        }
    }

    /// Computes the winner at a node from the winners of its children.
    fn settle(&mut self, tree: &mut QuotaTree, node: NodeId) {
        let best = self.at_queue.get(&node).copied().or_else(|| self.best_below(tree, node));
        if let Some(winner) = self.known.get_mut(&node) {
            *winner = best;
            return;
        }
        match best.and_then(|best| self.contender(tree, node, best)) {
            Some(contender) => self.contenders.insert(node, contender),
            None => self.contenders.remove(&node),
        };
    }

    fn best_below(&self, tree: &QuotaTree, cohort: NodeId) -> Option<usize> {
        let mut best: Option<(Contender, &CycleEntry)> = None;
        for child in tree.children(cohort) {
            let Some(contender) = self.contenders.get(child) else { continue };
            let Some(entry) = self.entries.get(contender.number).and_then(Option::as_ref) else {
                continue;
            };
            if best.is_none_or(|best| self.goes_before((*contender, entry), best)) {
                best = Some((*contender, entry));
            }
        }
        best.map(|(contender, _)| contender.number)
    }

    /// An entry at a node, as if it were admitted.
    fn contender(&self, tree: &mut QuotaTree, node: NodeId, number: usize) -> Option<Contender> {
        let entry = self.entries.get(number)?.as_ref()?;
        for (fr, amount) in &entry.need {
            tree.shift(entry.cq, *fr, i128::from(amount.get()));
        }
        let borrows = self.gates.prioritize_non_borrowing && tree.borrows_of(node, &entry.need);
        let share = tree.share(node);
        for (fr, amount) in &entry.need {
            tree.shift(entry.cq, *fr, -i128::from(amount.get()));
        }
        Some(Contender { number, borrows, share })
    }
    /// Order of two contenders of one Cohort: preemptors first, then entries that do not borrow,
    /// then the lower share, then priority, then age. Gates switch the first two criteria and
    /// priority.
    fn goes_before(
        &self,
        (a, entry): (Contender, &CycleEntry),
        (b, best): (Contender, &CycleEntry),
    ) -> bool {
        let rank = |entry: &CycleEntry| (Reverse(entry.priority_in(self.gates)), entry.queue_time);
        (best.is_preemptor.cmp(&entry.is_preemptor))
            .then_with(|| a.borrows.cmp(&b.borrows))
            .then_with(|| a.share.compare(&b.share))
            .then_with(|| rank(entry).cmp(&rank(best)))
            .is_lt()
    }
}
