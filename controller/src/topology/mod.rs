//! Topology-aware scheduling in one cluster. The engine decides where pods run; here it is told what nodes have and what the
//! pods of others use, and what it decided is done.
//!
//! - [`nodes`] and [`pods`]: what of nodes and pods is kept in memory, and what the engine is told of them.
//! - [`watch`]: they are read only where a Topology exists.
//! - [`ungate`] lets pods go to their places, [`ranks`] says which pod goes where.
//! - [`failures`] tells workloads of failed nodes.

pub(crate) mod convert;
pub(crate) mod failures;
pub(crate) mod nodes;
pub(crate) mod pods;
mod ranks;
pub(crate) mod ungate;
pub(crate) mod watch;

use switchyard_api::config::Configuration;
use switchyard_scheduler::TopologyGates;

/// The gate that turns all of it on.
pub(crate) const GATE: &str = "TopologyAwareScheduling";

/// The engine's part of the configuration; none where topology-aware scheduling is off.
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
