//! The server that agents dial: TLS, enrolment, and one session for each cluster.
//!
//! # Guarantees
//! - A caller's identity comes from its certificate alone. Each call checks it against the
//!   MultiKueueCluster as it is now.
//! - A refused caller hears "refused" and nothing else. The log has the reason.
//! - Every wait has a deadline, every queue and message a bound. A slow caller delays no other.

mod agent_connection;
mod agent_health;
mod agent_service;
mod authorization;
pub(crate) mod clock_skew;
mod cluster_rate;
mod connection_limit;
mod copy_keys;
mod duplicate_clusters;
mod enrolment;
mod epochs;
mod listener;
mod listener_tls;
mod observation_check;
mod pending_reports;
mod registry;
mod session;
mod session_limits;
mod token_cache;

use std::time::Duration;

pub use agent_connection::Peer;
pub use agent_service::AgentService;
pub use authorization::{Authorizer, CallerRefusal, ClusterLookup};
pub use copy_keys::CopyKeys;
pub(crate) use copy_keys::HostedOperators;
pub use duplicate_clusters::KnownCluster;
pub use enrolment::{EnrolmentService, Tokens};
pub use listener::{AgentServices, Listen, serve};
pub use listener_tls::{Authorities, ListenerTls};
pub use registry::{LiveSession, Registry};
pub use session::{SessionEvent, SessionInfo, Sessions, Term};
pub use session_limits::BudgetPermit;
pub use token_cache::TokenCache;

/// Deadlines and bounds of the agents' server.
#[derive(Debug, Clone)]
pub struct ServerSettings {
    /// Deadline of a TLS handshake.
    pub handshake: Duration,
    /// A connection without a client certificate is closed after this time. Enrolment takes a
    /// moment.
    pub unauthenticated: Duration,
    /// Connections without a client certificate, handshakes included. Above it, the oldest are
    /// closed.
    pub newcomers: usize,
    /// The same bound for one address.
    pub per_address: usize,
    /// Connections of one cluster. Above it, the oldest are closed.
    pub per_cluster: usize,
    /// Lifetime of agents' certificates.
    pub agent_certificate_life: Duration,
    /// Deadline of the first message of a session.
    pub hello: Duration,
    /// How often each side pings the other.
    pub ping_interval: Duration,
    /// An unanswered ping, or a message that cannot be sent for this time, ends the session.
    pub ping_timeout: Duration,
    /// Lifetime of an agent's lease, from the sending of the last answered ping.
    pub lease: Duration,
    /// Retry time sent to a rejected caller.
    pub retry_after: Duration,
    /// Sessions that one cluster may start in a burst.
    pub session_burst: u32,
    /// Time after which a cluster may start one more session.
    pub session_every: Duration,
}

impl Default for ServerSettings {
    fn default() -> Self {
        Self {
            handshake: Duration::from_secs(10),
            unauthenticated: Duration::from_secs(30),
            newcomers: 256,
            per_address: 64,
            per_cluster: 8,
            agent_certificate_life: switchyard_hub_pki::ca::AGENT_LIFE,
            hello: Duration::from_secs(10),
            ping_interval: Duration::from_secs(10),
            ping_timeout: Duration::from_secs(5),
            lease: Duration::from_secs(30),
            retry_after: Duration::from_secs(1),
            session_burst: 16,
            session_every: Duration::from_secs(2),
        }
    }
}
