//! Reasons as text. The words are Kueue's, because tools and tests match them.

use super::pins::{self, PinQueue};
use super::{Cause, NoFitKind, PodSetReason, Reason};
use crate::Taint;

/// For a workload without a queue name. Kueue would say that a LocalQueue without a name does not
/// exist.
pub const NO_QUEUE: &str =
    "LocalQueue is not named: the job has no label kueue.x-k8s.io/queue-name";

impl Reason {
    /// The reason of the `QuotaReserved=False` condition.
    pub fn condition_reason(&self) -> &'static str {
        match self {
            Self::NoFit { kind, .. } => kind.condition_reason(),
            Self::NoCandidates { .. } | Self::VictimsTaken | Self::Overtaken => "WaitingForQuota",
            Self::Preempting { .. } | Self::VictimsShared | Self::Migrating => {
                "WaitingForPreemptedWorkloads"
            }
            Self::PreemptionGated => "AdmissionGated",
            Self::WaitingForPodsReady => "WaitingForPodsReady",
            Self::ClusterQueueInactive { .. } | Self::LocalQueueInactive { .. } => "Suspended",
            Self::ClusterQueueMissing { .. }
            | Self::LocalQueueMissing { .. }
            | Self::NamespaceMismatch
            | Self::NamespaceMissing { .. }
            | Self::Invalid { .. } => "Misconfigured",
            Self::EquivalentFailed { cause } => cause.condition_reason(),
            Self::BetterVariant
            | Self::NotWorthMigrating
            | Self::ChecksFailed
            | Self::Waiting { .. }
            | Self::BackingOff { .. }
            | Self::WriteFailed { .. }
            | Self::DispatchFailed { .. } => "PendingEvaluation",
            Self::Deactivated => "Deactivated",
            Self::OnHold => "OnHold",
        }
    }

    /// For the condition and the event. The caller truncates it to the API's limits.
    pub fn message(&self) -> String {
        match self {
            Self::NoFit { pod_sets, .. } | Self::NoCandidates { pod_sets } => {
                couldnt_assign(pod_sets)
            }
            Self::Preempting { pod_sets, victims } => {
                format!(
                    "{}. Pending the preemption of {victims} workload(s)",
                    couldnt_assign(pod_sets)
                )
            }
            Self::PreemptionGated => "Workload requires preemption, but it's gated".to_owned(),
            Self::BetterVariant => "A more favorable variant is already admitted".to_owned(),
            Self::NotWorthMigrating => "Target flavor is below LastAcceptableFlavorName".to_owned(),
            Self::Migrating => "Pending the migration of 1 workload(s)".to_owned(),
            Self::VictimsShared => {
                "Workload has overlapping preemption targets with another workload, but will fit \
                                    after these preemptions complete"
                    .to_owned()
            }
            Self::VictimsTaken => {
                "Workload has overlapping preemption targets with another workload".to_owned()
            }
            Self::Overtaken => {
                "Workload no longer fits after processing another workload".to_owned()
            }
            Self::WaitingForPodsReady => {
                "waiting for all admitted workloads to be in PodsReady condition".to_owned()
            }
            Self::ChecksFailed => "The workload has failed admission checks".to_owned(),
            Self::ClusterQueueInactive { name } => format!("ClusterQueue {name} is inactive"),
            Self::ClusterQueueMissing { name } => format!("ClusterQueue {name} doesn't exist"),
            Self::LocalQueueInactive { queue } => format!("LocalQueue {} is inactive", queue.name),
            Self::LocalQueueMissing { queue } if queue.name.is_empty() => NO_QUEUE.to_owned(),
            Self::LocalQueueMissing { queue } => format!("LocalQueue {} doesn't exist", queue.name),
            Self::NamespaceMismatch => {
                "workload namespace doesn't match ClusterQueue selector".to_owned()
            }
            Self::NamespaceMissing { name } => {
                format!(
                    "workload namespace \"{name}\" does not exist: Namespace \"{name}\" not found"
                )
            }
            Self::Invalid { message } => message.clone(),
            Self::EquivalentFailed { .. } => {
                "Bypassed scheduling evaluation because an equivalent workload recently failed"
                    .to_owned()
            }
            Self::Waiting { .. } => {
                "Workload is pending evaluation in the scheduling queue".to_owned()
            }
            Self::BackingOff { .. } => "Workload is waiting for its back-off to finish".to_owned(),
            Self::WriteFailed { message } => format!("Failed to admit workload: {message}"),
            Self::DispatchFailed { message } => message.clone(),
            Self::Deactivated => "The workload is deactivated".to_owned(),
            Self::OnHold => "The workload is on hold".to_owned(),
        }
    }
}

impl NoFitKind {
    /// The reason of the `QuotaReserved=False` condition.
    pub fn condition_reason(self) -> &'static str {
        match self {
            Self::TopologyPlacementFailed => "TopologyPlacementFailed",
            Self::WaitingForQuota => "WaitingForQuota",
            Self::ExceedsMaxQuota => "ExceedsMaxQuota",
            Self::NoMatchingFlavor => "NoMatchingFlavor",
        }
    }
}

fn couldnt_assign(pod_sets: &[PodSetReason]) -> String {
    if pod_sets.is_empty() {
        // The API rejects such workloads, so Kueue has no message for them.
        return "the workload has no pod sets".to_owned();
    }
    let error = |pod_set: &PodSetReason| {
        Some((pod_set.name.clone(), pod_set.causes.iter().find(|c| c.is_error())?.message()))
    };
    if let Some((name, error)) = pod_sets.iter().find_map(error) {
        return format!("failed to assign flavors to pod set {name}: {error}");
    }
    let parts: Vec<_> = pod_sets
        .iter()
        .map(|pod_set| {
            let mut causes: Vec<_> = pod_set.causes.iter().map(Cause::message).collect();
            causes.sort();
            format!("couldn't assign flavors to pod set {}: {}", pod_set.name, causes.join(", "))
        })
        .collect();
    parts.join("; ")
}

impl Cause {
    /// In Kueue's words.
    pub fn message(&self) -> String {
        match self {
            Self::Insufficient { flavor, resource, asked, free, .. } => {
                let missing = (*asked - *free).format(resource);
                format!(
                    "insufficient unused quota for {resource} in flavor {flavor}, {missing} more needed"
                )
            }
            Self::ExceedsMaxCapacity { flavor, resource, earlier, asked, most } => format!(
                "insufficient quota for {resource} in flavor {flavor}, previously considered podsets requests ({}) + \
                 current podset request ({}) > maximum capacity ({})",
                earlier.format(resource),
                asked.quantity(resource),
                most.format(resource),
            ),
            Self::UntoleratedTaint { flavor, taint } => {
                // Go prints a struct in braces; tests match the text.
                let Taint { key, value, effect } = taint;
                format!("untolerated taint {{{key} {value} {effect} <nil>}} in flavor {flavor}")
            }
            Self::AffinityMismatch { flavor } => {
                format!("flavor {flavor} doesn't match node affinity")
            }
            Self::FlavorMissing { flavor } => format!("flavor {flavor} not found"),
            Self::ResourceUnavailable { resource } => {
                format!("resource {resource} unavailable in ClusterQueue")
            }
            Self::NoFlavors => {
                "workload requires Topology, but there is no TAS cache information".to_owned()
            }
            Self::NotAllowed { flavor } => {
                format!(
                    "skipping flavor {flavor} due to WorkloadAllowedResourceFlavorAnnotation annotation"
                )
            }
            Self::Pinned { flavor, resource, pin } => {
                pins::not_the_pinned_flavor(flavor, pin, resource)
            }
            Self::PinNotListed { resource, pin } => PinQueue::Own.not_listed(pin, resource),
            Self::PinLacksResource { resource, pin } => PinQueue::Own.lacks_resource(pin, resource),
            Self::NotNominated { flavor, resource } => {
                format!(
                    "skipping flavor {flavor} as it is not found in the nomination mapping for resource {resource}"
                )
            }
            Self::TopologyUnsupported { flavor } => {
                format!("Flavor {flavor:?} does not support TopologyAwareScheduling")
            }
            Self::TopologyUnknown { flavor } => {
                format!("Flavor {flavor:?} information missing in TAS cache")
            }
            Self::LevelMissing { flavor } => {
                format!("Flavor {flavor:?} does not contain the requested level")
            }
            Self::TopologyOnly { flavor } => {
                format!("Flavor {flavor:?} supports only TopologyAwareScheduling")
            }
            Self::NoTopologyFlavor => "no TAS flavor assigned".to_owned(),
            Self::SeveralTopologyFlavors { flavors } => {
                let names: Vec<_> = flavors.iter().map(|flavor| &**flavor).collect();
                format!("more than one TAS flavor assigned: {}", names.join(", "))
            }
            Self::ElasticLevel { required } => {
                let level = if *required { "required" } else { "preferred" };
                format!("{level} topology is not supported with ElasticJobsViaWorkloadSlices")
            }
            Self::PlacementFailed { failure, .. } => failure.to_string(),
            Self::DiffersFromReplaced { flavor, kept } => {
                format!(
                    "could not assign {flavor} flavor since the original workload is assigned: {kept}"
                )
            }
        }
    }

    /// Whether Kueue stops with an error.
    fn is_error(&self) -> bool {
        matches!(
            self,
            Self::NoFlavors
                | Self::NoTopologyFlavor
                | Self::SeveralTopologyFlavors { .. }
                | Self::ElasticLevel { .. }
        )
    }

    /// `None` if the cause concerns no single flavor.
    pub fn flavor(&self) -> Option<&crate::Name> {
        match self {
            Self::Insufficient { flavor, .. }
            | Self::ExceedsMaxCapacity { flavor, .. }
            | Self::UntoleratedTaint { flavor, .. }
            | Self::AffinityMismatch { flavor }
            | Self::FlavorMissing { flavor }
            | Self::NotAllowed { flavor }
            | Self::Pinned { flavor, .. }
            | Self::NotNominated { flavor, .. }
            | Self::TopologyUnsupported { flavor }
            | Self::TopologyUnknown { flavor }
            | Self::LevelMissing { flavor }
            | Self::TopologyOnly { flavor }
            | Self::PlacementFailed { flavor, .. }
            | Self::DiffersFromReplaced { flavor, .. } => Some(flavor),
            Self::ResourceUnavailable { .. }
            | Self::PinNotListed { .. }
            | Self::PinLacksResource { .. }
            | Self::NoFlavors
            | Self::NoTopologyFlavor
            | Self::SeveralTopologyFlavors { .. }
            | Self::ElasticLevel { .. } => None,
        }
    }
}
