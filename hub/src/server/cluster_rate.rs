//! How often a cluster may start a session, or call the enrolment service. Pure.
//!
//! Each start and end of a session costs the dispatcher a pass over the cluster's workloads and the
//! waiting ones. Each call costs a signature or a read.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

#[derive(Debug)]
pub(super) struct ClusterRateLimiter {
    /// Actions of a cluster in a burst.
    burst: u32,
    /// Time after which a cluster may act once more.
    every: Duration,
    /// When each cluster would have acted, had it left `every` between its actions. Past times are
    /// dropped.
    paced: BTreeMap<String, Instant>,
}

impl ClusterRateLimiter {
    pub(super) fn new(burst: u32, every: Duration) -> Self {
        Self { burst: burst.max(1), every, paced: BTreeMap::new() }
    }

    /// Whether a cluster may act now. The error is the time to wait.
    pub(super) fn admit(&mut self, cluster: &str, now: Instant) -> Result<(), Duration> {
        // Dropping past times bounds the map by the clusters that acted lately.
        self.paced.retain(|_, paced| *paced > now);
        let paced = self.paced.get(cluster).copied().unwrap_or(now);
        let ahead = paced.saturating_duration_since(now);
        let most = self.every * (self.burst - 1);
        if ahead > most {
            return Err(ahead - most);
        }
        self.paced.insert(cluster.to_owned(), paced + self.every);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn session_rate_is_limited_by_cluster() {
        let (mut limiter, begin) =
            (ClusterRateLimiter::new(8, Duration::from_secs(2)), Instant::now());
        let mut begun = 0;
        // A thousand a second for a minute.
        for number in 0..60_000 {
            let now = begin + Duration::from_millis(number);
            begun += u32::from(limiter.admit("flood", now).is_ok());
        }
        assert_eq!(begun, 8 + 29);
        let now = begin + Duration::from_secs(60);
        assert!(limiter.admit("honest", now).is_ok());
        assert_eq!(limiter.paced.len(), 2);
        assert!(limiter.admit("honest", now + Duration::from_secs(600)).is_ok());
        assert_eq!(limiter.paced.len(), 1, "the flood is forgotten once it is over");
    }

    #[test]
    fn refused_session_returns_the_wait() {
        let (mut limiter, now) =
            (ClusterRateLimiter::new(1, Duration::from_secs(2)), Instant::now());
        assert_eq!(limiter.admit("west", now), Ok(()));
        let wait = limiter.admit("west", now + Duration::from_millis(500)).unwrap_err();
        assert_eq!(wait, Duration::from_millis(1500));
        assert_eq!(limiter.admit("west", now + Duration::from_secs(2)), Ok(()));
    }
}
