//! Whether what ClusterQueues show is what their workloads held: the revisions of the store put both into one order.
//!
//! A status is written a moment after what it tells of, and tells of quota that is given a moment before that is written.
//! So it is held against every moment from the status before it to the status after it. Several writes on their way
//! at once may have another order than the decisions. A few statuses may then show a moment that the API never showed.

use std::collections::BTreeMap;

/// Quota held, in thousandths of a CPU, and by how many workloads.
type Sum = (i64, i32);

/// Events by revision.
#[derive(Debug, Default)]
pub(crate) struct Agreement {
    /// After each change of a workload, what the workloads hold of each queue.
    sums: BTreeMap<u64, BTreeMap<String, Sum>>,
    /// By queue, what it showed.
    shown: BTreeMap<String, BTreeMap<u64, Sum>>,
}

impl Agreement {
    pub(crate) fn held(&mut self, revision: u64, sums: BTreeMap<String, Sum>) {
        self.sums.insert(revision, sums);
    }

    pub(crate) fn shown(&mut self, revision: u64, queue: &str, sum: Sum) {
        self.shown.entry(queue.to_owned()).or_default().insert(revision, sum);
    }

    /// Events of another watch.
    pub(crate) fn join(&mut self, other: Self) {
        self.sums.extend(other.sums);
        self.shown.extend(other.shown);
    }

    /// How many statuses there were, and those that tell of no moment that there was.
    pub(crate) fn judged(&self) -> (usize, Vec<String>) {
        let (mut count, mut wrong) = (0, Vec::new());
        for (queue, statuses) in &self.shown {
            for (revision, shown) in statuses {
                let before =
                    statuses.range(..revision).next_back().map_or(0, |(revision, _)| *revision);
                let after = statuses
                    .range(revision + 1..)
                    .next()
                    .map_or(u64::MAX, |(revision, _)| *revision);
                count += 1;
                let moments = self.moments(queue, before, after);
                if !moments.contains(shown) {
                    wrong.push(format!(
                        "{queue} at {revision} shows {shown:?}, its workloads held {moments:?}"
                    ));
                }
            }
        }
        (count, wrong)
    }

    /// The amounts that workloads held of a queue, from one revision to another.
    fn moments(&self, queue: &str, from: u64, to: u64) -> Vec<Sum> {
        let sum = |sums: &BTreeMap<String, Sum>| sums.get(queue).copied().unwrap_or_default();
        let first =
            self.sums.range(..=from).next_back().map(|(_, sums)| sum(sums)).unwrap_or_default();
        let mut moments = vec![first];
        moments.extend(self.sums.range(from..to).map(|(_, sums)| sum(sums)));
        moments.dedup();
        moments
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_tells_of_a_moment_between_its_neighbours() {
        let mut all = Agreement::default();
        for (revision, sum) in [(10, (1, 1)), (20, (2, 2)), (30, (1, 1))] {
            all.held(revision, BTreeMap::from([("q".to_owned(), sum)]));
        }
        all.shown(5, "q", (0, 0));
        all.shown(15, "q", (1, 1));
        // Before it was written.
        all.shown(18, "q", (2, 2));
        all.shown(40, "q", (1, 1));
        assert_eq!(all.judged(), (4, Vec::new()));
        all.shown(50, "q", (2, 2));
        let (count, wrong) = all.judged();
        assert_eq!((count, wrong.len()), (5, 1), "{wrong:?}");
        assert_eq!(wrong[0], "q at 50 shows (2, 2), its workloads held [(1, 1)]");
    }
}
