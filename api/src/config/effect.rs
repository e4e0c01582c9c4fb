//! Which fields have an effect so far. Whoever gives one an effect adds it here. Addresses to listen on come from flags,
//! which may leave it to the file.

use serde_json::Value;

use super::{GoDuration, gates};
use crate::{field::Path, jobs::kinds};

/// Sections whose presence alone switches something.
const SWITCHES: &[&str] = &["fairSharing"];

/// Paths of fields, or of whole sections, that have an effect.
const EFFECTIVE: &[&str] = &[
    "apiVersion",
    "kind",
    "leaderElection.leaderElect",
    "leaderElection.leaseDuration",
    "leaderElection.renewDeadline",
    "leaderElection.retryPeriod",
    "leaderElection.resourceLock",
    "leaderElection.resourceName",
    "metrics.bindAddress",
    "metrics.enableClusterQueueResources",
    "manageJobsWithoutQueueName",
    "managedJobsNamespaceSelector",
    "waitForPodsReady.blockAdmission",
    "waitForPodsReady.timeout",
    "waitForPodsReady.recoveryTimeout",
    "waitForPodsReady.requeuingStrategy",
    "integrations.frameworks",
    "integrations.externalFrameworks",
    "integrations.labelKeysToCopy",
    "multiKueue.origin",
    "multiKueue.workerLostTimeout",
    "multiKueue.dispatcherName",
    "multiKueue.externalFrameworks",
    "multiKueue.incrementalDispatcherConfig",
    "fairSharing.preemptionStrategies",
    "admissionFairSharing",
    "resources.quotaCheckStrategy",
    "resources.excludeResourcePrefixes",
    "resources.transformations",
    "objectRetentionPolicies.workloads.afterFinished",
    "visibilityServer",
    "featureGates",
];

/// Paths of the fields that the file sets and that have no effect.
pub(super) fn ignored(value: &Value) -> Vec<String> {
    let mut ignored = Vec::new();
    visit(value, &Path::root(), &mut ignored);
    ignored
}

fn visit(value: &Value, path: &Path, ignored: &mut Vec<String>) {
    match path.as_str() {
        "featureGates" => return gates::visit_ignored(value, path, ignored),
        "integrations.frameworks" => return frameworks(value, path, ignored),
        // Zero switches the collection off; there are no rounds of it whose length could be set.
        "multiKueue.gcInterval" if is_zero(value) => return,
        covered if EFFECTIVE.contains(&covered) => return,
        _ => {}
    }
    match value.as_object() {
        Some(map) if leads_somewhere(path) => {
            for (name, value) in map {
                visit(value, &path.child(name), ignored);
            }
        }
        _ => ignored.push(path.to_string()),
    }
}

fn is_zero(value: &Value) -> bool {
    value.as_str().and_then(|text| text.parse().ok()).is_some_and(|duration: GoDuration| duration == GoDuration::ZERO)
}

/// Whether this path, or something below it, has an effect, so that its fields are told apart.
fn leads_somewhere(path: &Path) -> bool {
    path.as_str().is_empty()
        || SWITCHES.contains(&path.as_str())
        || EFFECTIVE
            .iter()
            .any(|effective| effective.strip_prefix(path.as_str()).is_some_and(|rest| rest.starts_with('.')))
}

/// Kinds of jobs that are not managed here.
fn frameworks(value: &Value, path: &Path, ignored: &mut Vec<String>) {
    for (index, name) in value.as_array().into_iter().flatten().enumerate() {
        let managed = |name: &&str| kinds().iter().any(|kind| kind.id().framework == *name);
        if let Some(name) = name.as_str().filter(|name| !managed(name)) {
            ignored.push(format!("{} ({name})", path.index(index)));
        }
    }
}
