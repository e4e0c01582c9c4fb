//! One cluster as the hub talks to it: what it is told ([`outbox`]) and what it tells ([`inbound`]). The same for
//! agents that dialled in and for agents hosted in this process.

mod held_ends;
pub mod inbound;
pub mod outbox;
pub mod port;

pub use inbound::Inbound;
pub use outbox::{Content, Outbox};
pub use port::{Outgoing, Port, Ports};
