//! The files of `deploy/monitoring`, tried with a real Prometheus. Each alert fires when it should and not otherwise. Every query
//! of the alerts and of the dashboard has an answer from a live hub and its agents.

mod alerts;
mod dashboard;
mod live;
mod table;

use std::path::PathBuf;

use serde_json::Value;

/// A file of `deploy/monitoring`.
fn shipped(file: &str) -> PathBuf {
    switchyard_e2e::paths::root().join("deploy/monitoring").join(file)
}

/// The alerting rules.
fn rules() -> Vec<Value> {
    let file: Value =
        serde_saphyr::from_str(&std::fs::read_to_string(shipped("rules.yaml")).unwrap()).unwrap();
    let groups = file["groups"].as_array().unwrap();
    groups.iter().flat_map(|group| group["rules"].as_array().unwrap().clone()).collect()
}

/// A text field.
fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value[field].as_str().ok_or_else(|| format!("no {field} in {value}")).unwrap()
}
