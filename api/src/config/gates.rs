//! Kueue's feature gates: their names, whether they are on by default, and which of them switch something here.

use serde_json::Value;

use super::Ignored;
use crate::field::Path;

/// One gate.
#[derive(Clone, Copy)]
struct Gate {
    name: &'static str,
    default: bool,
    /// Whether its behaviour is permanent, so that it can only be set to its default.
    locked: bool,
    /// Whether it switches something here.
    works: bool,
}

const fn on(name: &'static str) -> Gate {
    Gate { name, default: true, locked: false, works: false }
}

const fn off(name: &'static str) -> Gate {
    Gate { name, default: false, locked: false, works: false }
}

const fn locked(gate: Gate) -> Gate {
    Gate { locked: true, ..gate }
}

const fn works(gate: Gate) -> Gate {
    Gate { works: true, ..gate }
}

const GATES: &[Gate] = &[
    works(on("AdmissionFairSharing")),
    on("AdmissionGatedBy"),
    on("AssignQueueLabelsForPods"),
    works(on("CleanupProvisioningRequestsOnEviction")),
    works(off("ConcurrentAdmission")),
    works(off("CustomMetricLabels")),
    on("DeferRayServiceFinalizationForRedisCleanup"),
    works(off("DisableWaitForPodsReady")),
    works(on("ElasticJobsViaWorkloadSlices")),
    off("ElasticJobsViaWorkloadSlicesWithTAS"),
    works(off("FailureRecoveryPolicy")),
    on("FairSharingPreemptWithinNominal"),
    on("FairSharingPrioritizeNonBorrowing"),
    works(off("FastQuotaReleaseInPodIntegration")),
    on("FinishOrphanedWorkloads"),
    on("FlavorFungibility"),
    on("FlavorFungibilityPreserveScanProgress"),
    locked(on("HierarchicalCohorts")),
    works(on("KueueDRAIntegration")),
    off("KueueDRAIntegrationConsumableCapacity"),
    works(on("KueueDRAIntegrationExtendedResource")),
    on("KueueDRAIntegrationPartitionableDevices"),
    works(on("KueueDRARejectWorkloadsWhenDRADisabled")),
    on("LWSImmutableGroupSize"),
    works(on("LocalQueueMetrics")),
    locked(on("ManagedJobsNamespaceSelectorAlwaysRespected")),
    works(on("MetricForWorkloadCreationLatency")),
    on("MetricsForCohorts"),
    on("MultiKueue"),
    on("MultiKueueAdaptersForCustomJobs"),
    locked(off("MultiKueueAllowInsecureKubeconfigs")),
    works(off("MultiKueueClusterProfile")),
    on("MultiKueueIncrementalDispatcherConfig"),
    on("MultiKueueIncrementalDispatcherRespectConfigOrder"),
    on("MultiKueueKubeConfigPathValidation"),
    works(off("MultiKueueManagerQuotaAutomation")),
    works(off("MultiKueueOrchestratedPreemption")),
    locked(on("MultiKueueRedoAdmissionOnEvictionInWorker")),
    on("MultiKueueRemoteSpecSync"),
    locked(on("MultiKueueWaitForWorkloadAdmitted")),
    locked(on("ObjectRetentionPolicies")),
    works(on("PartialAdmission")),
    on("PodIntegrationValidateGroupOwner"),
    off("PrioritizePreemptorWorkloads"),
    works(off("PriorityBoost")),
    on("PrioritySortingWithinCohort"),
    locked(on("PropagateBatchJobLabelsToWorkload")),
    on("QuotaCheckStrategy"),
    works(on("ReclaimablePods")),
    works(off("RecomputeAssignmentUponPreemptionTargetsOverlap")),
    works(off("RejectUpdatesToCQWithInvalidOnFlavors")),
    on("RemoveFinalizersWithStrictPatch"),
    off("SchedulerLibraryIntegration"),
    off("SchedulerLongRequeueInterval"),
    off("SchedulerTimestampPreemptionBuffer"),
    works(on("SchedulingEquivalenceHashing")),
    off("ShortWorkloadNames"),
    on("SkipAncestorCheckForDeletedWorkloads"),
    locked(on("SkipFinalizersForPodsSuspendedByParent")),
    on("SkipReassignmentForPodOwnedWorkloads"),
    works(off("SparkApplicationIntegration")),
    on("TASAssignmentsEncodingByHostnamePrefix"),
    off("TASBalancedPlacement"),
    on("TASCacheNodeMatchResults"),
    off("TASCacheTopologyTree"),
    on("TASCachingRemainingResources"),
    on("TASFailedNodeReplacement"),
    on("TASFailedNodeReplacementFailFast"),
    on("TASHandleOverlappingFlavors"),
    on("TASMultiLayerTopology"),
    on("TASProfileMixed"),
    on("TASRecomputeAssignmentWithinSchedulingCycle"),
    off("TASReplaceNodeDueToNotReadyOverFixedTime"),
    on("TASReplaceNodeOnNodeTaints"),
    on("TASReplaceNodeOnPodTermination"),
    off("TASRespectNodeAffinityPreferred"),
    on("TASValidateWorkloadSliceSize"),
    on("TLSOptions"),
    on("TopologyAwareScheduling"),
    off("UnadmittedWorkloadsExplicitStatus"),
    works(off("UnadmittedWorkloadsObservability")),
    on("ValidateRayAndSparkJobUpdates"),
    on("VectorizedResourceRequests"),
    works(on("VisibilityOnDemand")),
    on("WorkloadIdentifierAnnotations"),
    works(off("WorkloadPriorityClassDefaulting")),
    off("WorkloadRequestUseMergePatch"),
    on("WorkloadValidateResourcesAreNonNegative"),
    on("WorkloadValidationForPodSetMetadata"),
];

fn find(name: &str) -> Option<&'static Gate> {
    GATES.iter().find(|gate| gate.name == name)
}

/// Whether a gate is on by default; none when there is no such gate.
#[must_use]
pub fn default(name: &str) -> Option<bool> {
    find(name).map(|gate| gate.default)
}

/// The names of all gates.
pub fn names() -> impl Iterator<Item = &'static str> {
    GATES.iter().map(|gate| gate.name)
}

/// Whether a gate can only have its default.
pub(super) fn is_locked(name: &str) -> bool {
    find(name).is_some_and(|gate| gate.locked)
}

/// Gates that are set to something else than they are, and switch nothing here.
pub(super) fn visit_ignored(value: &Value, path: &Path, ignored: &mut Vec<Ignored>) {
    for (name, value) in value.as_object().into_iter().flatten() {
        if let Some(gate) = find(name).filter(|gate| !gate.works && Some(gate.default) != value.as_bool()) {
            let reason = match gate.default {
                true => "what this gate switches cannot be switched off here, or is not there",
                false => "what this gate switches is not there",
            };
            ignored.push(Ignored::new(&path.child(name), reason));
        }
    }
}
