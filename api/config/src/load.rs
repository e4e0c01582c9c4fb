//! Parses the file's text into a configuration.

use serde_json::Value;

use super::{
    API_VERSION, ConfigError, Configuration, KIND, effect, gates, later, older, shape, validate,
};
use switchyard_syntax::field::{FieldError, Path};

/// Loads a configuration file.
///
/// # Errors
/// If the text is not YAML, has another kind or an unknown version, has unknown fields or forbidden
/// values. Names all wrong fields at once.
pub fn load(text: &str) -> Result<Configuration, ConfigError> {
    load_with_gates(text, "")
}

/// As [`load`], with feature gates as a flag names them, `A=true,B=false`. The file must not set
/// gates then.
///
/// # Errors
/// As [`load`], or if the flag's value is malformed.
pub fn load_with_gates(text: &str, gates: &str) -> Result<Configuration, ConfigError> {
    let mut value: Value =
        serde_saphyr::from_str(text).map_err(|error| ConfigError::Yaml(error.to_string()))?;
    without_nulls(&mut value);
    let mut ignored = Vec::new();
    let mut errors = kind_errors(&value);
    let named = gates::parse(gates).map_err(|error| ConfigError::Fields(vec![error]))?;
    if !named.is_empty() && value.get("featureGates").is_some() {
        errors.push(FieldError::new(
            &Path::new("featureGates"),
            "may not be set here and by --feature-gates",
        ));
    }
    let mut later =
        if errors.is_empty() { later::take_fields(&mut value, &mut errors) } else { Vec::new() };
    if errors.is_empty() && value["apiVersion"] == older::V1BETA1 {
        match older::convert(&mut value) {
            Ok(ended) => ignored = ended,
            Err(wrong) => errors = wrong,
        }
    }
    if errors.is_empty() {
        errors = shape::errors(&value);
    }
    if !errors.is_empty() {
        return Err(ConfigError::Fields(errors));
    }
    gates::set(&mut value, named);
    later.extend(later::take_gates(&mut value));
    ignored.extend(effect::ignored(&value));
    let mut config: Configuration = serde_json::from_value(value).map_err(|error| {
        ConfigError::Fields(vec![FieldError::new(&Path::root(), error.to_string())])
    })?;
    config.ignored = ignored;
    config.later = later;
    fill_zeros(&mut config);
    let errors = validate::errors(&config);
    if errors.is_empty() { Ok(config) } else { Err(ConfigError::Fields(errors)) }
}

/// Removes null values, which mean the default, as in Go.
fn without_nulls(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.retain(|_, value| !value.is_null());
            map.values_mut().for_each(without_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(without_nulls),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Fields in which zero or empty means the default, as in Kueue.
fn fill_zeros(config: &mut Configuration) {
    let default = Configuration::default();
    if config.wait_for_pods_ready.timeout == super::GoDuration::ZERO {
        config.wait_for_pods_ready.timeout = default.wait_for_pods_ready.timeout;
    }
    if let Some(sharing) = &mut config.admission_fair_sharing
        && sharing.usage_sampling_interval == super::GoDuration::ZERO
    {
        sharing.usage_sampling_interval =
            super::AdmissionFairSharing::default().usage_sampling_interval;
    }
    let (election, defaults) = (&mut config.leader_election, default.leader_election);
    for (field, default) in [
        (&mut election.lease_duration, defaults.lease_duration),
        (&mut election.renew_deadline, defaults.renew_deadline),
        (&mut election.retry_period, defaults.retry_period),
    ] {
        if *field == super::GoDuration::ZERO {
            *field = default;
        }
    }
    if config.integrations.frameworks.is_empty() {
        config.integrations.frameworks = default.integrations.frameworks;
    }
    for (field, default) in [
        (&mut config.multi_kueue.origin, default.multi_kueue.origin),
        (&mut config.leader_election.resource_lock, defaults.resource_lock),
        (&mut config.leader_election.resource_name, defaults.resource_name),
        (&mut config.metrics.bind_address, default.metrics.bind_address),
        (&mut config.health.health_probe_bind_address, default.health.health_probe_bind_address),
    ] {
        if field.is_empty() {
            *field = default;
        }
    }
}

/// Errors of `kind` and `apiVersion`.
fn kind_errors(value: &Value) -> Vec<FieldError> {
    let Some(map) = value.as_object() else {
        return vec![FieldError::new(
            &Path::new("apiVersion"),
            format!("required, begin the file with apiVersion: {API_VERSION} and kind: {KIND}"),
        )];
    };
    let mut errors = Vec::new();
    for (field, expected) in [("apiVersion", API_VERSION), ("kind", KIND)] {
        let path = Path::new(field);
        match map.get(field).map(|value| value.as_str().unwrap_or_default()) {
            Some(text) if text == expected => {}
            Some(older::V1BETA1) if field == "apiVersion" => {}
            Some(other) => {
                errors.push(FieldError::new(&path, format!("is {other:?}, must be {expected}")))
            }
            None => errors.push(FieldError::new(&path, format!("required, must be {expected}"))),
        }
    }
    errors
}
