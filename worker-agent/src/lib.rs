//! The agent of a worker cluster.
//!
//! [`core`] owns the pure state machine [`switchyard_ledger::Ledger`] and performs its actions. The
//! [`session`] connects it to the hub, with the [`identity`] of the cluster. [`run`] runs both in
//! one process with the cluster's admission controller.

pub mod admissions;
pub mod allow;
pub mod args;
pub mod capacity;
mod clock;
mod cluster_uid;
pub mod core;
mod dial;
mod dry_run_counts;
pub mod enrol;
mod executor;
pub mod foreign;
mod health;
mod hub_address;
pub mod identity;
pub mod join;
mod keyring;
pub mod link;
pub mod memory;
pub mod proof;
pub mod proxy;
mod reconnect_delay;
pub mod route;
mod run;
pub mod session;
mod settings;
pub mod signing;
#[cfg(test)]
mod testing;
pub mod tls;
mod trouble;

pub use switchyard_ledger::AllowedNamespaces;

pub use crate::allow::Allowed;
pub use crate::args::Args;
pub use crate::capacity::CapacitySource;
pub use crate::cluster_uid::cluster_uid;
pub use crate::core::{run_core, run_core_with};
pub use crate::dry_run_counts::DryRunCounts;
pub use crate::hub_address::HubAddress;
pub use crate::link::{HubEnd, Link, Links};
pub use crate::run::{Options, SOFTWARE, run};
pub use crate::settings::Settings;
