//! Kueue's feature gates: names, defaults, and which of them change Switchyard's behaviour.

use serde_json::{Value, json};

use super::IgnoredField;
use switchyard_syntax::field::{FieldError, Path};

/// A feature gate.
#[derive(Clone, Copy)]
struct Gate {
    name: &'static str,
    default: bool,
    /// Whether its behaviour is permanent. Then only its default is a valid value.
    locked: bool,
    /// Whether it changes Switchyard's behaviour.
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

/// A gate that only affects the speed of Kueue's decisions. There is nothing to switch here, and
/// setting it is not reported.
const fn unseen(gate: Gate) -> Gate {
    works(gate)
}

const GATES: &[Gate] = &[
    works(on("AdmissionFairSharing")),
    works(on("AdmissionGatedBy")),
    works(on("AssignQueueLabelsForPods")),
    works(on("CleanupProvisioningRequestsOnEviction")),
    works(off("ConcurrentAdmission")),
    works(off("CustomMetricLabels")),
    works(on("DeferRayServiceFinalizationForRedisCleanup")),
    works(off("DisableWaitForPodsReady")),
    works(on("ElasticJobsViaWorkloadSlices")),
    works(off("ElasticJobsViaWorkloadSlicesWithTAS")),
    works(off("FailureRecoveryPolicy")),
    works(on("FairSharingPreemptWithinNominal")),
    works(on("FairSharingPrioritizeNonBorrowing")),
    works(off("FastQuotaReleaseInPodIntegration")),
    works(on("FinishOrphanedWorkloads")),
    works(on("FlavorFungibility")),
    works(on("FlavorFungibilityPreserveScanProgress")),
    locked(on("HierarchicalCohorts")),
    works(on("KueueDRAIntegration")),
    off("KueueDRAIntegrationConsumableCapacity"),
    works(on("KueueDRAIntegrationExtendedResource")),
    on("KueueDRAIntegrationPartitionableDevices"),
    works(on("KueueDRARejectWorkloadsWhenDRADisabled")),
    works(on("LWSImmutableGroupSize")),
    works(on("LocalQueueMetrics")),
    locked(on("ManagedJobsNamespaceSelectorAlwaysRespected")),
    works(on("MetricForWorkloadCreationLatency")),
    on("MetricsForCohorts"),
    on("MultiKueue"),
    works(on("MultiKueueAdaptersForCustomJobs")),
    locked(off("MultiKueueAllowInsecureKubeconfigs")),
    works(off("MultiKueueClusterProfile")),
    works(on("MultiKueueIncrementalDispatcherConfig")),
    works(on("MultiKueueIncrementalDispatcherRespectConfigOrder")),
    on("MultiKueueKubeConfigPathValidation"),
    works(off("MultiKueueManagerQuotaAutomation")),
    works(off("MultiKueueOrchestratedPreemption")),
    locked(on("MultiKueueRedoAdmissionOnEvictionInWorker")),
    on("MultiKueueRemoteSpecSync"),
    locked(on("MultiKueueWaitForWorkloadAdmitted")),
    locked(on("ObjectRetentionPolicies")),
    works(on("PartialAdmission")),
    on("PodIntegrationValidateGroupOwner"),
    works(off("PrioritizePreemptorWorkloads")),
    works(off("PriorityBoost")),
    works(on("PrioritySortingWithinCohort")),
    locked(on("PropagateBatchJobLabelsToWorkload")),
    works(on("QuotaCheckStrategy")),
    works(on("ReclaimablePods")),
    works(off("RecomputeAssignmentUponPreemptionTargetsOverlap")),
    works(off("RejectUpdatesToCQWithInvalidOnFlavors")),
    on("RemoveFinalizersWithStrictPatch"),
    off("SchedulerLibraryIntegration"),
    off("SchedulerLongRequeueInterval"),
    works(off("SchedulerTimestampPreemptionBuffer")),
    works(on("SchedulingEquivalenceHashing")),
    off("ShortWorkloadNames"),
    on("SkipAncestorCheckForDeletedWorkloads"),
    locked(on("SkipFinalizersForPodsSuspendedByParent")),
    works(on("SkipReassignmentForPodOwnedWorkloads")),
    works(off("SparkApplicationIntegration")),
    works(on("TASAssignmentsEncodingByHostnamePrefix")),
    works(off("TASBalancedPlacement")),
    unseen(on("TASCacheNodeMatchResults")),
    unseen(off("TASCacheTopologyTree")),
    unseen(on("TASCachingRemainingResources")),
    works(on("TASFailedNodeReplacement")),
    works(on("TASFailedNodeReplacementFailFast")),
    works(on("TASHandleOverlappingFlavors")),
    works(on("TASMultiLayerTopology")),
    works(on("TASProfileMixed")),
    works(on("TASRecomputeAssignmentWithinSchedulingCycle")),
    works(off("TASReplaceNodeDueToNotReadyOverFixedTime")),
    works(on("TASReplaceNodeOnNodeTaints")),
    works(on("TASReplaceNodeOnPodTermination")),
    off("TASRespectNodeAffinityPreferred"),
    works(on("TASValidateWorkloadSliceSize")),
    works(on("TLSOptions")),
    works(on("TopologyAwareScheduling")),
    works(off("UnadmittedWorkloadsExplicitStatus")),
    works(off("UnadmittedWorkloadsObservability")),
    works(on("ValidateRayAndSparkJobUpdates")),
    unseen(on("VectorizedResourceRequests")),
    works(on("VisibilityOnDemand")),
    on("WorkloadIdentifierAnnotations"),
    works(off("WorkloadPriorityClassDefaulting")),
    off("WorkloadRequestUseMergePatch"),
    works(on("WorkloadValidateResourcesAreNonNegative")),
    works(on("WorkloadValidationForPodSetMetadata")),
];

/// Maturity of a gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Set by `AllAlpha`.
    Alpha,
    /// Set by `AllBeta`.
    Beta,
    /// Set only by its own name, or locked.
    Settled,
}

/// Beta gates that are off by default. All other gates that are off are alpha.
const OFF_IN_BETA: [&str; 2] =
    ["UnadmittedWorkloadsExplicitStatus", "UnadmittedWorkloadsObservability"];
/// Gates that Kueue has deprecated.
const DEPRECATED: [&str; 1] = ["TASReplaceNodeDueToNotReadyOverFixedTime"];
/// An alpha gate that is on by default here.
const ON_IN_ALPHA: &str = "MultiKueueKubeConfigPathValidation";

impl Gate {
    fn stage(&self) -> Stage {
        let off_in_beta = OFF_IN_BETA.contains(&self.name);
        match self.name {
            name if self.locked || DEPRECATED.contains(&name) => Stage::Settled,
            name if name == ON_IN_ALPHA || !self.default && !off_in_beta => Stage::Alpha,
            _ => Stage::Beta,
        }
    }
}

/// Maturity of a gate. `None` if the gate is unknown.
#[must_use]
pub fn stage(name: &str) -> Option<Stage> {
    find(name).map(Gate::stage)
}

/// Gates that set all gates of a stage, except those that the file sets by name.
const OF_STAGE: [(&str, Stage); 2] = [("AllAlpha", Stage::Alpha), ("AllBeta", Stage::Beta)];

/// Parses `A=true,B=false`.
pub(super) fn parse(text: &str) -> Result<Vec<(String, bool)>, FieldError> {
    let one = |item: &str| {
        let set = item
            .split_once('=')
            .and_then(|(name, value)| Some((name.trim().to_owned(), boolean(value.trim())?)));
        let error = || format!("{item}: write it as GATE=true or GATE=false");
        set.ok_or_else(|| FieldError::new(&Path::new("--feature-gates"), error()))
    };
    text.split(',').map(str::trim).filter(|item| !item.is_empty()).map(one).collect()
}

/// Parses a boolean as Go's flags do.
fn boolean(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false),
        _ => None,
    }
}

/// Sets gates in a file. A gate for a whole stage expands to the gates of that stage.
pub(super) fn set(file: &mut Value, named: Vec<(String, bool)>) {
    let Some(file) = file.as_object_mut() else { return };
    if named.is_empty() && !file.contains_key("featureGates") {
        return;
    }
    let Some(gates) = file.entry("featureGates").or_insert_with(|| json!({})).as_object_mut()
    else {
        return;
    };
    gates.extend(named.into_iter().map(|(name, value)| (name, value.into())));
    for (all, stage) in OF_STAGE {
        let Some(value) = gates.remove(all) else { continue };
        for gate in GATES.iter().filter(|gate| gate.stage() == stage) {
            gates.entry(gate.name).or_insert_with(|| value.clone());
        }
    }
}

fn find(name: &str) -> Option<&'static Gate> {
    GATES.iter().find(|gate| gate.name == name)
}

/// Default of a gate. `None` if the gate is unknown.
#[must_use]
pub fn default(name: &str) -> Option<bool> {
    find(name).map(|gate| gate.default)
}

/// Names of all gates.
pub fn names() -> impl Iterator<Item = &'static str> {
    GATES.iter().map(|gate| gate.name)
}

/// Whether only the default of a gate is valid.
pub(super) fn is_locked(name: &str) -> bool {
    find(name).is_some_and(|gate| gate.locked)
}

/// Reports gates with a non-default value that change nothing here.
pub(super) fn visit_ignored(value: &Value, path: &Path, ignored: &mut Vec<IgnoredField>) {
    for (name, value) in value.as_object().into_iter().flatten() {
        if let Some(gate) =
            find(name).filter(|gate| !gate.works && Some(gate.default) != value.as_bool())
        {
            let reason = match gate.default {
                true => "what this gate switches cannot be switched off here, or is not there",
                false => "what this gate switches is not there",
            };
            ignored.push(IgnoredField::new(&path.child(name), reason));
        }
    }
}
