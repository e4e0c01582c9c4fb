//! Errors of values that have the right type.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use super::{
    Configuration, GoDuration, KUBE_SYSTEM, NAMESPACE_NAME, PreemptionStrategy, gates, later,
};
use switchyard_jobs::{framework_of, kinds, spark_application};
use switchyard_syntax::{
    field::{FieldError, Path, nearest},
    labels::{label_key_error, label_selector, selector_matches},
};

mod multi_kueue;
mod resources;
mod servers;
mod tls;

pub use tls::{CURVES, SUITES, is_suite};

const NOT_NEGATIVE: &str = "must be greater than or equal to 0";

/// All errors of values.
pub(super) fn errors(config: &Configuration) -> Vec<FieldError> {
    let mut errors = Vec::new();
    leader_election(config, &mut errors);
    pods_ready(config, &mut errors);
    integrations(config, &mut errors);
    multi_kueue::multi_kueue(config, &mut errors);
    sharing(config, &mut errors);
    resources::resources(config, &mut errors);
    namespaces(config, &mut errors);
    retention(config, &mut errors);
    servers::servers(config, &mut errors);
    servers::custom_labels(config, &mut errors);
    feature_gates(config, &mut errors);
    errors
}

fn not_negative(value: GoDuration, path: &Path, errors: &mut Vec<FieldError>) {
    if value.is_negative() {
        errors.push(FieldError::invalid(path, value.to_string(), NOT_NEGATIVE));
    }
}

fn count_not_negative(value: i32, path: &Path, errors: &mut Vec<FieldError>) {
    if value < 0 {
        errors.push(FieldError::invalid(path, value, NOT_NEGATIVE));
    }
}

fn leader_election(config: &Configuration, errors: &mut Vec<FieldError>) {
    let election = &config.leader_election;
    let path = Path::new("leaderElection");
    if !matches!(election.resource_lock.as_str(), "" | "leases") {
        errors.push(FieldError::not_supported(
            &path.child("resourceLock"),
            &election.resource_lock,
            &["leases"],
        ));
    }
    if election.retry_period <= GoDuration::ZERO {
        let value = election.retry_period.to_string();
        errors.push(FieldError::invalid(
            &path.child("retryPeriod"),
            value,
            "must be greater than 0",
        ));
    }
    if election.renew_deadline <= election.retry_period {
        let value = election.renew_deadline.to_string();
        errors.push(FieldError::invalid(
            &path.child("renewDeadline"),
            value,
            "must be greater than retryPeriod",
        ));
    }
    if election.lease_duration <= election.renew_deadline {
        let value = election.lease_duration.to_string();
        errors.push(FieldError::invalid(
            &path.child("leaseDuration"),
            value,
            "must be greater than renewDeadline",
        ));
    }
}

fn pods_ready(config: &Configuration, errors: &mut Vec<FieldError>) {
    let wait = &config.wait_for_pods_ready;
    let path = Path::new("waitForPodsReady");
    not_negative(wait.timeout, &path.child("timeout"), errors);
    not_negative(wait.recovery_timeout.unwrap_or_default(), &path.child("recoveryTimeout"), errors);
    let (strategy, path) = (&wait.requeuing_strategy, path.child("requeuingStrategy"));
    count_not_negative(
        strategy.backoff_limit_count.unwrap_or(0),
        &path.child("backoffLimitCount"),
        errors,
    );
    count_not_negative(strategy.backoff_base_seconds, &path.child("backoffBaseSeconds"), errors);
    count_not_negative(strategy.backoff_max_seconds, &path.child("backoffMaxSeconds"), errors);
}

/// Names of all job kinds, sorted.
fn known_frameworks() -> Vec<&'static str> {
    let mut known: Vec<&str> = kinds().iter().map(|kind| kind.id().framework).collect();
    known.sort_unstable();
    known
}

fn integrations(config: &Configuration, errors: &mut Vec<FieldError>) {
    let path = Path::new("integrations");
    let known = known_frameworks();
    let mut seen = BTreeSet::new();
    for (index, name) in config.integrations.frameworks.iter().enumerate() {
        let path = path.child("frameworks").index(index);
        if !known.contains(&name.as_str()) {
            errors.push(FieldError::not_supported(&path, name, &known));
        } else if !seen.insert(name) {
            errors.push(FieldError::duplicate(&path, name));
        } else if name == spark_application::FRAMEWORK
            && !config.enabled("SparkApplicationIntegration")
        {
            let detail =
                "is an alpha integration; enable the feature gate SparkApplicationIntegration";
            errors.push(FieldError::invalid(&path, name, detail));
        }
    }
    let mut seen = BTreeSet::new();
    for (index, name) in config.integrations.external_frameworks.iter().enumerate() {
        let path = path.child("externalFrameworks").index(index);
        if !is_kind_argument(name) {
            errors.push(FieldError::invalid(
                &path,
                name,
                "must be format, 'Kind.version.group.com'",
            ));
        } else if framework_of(name)
            .is_some_and(|it| config.integrations.frameworks.iter().any(|on| on == it))
            || !seen.insert(name)
        {
            errors.push(FieldError::duplicate(&path, name));
        }
    }
    for (index, key) in config.integrations.label_keys_to_copy.iter().enumerate() {
        if let Some(detail) = label_key_error(key) {
            errors.push(FieldError::invalid(
                &path.child("labelKeysToCopy").index(index),
                key,
                detail,
            ));
        }
    }
}

/// Whether a text has the form `Kind.version.group`.
fn is_kind_argument(text: &str) -> bool {
    let mut parts = text.splitn(3, '.');
    parts.by_ref().take(3).filter(|part| !part.is_empty()).count() == 3
}

fn sharing(config: &Configuration, errors: &mut Vec<FieldError>) {
    use PreemptionStrategy::{LessThanInitialShare, LessThanOrEqualToFinalShare};
    if let Some(sharing) = &config.fair_sharing {
        let path = Path::new("fairSharing").child("preemptionStrategies");
        match sharing.preemption_strategies.as_slice() {
            [] => errors.push(FieldError::required(&path, "must be specified")),
            [LessThanOrEqualToFinalShare]
            | [LessThanInitialShare]
            | [LessThanOrEqualToFinalShare, LessThanInitialShare] => {}
            _ => errors.push(FieldError::new(
                &path,
                "must be [LessThanOrEqualToFinalShare], [LessThanInitialShare] or \
                 [LessThanOrEqualToFinalShare, LessThanInitialShare]",
            )),
        }
    }
    if let Some(sharing) = &config.admission_fair_sharing {
        let path = Path::new("admissionFairSharing");
        not_negative(sharing.usage_half_life_time, &path.child("usageHalfLifeTime"), errors);
        if sharing.usage_sampling_interval <= GoDuration::ZERO {
            let value = sharing.usage_sampling_interval.to_string();
            errors.push(FieldError::invalid(
                &path.child("usageSamplingInterval"),
                value,
                "must be greater than 0",
            ));
        }
        for (resource, weight) in &sharing.resource_weights {
            if *weight < 0.0 {
                let path = path.child("resourceWeights").key(resource);
                errors.push(FieldError::new(
                    &path,
                    format!("Invalid value: {weight}: {NOT_NEGATIVE}"),
                ));
            }
        }
    }
}

fn namespaces(config: &Configuration, errors: &mut Vec<FieldError>) {
    let Some(selector) = &config.managed_jobs_namespace_selector else { return };
    let path = Path::new("managedJobsNamespaceSelector");
    let before = errors.len();
    label_selector(selector, &path, errors);
    if errors.len() > before {
        return;
    }
    for namespace in [Some(KUBE_SYSTEM), config.namespace.as_deref()].into_iter().flatten() {
        if matches_namespace(selector, namespace) {
            let detail = format!(
                "should not match the {namespace:?} namespace, exclude it with {NAMESPACE_NAME} NotIn"
            );
            errors.push(FieldError::new(&path, detail));
        }
    }
}

pub(super) fn matches_namespace(selector: &LabelSelector, namespace: &str) -> bool {
    selector_matches(selector, &BTreeMap::from([(NAMESPACE_NAME.to_owned(), namespace.to_owned())]))
}

fn retention(config: &Configuration, errors: &mut Vec<FieldError>) {
    let policy = &config.object_retention_policies.workloads;
    let path = Path::new("objectRetentionPolicies").child("workloads");
    not_negative(policy.after_finished.unwrap_or_default(), &path.child("afterFinished"), errors);
    let after = policy.after_deactivated_by_kueue.unwrap_or_default();
    not_negative(after, &path.child("afterDeactivatedByKueue"), errors);
}

const TAS: &str = "TopologyAwareScheduling";

/// Gates that have no effect without other gates.
const NEEDS: [(&str, &str); 17] = [
    ("TASProfileMixed", TAS),
    ("TASHandleOverlappingFlavors", TAS),
    ("TASFailedNodeReplacement", TAS),
    ("TASFailedNodeReplacementFailFast", TAS),
    ("TASFailedNodeReplacementFailFast", "TASFailedNodeReplacement"),
    ("TASReplaceNodeOnPodTermination", TAS),
    ("TASReplaceNodeOnPodTermination", "TASFailedNodeReplacement"),
    ("TASReplaceNodeDueToNotReadyOverFixedTime", TAS),
    ("TASReplaceNodeDueToNotReadyOverFixedTime", "TASFailedNodeReplacement"),
    ("TASBalancedPlacement", TAS),
    ("TASReplaceNodeOnNodeTaints", TAS),
    ("TASMultiLayerTopology", TAS),
    ("TASRespectNodeAffinityPreferred", TAS),
    ("TASRecomputeAssignmentWithinSchedulingCycle", TAS),
    ("UnadmittedWorkloadsExplicitStatus", "UnadmittedWorkloadsObservability"),
    ("ElasticJobsViaWorkloadSlicesWithTAS", "ElasticJobsViaWorkloadSlices"),
    ("ElasticJobsViaWorkloadSlicesWithTAS", TAS),
];

fn feature_gates(config: &Configuration, errors: &mut Vec<FieldError>) {
    for (gate, other) in NEEDS {
        if config.enabled(gate) && !config.enabled(other) {
            errors.push(FieldError::new(
                &Path::new("featureGates").child(gate),
                format!("requires {other} to be enabled"),
            ));
        }
    }
    for (name, value) in &config.feature_gates {
        let path = Path::new("featureGates").child(name);
        match gates::default(name) {
            None if later::is_switch(name) => {}
            None => {
                let hint = nearest(name, gates::names().chain(later::gates()))
                    .map(|near| format!(", did you mean {near}?"));
                errors.push(FieldError::new(
                    &path,
                    format!("unknown feature gate{}", hint.unwrap_or_default()),
                ));
            }
            Some(default) if gates::is_locked(name) && default != *value => {
                errors.push(FieldError::new(
                    &path,
                    format!("cannot be set to {value}, it is locked to {default}"),
                ));
            }
            Some(_) => {}
        }
    }
}
