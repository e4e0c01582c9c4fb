//! The hub: global quota, the dispatcher, and the sessions with the worker clusters.
//!
//! [`run`] takes its listeners, client, clock and shutdown from the caller. Around the pure dispatcher ([`switchyard_dispatcher`])
//! stands one task ([`dispatcher_task`]); agents come in through [`server`], or run in this process ([`hosted`]).

mod api_clock;
mod args;
pub mod audit;
mod authority_watch;
pub mod cluster_channel;
pub mod copy_keys;
pub mod dispatcher_task;
pub mod hosted;
pub mod metrics;
pub mod multikueue_cluster;
mod quota;
mod run;
pub mod server;

pub use args::{Args, Mode};
pub use run::{HubOptions, Options, dispatch_settings, run};
