//! The auditor: finds where a queue is not charged for what its pods ask for, from what any user with the right to read can see.
//! Pure: it is given objects and says what is wrong with them.
//!
//! [`audit`] looks at one cluster, [`compare`] at a hub and its workers. Objects change one after the other, and lists of them are
//! read one after the other, so a single look may find what is right a moment later. Callers look twice and keep what
//! [`Finding::key`] finds in both.
//!
//! It shares no code with the scheduler: an error in the one should not hide in the other.

mod amounts;
mod borrowing;
mod cluster;
mod finding;
mod fleet;
mod owners;
mod running;
mod usage;

pub use cluster::{Cluster, Owner};
pub use finding::{Finding, Kind, Object};
pub use fleet::compare;

/// What is wrong on one cluster, in a fixed order.
#[must_use]
pub fn audit(cluster: &Cluster) -> Vec<Finding> {
    let mut found = running::findings(cluster);
    if cluster.is_whole {
        found.extend(usage::findings(cluster));
        found.extend(borrowing::findings(cluster));
    }
    found.sort();
    found
}

#[cfg(test)]
mod tests;
