//! One cluster on its own: the controller in this process, with the rights that `deploy/` ships, on a real API server.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

mod bed;
#[path = "single/changes.rs"]
mod changes;
#[path = "single/order.rs"]
mod order;
#[path = "single/requests.rs"]
mod requests;
#[path = "single/stops.rs"]
mod stops;
#[path = "single/waiting.rs"]
mod waiting;
