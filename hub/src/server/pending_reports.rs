//! Reports of one session that replace each other: the newest waits for its turn, older ones are
//! dropped. Pure.
//!
//! A capacity report costs the dispatcher a pass over waiting workloads, an inventory a pass over
//! the cluster's workloads. An agent cannot raise that cost by sending more.

use std::time::Duration;

use switchyard_dispatcher::{Uid, Uids};
use switchyard_proto::v1::{Capacity, Observation, State};
use tokio::time::Instant;

/// Least time between two capacity reports. Agents leave 200 ms.
pub(super) const CAPACITY_EVERY: Duration = Duration::from_millis(100);
/// Least time between two inventories. Agents send one for each session.
pub(super) const INVENTORY_EVERY: Duration = Duration::from_secs(1);

/// The newest value, and when one was last passed on.
#[derive(Debug)]
struct Latest<T> {
    pending: Option<T>,
    passed: Option<Instant>,
    every: Duration,
}

impl<T> Latest<T> {
    fn new(every: Duration) -> Self {
        Self { pending: None, passed: None, every }
    }

    fn due(&self) -> Option<Instant> {
        self.pending.as_ref()?;
        // The first value does not wait.
        self.passed.map(|passed| passed + self.every)
    }

    fn take(&mut self, now: Instant) -> Option<T> {
        if self.passed.is_some_and(|passed| now < passed + self.every) {
            return None;
        }
        let pending = self.pending.take()?;
        self.passed = Some(now);
        Some(pending)
    }
}

/// Reports that the session has received and not passed on.
#[derive(Debug)]
pub(super) struct PendingReports {
    capacity: Latest<Capacity>,
    inventory: Latest<Uids>,
}

impl PendingReports {
    pub(super) fn new() -> Self {
        Self { capacity: Latest::new(CAPACITY_EVERY), inventory: Latest::new(INVENTORY_EVERY) }
    }

    pub(super) fn set_capacity(&mut self, capacity: Capacity) {
        self.capacity.pending = Some(capacity);
    }

    pub(super) fn set_inventory(&mut self, uids: Uids) {
        self.inventory.pending = Some(uids);
    }

    /// Observations overtake a waiting inventory. The workloads they name exist, so they join it.
    pub(super) fn add_observations(&mut self, observations: &[Observation]) {
        let Some(uids) = &mut self.inventory.pending else { return };
        let there = observations.iter().filter(|it| it.state() != State::Gone);
        uids.extend(there.map(|it| Uid::from(it.workload_uid.as_str())));
    }

    /// The capacity report, if it may be passed on now.
    pub(super) fn take_capacity(&mut self, now: Instant) -> Option<Capacity> {
        self.capacity.take(now)
    }

    /// The inventory, if it may be passed on now.
    pub(super) fn take_inventory(&mut self, now: Instant) -> Option<Uids> {
        self.inventory.take(now)
    }

    /// When the next report may be passed on. None if none waits.
    pub(super) fn due(&self) -> Option<Instant> {
        [self.capacity.due(), self.inventory.due()].into_iter().flatten().min()
    }
}

#[cfg(test)]
mod tests {
    use switchyard_proto::v1::QueueCapacity;

    use super::*;

    fn capacity(pending: u32) -> Capacity {
        Capacity {
            queues: vec![QueueCapacity { pending, ..QueueCapacity::default() }],
            ..Capacity::default()
        }
    }

    #[test]
    fn capacity_flood_passes_ten_a_second_newest_first() {
        let (mut pending, begin) = (PendingReports::new(), Instant::now());
        let mut passed = Vec::new();
        // 900 a second for ten seconds.
        for number in 0..9_000_u32 {
            pending.set_capacity(capacity(number));
            let now = begin + Duration::from_micros(u64::from(number) * 1_000_000 / 900);
            passed.extend(pending.take_capacity(now).map(|it| it.queues[0].pending));
        }
        assert!((99..=101).contains(&passed.len()), "{}", passed.len());
        assert!(
            passed.windows(2).all(|pair| pair[1] - pair[0] >= 90),
            "those between are dropped: {passed:?}"
        );
        assert_eq!(
            pending.take_capacity(begin + Duration::from_secs(11)).map(|it| it.queues[0].pending),
            Some(8_999)
        );
        assert_eq!(pending.due(), None);
    }

    #[test]
    fn inventory_flood_passes_one_a_second() {
        let (mut pending, begin) = (PendingReports::new(), Instant::now());
        let mut passed = 0;
        for number in 0..9_000_u64 {
            pending.set_inventory(Uids::from([Uid::from("a")]));
            passed += usize::from(
                pending.take_inventory(begin + Duration::from_millis(number * 10 / 9)).is_some(),
            );
        }
        assert_eq!(passed, 10);
    }

    #[test]
    fn waiting_inventory_includes_later_observations() {
        let (mut pending, begin) = (PendingReports::new(), Instant::now());
        pending.set_inventory(Uids::new());
        assert_eq!(pending.take_inventory(begin), Some(Uids::new()));
        pending.set_inventory(Uids::from([Uid::from("a")]));
        let said = |uid: &str, state: State| Observation {
            workload_uid: uid.into(),
            state: state.into(),
            ..Observation::default()
        };
        pending.add_observations(&[said("b", State::Running), said("c", State::Gone)]);
        assert_eq!(pending.take_inventory(begin), None);
        let both = Uids::from([Uid::from("a"), Uid::from("b")]);
        assert_eq!(pending.take_inventory(begin + INVENTORY_EVERY), Some(both));
    }
}
