//! Why a session ends.

use std::time::Duration;

use thiserror::Error;

/// Why a session must end. Messages applied before the error stay in effect.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum SessionError {
    /// The first message was not `Welcome`, or a second `Welcome` came.
    #[error("the hub sent {0} where the protocol does not allow it")]
    OutOfPlace(&'static str),
    /// The hub is not the one that issued the agent's identity.
    #[error("the hub says it is {got:?}, but this cluster belongs to {expected:?}")]
    OtherHub {
        /// The hub that the agent's certificate names.
        expected: String,
        got: String,
    },
    /// The sender is a leader that has been replaced.
    #[error(
        "the hub's epoch {got} is lower than {seen}, which was seen before: a deposed leader is not obeyed"
    )]
    Deposed {
        /// The message's epoch.
        got: u64,
        /// The highest epoch seen.
        seen: u64,
    },
    /// The hub chose a protocol version that this build does not speak.
    #[error("the hub chose protocol version {0}; this agent speaks {first} to {last}", first = switchyard_proto::VERSIONS.start(), last = switchyard_proto::VERSIONS.end())]
    Version(u32),
    /// A delta does not follow the agent's revision. The agent needs a snapshot.
    #[error(
        "the hub's delta is based on revision {base}, but {have} is what was taken over: asking for a snapshot"
    )]
    Gap {
        /// The delta's base revision.
        base: u64,
        /// The agent's revision.
        have: u64,
    },
    /// An assignment names a payload that the hub has not sent.
    #[error("the hub did not send the payload of workload {0}: asking for everything anew")]
    PayloadMissing(String),
    /// A payload's content does not match its hash.
    #[error("the hub sent a payload whose SHA-256 is not the one it names")]
    PayloadCorrupt,
    /// The hub ended the session.
    #[error("the hub said goodbye: {reason}")]
    Goodbye {
        reason: String,
        /// How long the hub asks the agent to stay away.
        retry_after: Option<Duration>,
    },
    #[error("the hub did not say Welcome within {0:?}")]
    NoWelcome(Duration),
    #[error("the hub did not answer a ping within {0:?}")]
    PingTimeout(Duration),
}
