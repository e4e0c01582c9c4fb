//! One cluster's admission around the quota engine: watches become events, decisions become writes.
//!
//! - [`start`] gives a [`Handle`] to a program that embeds a controller (the hub, the worker
//!   agent). [`run`] runs one to its end.
//! - [`engine`]: converts objects to events of the engine and its decisions to writes.
//! - `reconcilers`: everything else that is done about one object at a time, see
//!   `reconcilers/mod.rs`.
//! - [`stores`]: the watched objects. [`workload`]: what a Workload's conditions say, and changes
//!   of its status.
//! - `webhook`, `visibility`, `http`: the servers. [`metrics`] and `gauges`: what `/metrics` shows.

mod audit;
pub mod context;
mod endpoint;
pub mod engine;
pub mod event_conventions;
#[cfg(test)]
mod fixtures;
pub mod flags;
mod gauges;
mod handle;
pub mod http;
pub mod metrics;
mod options;
mod reconcilers;
mod role;
pub mod stores;
mod visibility;
pub mod webhook;
pub mod workload;

pub use context::Context;
pub use endpoint::Endpoint;
pub use engine::placement::{Placement, Reservation};
pub use handle::{Handle, run, start};
pub use options::{LeaderMode, Options};
pub use reconcilers::job::finished_note;
pub use role::Role;
