//! A worker cluster's side of the protocol.
//!
//! The `core` keeps what the hub desires beside what the cluster has (the ledger, pure) and makes the one into the other (the executor).
//! Around it stand the session with the hub and the identity it needs; the admission controller of the worker runs in
//! the same process.

pub mod capacity;
mod backoff;
pub mod core;
pub mod enrol;
mod executor;
mod heartbeat;
pub mod identity;
pub mod ledger;
pub mod link;
pub mod session;
pub mod tls;

pub use crate::core::{AllowedNamespaces, CapacitySource, Settings, run_core};
pub use crate::link::{HubEnd, Link, Links};
