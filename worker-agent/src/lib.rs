//! A worker cluster's side of the protocol.
//!
//! [`core`] keeps what the hub desires beside what the cluster has ([`switchyard_ledger`], pure) and makes the one into the other.
//! Around it stand the [`session`] with the hub and the [`identity`] that it needs; [`run`] puts them into one process
//! with the cluster's admission controller.

pub mod admissions;
pub mod allow;
pub mod args;
mod backoff;
pub mod capacity;
mod clock;
pub mod core;
pub mod enrol;
mod executor;
pub mod foreign;
mod health;
mod heartbeat;
pub mod identity;
pub mod join;
mod keyring;
pub mod link;
pub mod memory;
mod place;
pub mod proof;
pub mod route;
mod run;
pub mod session;
pub mod talk;
#[cfg(test)]
mod testing;
pub mod tls;
mod trouble;

pub use crate::allow::Allowed;
pub use crate::args::Args;
pub use switchyard_ledger::AllowedNamespaces;

pub use crate::core::{CapacitySource, Settings, run_core, run_core_with};
pub use crate::executor::DryRunCounts;
pub use crate::link::{HubEnd, Link, Links};
pub use crate::place::cluster_uid;
pub use crate::run::{Options, SOFTWARE, run};
