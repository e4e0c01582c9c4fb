//! The auditor compares what pods ask for with what their queues are charged. It is pure: it takes lists of objects that any user
//! with read rights can get, and returns findings.
//!
//! [`audit`] judges one cluster, [`compare`] a hub and its workers. Lists are read one after the other while objects change, so one
//! look may find a fault that is none a moment later. Callers look twice and keep the findings whose [`Finding::key`] is in both;
//! [`lasting`] does that.
//!
//! The arithmetic is written anew and shares no code with the scheduler, so that an error there cannot hide here.
//!
//! # Guarantees
//! - The same lists give the same findings in the same order.
//! - No input panics. An object that cannot be judged, such as one with an amount that is no quantity, is skipped.

mod amounts;
mod chain;
mod charge;
mod cluster;
mod finding;
mod fleet;
mod holders;
mod overrun;
mod quota;
mod running;
mod unadmitted;
mod usage;
mod workload;

pub use cluster::{Cluster, Owner};
pub use finding::{Finding, Kind, Object, lasting};
pub use fleet::compare;

use charge::Charges;
use running::running;

/// The findings on one cluster, sorted. The sums over queues are judged only if all namespaces were listed.
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
