//! Topology-aware scheduling in one cluster. The engine decides where pods run. These reconcilers
//! do what it decided.
//!
//! - [`ungate`] removes the scheduling gate of pods that have a place; `ranks` says which pod goes
//!   to which place.
//! - [`failures`] records failed nodes in the status of the workloads that run on them.

pub(crate) mod failures;
mod ranks;
pub(crate) mod ungate;
