//! One session between an agent and its hub, as two bounded channels.
//!
//! A gRPC session and an agent hosted inside the hub look the same from both ends: the agent's end opens with `Hello`,
//! the hub's answers `Welcome`, and either ends the session by dropping its end.

use switchyard_proto::v1::{AgentMessage, HubMessage};
use tokio::sync::mpsc;

/// Messages that may lie in each direction of a link. Behind it both ends coalesce.
pub const CAPACITY: usize = 64;

/// The agent's end of one session.
#[derive(Debug)]
pub struct Link {
    /// What the hub says.
    pub to_agent: mpsc::Receiver<HubMessage>,
    /// What the agent says.
    pub to_hub: mpsc::Sender<AgentMessage>,
}

/// The hub's end of one session.
#[derive(Debug)]
pub struct HubEnd {
    /// What the hub says.
    pub to_agent: mpsc::Sender<HubMessage>,
    /// What the agent says.
    pub to_hub: mpsc::Receiver<AgentMessage>,
}

/// The sessions of one agent, one after the other: its ledger outlives each of them. A link that arrives while
/// another is open supersedes it.
pub type Links = mpsc::Receiver<Link>;

/// Both ends of a new session.
pub fn pair() -> (Link, HubEnd) {
    let (down, to_agent) = mpsc::channel(CAPACITY);
    let (to_hub, up) = mpsc::channel(CAPACITY);
    (Link { to_agent, to_hub }, HubEnd { to_agent: down, to_hub: up })
}

/// Sessions of an agent that gets just this one: it ends with it.
pub fn once(link: Link) -> Links {
    let (sender, links) = mpsc::channel(1);
    // The channel is empty and its receiver is in our hands: this cannot fail.
    let _ = sender.try_send(link);
    links
}
