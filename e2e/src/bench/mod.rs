//! `cargo xtask bench`: ours beside stock MultiKueue and beside the same work with no dispatcher at all, one after the
//! other on fresh control planes of the same machine.

pub mod burst;
mod floor;
mod measure;
mod ours;
mod ready;
mod report;
mod stock;
mod system;
mod timeline;
