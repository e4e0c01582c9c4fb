//! Options of a controller.

use std::{net::TcpListener, sync::Arc, time::Duration};

use kube::Client;
use switchyard_config::Configuration;

use crate::{
    endpoint::Endpoint,
    engine::{placement::Placement, recording::RecordingOptions},
    role::Role,
    webhook::WebhookOptions,
};
use switchyard_platform::{
    clock::{Clock, SystemClock},
    lease::Timing,
};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LeaderMode {
    /// Write only while holding the Lease.
    #[default]
    Elect,
    /// There is a single replica: lead at once, with epoch 0.
    Always,
}

/// Options of a controller.
pub struct Options {
    pub client: Client,
    pub config: Arc<Configuration>,
    /// Name of this replica in the Lease and in events; unique among replicas.
    pub identity: String,
    /// Switchyard's own namespace, for the Lease and Secrets.
    pub namespace: String,
    pub leader: LeaderMode,
    /// For `/healthz`, `/livez`, `/readyz` and `/metrics`; `None`: not served.
    pub health: Option<TcpListener>,
    /// For the webhooks; `None`: neither served nor registered, and the reconcilers do what they
    /// can.
    pub webhook: Option<WebhookOptions>,
    /// For `/metrics` over HTTPS to clients that the API server lets read it; `None`: not served.
    pub metrics: Option<Endpoint>,
    /// For the visibility API; `None`: not served.
    pub visibility: Option<Endpoint>,
    pub clock: Arc<dyn Clock>,
    pub role: Role,
    /// Recording of the engine's events and decisions; `None`: off.
    pub recording: Option<RecordingOptions>,
    /// Interval between audits of charges against pods; `None`: off.
    pub audit: Option<Duration>,
    /// Chooses clusters for dispatched workloads; only on a hub.
    pub placement: Option<Arc<dyn Placement>>,
}

impl Options {
    /// Options of a single-cluster controller that leads at once and serves nothing.
    #[must_use]
    pub fn new(
        client: Client,
        config: Arc<Configuration>,
        identity: impl Into<String>,
        namespace: impl Into<String>,
    ) -> Self {
        Self {
            client,
            config,
            identity: identity.into(),
            namespace: namespace.into(),
            leader: LeaderMode::Always,
            health: None,
            webhook: None,
            metrics: None,
            visibility: None,
            clock: Arc::new(SystemClock),
            role: Role::Single,
            recording: None,
            audit: None,
            placement: None,
        }
    }
}

/// Times of `leaderElection`.
pub(crate) fn lease_timing(config: &Configuration) -> Timing {
    let election = &config.leader_election;
    Timing {
        lease: election.lease_duration.std(),
        renew: election.renew_deadline.std(),
        retry: election.retry_period.std(),
    }
}
