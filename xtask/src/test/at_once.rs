//! Work on several threads.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

/// Does `work` for each item, in order, for at most `most` at once.
pub(super) fn each<T: Send>(most: usize, items: Vec<T>, work: impl Fn(T) + Sync) {
    let left = Mutex::new(VecDeque::from(items));
    let take = || left.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
    std::thread::scope(|scope| {
        for _ in 0..most {
            scope.spawn(|| {
                while let Some(item) = take() {
                    work(item);
                }
            });
        }
    });
}
