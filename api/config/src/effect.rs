//! Which fields of the file have an effect, and why the others have none. A change that gives a
//! field an effect also changes this table. Listen addresses come from flags, which may defer to
//! the file.

use serde_json::Value;

use super::{GoDuration, IgnoredField, gates};
use switchyard_syntax::field::Path;

/// The effect of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Effect {
    /// The effect that Kueue documents.
    Works,
    /// None, for this reason.
    None(&'static str),
}

use Effect::{None as No, Works};

const WEBHOOKS: &str =
    "flags say where webhooks are served and reached: --webhook-listen, --webhook-service";

/// Fields or whole sections with their effects. A section without an entry has entries for its
/// fields.
const FIELDS: &[(&str, Effect)] = &[
    ("apiVersion", Works),
    ("kind", Works),
    ("namespace", No("the flag --namespace says it")),
    ("manageJobsWithoutQueueName", Works),
    ("managedJobsNamespaceSelector", Works),
    ("featureGates", Works),
    ("webhook.port", No(WEBHOOKS)),
    ("webhook.host", No(WEBHOOKS)),
    (
        "webhook.certDir",
        No("the webhooks' certificate is our own, kept in the Secret switchyard-webhook-cert"),
    ),
    ("leaderElection.leaderElect", Works),
    ("leaderElection.leaseDuration", Works),
    ("leaderElection.renewDeadline", Works),
    ("leaderElection.retryPeriod", Works),
    ("leaderElection.resourceLock", Works),
    ("leaderElection.resourceName", Works),
    ("leaderElection.resourceNamespace", Works),
    ("metrics.bindAddress", Works),
    ("metrics.enableClusterQueueResources", Works),
    ("metrics.customLabels", Works),
    ("metrics.localQueueMetrics", Works),
    ("health.healthProbeBindAddress", No("the flag --health-listen says where")),
    ("health.readinessEndpointName", No("the path is /readyz")),
    ("health.livenessEndpointName", No("the paths are /livez and /healthz")),
    ("pprofBindAddress", No("there are no profiles in Go's format")),
    ("controller.groupKindConcurrency", No("reconcilers take what waits, whatever its kind")),
    ("controller.cacheSyncTimeout", Works),
    ("tls", Works),
    (
        "internalCertManagement.enable",
        No("the flag --external-webhook-certificates says whose the webhooks' certificate is"),
    ),
    ("internalCertManagement.webhookServiceName", No(WEBHOOKS)),
    (
        "internalCertManagement.webhookSecretName",
        No("it is switchyard-webhook-cert, which our role may write"),
    ),
    ("waitForPodsReady", Works),
    (
        "clientConnection",
        No("what is under way at once is bounded here, and not how much in a second"),
    ),
    ("integrations.frameworks", Works),
    ("integrations.externalFrameworks", Works),
    ("integrations.labelKeysToCopy", Works),
    (
        "multiKueue.gcInterval",
        No("what has no counterpart is found by watching, not in rounds; only 0 means something"),
    ),
    ("multiKueue.origin", Works),
    ("multiKueue.workerLostTimeout", Works),
    ("multiKueue.dispatcherName", Works),
    ("multiKueue.externalFrameworks", Works),
    ("multiKueue.incrementalDispatcherConfig", Works),
    ("multiKueue.clusterProfile", Works),
    ("fairSharing", Works),
    ("admissionFairSharing", Works),
    ("resources.quotaCheckStrategy", Works),
    ("resources.excludeResourcePrefixes", Works),
    ("resources.transformations", Works),
    ("resources.deviceClassMappings", Works),
    ("objectRetentionPolicies", Works),
    ("visibilityServer", Works),
];

/// Fields that the file sets and that have no effect.
pub(super) fn ignored(value: &Value) -> Vec<IgnoredField> {
    let mut ignored = Vec::new();
    visit(value, &Path::root(), &mut ignored);
    ignored
}

/// Why a field has no effect. `None` for a field that works, or a section of several fields.
#[cfg(test)]
pub(super) fn reason_for_none(path: &str) -> Option<&'static str> {
    match FIELDS.iter().find(|(field, _)| *field == path) {
        Some((_, No(reason))) => Some(reason),
        Some((_, Works)) | None => None,
    }
}

fn visit(value: &Value, path: &Path, ignored: &mut Vec<IgnoredField>) {
    match path.as_str() {
        "featureGates" => return gates::visit_ignored(value, path, ignored),
        // Zero disables the garbage collection, which works. Other intervals have no effect.
        "multiKueue.gcInterval" if is_zero(value) => return,
        // Certificates are always managed internally.
        "internalCertManagement.enable" if value == true => return,
        _ => {}
    }
    match FIELDS.iter().find(|(field, _)| *field == path.as_str()) {
        Some((_, Works)) => {}
        Some((_, No(reason))) => ignored.push(IgnoredField::new(path, *reason)),
        // A section. The test `every_field_has_a_line` proves that fields cannot get here.
        None => {
            for (name, value) in value.as_object().into_iter().flatten() {
                visit(value, &path.child(name), ignored);
            }
        }
    }
}

fn is_zero(value: &Value) -> bool {
    value
        .as_str()
        .and_then(|text| text.parse().ok())
        .is_some_and(|duration: GoDuration| duration == GoDuration::ZERO)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::{shape, tests::EVERY_FIELD};

    /// Paths at which the schema, from the root down, meets an entry or a field without one.
    fn reached(
        schema: &Value,
        path: &Path,
        lines: &mut BTreeSet<String>,
        without: &mut Vec<String>,
    ) {
        if FIELDS.iter().any(|(field, _)| *field == path.as_str()) {
            lines.insert(path.to_string());
            return;
        }
        match shape::properties(schema) {
            Some(fields) => fields
                .iter()
                .for_each(|(name, schema)| reached(schema, &path.child(name), lines, without)),
            None => without.push(path.to_string()),
        }
    }

    #[test]
    fn every_field_has_a_line() {
        let (mut lines, mut without) = (BTreeSet::new(), Vec::new());
        reached(&shape::SCHEMA, &Path::root(), &mut lines, &mut without);
        assert_eq!(without, Vec::<String>::new(), "say in FIELDS what these do");
        let all: BTreeSet<String> = FIELDS.iter().map(|(field, _)| (*field).to_owned()).collect();
        assert_eq!(lines, all, "there are no such fields");
    }

    #[test]
    fn every_field_is_in_the_file_that_has_them_all() {
        let file: Value = serde_saphyr::from_str(EVERY_FIELD).unwrap();
        for (field, _) in FIELDS {
            let pointer = format!("/{}", field.replace('.', "/"));
            assert!(file.pointer(&pointer).is_some(), "every_field.yaml lacks {field}");
        }
    }
}
