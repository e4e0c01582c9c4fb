//! Pings to the hub, and the lease that their answers renew.
//!
//! At most one ping is unanswered. The lease counts from the *sending* of an answered ping. The hub
//! counts from the end of the session, which is later.

use std::time::Duration;

use switchyard_proto::v1::{Lease, Ping};

use crate::objects::Time;
use crate::session_error::SessionError;

/// Defaults for values that the hub omits or sets below [`FLOOR`].
const DEFAULT_LEASE: Duration = Duration::from_secs(30);
const DEFAULT_INTERVAL: Duration = Duration::from_secs(10);
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(5);
/// The lowest accepted value of each.
const FLOOR: Duration = Duration::from_millis(50);

#[derive(Debug)]
pub(crate) struct Heartbeat {
    lease: Duration,
    interval: Duration,
    timeout: Duration,
    nonce: u64,
    sent: Option<Time>,
    next: Time,
}

impl Heartbeat {
    pub(crate) fn new(lease: Option<Lease>, now: Time) -> Self {
        let lease = lease.unwrap_or_default();
        let or = |given: Option<prost_types::Duration>, default| {
            given
                .and_then(|given| Duration::try_from(given).ok())
                .filter(|it| *it >= FLOOR)
                .unwrap_or(default)
        };
        Self {
            lease: or(lease.duration, DEFAULT_LEASE),
            interval: or(lease.ping_interval, DEFAULT_INTERVAL),
            timeout: or(lease.ping_timeout, DEFAULT_TIMEOUT),
            nonce: 0,
            sent: None,
            next: now,
        }
    }

    /// The ping to send now, if one is due.
    pub(crate) fn ping(&mut self, now: Time) -> Option<Ping> {
        if self.sent.is_some() || now < self.next {
            return None;
        }
        self.nonce += 1;
        self.sent = Some(now);
        self.next = now + self.interval;
        Some(Ping { nonce: self.nonce, unable: false })
    }

    /// Returns the new end of the lease, if the nonce answers the current ping.
    pub(crate) fn pong(&mut self, nonce: u64) -> Option<Time> {
        if nonce != self.nonce {
            return None;
        }
        self.sent.take().map(|sent| sent + self.lease)
    }

    /// Checks the deadline.
    ///
    /// # Errors
    ///
    /// A ping is unanswered for too long, or could not be sent in time.
    pub(crate) fn check(&self, now: Time) -> Result<(), SessionError> {
        if now < self.deadline() { Ok(()) } else { Err(SessionError::PingTimeout(self.timeout)) }
    }

    /// When the session ends unless the hub answers, or takes the next ping.
    pub(crate) fn deadline(&self) -> Time {
        self.sent.unwrap_or(self.next) + self.timeout
    }

    pub(crate) fn wakeup(&self) -> Time {
        if self.sent.is_some() { self.deadline() } else { self.next }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(ms: u64) -> Time {
        Time::from_millis(ms)
    }

    fn heartbeat() -> Heartbeat {
        let lease = Lease {
            duration: Some(prost_types::Duration { seconds: 3, nanos: 0 }),
            ping_interval: Some(prost_types::Duration { seconds: 1, nanos: 0 }),
            ping_timeout: Some(prost_types::Duration { seconds: 0, nanos: 500_000_000 }),
        };
        Heartbeat::new(Some(lease), ms(0))
    }

    #[test]
    fn lease_counts_from_sending_of_ping() {
        let mut heartbeat = heartbeat();
        let ping = heartbeat.ping(ms(100)).unwrap();
        assert_eq!(heartbeat.ping(ms(200)), None, "one is out");
        assert_eq!(heartbeat.pong(ping.nonce + 1), None, "not ours");
        assert_eq!(heartbeat.pong(ping.nonce), Some(ms(3100)));
        assert_eq!(heartbeat.pong(ping.nonce), None, "answered already");
        assert_eq!(heartbeat.wakeup(), ms(1100));
        assert!(heartbeat.ping(ms(1099)).is_none() && heartbeat.ping(ms(1100)).is_some());
    }

    #[test]
    fn unanswered_ping_ends_session() {
        let mut heartbeat = heartbeat();
        heartbeat.ping(ms(0)).unwrap();
        assert_eq!(heartbeat.check(ms(499)), Ok(()));
        assert_eq!(heartbeat.check(ms(500)), Err(SessionError::PingTimeout(ms(500))));
    }

    #[test]
    fn unsent_ping_ends_session() {
        let mut heartbeat = heartbeat();
        let ping = heartbeat.ping(ms(0)).unwrap();
        assert!(heartbeat.pong(ping.nonce).is_some());
        assert_eq!((heartbeat.wakeup(), heartbeat.deadline()), (ms(1000), ms(1500)));
        assert_eq!(heartbeat.check(ms(1499)), Ok(()));
        assert!(heartbeat.check(ms(1500)).is_err());
    }

    #[test]
    fn invalid_lease_falls_back_to_defaults() {
        let zero = Some(prost_types::Duration { seconds: 0, nanos: 0 });
        let lease = Lease { duration: zero, ping_interval: zero, ping_timeout: zero };
        let heartbeat = Heartbeat::new(Some(lease), ms(0));
        assert_eq!((heartbeat.interval, heartbeat.timeout), (DEFAULT_INTERVAL, DEFAULT_TIMEOUT));
    }
}
