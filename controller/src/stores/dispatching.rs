//! Which ClusterQueues dispatch their workloads to worker clusters: those with a MultiKueue check.
//! Whether the check is active does not matter, because a job's needs do not depend on a worker's
//! connection.

use std::sync::Arc;

use switchyard_api::v1beta2::{AdmissionCheck, ClusterQueue};

use super::Stores;

/// Whether the AdmissionCheck with this name is a MultiKueue check.
#[must_use]
pub fn is_dispatching(stores: &Stores, check: &str) -> bool {
    stores.admission_checks.get("", check).is_some_and(|check| check.spec.is_multi_kueue())
}

/// The MultiKueue check of a ClusterQueue.
#[must_use]
pub fn multi_kueue_check(stores: &Stores, queue: &ClusterQueue) -> Option<Arc<AdmissionCheck>> {
    let rules = queue.spec.admission_checks().iter();
    rules
        .filter_map(|rule| stores.admission_checks.get("", &rule.name))
        .find(|check| check.spec.is_multi_kueue())
}
