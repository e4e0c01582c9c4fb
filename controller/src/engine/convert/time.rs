//! Converts between the engine's nanoseconds and wall-clock timestamps.

use jiff::Timestamp;

#[must_use]
pub fn engine_time(at: Timestamp) -> switchyard_scheduler::Time {
    // An i64 of nanoseconds ends in the year 2262. Later times become its maximum.
    switchyard_scheduler::Time(i64::try_from(at.as_nanosecond()).unwrap_or(i64::MAX))
}

#[must_use]
pub fn wall_time(at: switchyard_scheduler::Time) -> Timestamp {
    Timestamp::from_nanosecond(i128::from(at.0)).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn engine_time_survives_a_round_trip() {
        let at: Timestamp = "2026-11-21T10:00:00.123456789Z".parse().unwrap();
        assert_eq!(wall_time(engine_time(at)), at);
    }
}
