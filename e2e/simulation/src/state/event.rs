//! The events of a run.

use switchyard_dispatcher::Uid;
use switchyard_ledger::{Action, ObjectKind, Outcome, WatchEvent};
use switchyard_platform::lease::step::ObservedLease;

use super::{Change, LinkId, Network, News, Show, WriteJob, WriteReply};
use crate::time::Ms;

/// A process that may crash or freeze.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Process {
    Hub(usize),
    Agent(usize),
}

#[derive(Debug)]
pub(crate) enum Event {
    Fault(usize),
    FaultEnds(usize),
    Submit(usize),
    Probe,
    /// A flooding agent sends its next messages.
    Flood {
        cluster: usize,
        until: Ms,
    },

    /// The agent dials a hub.
    Dial {
        cluster: usize,
        boot: u32,
    },
    AgentTick {
        cluster: usize,
        boot: u32,
    },
    /// The agent receives a full list.
    List {
        cluster: usize,
        boot: u32,
        kind: ObjectKind,
    },
    Watch {
        cluster: usize,
        boot: u32,
        seen: Box<WatchEvent>,
    },
    CapacityChanged {
        cluster: usize,
        boot: u32,
    },
    /// The agent examines the pods of jobs that are not ready.
    Examine {
        cluster: usize,
        boot: u32,
    },
    /// A request of the agent reaches its API server.
    Act {
        cluster: usize,
        id: u64,
    },
    /// A request is performed after the agent's timeout.
    ActLate {
        cluster: usize,
        boot: u32,
        action: Action,
    },
    Done {
        cluster: usize,
        boot: u32,
        id: u64,
        outcome: Outcome,
    },
    /// The worker's controllers reconcile everything.
    Controllers {
        cluster: usize,
    },
    PodsStart {
        cluster: usize,
        workload: usize,
        object: String,
    },
    PodsStop {
        cluster: usize,
        workload: usize,
        object: String,
    },
    JobEnds {
        cluster: usize,
        workload: usize,
        object: String,
        run: u64,
    },
    JobExpires {
        cluster: usize,
        workload: usize,
        object: String,
    },

    /// The next packet of a link is due.
    Packet {
        link: LinkId,
        up: bool,
    },

    Elect {
        hub: usize,
        boot: u32,
    },
    LeaseRead {
        hub: usize,
        boot: u32,
        round: u64,
    },
    LeaseWrite {
        hub: usize,
        boot: u32,
        round: u64,
        next: ObservedLease,
        sent: Ms,
    },
    LeaseAnswer {
        hub: usize,
        boot: u32,
        round: u64,
        won: Option<ObservedLease>,
        sent: Ms,
    },
    /// The election round times out.
    LeaseTimeout {
        hub: usize,
        boot: u32,
        round: u64,
    },
    HubWatch {
        hub: usize,
        boot: u32,
        /// The list of the hub that this watch followed.
        lists: u32,
        change: Box<Change>,
    },
    HubTick {
        hub: usize,
        boot: u32,
    },
    SessionTick {
        hub: usize,
        boot: u32,
        link: LinkId,
    },
    News {
        hub: usize,
        boot: u32,
        epoch: u64,
        news: Box<News>,
    },
    /// A replica receives a cluster's policy.
    Rules {
        hub: usize,
        boot: u32,
        cluster: usize,
    },
    /// The leader writes the statuses of clusters.
    Statuses {
        hub: usize,
        boot: u32,
    },
    /// The hub's quota engine runs a cycle.
    Engine {
        hub: usize,
        boot: u32,
    },
    WriteArrives(Box<WriteJob>),
    WriteAnswered(Box<WriteJob>, WriteReply),
    WriteLate(Box<WriteJob>),
    WriteReads(Box<WriteJob>),
    ShowDue {
        hub: usize,
        boot: u32,
        epoch: u64,
        uid: Uid,
    },
    ShowArrives {
        hub: usize,
        boot: u32,
        epoch: u64,
        /// Losses of the hub's store before it was sent.
        losses: u32,
        uid: Uid,
        show: Show,
    },
    ShowAnswered {
        hub: usize,
        boot: u32,
        epoch: u64,
        uid: Uid,
        failed: Option<Show>,
    },
    /// The hub's controllers reconcile a workload.
    Lifecycle {
        uid: Uid,
    },
}

impl Event {
    /// The process that receives the event; `None` for events outside all processes.
    pub(crate) fn process(&self, network: &Network) -> Option<Process> {
        Some(match self {
            Self::Dial { cluster, .. }
            | Self::AgentTick { cluster, .. }
            | Self::List { cluster, .. }
            | Self::Watch { cluster, .. }
            | Self::CapacityChanged { cluster, .. }
            | Self::Examine { cluster, .. }
            | Self::Flood { cluster, .. }
            | Self::Done { cluster, .. } => Process::Agent(*cluster),
            Self::Packet { link, up } => {
                let link = network.links.get(link)?;
                if *up { Process::Hub(link.hub) } else { Process::Agent(link.cluster) }
            }
            Self::Elect { hub, .. }
            | Self::LeaseAnswer { hub, .. }
            | Self::LeaseTimeout { hub, .. }
            | Self::HubWatch { hub, .. }
            | Self::HubTick { hub, .. }
            | Self::SessionTick { hub, .. }
            | Self::News { hub, .. }
            | Self::Rules { hub, .. }
            | Self::Statuses { hub, .. }
            | Self::Engine { hub, .. }
            | Self::ShowDue { hub, .. }
            | Self::ShowAnswered { hub, .. } => Process::Hub(*hub),
            Self::WriteAnswered(job, _) => Process::Hub(job.hub),
            Self::Fault(_)
            | Self::FaultEnds(_)
            | Self::Submit(_)
            | Self::Probe
            | Self::Act { .. }
            | Self::ActLate { .. }
            | Self::Controllers { .. }
            | Self::PodsStart { .. }
            | Self::PodsStop { .. }
            | Self::JobEnds { .. }
            | Self::JobExpires { .. }
            | Self::LeaseRead { .. }
            | Self::LeaseWrite { .. }
            | Self::WriteArrives(_)
            | Self::WriteLate(_)
            | Self::WriteReads(_)
            | Self::ShowArrives { .. }
            | Self::Lifecycle { .. } => return None,
        })
    }
}
