//! What the cluster could take, seen through each LocalQueue.

mod compute;
mod embedded;
mod watch;

pub use compute::{Snapshot, compute};
pub use embedded::from_controller;
pub(crate) use watch::watch;
