//! The hub's door and the agent's way to it, as a program of either kind runs them, without a control plane: who is let
//! in and for how long, what an agent that means ill can do, and what a bad network does.
//!
//! The agents are made of the agent's own parts; those that mean ill speak gRPC, TLS or bytes directly.
#![expect(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

#[path = "transport/api.rs"]
mod api;
#[path = "transport/certificates.rs"]
mod certificates;
#[path = "transport/door.rs"]
mod door;
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
