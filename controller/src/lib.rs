//! One cluster's admission around the quota engine: watches become events, decisions become writes.
//!
//! [`start`] gives a [`Handle`] to those who embed a controller (the hub, the worker agent); [`run`] runs one to its end.

pub mod admit;
mod audit;
pub mod awaited;
pub mod capacity;
pub mod cause;
pub mod cert;
mod chains;
pub mod clock;
pub mod components;
pub mod context;
mod delegated;
mod elastic;
pub mod engine_task;
pub mod events;
mod failure_recovery;
#[cfg(test)]
mod fixtures;
pub mod flags;
mod handle;
pub mod http;
mod https;
pub mod jobs;
pub mod lease;
mod left_pods;
pub mod lifecycle;
pub mod load;
pub mod log_limit;
pub mod metrics;
pub mod object;
pub mod options;
pub mod placement;
mod priority;
pub mod program;
mod provisioning;
pub mod recording;
mod release;
pub mod replica;
mod status;
pub mod store;
pub mod stores;
pub mod telemetry;
mod topology;
mod variants;
mod visibility;
pub mod webhook;
pub mod work;
pub mod workload;
mod world;
pub mod write;

pub use context::{Context, Role};
pub use handle::{Handle, run, start};
pub use lease::{EpochFloor, Leadership};
pub use options::{Endpoint, LeaderMode, Options};
pub use placement::{Placement, Reservation};
