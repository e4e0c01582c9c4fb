//! The parts of any Kubernetes controller, with no knowledge of queues and quota.
//!
//! Watched objects in memory ([`store`], [`watch`]), work by key ([`work_queue`]), guarded writes
//! ([`write`](mod@write)), leader election ([`lease`]), events, HTTP(S) servers, certificates, logs
//! and traces.

pub mod api_call;
pub mod api_server;
pub mod authority;
pub mod cert;
pub mod clock;
pub mod components;
pub mod delegated_auth;
pub mod errors;
pub mod events;
pub mod https;
pub mod lease;
pub mod listen;
pub mod log_limit;
pub mod object;
pub mod optional_crd;
pub mod program;
pub mod proxy_environment;
pub mod readable;
pub mod store;
pub mod telemetry;
pub mod watch;
pub mod work_queue;
pub mod write;
