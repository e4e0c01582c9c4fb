//! The order of entries under fair sharing: at each Cohort, the child that would have the lowest share goes first.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::Engine;
use super::nominate::Entry;
use crate::tree::{NodeId, Share};

impl Engine {
    /// Takes out the entry to process next. Shares follow what was admitted before, so it is asked again each time.
    pub(super) fn next_by_share(&mut self, entries: &mut Vec<Entry>) -> Option<Entry> {
        let first = entries.first()?.cq;
        let winner = match self.tree.root(first) {
            Some(root) if root != first => self.tournament(root, entries)?,
            _ => 0,
        };
        Some(entries.remove(winner))
    }

    /// The winner among the entries below `root`.
    fn tournament(&mut self, root: NodeId, entries: &[Entry]) -> Option<usize> {
        let mut at_queue: BTreeMap<NodeId, usize> = BTreeMap::new();
        // By Cohort and entry: the share of the child through which the entry competes there.
        let mut shares: BTreeMap<(NodeId, usize), Share> = BTreeMap::new();
        for (number, entry) in entries.iter().enumerate() {
            if self.tree.root(entry.cq) == Some(root) {
                at_queue.insert(entry.cq, number);
                self.shares_with(entry, number, &mut shares);
            }
        }
        let mut winners = at_queue;
        // Children before parents.
        for cohort in self.tree.subtree(root).into_iter().rev() {
            let mut best: Option<usize> = None;
            for contender in self.tree.children(cohort).iter().filter_map(|child| winners.get(child).copied()) {
                let key = |number| shares.get(&(cohort, number)).zip(entries.get(number));
                if best.is_none_or(|best| goes_before(key(contender), key(best))) {
                    best = Some(contender);
                }
            }
            if let Some(best) = best {
                winners.insert(cohort, best);
            }
        }
        winners.get(&root).copied()
    }

    /// The shares of an entry's queue and of the Cohorts above it as if it were admitted.
    fn shares_with(&mut self, entry: &Entry, number: usize, shares: &mut BTreeMap<(NodeId, usize), Share>) {
        for (fr, amount) in &entry.assignment.usage {
            self.tree.shift(entry.cq, *fr, i128::from(amount.get()));
        }
        let path = self.tree.path(entry.cq);
        for (child, cohort) in path.iter().zip(path.iter().skip(1)) {
            shares.insert((*cohort, number), self.tree.share(*child));
        }
        for (fr, amount) in &entry.assignment.usage {
            self.tree.shift(entry.cq, *fr, -i128::from(amount.get()));
        }
    }
}

/// Whether one contender goes before another at the same Cohort: who does not borrow what it asks for, then the lower
/// share, then priority, then age.
fn goes_before(one: Option<(&Share, &Entry)>, other: Option<(&Share, &Entry)>) -> bool {
    let Some(((a, entry), (b, best))) = one.zip(other) else { return false };
    let rank = |entry: &Entry| (Reverse(entry.class.priority), entry.queue_time);
    (a.is_borrowing_of(&entry.assignment.usage))
        .cmp(&b.is_borrowing_of(&best.assignment.usage))
        .then_with(|| a.compare(b))
        .then_with(|| rank(entry).cmp(&rank(best)))
        .is_lt()
}
