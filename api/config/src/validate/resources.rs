//! Rules of `resources`.

use std::collections::{BTreeMap, BTreeSet};

use switchyard_api::devices::DeviceClassSource;

use crate::{Configuration, QuotaCheckStrategy};
use switchyard_syntax::{
    field::{FieldError, Path},
    labels::label_key_error,
};

pub(super) fn resources(config: &Configuration, errors: &mut Vec<FieldError>) {
    let (resources, path) = (&config.resources, Path::new("resources"));
    if config.enabled("QuotaCheckStrategy")
        && resources.quota_check_strategy == QuotaCheckStrategy::IgnoreUndeclared
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
        for output in transformation.outputs.keys().filter(|output| *output == PODS) {
            let path = path.child("transformations").index(index).child("outputs").key(output);
            errors.push(FieldError::forbidden(&path, RESERVED));
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
    let mut resource_of = BTreeMap::new();
    for (index, mapping) in mappings.iter().enumerate() {
        let path = path.index(index);
        if let Some(detail) = label_key_error(&mapping.name) {
            errors.push(FieldError::invalid(&path.child("name"), &mapping.name, detail));
        }
        if mapping.name == PODS {
            errors.push(FieldError::forbidden(&path.child("name"), RESERVED));
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
        let mut here = BTreeSet::new();
        for (index, class) in mapping.device_class_names.iter().enumerate() {
            let path = names.index(index);
            if let Some(detail) = label_key_error(class) {
                errors.push(FieldError::invalid(&path, class, detail));
            }
            if !here.insert(class) {
                errors.push(FieldError::duplicate(&path, class));
            }
            let other = resource_of.entry(class).or_insert(&mapping.name);
            if *other != &mapping.name {
                let detail = format!("device class already mapped to resource {other}");
                errors.push(FieldError::invalid(&path, class, detail));
            }
        }
        for (index, source) in mapping.sources.iter().enumerate() {
            device_source(source, &path.child("sources").index(index), errors);
        }
    }
}

/// The resource that counts a Workload's pods, whatever they request.
const PODS: &str = "pods";
const RESERVED: &str =
    "counts the pods themselves; choose another name, here and in the quota of ClusterQueues";

/// Rejects a source of amounts, which Switchyard cannot charge by. Ignoring the source would charge
/// the number of devices instead.
fn device_source(source: &DeviceClassSource, path: &Path, errors: &mut Vec<FieldError>) {
    errors.push(match (&source.counter, &source.capacity) {
        (Some(_), None) => FieldError::forbidden(&path.child("counter"), NO_SOURCES),
        (None, Some(_)) => FieldError::forbidden(&path.child("capacity"), NO_SOURCES),
        _ => FieldError::required(path, "exactly one source type must be set per entry"),
    });
}

const NO_SOURCES: &str = "quota cannot be charged by what devices have or consume; without sources each device is charged as one";
