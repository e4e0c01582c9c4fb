//! How often mere figures are written.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

use switchyard_platform::{store::Key, work_queue::turns};

/// Between two writes of one object that differ in figures only.
const EVERY: Duration = Duration::from_secs(1);
/// With many objects whose figures change, about so many such writes a second are made of a kind,
const A_SECOND: u32 = 5;
/// but each may be written this often, however many there are.
const AT_LATEST: Duration = Duration::from_secs(15);

/// When each object was written last.
#[derive(Debug, Default)]
pub(super) struct Pace(Mutex<Written>);

#[derive(Debug, Default)]
struct Written {
    last: BTreeMap<Key, Instant>,
    // Those of the last `AT_LATEST`, the oldest first.
    lately: BTreeSet<(Instant, Key)>,
}

impl Pace {
    /// How long figures of this object must still wait; none: write now.
    pub(super) fn wait(&self, key: &Key) -> Option<Duration> {
        let written = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let last = *written.last.get(key)?;
        let every = turns(written.lately.len(), A_SECOND, (EVERY, AT_LATEST));
        let left = (last + every).saturating_duration_since(Instant::now());
        (!left.is_zero()).then_some(left)
    }

    /// It was written now.
    pub(super) fn written(&self, key: Key) {
        let (now, mut written) =
            (Instant::now(), self.0.lock().unwrap_or_else(PoisonError::into_inner));
        if let Some(before) = written.last.insert(key.clone(), now) {
            written.lately.remove(&(before, key.clone()));
        }
        written.lately.insert((now, key));
        while written.lately.first().is_some_and(|(at, _)| *at + AT_LATEST <= now) {
            written.lately.pop_first();
        }
    }

    /// It is gone.
    pub(super) fn forget(&self, key: &Key) {
        let mut written = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(last) = written.last.remove(key) {
            written.lately.remove(&(last, key.clone()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_first_write_is_at_once_and_the_next_a_second_later() {
        let (pace, key) = (Pace::default(), Key::new("", "cq"));
        assert_eq!(pace.wait(&key), None);
        pace.written(key.clone());
        assert_eq!(pace.wait(&key), Some(EVERY));
        tokio::time::advance(EVERY).await;
        assert_eq!(pace.wait(&key), None);
    }

    #[tokio::test(start_paused = true)]
    async fn many_objects_share_a_number_of_writes_a_second() {
        let pace = Pace::default();
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
