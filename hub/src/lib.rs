//! The hub: global quota, the dispatcher, and sessions with worker clusters.
//!
//! [`run`] takes listeners, client, clock and shutdown from its caller. One task
//! ([`dispatcher_task`]) owns the pure dispatcher. Agents dial in through [`server`] or run in this
//! process ([`hosted`]).

mod api_clock;
mod api_objects;
mod args;
pub mod audit;
mod authority_watch;
pub mod cluster_channel;
mod cluster_reports;
mod disconnect_policy;
pub mod dispatcher_task;
pub mod hosted;
pub mod limits;
pub mod metrics;
pub mod multikueue_cluster;
mod options;
mod quota;
mod reachability;
#[cfg(test)]
mod reference;
mod run;
pub mod server;
mod stuck_policy;

pub use args::{Args, Mode};
pub use options::{HubOptions, Options, dispatch_settings};
pub use run::run;
