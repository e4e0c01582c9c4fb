//! The agent's two neighbours, small: a hub that says what a test tells it to, and an API server with little in it.

mod api;
mod hub;

pub(crate) use api::api;
pub(crate) use hub::FakeHub;

use std::time::Duration;

/// No test waits longer for anything.
pub(crate) const DEADLINE: Duration = Duration::from_secs(20);

/// Waits for what must come.
pub(crate) async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(DEADLINE, future).await {
        Ok(value) => value,
        Err(_) => panic!("{what} did not come within {DEADLINE:?}"),
    }
}
