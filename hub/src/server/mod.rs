//! The agents' door: TLS, enrolment, and one session a cluster.
//!
//! # Guarantees
//! - Who a caller is comes from its certificate alone, checked at every call against the living MultiKueueCluster.
//! - A refusal says "refused" and nothing else; the reason is in the log.
//! - Every wait has a deadline, every queue and message a bound; one slow caller delays no other.

mod accept;
mod agent;
mod agent_health;
mod arrivals;
mod conn;
mod connection_limit;
mod copy_keys;
mod duplicate_clusters;
mod enrolment;
mod epochs;
mod gate;
mod newest;
mod observation_check;
mod registry;
mod session;
mod session_limits;
mod tls;
mod token_memory;

use std::time::Duration;

pub use accept::{Listen, Services, serve};
pub use agent::AgentService;
pub use conn::Peer;
pub use copy_keys::CopyKeys;
pub(crate) use copy_keys::OfHosted;
pub use duplicate_clusters::Member;
pub use enrolment::{EnrolmentService, Tokens};
pub use gate::{Clusters, Gate, Refusal};
pub use registry::{Live, Registry};
pub use session::{SessionEvent, SessionInfo, Sessions, Term};
pub use session_limits::Weight;
pub use tls::{Authorities, TlsKeeper};
pub use token_memory::SecretTokens;

/// Deadlines and bounds of the door.
#[derive(Debug, Clone)]
pub struct Settings {
    /// A TLS handshake has to be done within this.
    pub handshake: Duration,
    /// A connection without a certificate is closed after this: enrolling takes a moment.
    pub unauthenticated: Duration,
    /// Connections at once that have shown no certificate, handshakes included; of more, the oldest are closed.
    pub newcomers: usize,
    /// The same of one address.
    pub of_a_source: usize,
    /// Connections at once of one cluster; of more, the oldest are closed.
    pub of_a_cluster: usize,
    /// What agents' certificates last.
    pub agent_life: Duration,
    /// The first message of a session has to be there within this.
    pub hello: Duration,
    /// How often each side asks whether the other is there.
    pub ping_interval: Duration,
    /// A ping unanswered for this long ends the session; so does a message that cannot be sent for this long.
    pub ping_timeout: Duration,
    /// What agents' leases last from the sending of the last answered ping.
    pub lease: Duration,
    /// What callers that are sent away are asked to wait.
    pub retry_after: Duration,
    /// Sessions that one cluster may begin at once.
    pub session_burst: u32,
    /// After which time it may begin one more.
    pub session_every: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            handshake: Duration::from_secs(10),
            unauthenticated: Duration::from_secs(30),
            newcomers: 256,
            of_a_source: 64,
            of_a_cluster: 8,
            agent_life: switchyard_hub_pki::ca::AGENT_LIFE,
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
