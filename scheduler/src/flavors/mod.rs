//! Which flavors the pod sets of a workload get.

mod assigner;
mod assignment;
mod by_name;
mod filters;
mod fungibility;
mod oracle;
mod reduce;
mod search;
#[cfg(test)]
mod tests;
mod topology;

pub(crate) use assigner::{FlavorAssigner, total_requests};
pub(crate) use assignment::{Assignment, AssignmentMode};
pub(crate) use filters::{mismatch, pin_not_listed, pinned_elsewhere};
pub(crate) use oracle::{PreemptionOracle, PreemptionPossibility};
pub(crate) use reduce::largest_that_fits;
pub(crate) use topology::{DomainNeed, PlacementContext, has_capacity};
