//! Topology-aware scheduling: the topology assignment of a workload's pods. Kueue KEP-2724,
//! `pkg/cache/scheduler/tas_*.go`.
//!
//! A flavor with a Topology has a [`TopologyTree`]: domains by level, with capacity leaves at the
//! lowest level. Nodes are one source of leaves. A [`Forest`] keeps the trees of all flavors and
//! their usage. A [`Placer`] finds assignments in one tree and changes nothing: `plan` reads the
//! request, `counts` counts, `search` chooses level and domains, `distribute` goes down to leaves.
//!
//! Where Kueue's result depends on the order of a Go map, this crate fixes the order. Domains are
//! sorted by path, and leaves of one hostname by the name of their source. Pod sets keep their
//! order in the workload. An incomplete slice goes to the first domain that has one.

mod balanced;
mod count_cache;
mod counts;
mod distribute;
mod elastic;
mod encode;
mod failure;
mod filter;
mod forest;
mod outlook;
mod place;
mod plan;
mod replace;
mod resources;
mod search;
#[cfg(test)]
mod tests;
mod tree;
mod victims;
mod view;

pub use encode::{EncodedSlice, EncodedSlices, LevelValues, PodCounts, encode};
pub use failure::{ExcludedLeaves, LayerCapacity, PlacementFailure};
pub use outlook::{
    BestDomain, LeafObstacle, ObstructedLeaves, Occupant, PlacementOutlook, Strictness,
};
pub use view::{DomainAmounts, DomainView, LargestFreeDomain, TopologyView};

pub(crate) use counts::Assumed;
pub(crate) use filter::PodFilter;
pub(crate) use forest::{DomainUsage, Forest};
pub(crate) use place::{PlacementOptions, PlacementRequest, Placer, Unhealthy, grouped};
pub(crate) use plan::has_levels;
pub(crate) use resources::Demand;
pub(crate) use victims::VictimTrial;
