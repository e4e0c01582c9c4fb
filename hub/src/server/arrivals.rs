//! How often a cluster may begin a session. Pure.
//!
//! At each begin and end the dispatcher looks through what the cluster has and what waits for a cluster.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

/// Sessions of all clusters.
#[derive(Debug)]
pub(super) struct Arrivals {
    /// Sessions that a cluster may begin at once.
    burst: u32,
    /// After which time it may begin one more.
    every: Duration,
    /// When each cluster would have begun its sessions if it had left that time between them. Only times to come.
    paced: BTreeMap<String, Instant>,
}

impl Arrivals {
    pub(super) fn new(burst: u32, every: Duration) -> Self {
        Self { burst: burst.max(1), every, paced: BTreeMap::new() }
    }

    /// Whether a cluster may begin a session now; if not, after which time it may.
    pub(super) fn admit(&mut self, cluster: &str, now: Instant) -> Result<(), Duration> {
        // What is over is forgotten, so that there are no more than clusters that have begun one lately.
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
    fn sessions_of_one_cluster_are_paced_and_others_pass() {
        let (mut arrivals, begin) = (Arrivals::new(8, Duration::from_secs(2)), Instant::now());
        let mut begun = 0;
        // A thousand a second for a minute.
        for number in 0..60_000 {
            let now = begin + Duration::from_millis(number);
            begun += u32::from(arrivals.admit("flood", now).is_ok());
        }
        assert_eq!(begun, 8 + 29);
        let now = begin + Duration::from_secs(60);
        assert!(arrivals.admit("honest", now).is_ok());
        assert_eq!(arrivals.paced.len(), 2);
        assert!(arrivals.admit("honest", now + Duration::from_secs(600)).is_ok());
        assert_eq!(arrivals.paced.len(), 1, "the flood is forgotten once it is over");
    }

    #[test]
    fn refused_cluster_is_told_how_long_to_wait() {
        let (mut arrivals, now) = (Arrivals::new(1, Duration::from_secs(2)), Instant::now());
        assert_eq!(arrivals.admit("west", now), Ok(()));
        let wait = arrivals.admit("west", now + Duration::from_millis(500)).unwrap_err();
        assert_eq!(wait, Duration::from_millis(1500));
        assert_eq!(arrivals.admit("west", now + Duration::from_secs(2)), Ok(()));
    }
}
