//! Rules of the servers for webhooks, metrics and the list of pending workloads.

use std::collections::{BTreeMap, BTreeSet};

use super::tls;
use crate::{Configuration, SourceKind};
use switchyard_syntax::{
    field::{FieldError, Path},
    labels::{SUBDOMAIN_MESSAGE, is_subdomain, label_key_error},
};

/// Kubernetes' message for an invalid Service name.
const SERVICE_NAME_MESSAGE: &str = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')";

fn is_service_name(name: &str) -> bool {
    let begins = name.starts_with(|c: char| c.is_ascii_lowercase());
    begins && name.len() <= 63 && !name.contains('.') && is_subdomain(name)
}

pub(super) fn servers(config: &Configuration, errors: &mut Vec<FieldError>) {
    let visibility = &config.visibility_server;
    let path = Path::new("visibilityServer");
    if let Some(address) = &visibility.bind_address
        && address.parse::<std::net::IpAddr>().is_err()
    {
        errors.push(FieldError::invalid(
            &path.child("bindAddress"),
            address,
            "must be a valid IP address",
        ));
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
    let path = Path::new("internalCertManagement");
    let (service, secret) = (&certificates.webhook_service_name, &certificates.webhook_secret_name);
    if certificates.enable && !is_service_name(service) {
        errors.push(FieldError::invalid(
            &path.child("webhookServiceName"),
            service,
            SERVICE_NAME_MESSAGE,
        ));
    }
    if certificates.enable && !is_subdomain(secret) {
        errors.push(FieldError::invalid(
            &path.child("webhookSecretName"),
            secret,
            SUBDOMAIN_MESSAGE,
        ));
    }
    tls::tls(config, errors);
}

pub(super) fn custom_labels(config: &Configuration, errors: &mut Vec<FieldError>) {
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
            errors.push(FieldError::invalid(
                &path.child("name"),
                &label.name,
                "must match ^[a-zA-Z][a-zA-Z0-9_]*$",
            ));
        }
        if !seen.insert(&label.name) {
            errors.push(FieldError::duplicate(&path.child("name"), &label.name));
        }
        if !label.source_label_key.is_empty() && !label.source_annotation_key.is_empty() {
            errors.push(FieldError::new(
                &path,
                "sourceLabelKey and sourceAnnotationKey are mutually exclusive",
            ));
        }
        let (field, key) =
            match (label.source_label_key.as_str(), label.source_annotation_key.as_str()) {
                ("", "") => ("name", label.name.as_str()),
                ("", key) => ("sourceAnnotationKey", key),
                (key, _) => ("sourceLabelKey", key),
            };
        if let Some(detail) = label_key_error(key) {
            errors.push(FieldError::invalid(&path.child(field), key, detail));
        }
        let values = label.tracked_values.len();
        let (at_least, at_most) =
            if label.source_kind == SourceKind::Workload { (1, 12) } else { (0, 16) };
        if values < at_least {
            let detail = "must not be empty when sourceKind is 'Workload'";
            errors.push(FieldError::required(&path.child("trackedValues"), detail));
        }
        if values > at_most {
            errors.push(FieldError::too_many(&path.child("trackedValues"), values, at_most));
        }
        if label.tracked_values.iter().collect::<BTreeSet<_>>().len() < values {
            errors
                .push(FieldError::new(&path.child("trackedValues"), "must not contain duplicates"));
        }
        *counts.entry(label.source_kind).or_default() += 1;
    }
    for (kind, count) in counts {
        let limit = if kind == SourceKind::Workload { 2 } else { 6 };
        if count > limit {
            let detail = format!(
                "too many custom labels for source kind {kind:?}: found {count}, expected <= {limit}"
            );
            errors.push(FieldError::new(&path, detail));
        }
    }
}
