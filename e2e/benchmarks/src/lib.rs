//! Measurements: `cargo xtask bench`, `figures` and `failover`.
//!
//! `bench` measures Switchyard, stock MultiKueue, and the same work with no dispatcher at all, one after the other on
//! fresh control planes of the same machine.

pub mod adversary;
pub mod burst;
mod document;
pub mod failover;
mod failures;
pub mod figures;
mod floor;
mod measure;
mod ours;
pub mod plot;
mod quantiles;
mod requests;
pub mod runner;
pub mod scale;
pub mod sessions;
mod setup;
mod stock;
mod system;
pub mod takeover;
mod timeline;
pub mod topology;
pub mod trickle;
