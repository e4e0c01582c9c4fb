//! The order of entries under fair sharing: at each Cohort, the child that would have the lowest share goes first.
//!
//! The winners are kept from one entry to the next. An entry changes usage on its own way up only, so finding the next
//! one costs as much as there are children along that way, not as much as there are entries.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry as Slot;

use super::nominate::Entry;
use crate::Gates;
use crate::tree::{NodeId, Share, Tree};

/// The entries of a cycle that are left, and who is ahead at each Cohort.
pub(super) struct Tournament {
    entries: Vec<Option<Entry>>,
    /// Before this one no entries are left.
    first: usize,
    at_queue: BTreeMap<NodeId, usize>,
    /// The roots whose contenders are known.
    known: BTreeMap<NodeId, Option<usize>>,
    /// By node: who is ahead below it.
    contenders: BTreeMap<NodeId, Contender>,
    /// The queue of the last entry, whose usage may have changed.
    last: Option<NodeId>,
    gates: Gates,
}

/// An entry at one node on its way up.
#[derive(Clone, Copy)]
struct Contender {
    number: usize,
    /// With the entry admitted, the node borrows some of what is asked for.
    borrows: bool,
    /// The node's share with the entry admitted.
    share: Share,
}

impl Tournament {
    pub(super) fn new(entries: Vec<Entry>, gates: Gates) -> Self {
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

    /// Takes out the entry to process next. Shares follow what was admitted before.
    pub(super) fn next(&mut self, tree: &mut Tree) -> Option<Entry> {
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

    /// The winner among the entries below `root`.
    fn winner(&mut self, tree: &mut Tree, root: NodeId) -> Option<usize> {
        if let Slot::Vacant(unknown) = self.known.entry(root) {
            unknown.insert(None);
            // Children before parents.
            for node in tree.subtree(root).into_iter().rev() {
                self.settle(tree, node);
            }
        }
        self.known.get(&root).copied().flatten()
    }

    /// An entry of this queue was processed: finds out anew who is ahead at the Cohorts above.
    fn update(&mut self, tree: &mut Tree, queue: NodeId) {
        for node in tree.path(queue) {
            self.settle(tree, node);
        }
    }

    /// Who is ahead at a node, once that is known of its children.
    fn settle(&mut self, tree: &mut Tree, node: NodeId) {
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

    fn best_below(&self, tree: &Tree, cohort: NodeId) -> Option<usize> {
        let mut best: Option<(Contender, &Entry)> = None;
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
    fn contender(&self, tree: &mut Tree, node: NodeId, number: usize) -> Option<Contender> {
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
    /// Whether one contender goes before another at the same Cohort: who others were told to go for, who does not borrow what it
    /// asks for, then the lower share, then priority, then age; the first two and priority where that counts.
    fn goes_before(&self, (a, entry): (Contender, &Entry), (b, best): (Contender, &Entry)) -> bool {
        let rank = |entry: &Entry| (Reverse(entry.priority_in(self.gates)), entry.queue_time);
        (best.is_preemptor.cmp(&entry.is_preemptor))
            .then_with(|| a.borrows.cmp(&b.borrows))
            .then_with(|| a.share.compare(&b.share))
            .then_with(|| rank(entry).cmp(&rank(best)))
            .is_lt()
    }
}
