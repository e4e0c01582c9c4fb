//! How often mere figures are written.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

use crate::store::Key;

/// Between two writes of one object that differ in figures only.
const EVERY: Duration = Duration::from_secs(1);

/// When each object was written last.
#[derive(Debug, Default)]
pub(super) struct Pace(Mutex<BTreeMap<Key, Instant>>);

impl Pace {
    /// How long figures of this object must still wait; none: write now.
    pub(super) fn wait(&self, key: &Key) -> Option<Duration> {
        let last = *self.0.lock().unwrap_or_else(PoisonError::into_inner).get(key)?;
        let left = (last + EVERY).saturating_duration_since(Instant::now());
        (!left.is_zero()).then_some(left)
    }

    /// It was written now.
    pub(super) fn written(&self, key: Key) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(key, Instant::now());
    }

    /// It is gone.
    pub(super) fn forget(&self, key: &Key) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(key);
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
}
