//! The state machine of a worker cluster's agent: it compares desired with observed state and
//! decides what to do.
//!
//! Pure and synchronous. Hub messages, watch events, action outcomes and the time go in. Actions
//! come out at once. The caller fetches messages to the hub one at a time, so reports that wait for
//! a slow hub coalesce here.
//!
//! # Guarantees
//!
//! - A message or watch event that arrives twice or late changes nothing.
//! - At most one attempt of a workload has objects that may run.
//! - The agent deletes only objects that carry the hub's id and the workload's uid, and only for a
//!   tombstone or a higher attempt.
//! - The agent reports a final state in every session until the hub has persisted it, and keeps the
//!   job until then.
//! - The agent stops a job with a fence once the lease has been expired for that long. It does so
//!   before it applies any message, with or without a hub, and also after a restart. The lease
//!   counts from the sending of its renewal.
//!
//! [`Ledger`] is the state machine, [`SessionProtocol`] the part of a session that concerns no
//! workload: handshake, pings and capacity reports.

mod action_slot;
mod actions;
mod admission;
mod backoff;
mod desired;
mod entry;
mod heartbeat;
mod ledger;
mod namespaces;
mod objects;
mod session_error;
mod session_protocol;
#[cfg(test)]
mod tests;
mod watch_event;

pub use self::actions::{Action, Outcome, Rejection, Verb};
pub use self::backoff::Backoff;
pub use self::desired::whole_fence;
pub use self::ledger::{LastSession, Ledger, Rules};
pub use self::namespaces::AllowedNamespaces;
pub use self::objects::*;
pub use self::session_error::SessionError;
pub use self::session_protocol::{Outgoing, SessionProtocol};
pub use self::watch_event::WatchEvent;
