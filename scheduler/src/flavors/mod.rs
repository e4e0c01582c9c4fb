//! Which flavors a workload's pod sets get: filters, quota, and the order in which flavors are tried.

mod assigner;
mod assignment;
mod by_name;
mod filters;
mod fungibility;
mod reduce;
#[cfg(test)]
mod tests;
mod topology;

pub(crate) use assigner::{Assigner, total_requests};
pub(crate) use assignment::{Assignment, Fitness, Scan};
pub(crate) use filters::mismatch;
pub(crate) use reduce::largest_that_fits;
pub(crate) use topology::{Asks, PlaceNeed, Site, has_room};
