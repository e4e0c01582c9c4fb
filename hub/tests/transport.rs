//! The hub's agent server and the agent's client, run together without a control plane. The tests
//! cover authorization and its end, hostile agents, and bad networks.
//!
//! Agents are built from the agent's own parts. Hostile ones speak gRPC, TLS or bytes directly.
#![expect(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

#[path = "transport/api.rs"]
mod api;
#[path = "transport/certificates.rs"]
mod certificates;
#[path = "transport/enrolment.rs"]
mod enrolment;
#[path = "transport/floods.rs"]
mod floods;
#[path = "transport/network.rs"]
mod network;
#[path = "transport/raw.rs"]
mod raw;
#[path = "transport/security.rs"]
mod security;
#[path = "transport/session.rs"]
mod session;
#[path = "transport/test_server.rs"]
mod test_server;
