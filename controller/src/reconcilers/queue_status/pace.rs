//! Intervals between writes of figures.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use parking_lot::Mutex;
use tokio::time::Instant;

use switchyard_platform::{store::Key, work_queue::fair_interval};

/// Minimum interval between two such writes of one object.
const EVERY: Duration = Duration::from_secs(1);
/// Rate of such writes of all objects of a kind, if many change.
const A_SECOND: u32 = 5;
/// Maximum of that interval, however many change.
const AT_LATEST: Duration = Duration::from_secs(15);

/// Time of each object's last write.
#[derive(Debug, Default)]
pub(super) struct FigurePace(Mutex<WriteTimes>);

#[derive(Debug, Default)]
struct WriteTimes {
    last: BTreeMap<Key, Instant>,
    // Writes of the last `AT_LATEST`, oldest first.
    lately: BTreeSet<(Instant, Key)>,
}

impl FigurePace {
    /// How long figures of this object must still wait. `None`: write now.
    pub(super) fn wait(&self, key: &Key) -> Option<Duration> {
        let written = self.0.lock();
        let last = *written.last.get(key)?;
        let every = fair_interval(written.lately.len(), A_SECOND, (EVERY, AT_LATEST));
        let left = (last + every).saturating_duration_since(Instant::now());
        (!left.is_zero()).then_some(left)
    }

    /// Records a write of this object.
    pub(super) fn written(&self, key: Key) {
        let (now, mut written) = (Instant::now(), self.0.lock());
        if let Some(before) = written.last.insert(key.clone(), now) {
            written.lately.remove(&(before, key.clone()));
        }
        written.lately.insert((now, key));
        while written.lately.first().is_some_and(|(at, _)| *at + AT_LATEST <= now) {
            written.lately.pop_first();
        }
    }

    /// Removes a deleted object.
    pub(super) fn forget(&self, key: &Key) {
        let mut written = self.0.lock();
        if let Some(last) = written.last.remove(key) {
            written.lately.remove(&(last, key.clone()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn first_write_is_immediate_and_next_a_second_later() {
        let (pace, key) = (FigurePace::default(), Key::new("", "cq"));
        assert_eq!(pace.wait(&key), None);
        pace.written(key.clone());
        assert_eq!(pace.wait(&key), Some(EVERY));
        tokio::time::advance(EVERY).await;
        assert_eq!(pace.wait(&key), None);
    }

    #[tokio::test(start_paused = true)]
    async fn many_objects_share_the_write_rate() {
        let pace = FigurePace::default();
        let keys: Vec<Key> =
            (0..1000).map(|number| Key::new("", &format!("cq-{number}"))).collect();
        for key in &keys[..50] {
            pace.written(key.clone());
        }
        assert_eq!(pace.wait(&keys[0]), Some(Duration::from_secs(10)));
        for key in &keys[50..] {
            pace.written(key.clone());
        }
        assert_eq!(pace.wait(&keys[0]), Some(AT_LATEST));
        tokio::time::advance(AT_LATEST).await;
        pace.written(keys[1].clone());
        pace.forget(&keys[2]);
        assert_eq!(pace.wait(&keys[1]), Some(EVERY), "the others have not changed since");
        assert_eq!(pace.wait(&keys[2]), None);
    }
}
