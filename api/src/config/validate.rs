//! Values that have the right shape and still cannot be.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use super::{Configuration, GoDuration, KUBE_SYSTEM, NAMESPACE_NAME, PreemptionStrategy, SourceKind, gates};
use crate::{
    field::{FieldError, Path, nearest},
    names,
    validate::{label_key_error, label_selector, label_value_error, selector_matches},
};

const NOT_NEGATIVE: &str = "must be greater than or equal to 0";

/// All values that cannot be.
pub(super) fn errors(config: &Configuration) -> Vec<FieldError> {
    let mut errors = Vec::new();
    leader_election(config, &mut errors);
    pods_ready(config, &mut errors);
    integrations(config, &mut errors);
    multi_kueue(config, &mut errors);
    sharing(config, &mut errors);
    resources(config, &mut errors);
    namespaces(config, &mut errors);
    retention(config, &mut errors);
    servers(config, &mut errors);
    custom_labels(config, &mut errors);
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
        errors.push(FieldError::not_supported(&path.child("resourceLock"), &election.resource_lock, &["leases"]));
    }
    if election.retry_period <= GoDuration::ZERO {
        let value = election.retry_period.to_string();
        errors.push(FieldError::invalid(&path.child("retryPeriod"), value, "must be greater than 0"));
    }
    if election.renew_deadline <= election.retry_period {
        let value = election.renew_deadline.to_string();
        errors.push(FieldError::invalid(&path.child("renewDeadline"), value, "must be greater than retryPeriod"));
    }
    if election.lease_duration <= election.renew_deadline {
        let value = election.lease_duration.to_string();
        errors.push(FieldError::invalid(&path.child("leaseDuration"), value, "must be greater than renewDeadline"));
    }
}

fn pods_ready(config: &Configuration, errors: &mut Vec<FieldError>) {
    let wait = &config.wait_for_pods_ready;
    let path = Path::new("waitForPodsReady");
    not_negative(wait.timeout, &path.child("timeout"), errors);
    not_negative(wait.recovery_timeout.unwrap_or_default(), &path.child("recoveryTimeout"), errors);
    let (strategy, path) = (&wait.requeuing_strategy, path.child("requeuingStrategy"));
    count_not_negative(strategy.backoff_limit_count.unwrap_or(0), &path.child("backoffLimitCount"), errors);
    count_not_negative(strategy.backoff_base_seconds, &path.child("backoffBaseSeconds"), errors);
    count_not_negative(strategy.backoff_max_seconds, &path.child("backoffMaxSeconds"), errors);
}

/// Every kind of job that Kueue manages, whether we do or not.
const FRAMEWORKS: [&str; 18] = [
    "batch/job",
    "deployment",
    "jobset.x-k8s.io/jobset",
    "kubeflow.org/jaxjob",
    "kubeflow.org/mpijob",
    "kubeflow.org/paddlejob",
    "kubeflow.org/pytorchjob",
    "kubeflow.org/tfjob",
    "kubeflow.org/xgboostjob",
    "leaderworkerset.x-k8s.io/leaderworkerset",
    "pod",
    "ray.io/raycluster",
    "ray.io/rayjob",
    "ray.io/rayservice",
    "sparkoperator.k8s.io/sparkapplication",
    "statefulset",
    "trainer.kubeflow.org/trainjob",
    "workload.codeflare.dev/appwrapper",
];

fn integrations(config: &Configuration, errors: &mut Vec<FieldError>) {
    let path = Path::new("integrations");
    let mut seen = BTreeSet::new();
    for (index, name) in config.integrations.frameworks.iter().enumerate() {
        let path = path.child("frameworks").index(index);
        if !FRAMEWORKS.contains(&name.as_str()) {
            errors.push(FieldError::not_supported(&path, name, &FRAMEWORKS));
        } else if !seen.insert(name) {
            errors.push(FieldError::duplicate(&path, name));
        }
    }
    let mut seen = BTreeSet::new();
    for (index, name) in config.integrations.external_frameworks.iter().enumerate() {
        let path = path.child("externalFrameworks").index(index);
        if !is_kind_argument(name) {
            errors.push(FieldError::invalid(&path, name, "must be format, 'Kind.version.group.com'"));
        } else if !seen.insert(name) {
            errors.push(FieldError::duplicate(&path, name));
        }
    }
    for (index, key) in config.integrations.label_keys_to_copy.iter().enumerate() {
        if let Some(detail) = label_key_error(key) {
            errors.push(FieldError::invalid(&path.child("labelKeysToCopy").index(index), key, detail));
        }
    }
}

/// Whether a text is `Kind.version.group`.
fn is_kind_argument(text: &str) -> bool {
    let mut parts = text.splitn(3, '.');
    parts.by_ref().take(3).filter(|part| !part.is_empty()).count() == 3
}

fn multi_kueue(config: &Configuration, errors: &mut Vec<FieldError>) {
    let multi_kueue = &config.multi_kueue;
    let path = Path::new("multiKueue");
    not_negative(multi_kueue.gc_interval, &path.child("gcInterval"), errors);
    not_negative(multi_kueue.worker_lost_timeout, &path.child("workerLostTimeout"), errors);
    if let Some(detail) = label_value_error(&multi_kueue.origin) {
        errors.push(FieldError::invalid(&path.child("origin"), &multi_kueue.origin, detail));
    }
    let mut seen = BTreeSet::new();
    for (index, framework) in multi_kueue.external_frameworks.iter().enumerate() {
        let path = path.child("externalFrameworks").index(index).child("name");
        let name = framework.name.as_str();
        if !is_kind_argument(name) {
            errors.push(FieldError::invalid(&path, name, "must be in 'kind.version.group' format"));
        } else if name == "Job.v1.batch" {
            errors.push(FieldError::invalid(&path, name, "conflicts with a built-in MultiKueue adapter"));
        } else if !seen.insert(name) {
            errors.push(FieldError::duplicate(&path, name));
        }
    }
    if let Some(incremental) = &multi_kueue.incremental_dispatcher_config {
        let path = path.child("incrementalDispatcherConfig");
        if multi_kueue.dispatcher_name != names::DISPATCHER_INCREMENTAL {
            errors.push(FieldError::new(
                &path,
                format!("is only valid with dispatcherName: {}", names::DISPATCHER_INCREMENTAL),
            ));
        }
        if incremental.step_size < 1 {
            let detail = "must be greater than or equal to 1";
            errors.push(FieldError::invalid(&path.child("stepSize"), incremental.step_size, detail));
        }
    }
    cluster_profile(config, &path.child("clusterProfile"), errors);
}

fn cluster_profile(config: &Configuration, path: &Path, errors: &mut Vec<FieldError>) {
    let Some(profile) = &config.multi_kueue.cluster_profile else { return };
    if !profile.access_providers.is_empty() && !profile.credentials_providers.is_empty() {
        let detail = "must not be specified when accessProviders is specified";
        errors.push(FieldError::forbidden(&path.child("credentialsProviders"), detail));
    }
    let lists =
        [("accessProviders", &profile.access_providers), ("credentialsProviders", &profile.credentials_providers)];
    for (name, providers) in lists {
        for (index, provider) in providers.iter().enumerate() {
            let path = path.child(name).index(index);
            let exec = path.child("execConfig");
            for (field, value) in [
                (path.child("name"), &provider.name),
                (exec.child("command"), &provider.exec_config.command),
                (exec.child("apiVersion"), &provider.exec_config.api_version),
                (exec.child("interactiveMode"), &provider.exec_config.interactive_mode),
            ] {
                if value.is_empty() {
                    errors.push(FieldError::required(&field, "must be specified"));
                }
            }
            let mode = &provider.exec_config.interactive_mode;
            let modes = ["Never", "IfAvailable", "Always"];
            if !mode.is_empty() && !modes.contains(&mode.as_str()) {
                errors.push(FieldError::not_supported(&exec.child("interactiveMode"), mode, &modes));
            }
        }
    }
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
            errors.push(FieldError::invalid(&path.child("usageSamplingInterval"), value, "must be greater than 0"));
        }
        for (resource, weight) in &sharing.resource_weights {
            if *weight < 0.0 {
                let path = path.child("resourceWeights").key(resource);
                errors.push(FieldError::new(&path, format!("Invalid value: {weight}: {NOT_NEGATIVE}")));
            }
        }
    }
}

fn resources(config: &Configuration, errors: &mut Vec<FieldError>) {
    let (resources, path) = (&config.resources, Path::new("resources"));
    if resources.quota_check_strategy == super::QuotaCheckStrategy::IgnoreUndeclared
        && !resources.exclude_resource_prefixes.is_empty()
    {
        errors.push(FieldError::invalid(
            &path.child("quotaCheckStrategy"),
            "IgnoreUndeclared",
            "excludeResourcePrefixes is not allowed when quotaCheckStrategy is IgnoreUndeclared",
        ));
    }
    let mut seen = BTreeSet::new();
    for (index, transformation) in resources.transformations.iter().enumerate() {
        if !seen.insert(&transformation.input) {
            let path = path.child("transformations").index(index).child("input");
            errors.push(FieldError::duplicate(&path, &transformation.input));
        }
    }
    device_classes(config, &path.child("deviceClassMappings"), errors);
}

fn device_classes(config: &Configuration, path: &Path, errors: &mut Vec<FieldError>) {
    let mappings = &config.resources.device_class_mappings;
    if mappings.len() > 16 {
        errors.push(FieldError::too_many(path, mappings.len(), 16));
    }
    let mut seen = BTreeSet::new();
    for (index, mapping) in mappings.iter().enumerate() {
        let path = path.index(index);
        if let Some(detail) = label_key_error(&mapping.name) {
            errors.push(FieldError::invalid(&path.child("name"), &mapping.name, detail));
        }
        if !seen.insert(&mapping.name) {
            errors.push(FieldError::duplicate(&path.child("name"), &mapping.name));
        }
        let names = path.child("deviceClassNames");
        if mapping.device_class_names.is_empty() {
            errors.push(FieldError::required(&names, "at least one device class name is required"));
        }
        if mapping.device_class_names.len() > 8 {
            errors.push(FieldError::too_many(&names, mapping.device_class_names.len(), 8));
        }
        for (index, source) in mapping.sources.iter().enumerate() {
            if source.counter.is_some() == source.capacity.is_some() {
                let path = path.child("sources").index(index);
                errors.push(FieldError::required(&path, "exactly one source type must be set per entry"));
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
            errors.push(FieldError::new(
                &path,
                format!("should not match the {namespace:?} namespace, exclude it with {NAMESPACE_NAME} NotIn"),
            ));
        }
    }
}

fn matches_namespace(selector: &LabelSelector, namespace: &str) -> bool {
    selector_matches(selector, &BTreeMap::from([(NAMESPACE_NAME.to_owned(), namespace.to_owned())]))
}

fn retention(config: &Configuration, errors: &mut Vec<FieldError>) {
    let policy = &config.object_retention_policies.workloads;
    let path = Path::new("objectRetentionPolicies").child("workloads");
    not_negative(policy.after_finished.unwrap_or_default(), &path.child("afterFinished"), errors);
    let after = policy.after_deactivated_by_kueue.unwrap_or_default();
    not_negative(after, &path.child("afterDeactivatedByKueue"), errors);
}

fn servers(config: &Configuration, errors: &mut Vec<FieldError>) {
    let visibility = &config.visibility_server;
    let path = Path::new("visibilityServer");
    if let Some(address) = &visibility.bind_address
        && address.parse::<std::net::IpAddr>().is_err()
    {
        errors.push(FieldError::invalid(&path.child("bindAddress"), address, "must be a valid IP address"));
    }
    if !(1..=65535).contains(&visibility.bind_port) {
        let detail = "must be a valid port number (1-65535)";
        errors.push(FieldError::invalid(&path.child("bindPort"), visibility.bind_port, detail));
    }
    if config.webhook.port == 0 {
        let detail = "must be a valid port number (1-65535)";
        errors.push(FieldError::invalid(&Path::new("webhook").child("port"), 0, detail));
    }
    let certificates = &config.internal_cert_management;
    for (field, name) in [
        ("webhookServiceName", &certificates.webhook_service_name),
        ("webhookSecretName", &certificates.webhook_secret_name),
    ] {
        if certificates.enable && !crate::validate::is_subdomain(name) {
            let path = Path::new("internalCertManagement").child(field);
            errors.push(FieldError::invalid(&path, name, crate::validate::SUBDOMAIN_MESSAGE));
        }
    }
    tls(config, errors);
}

fn tls(config: &Configuration, errors: &mut Vec<FieldError>) {
    let Some(tls) = &config.tls else { return };
    let path = Path::new("tls");
    let versions = ["VersionTLS12", "VersionTLS13"];
    if !tls.min_version.is_empty() && !versions.contains(&tls.min_version.as_str()) {
        errors.push(FieldError::not_supported(&path.child("minVersion"), &tls.min_version, &versions));
    }
    if tls.min_version == "VersionTLS13" && !tls.cipher_suites.is_empty() {
        let detail = "may not be specified when `minVersion` is 'VersionTLS13'";
        errors.push(FieldError::forbidden(&path.child("cipherSuites"), detail));
    }
}

fn custom_labels(config: &Configuration, errors: &mut Vec<FieldError>) {
    let labels = &config.metrics.custom_labels;
    let path = Path::new("metrics").child("customLabels");
    if labels.len() > 20 {
        errors.push(FieldError::too_many(&path, labels.len(), 20));
    }
    let mut seen = BTreeSet::new();
    let mut counts: BTreeMap<SourceKind, usize> = BTreeMap::new();
    for (index, label) in labels.iter().enumerate() {
        let path = path.index(index);
        let mut letters = label.name.chars();
        let starts = letters.next().is_some_and(|c| c.is_ascii_alphabetic());
        if !starts || !letters.all(|c| c.is_ascii_alphanumeric() || c == '_') {
            errors.push(FieldError::invalid(&path.child("name"), &label.name, "must match ^[a-zA-Z][a-zA-Z0-9_]*$"));
        }
        if !seen.insert(&label.name) {
            errors.push(FieldError::duplicate(&path.child("name"), &label.name));
        }
        if !label.source_label_key.is_empty() && !label.source_annotation_key.is_empty() {
            errors.push(FieldError::new(&path, "sourceLabelKey and sourceAnnotationKey are mutually exclusive"));
        }
        let values = label.tracked_values.len();
        let (at_least, at_most) = if label.source_kind == SourceKind::Workload { (1, 12) } else { (0, 16) };
        if values < at_least {
            let detail = "must not be empty when sourceKind is 'Workload'";
            errors.push(FieldError::required(&path.child("trackedValues"), detail));
        }
        if values > at_most {
            errors.push(FieldError::too_many(&path.child("trackedValues"), values, at_most));
        }
        *counts.entry(label.source_kind).or_default() += 1;
    }
    for (kind, count) in counts {
        let limit = if kind == SourceKind::Workload { 2 } else { 6 };
        if count > limit {
            let detail = format!("too many custom labels for source kind {kind:?}: found {count}, expected <= {limit}");
            errors.push(FieldError::new(&path, detail));
        }
    }
}

fn feature_gates(config: &Configuration, errors: &mut Vec<FieldError>) {
    for (name, value) in &config.feature_gates {
        let path = Path::new("featureGates").child(name);
        match gates::default(name) {
            None => {
                let hint = nearest(name, gates::names()).map(|near| format!(", did you mean {near}?"));
                errors.push(FieldError::new(&path, format!("unknown feature gate{}", hint.unwrap_or_default())));
            }
            Some(default) if gates::is_locked(name) && default != *value => {
                errors.push(FieldError::new(&path, format!("cannot be set to {value}, it is locked to {default}")));
            }
            Some(_) => {}
        }
    }
}
