//! The hub: global quota, the dispatcher, and the sessions with the worker clusters.
//!
//! [`run`] takes its listeners, client, clock and shutdown from the caller. Around the pure dispatcher ([`dispatch`])
//! stands one task ([`dispatcher_task`]); agents come in through [`server`], or run in this process ([`hosted`]).

mod api_clock;
mod api_objects;
mod args;
pub mod audit;
mod authority_watch;
pub mod cluster_channel;
mod cluster_reports;
mod disconnect_policy;
pub mod dispatch;
pub mod dispatcher_task;
pub mod hosted;
pub mod limits;
pub mod metrics;
pub mod multikueue_cluster;
mod options;
mod quota;
mod reachability;
mod run;
pub mod server;

pub use args::{Args, Mode};
pub use options::{HubOptions, Options, dispatch_settings};
pub use run::run;
