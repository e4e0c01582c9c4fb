//! Watches of kinds whose CRD may be installed later, or never.

use std::time::Duration;

use kube::runtime::{
    utils::Backoff,
    watcher::{DefaultBackoff, Error},
};
use tokio::time::Instant;

/// Upper bound of the time between the installation of a CRD and the start of its watch.
pub const MAX_CRD_WAIT: Duration = Duration::from_secs(10);

/// Whether a watch failed because the server does not serve the kind.
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

/// A failure after this long without one starts at the first delay again.
const RESET_AFTER: Duration = Duration::from_secs(120);

/// Delays between attempts of a watch: kube's, bounded by [`MAX_CRD_WAIT`].
///
/// kube's watcher resets its backoff before each list, even if the list then fails. So
/// [`Backoff::reset`] does nothing here, and only time without a failure resets the delays.
#[derive(Default)]
pub struct CrdBackoff {
    backoff: DefaultBackoff,
    last: Option<Instant>,
}

impl Iterator for CrdBackoff {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        let now = Instant::now();
        if self.last.replace(now).is_some_and(|last| now - last > RESET_AFTER) {
            self.backoff.reset();
        }
        self.backoff.next().map(|wait| wait.min(MAX_CRD_WAIT))
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
    fn only_404_means_unknown_kind() {
        assert!(is_unknown_kind(&Error::InitialListFailed(answer(404))));
        assert!(is_unknown_kind(&Error::WatchStartFailed(answer(404))));
        assert!(!is_unknown_kind(&Error::InitialListFailed(answer(503))));
        assert!(!is_unknown_kind(&Error::InitialListFailed(answer(403))));
        assert!(!is_unknown_kind(&Error::NoResourceVersion));
    }

    #[test]
    fn delays_stay_below_the_bound() {
        assert!(CrdBackoff::default().take(50).all(|wait| wait <= MAX_CRD_WAIT));
    }

    #[tokio::test(start_paused = true)]
    async fn delays_of_a_missing_kind_grow() {
        let mut patience = CrdBackoff::default();
        for _ in 0..10 {
            patience.reset();
            patience.next();
        }
        patience.reset();
        assert!(patience.next().is_some_and(|wait| wait > MAX_CRD_WAIT / 3));
        tokio::time::advance(RESET_AFTER * 2).await;
        assert!(patience.next().is_some_and(|wait| wait < MAX_CRD_WAIT / 3));
    }
}
