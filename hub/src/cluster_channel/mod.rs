//! One cluster as the hub talks to it: desired state out ([`outbox`]), observations in
//! ([`inbound`]). Agents that dialled in and agents hosted in this process use it alike.

pub mod channel;
pub mod inbound;
pub mod outbox;
mod unpersisted_results;

pub use channel::{ClusterChannel, ClusterChannels, Outgoing};
pub use inbound::Inbound;
pub use outbox::Outbox;
