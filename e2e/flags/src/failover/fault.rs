//! The faults.

use std::time::Duration;

use clap::ValueEnum;

/// A fault. All but the last strike the worker on which all jobs run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum Fault {
    /// The network between hub and worker ends all connections and takes no new ones.
    Cut,
    /// The network between hub and worker loses all packets: connections stay open, and nothing comes through.
    Silence,
    /// The controller on the worker is killed: the agent, or the worker's Kueue.
    KillAgent,
    /// The agent stands still (SIGSTOP) past its lease, and wakes before the hub gave it up.
    Sleep,
    /// The worker's API server is killed.
    KillApiServer,
    /// The worker's etcd is killed.
    KillEtcd,
    /// The hub's controller is killed.
    KillHub,
}

impl Fault {
    /// All of them, the hub last: a hub that has just begun gives nothing up for a minute.
    pub const ALL: [Self; 7] = [
        Self::Cut,
        Self::Silence,
        Self::KillAgent,
        Self::Sleep,
        Self::KillApiServer,
        Self::KillEtcd,
        Self::KillHub,
    ];

    /// The name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Cut => "Connections between hub and worker cut",
            Self::Silence => "Packets between hub and worker lost",
            Self::KillAgent => "`kill -9` of the worker's agent, or of its Kueue",
            Self::Sleep => "SIGSTOP of the agent past its lease",
            Self::KillApiServer => "`kill -9` of the worker's API server",
            Self::KillEtcd => "`kill -9` of the worker's etcd",
            Self::KillHub => "`kill -9` of the hub's controller",
        }
    }

    /// How long it lasts, if that does not depend on what becomes of the jobs.
    ///
    /// An agent's lease lasts 30 s. With a fence after 5 s, jobs have to stop 35 s after the last ping, and the hub gives
    /// them up about 50 s after the session has ended.
    pub fn lasts(self) -> Option<Duration> {
        match self {
            Self::Sleep | Self::KillHub => Some(Duration::from_secs(45)),
            Self::Cut | Self::Silence | Self::KillAgent | Self::KillApiServer | Self::KillEtcd => {
                None
            }
        }
    }

    /// Whether a hub runs that could see that a cluster is lost.
    pub fn has_hub(self) -> bool {
        self != Self::KillHub
    }
}
