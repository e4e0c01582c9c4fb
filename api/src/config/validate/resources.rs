//! `resources`.

use std::collections::BTreeSet;

use crate::{
    config::{Configuration, QuotaCheckStrategy},
    field::{FieldError, Path},
    validate::label_key_error,
};

pub(super) fn resources(config: &Configuration, errors: &mut Vec<FieldError>) {
    let (resources, path) = (&config.resources, Path::new("resources"));
    if resources.quota_check_strategy == QuotaCheckStrategy::IgnoreUndeclared
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
