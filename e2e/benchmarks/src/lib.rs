//! `cargo xtask bench`: Switchyard, stock MultiKueue, and the same work with no dispatcher at all, one after the
//! other on fresh control planes of the same machine.

pub mod adversary;
pub mod burst;
mod document;
mod failures;
mod floor;
mod measure;
mod ours;
pub mod plot;
mod ready;
mod requests;
pub mod runner;
pub mod scale;
mod stock;
mod system;
mod timeline;
pub mod trickle;
