//! The quota tree: ClusterQueues below Cohorts, with what each has, lends, borrows and uses.
//!
//! [`structure`] keeps the shape, [`quota`] does the arithmetic. Usage is exact: what was added and removed again
//! leaves no trace, whatever the amounts, so simulations work on the live tree.

mod bound;
mod node;
mod quota;
mod share;
mod structure;
#[cfg(test)]
mod tests;

pub(crate) use node::NodeId;
pub(crate) use share::Share;
pub(crate) use structure::Tree;
