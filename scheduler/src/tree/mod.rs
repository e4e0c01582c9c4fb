//! The quota tree: ClusterQueues below Cohorts, with their quota, loans and usage. Kueue KEP-79.
//!
//! [`structure`] keeps the shape, [`quota`] the arithmetic. Usage is exact: adding and removing an
//! amount leaves no trace, so that simulations work on the live tree.

mod bound;
mod node;
mod quota;
mod share;
mod structure;
#[cfg(test)]
mod tests;

pub(crate) use share::Share;
pub(crate) use structure::QuotaTree;
