//! Topology-aware scheduling in one cluster. The engine decides where pods run. This module reports
//! nodes and other pods' usage to the engine, and carries its decisions out.
//!
//! - [`nodes`] and [`pods`]: the parts of nodes and pods that are cached and reported.
//! - [`watch`]: reads nodes and pods only if a Topology exists.
//! - [`ungate`]: releases pods to their assigned domains; [`ranks`] decides which pod goes where.
//! - [`failures`]: marks workloads whose nodes have failed.

pub(crate) mod convert;
pub(crate) mod failures;
pub(crate) mod nodes;
pub(crate) mod pods;
mod ranks;
pub(crate) mod ungate;
pub(crate) mod watch;

use switchyard_config::Configuration;
use switchyard_scheduler::TopologyGates;

/// The feature gate of topology-aware scheduling.
pub(crate) const GATE: &str = "TopologyAwareScheduling";

/// The engine's feature gates. `None` if topology-aware scheduling is off.
pub(crate) fn gates(config: &Configuration) -> Option<TopologyGates> {
    config.enabled(GATE).then(|| TopologyGates {
        mixed_profile: config.enabled("TASProfileMixed"),
        fail_fast: config.enabled("TASFailedNodeReplacementFailFast"),
        keep_single_pods: config.enabled("SkipReassignmentForPodOwnedWorkloads"),
        overlapping_flavors: config.enabled("TASHandleOverlappingFlavors"),
        recompute: config.enabled("TASRecomputeAssignmentWithinSchedulingCycle"),
        balanced: config.enabled("TASBalancedPlacement"),
        elastic: config.enabled("ElasticJobsViaWorkloadSlicesWithTAS"),
    })
}
