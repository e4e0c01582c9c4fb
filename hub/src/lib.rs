//! The hub: global quota, the dispatcher, and the sessions with the worker clusters.

pub mod cluster;
pub mod dispatch;
pub mod pki;
