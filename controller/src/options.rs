//! What a caller gives to start a controller.

use std::{net::TcpListener, sync::Arc};

use kube::Client;
use switchyard_scheduler::Settings;

use crate::{
    clock::{Clock, SystemClock},
    config::Configuration,
    context::Role,
    lease::{LEASE_NAME, Timing},
    lifecycle::Rules,
    placement::Placement,
};

/// Whether this process competes for leadership.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LeaderMode {
    /// Hold the Lease before writing anything.
    #[default]
    Elect,
    /// There is only ever one of us: lead at once, with epoch 0.
    Always,
}

/// What a caller gives to start a controller.
pub struct Options {
    /// The API server.
    pub client: Client,
    /// Kueue's configuration.
    pub config: Arc<Configuration>,
    /// Names this replica in the Lease and in events; unique among replicas.
    pub identity: String,
    /// Our own namespace: Lease, Secrets.
    pub namespace: String,
    /// Whether to compete for leadership.
    pub leader: LeaderMode,
    /// Serves `/healthz`, `/livez`, `/readyz` and `/metrics`; none: not served.
    pub health: Option<TcpListener>,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// How this process takes part.
    pub role: Role,
    /// Where dispatched workloads go; only on a hub.
    pub placement: Option<Arc<dyn Placement>>,
}

impl Options {
    /// A single-cluster controller that leads at once and serves nothing.
    #[must_use]
    pub fn new(client: Client, config: Arc<Configuration>, identity: impl Into<String>, namespace: impl Into<String>) -> Self {
        Self {
            client,
            config,
            identity: identity.into(),
            namespace: namespace.into(),
            leader: LeaderMode::Always,
            health: None,
            clock: Arc::new(SystemClock),
            role: Role::Single,
            placement: None,
        }
    }
}

/// The names of the enabled job kinds, such as `batch/job`.
pub(crate) fn frameworks(_config: &Configuration) -> Vec<String> {
    vec!["batch/job".to_owned()]
}

/// The engine's part of the configuration.
pub(crate) fn engine_settings(_config: &Configuration) -> Settings {
    Settings::default()
}

/// `metrics.enableClusterQueueResources`.
pub(crate) fn cluster_queue_resources(_config: &Configuration) -> bool {
    false
}

/// `leaderElection`'s times.
pub(crate) fn lease_timing(_config: &Configuration) -> Timing {
    Timing::default()
}

/// `leaderElection.resourceName`.
pub(crate) fn lease_name(_config: &Configuration) -> String {
    LEASE_NAME.to_owned()
}

/// What the life of workloads depends on.
pub(crate) fn lifecycle_rules(_config: &Configuration) -> Rules {
    Rules::default()
}

/// Whether a PodsReady timeout sends a workload to the back of the queue.
pub(crate) fn order_by_eviction(_config: &Configuration) -> bool {
    true
}
