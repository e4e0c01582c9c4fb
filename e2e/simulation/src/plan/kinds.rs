//! The name under which a fault is counted, and the objects that it names.

use super::FaultKind;

impl FaultKind {
    /// The name at its start; `None` if the fault counts only with an effect.
    pub(crate) fn counted(&self) -> Option<&'static str> {
        Some(match self {
            Self::AgentCrash { .. } => "fault: agent crash",
            Self::AgentFreeze(_) => "fault: agent freeze",
            Self::HubCrash { .. } => "fault: hub crash",
            Self::HubFreeze(_) => "fault: hub freeze",
            Self::HubCut(_) => "fault: hub cut",
            Self::UplinkCut(_) => "fault: mute",
            Self::DownlinkCut(_) => "fault: deaf",
            Self::Partition(_) => "fault: partition",
            Self::Expired(_) => "fault: expired",
            Self::HalfLost => "fault: half gone",
            Self::ApiOutage(_) => "fault: api outage",
            Self::WatchGap(_) => "fault: watch gap",
            Self::Slow(_) => "fault: slow",
            Self::Forged(_) => "fault: forged",
            Self::PodsNotReady(_) => "fault: pods not ready",
            Self::ClockJump { .. } => "fault: clock jump",
            Self::Release => "fault: release",
            Self::StoreLost { .. } => "fault: store lost",
            Self::StoreRestored => "fault: store restored",
            Self::Drain(_) => "fault: drain",
            Self::OwnerChanges { .. } => "fault: says",
            Self::PolicyChange { .. } => "fault: rule",
            Self::Evict(_)
            | Self::Delete(_)
            | Self::Move { .. }
            | Self::WorkerEvicts { .. }
            | Self::WorkerDeletes { .. }
            | Self::Replaced { .. }
            | Self::Replay(_)
            | Self::RejectsCreations(_)
            | Self::Flood(_)
            | Self::DeclareLost(_) => return None,
        })
    }

    pub fn workload(&self) -> Option<usize> {
        match self {
            Self::Evict(workload)
            | Self::Delete(workload)
            | Self::WorkerEvicts { workload, .. }
            | Self::WorkerDeletes { workload, .. }
            | Self::Replaced { workload, .. }
            | Self::OwnerChanges { workload, .. }
            | Self::Move { workload, .. } => Some(*workload),
            _ => None,
        }
    }

    pub fn cluster(&self) -> Option<usize> {
        match self {
            Self::AgentCrash { cluster, .. }
            | Self::AgentFreeze(cluster)
            | Self::UplinkCut(cluster)
            | Self::DownlinkCut(cluster)
            | Self::Partition(cluster)
            | Self::Expired(cluster)
            | Self::ApiOutage(cluster)
            | Self::WatchGap(cluster)
            | Self::Slow(cluster)
            | Self::RejectsCreations(cluster)
            | Self::Flood(cluster)
            | Self::Forged(cluster)
            | Self::PodsNotReady(cluster)
            | Self::WorkerEvicts { cluster, .. }
            | Self::WorkerDeletes { cluster, .. }
            | Self::Replaced { cluster, .. }
            | Self::Replay(cluster)
            | Self::DeclareLost(cluster)
            | Self::Drain(cluster)
            | Self::PolicyChange { cluster, .. }
            | Self::Move { cluster, .. } => Some(*cluster),
            _ => None,
        }
    }

    pub fn hub(&self) -> Option<usize> {
        match self {
            Self::HubCrash { hub, .. }
            | Self::HubFreeze(hub)
            | Self::HubCut(hub)
            | Self::ClockJump { hub, .. } => Some(*hub),
            _ => None,
        }
    }
}
