//! Rules of `multiKueue`.

use std::collections::BTreeSet;

use super::{is_kind_argument, not_negative};
use crate::Configuration;
use switchyard_jobs::framework_of;
use switchyard_syntax::{
    field::{FieldError, Path},
    labels::label_value_error,
    names,
};

pub(super) fn multi_kueue(config: &Configuration, errors: &mut Vec<FieldError>) {
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
        } else if let Some(built_in) = framework_of(name).filter(|it| is_sent(config, it)) {
            let detail = format!(
                "conflicts with a built-in MultiKueue adapter: {built_in} is among integrations.frameworks, and is sent"
            );
            errors.push(FieldError::invalid(&path, name, detail));
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
            errors.push(FieldError::invalid(
                &path.child("stepSize"),
                incremental.step_size,
                detail,
            ));
        }
    }
    cluster_profile(config, &path.child("clusterProfile"), errors);
}

/// Integrations that Kueue's manager sends only if the file names them as external frameworks.
/// Switchyard always sends them.
const WITHOUT_ADAPTER: [&str; 2] = ["deployment", "sparkoperator.k8s.io/sparkapplication"];

/// Whether Kueue's manager sends jobs of a built-in kind: enabled kinds, with a few exceptions.
fn is_sent(config: &Configuration, framework: &str) -> bool {
    config.integrations.frameworks.iter().any(|it| it == framework)
        && !WITHOUT_ADAPTER.contains(&framework)
}

fn cluster_profile(config: &Configuration, path: &Path, errors: &mut Vec<FieldError>) {
    let Some(profile) = &config.multi_kueue.cluster_profile else { return };
    if !profile.access_providers.is_empty() && !profile.credentials_providers.is_empty() {
        let detail = "must not be specified when accessProviders is specified";
        errors.push(FieldError::forbidden(&path.child("credentialsProviders"), detail));
    }
    let lists = [
        ("accessProviders", &profile.access_providers),
        ("credentialsProviders", &profile.credentials_providers),
    ];
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
            for (index, variable) in provider.exec_config.env.iter().enumerate() {
                if variable.name.is_empty() {
                    let path = exec.child("env").index(index).child("name");
                    errors.push(FieldError::required(&path, "must be specified"));
                }
            }
            let mode = &provider.exec_config.interactive_mode;
            let modes = ["Never", "IfAvailable", "Always"];
            if !mode.is_empty() && !modes.contains(&mode.as_str()) {
                errors.push(FieldError::not_supported(
                    &exec.child("interactiveMode"),
                    mode,
                    &modes,
                ));
            }
        }
    }
}
