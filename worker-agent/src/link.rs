//! One session between an agent and its hub, as two bounded channels.
//!
//! Both ends look the same for a gRPC session and for a core inside the hub. The agent's end starts
//! with `Hello`, and the hub's end answers `Welcome`. Either end closes the session by dropping its
//! end.

use switchyard_proto::v1::{AgentMessage, HubMessage};
use tokio::sync::mpsc;

/// The most queued messages in each direction. Behind it, both ends coalesce.
pub const CAPACITY: usize = 64;

/// The agent's end of one session.
#[derive(Debug)]
pub struct Link {
    pub to_agent: mpsc::Receiver<HubMessage>,
    pub to_hub: mpsc::Sender<AgentMessage>,
}

/// The hub's end of one session.
#[derive(Debug)]
pub struct HubEnd {
    pub to_agent: mpsc::Sender<HubMessage>,
    pub to_hub: mpsc::Receiver<AgentMessage>,
}

/// The sessions of one agent, one after the other. The agent's ledger outlives them. A link that
/// arrives while another is open supersedes it.
pub type Links = mpsc::Receiver<Link>;

/// Both ends of a new session.
pub fn pair() -> (Link, HubEnd) {
    let (down, to_agent) = mpsc::channel(CAPACITY);
    let (to_hub, up) = mpsc::channel(CAPACITY);
    (Link { to_agent, to_hub }, HubEnd { to_agent: down, to_hub: up })
}

/// The sessions of an agent that gets only this one, and ends with it.
pub fn once(link: Link) -> Links {
    let (sender, links) = mpsc::channel(1);
    // The channel is empty and its receiver exists, so this cannot fail.
    let _ = sender.try_send(link);
    links
}
