//! The hub: global quota, the dispatcher, and the sessions with the worker clusters.

pub mod cluster;
pub mod clusters;
pub mod dispatch;
pub mod hosted;
pub mod pki;
pub mod server;
pub mod shell;
