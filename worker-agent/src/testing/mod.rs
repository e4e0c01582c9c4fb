//! Small stand-ins for the agent's two neighbours: a scripted hub and an API server.

mod api;
mod hub;

pub(crate) use api::api;
pub(crate) use hub::{FakeHub, tls};

use std::time::Duration;

/// The deadline of every wait of a test.
pub(crate) const DEADLINE: Duration = Duration::from_secs(20);

/// Waits for a result that must come.
pub(crate) async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(DEADLINE, future).await {
        Ok(value) => value,
        Err(_) => panic!("{what} did not come within {DEADLINE:?}"),
    }
}
