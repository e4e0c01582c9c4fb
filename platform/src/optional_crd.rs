//! Kinds that the cluster may not know yet. Their watches wait for the CRD: it may be installed at any time.

use std::time::Duration;

use kube::runtime::{
    utils::Backoff,
    watcher::{DefaultBackoff, Error},
};
use tokio::time::Instant;

/// How long after its CRD was installed a kind is noticed at the latest.
pub const NOTICED_WITHIN: Duration = Duration::from_secs(10);

/// Whether a watch failed because the server knows no such kind.
///
/// A server that has not yet read its CRDs answers 503, not 404.
#[must_use]
pub fn is_unknown_kind(error: &Error) -> bool {
    match error {
        Error::InitialListFailed(kube::Error::Api(status))
        | Error::WatchStartFailed(kube::Error::Api(status)) => status.code == 404,
        _ => false,
    }
}

/// After so long without a failure, the next one is the first again.
const FORGIVEN_AFTER: Duration = Duration::from_secs(120);

/// Between the tries of a watch: as usual, but never longer than [`NOTICED_WITHIN`].
///
/// A watcher says that it begins before each list, which is no success: what ends the waiting is time without a failure.
#[derive(Default)]
pub struct CrdBackoff {
    backoff: DefaultBackoff,
    last: Option<Instant>,
}

impl Iterator for CrdBackoff {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        let now = Instant::now();
        if self.last.replace(now).is_some_and(|last| now - last > FORGIVEN_AFTER) {
            self.backoff.reset();
        }
        self.backoff.next().map(|wait| wait.min(NOTICED_WITHIN))
    }
}

impl Backoff for CrdBackoff {
    fn reset(&mut self) {}
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    fn answer(code: u16) -> kube::Error {
        kube::Error::Api(Box::new(Status { code, ..Status::failure("no", "") }))
    }

    #[test]
    fn only_a_404_says_that_there_is_no_such_kind() {
        assert!(is_unknown_kind(&Error::InitialListFailed(answer(404))));
        assert!(is_unknown_kind(&Error::WatchStartFailed(answer(404))));
        assert!(!is_unknown_kind(&Error::InitialListFailed(answer(503))));
        assert!(!is_unknown_kind(&Error::InitialListFailed(answer(403))));
        assert!(!is_unknown_kind(&Error::NoResourceVersion));
    }

    #[test]
    fn no_wait_is_longer_than_promised() {
        assert!(CrdBackoff::default().take(50).all(|wait| wait <= NOTICED_WITHIN));
    }

    #[tokio::test(start_paused = true)]
    async fn a_kind_that_stays_away_is_asked_for_less_and_less() {
        let mut patience = CrdBackoff::default();
        for _ in 0..10 {
            patience.reset();
            patience.next();
        }
        patience.reset();
        assert!(patience.next().is_some_and(|wait| wait > NOTICED_WITHIN / 3));
        tokio::time::advance(FORGIVEN_AFTER * 2).await;
        assert!(patience.next().is_some_and(|wait| wait < NOTICED_WITHIN / 3));
    }
}
