//! Reports of one session that replace each other: the newest waits for its turn, older ones are dropped. Pure.
//!
//! The dispatcher looks through what waits at each report of capacity, and through what a cluster has at each inventory.
//! An agent cannot make it do so more often by sending more.

use std::time::Duration;

use switchyard_dispatcher::{Uid, Uids};
use switchyard_proto::v1::{Capacity, Observation, State};
use tokio::time::Instant;

/// The least time between two reports of capacity. Agents leave 200 ms.
pub(super) const CAPACITY_EVERY: Duration = Duration::from_millis(100);
/// The least time between two inventories. Agents send one in a session.
pub(super) const INVENTORY_EVERY: Duration = Duration::from_secs(1);

/// The newest value, and when the last one was passed on.
#[derive(Debug)]
struct Slot<T> {
    newest: Option<T>,
    passed: Option<Instant>,
    every: Duration,
}

impl<T> Slot<T> {
    fn new(every: Duration) -> Self {
        Self { newest: None, passed: None, every }
    }

    fn due(&self) -> Option<Instant> {
        self.newest.as_ref()?;
        // Before the first one nothing waits.
        self.passed.map(|passed| passed + self.every)
    }

    fn take(&mut self, now: Instant) -> Option<T> {
        if self.passed.is_some_and(|passed| now < passed + self.every) {
            return None;
        }
        let newest = self.newest.take()?;
        self.passed = Some(now);
        Some(newest)
    }
}

/// What one session's reader has heard and not passed on yet.
#[derive(Debug)]
pub(super) struct Newest {
    capacity: Slot<Capacity>,
    inventory: Slot<Uids>,
}

impl Newest {
    pub(super) fn new() -> Self {
        Self { capacity: Slot::new(CAPACITY_EVERY), inventory: Slot::new(INVENTORY_EVERY) }
    }

    /// A report of capacity has come.
    pub(super) fn hear_capacity(&mut self, capacity: Capacity) {
        self.capacity.newest = Some(capacity);
    }

    /// An inventory has come to its end.
    pub(super) fn hear_inventory(&mut self, uids: Uids) {
        self.inventory.newest = Some(uids);
    }

    /// Observations pass an inventory that waits: what they name exists, so the inventory names it too.
    pub(super) fn hear_observations(&mut self, observations: &[Observation]) {
        let Some(uids) = &mut self.inventory.newest else { return };
        let there = observations.iter().filter(|it| it.state() != State::Gone);
        uids.extend(there.map(|it| Uid::from(it.workload_uid.as_str())));
    }

    /// The report of capacity that may be passed on now.
    pub(super) fn take_capacity(&mut self, now: Instant) -> Option<Capacity> {
        self.capacity.take(now)
    }

    /// The inventory that may be passed on now.
    pub(super) fn take_inventory(&mut self, now: Instant) -> Option<Uids> {
        self.inventory.take(now)
    }

    /// When the next one may be passed on; none while none waits.
    pub(super) fn due(&self) -> Option<Instant> {
        [self.capacity.due(), self.inventory.due()].into_iter().flatten().min()
    }
}

#[cfg(test)]
mod tests {
    use switchyard_proto::v1::QueueCapacity;

    use super::*;

    fn capacity(pending: u32) -> Capacity {
        Capacity { queues: vec![QueueCapacity { pending, ..QueueCapacity::default() }] }
    }

    #[test]
    fn capacity_flood_passes_ten_a_second_newest_first() {
        let (mut newest, begin) = (Newest::new(), Instant::now());
        let mut passed = Vec::new();
        // 900 a second for ten seconds, with two values in turn.
        for number in 0..9_000_u32 {
            newest.hear_capacity(capacity(number));
            let now = begin + Duration::from_micros(u64::from(number) * 1_000_000 / 900);
            passed.extend(newest.take_capacity(now).map(|it| it.queues[0].pending));
        }
        assert!((99..=101).contains(&passed.len()), "{}", passed.len());
        assert!(
            passed.windows(2).all(|pair| pair[1] - pair[0] >= 90),
            "those between are dropped: {passed:?}"
        );
        assert_eq!(
            newest.take_capacity(begin + Duration::from_secs(11)).map(|it| it.queues[0].pending),
            Some(8_999)
        );
        assert_eq!(newest.due(), None);
    }

    #[test]
    fn inventory_flood_passes_one_a_second() {
        let (mut newest, begin) = (Newest::new(), Instant::now());
        let mut passed = 0;
        for number in 0..9_000_u64 {
            newest.hear_inventory(Uids::from([Uid::from("a")]));
            passed += usize::from(
                newest.take_inventory(begin + Duration::from_millis(number * 10 / 9)).is_some(),
            );
        }
        assert_eq!(passed, 10);
    }

    #[test]
    fn waiting_inventory_names_what_was_observed_since() {
        let (mut newest, begin) = (Newest::new(), Instant::now());
        newest.hear_inventory(Uids::new());
        assert_eq!(newest.take_inventory(begin), Some(Uids::new()));
        newest.hear_inventory(Uids::from([Uid::from("a")]));
        let said = |uid: &str, state: State| Observation {
            workload_uid: uid.into(),
            state: state.into(),
            ..Observation::default()
        };
        newest.hear_observations(&[said("b", State::Running), said("c", State::Gone)]);
        assert_eq!(newest.take_inventory(begin), None);
        let both = Uids::from([Uid::from("a"), Uid::from("b")]);
        assert_eq!(newest.take_inventory(begin + INVENTORY_EVERY), Some(both));
    }
}
