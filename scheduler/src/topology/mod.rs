//! Topology-aware scheduling: where the pods of a workload run. Kueue's `cache/scheduler/tas_*.go` is the rule.
//!
//! A flavor that names a Topology has a [`Tree`]: domains by level and, at the lowest level, leaves with capacity. Nodes
//! are one source of leaves. A [`Forest`] keeps the trees of all flavors and what uses them; a [`Placer`] finds places
//! in one of them and changes nothing.
//!
//! Where Kueue's outcome depends on the order of a Go map, this is the order: domains by path, leaves of one hostname by
//! the name of their source, pod sets as the workload lists them, and an incomplete slice in the first domain that has one.

mod balanced;
mod counts;
mod distribute;
mod elastic;
mod encode;
mod failure;
mod filter;
mod forest;
mod place;
mod plan;
mod replace;
mod resources;
mod search;
#[cfg(test)]
mod tests;
mod tree;

pub use encode::{Encoded, EncodedSlice, PodCounts, Values, encode};
pub use failure::{Excluded, Failure, LayerRoom};

pub(crate) use counts::Assumed;
pub(crate) use filter::PodFilter;
pub(crate) use forest::{Forest, PlaceUse};
pub(crate) use place::{Ask, Options, Placer, Unhealthy, grouped};
pub(crate) use plan::has_levels;
pub(crate) use resources::Demand;
