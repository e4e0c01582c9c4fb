//! Shares of ClusterQueues under fair sharing. As in Kueue, the last share of a deleted queue
//! stays.

use std::collections::BTreeMap;

use parking_lot::Mutex;

use super::{Families, Gauges};

/// Deleted queues whose shares are kept.
const KEPT: usize = 1_000;

/// Cohort and share.
type Share = (String, f64);

#[derive(Default)]
pub(crate) struct LastShares(Mutex<BTreeMap<String, Share>>);

impl LastShares {
    /// The current shares, with those of deleted queues.
    fn update(&self, mut now: BTreeMap<String, Share>) -> BTreeMap<String, Share> {
        let mut last = self.0.lock();
        let gone: Vec<_> = std::mem::take(&mut *last)
            .into_iter()
            .filter(|(name, _)| !now.contains_key(name))
            .collect();
        now.extend(gone.into_iter().take(KEPT));
        last.clone_from(&now);
        now
    }
}

pub(super) fn add(gauges: &Gauges, families: &mut Families, role: &str) {
    if !gauges.resources || !gauges.fair {
        return;
    }
    let share =
        |(name, figures): (String, std::sync::Arc<crate::engine::views::ClusterQueueFigures>)| {
            let queue = gauges.stores.cluster_queues.get("", &name);
            let cohort = queue.and_then(|queue| queue.spec.cohort_name.clone()).unwrap_or_default();
            // As in Kueue: a queue of weight zero that borrows has no number.
            let share =
                if figures.precise_share.is_finite() { figures.precise_share } else { f64::NAN };
            (name, (cohort, share))
        };
    let now = gauges.views.cluster_queues().into_iter().map(share).collect();
    for (name, (cohort, share)) in gauges.shares.update(now) {
        let labels =
            vec![("cluster_queue", name), ("cohort", cohort), ("replica_role", role.to_owned())];
        families.add(
            "kueue_cluster_queue_weighted_share",
            "Share of what could be lent, by weight",
            labels,
            share,
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shares(all: &[(&str, f64)]) -> BTreeMap<String, Share> {
        all.iter().map(|(name, share)| ((*name).to_owned(), (String::new(), *share))).collect()
    }

    #[test]
    fn deleted_queue_keeps_its_last_share() {
        let last = LastShares::default();
        assert_eq!(
            last.update(shares(&[("a", 1.0), ("b", 2.0)])),
            shares(&[("a", 1.0), ("b", 2.0)])
        );
        assert_eq!(last.update(shares(&[("a", 3.0)])), shares(&[("a", 3.0), ("b", 2.0)]));
        assert_eq!(last.update(shares(&[("b", 4.0)])), shares(&[("a", 3.0), ("b", 4.0)]));
    }

    #[test]
    fn shares_of_deleted_queues_are_bounded() {
        let last = LastShares::default();
        let many: BTreeMap<String, Share> =
            (0..2 * KEPT).map(|n| (n.to_string(), (String::new(), 0.0))).collect();
        assert_eq!(last.update(many).len(), 2 * KEPT);
        assert_eq!(last.update(shares(&[("a", 1.0)])).len(), KEPT + 1);
    }
}
