//! The auditor: compares the requests of pods with the charges of their queues. It is pure: it
//! takes lists of objects that any user with read rights can get, and returns findings.
//!
//! [`audit`] checks one cluster, [`compare`] a hub and its workers. Callers read lists one after
//! the other while objects change, so a finding may be outdated a moment later. Callers should
//! audit twice and keep the findings whose [`Finding::key`] occurs in both; [`lasting`] does this.
//!
//! The auditor shares no arithmetic with the scheduler, so that an error of the scheduler cannot
//! hide here.
//!
//! # Guarantees
//! - Equal lists give equal findings in the same order.
//! - No input causes a panic. An object that cannot be checked, such as one with an unreadable
//!   amount, is skipped.

mod amounts;
mod chain;
mod charge;
mod cluster;
mod finding;
mod fleet;
mod overrun;
mod pod_workloads;
mod quota;
mod running;
mod unadmitted;
mod usage;
mod workload;

pub use cluster::{Cluster, Owner};
pub use finding::{Finding, FindingKind, Object, lasting};
pub use fleet::compare;

use charge::Charges;
use running::running;

/// Checks one cluster. The result is sorted. Sums over queues are checked only if all namespaces
/// were listed.
#[must_use]
pub fn audit(cluster: &Cluster) -> Vec<Finding> {
    let (charges, running) = (Charges::of(&cluster.workloads), running(cluster));
    let mut found = unadmitted::findings(cluster, &running);
    found.extend(overrun::findings(cluster, &charges, &running));
    if cluster.namespace.is_none() {
        found.extend(usage::findings(cluster, &charges));
        found.extend(quota::findings(cluster, &charges));
    }
    found.sort();
    found
}

#[cfg(test)]
mod tests;
