//! Small stand-ins for the agent's two neighbours: a scripted hub and an API server.

mod api;
mod hub;

pub(crate) use api::api;
pub(crate) use hub::{FakeHub, tls};

use std::time::Duration;

use switchyard_ledger::AllowedNamespaces;

use crate::allow::Allowed;
use crate::foreign::Foreign;
use crate::proof::Keys;
use crate::settings::Settings;

/// Settings of an agent that sends one kind of job, without keys, dry runs and memory.
pub(crate) fn settings(hub_id: &str, framework: &str) -> Settings {
    Settings {
        cluster: "east".to_owned(),
        cluster_uid: String::new(),
        hub_id: hub_id.to_owned(),
        origin: "multikueue".to_owned(),
        boot_id: "boot".to_owned(),
        software: "test".to_owned(),
        namespaces: AllowedNamespaces::All,
        frameworks: vec![framework.to_owned()],
        allowed: Allowed::default(),
        dry_runs: None,
        keys: Keys::none(),
        foreign: Foreign::default(),
        concurrency: 4,
        memory: None,
    }
}

/// The deadline of every wait of a test.
pub(crate) const DEADLINE: Duration = Duration::from_secs(20);

/// Waits for a result that must come.
pub(crate) async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(DEADLINE, future).await {
        Ok(value) => value,
        Err(_) => panic!("{what} did not come within {DEADLINE:?}"),
    }
}
