//! Fields and gates of later releases of Kueue, up to v0.20.0. A file may name them: a site that
//! tries Switchyard brings its existing file. The log says whether each has an effect.

use std::fmt;

use serde_json::Value;

use super::{GoDuration, older};
use switchyard_syntax::field::{FieldError, Path};

/// A gate or field that the file names and that Kueue v0.19.2 does not know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaterSetting {
    /// Path of the gate or field.
    pub path: String,
    /// Whether Switchyard behaves as the file says.
    pub is_honoured: bool,
    /// The reason.
    pub reason: &'static str,
}

impl fmt::Display for LaterSetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let effect = if self.is_honoured { "honoured" } else { "without effect" };
        write!(f, "{}: {effect}: {}", self.path, self.reason)
    }
}

/// The effect of a later gate in Switchyard.
#[derive(Clone, Copy, PartialEq, Eq)]
enum LaterEffect {
    /// The gate's behaviour is always on.
    Always,
    /// The gate's behaviour does not exist.
    Never,
    /// The gate switches the behaviour. Off by default.
    Switch,
}

use LaterEffect::{Always, Never, Switch};

const TOPOLOGY: &str = "Kueue's later refinements of topology-aware scheduling are not there";
const DEVICES: &str = "devices are charged by their number, and not looked at node by node";
const UNLIMITED: &str = "requests are bounded by what is under way, and no client limits them";

/// Gates that v0.19.2 does not know, with their effects.
const GATES: &[(&str, LaterEffect, &str)] = &[
    (
        "AdmissionFairSharingAnchorAtQuotaReservation",
        Switch,
        "use of LocalQueues counts from reservation where it is on, else from admission",
    ),
    (
        "AdmitIntoReleasedQuotaOnly",
        Switch,
        "a gate of Switchyard's: quota of a preempted workload is free once its eviction has ended",
    ),
    (
        "BestEffortFIFOReleaseFailedPreemptors",
        Switch,
        "a gate of Switchyard's: a preemptor that fails later is not the head of its queue any more",
    ),
    ("ConfigurablePreemptions", Never, "there is no PreemptionConfig"),
    (
        "DeploymentJobUIDLabel",
        Never,
        "Workloads of a Deployment's pods have the label of their pod",
    ),
    (
        "DynamicQuotaOrchestration",
        Never,
        "there is no DynamicQuotaOrchestrator and no CapacityProvider",
    ),
    (
        "ElasticJobsViaWorkloadSlicesFlavorChangeFromZero",
        Always,
        "an elastic job that grows from no pods is queued again, and may get another flavor",
    ),
    (
        "ElasticJobsViaWorkloadSlicesForProvisioningRequests",
        Never,
        "a slice asks for all of its pods, and pods keep the request that they were started with",
    ),
    (
        "EnforceProvisioningPodTemplateContents",
        Always,
        "a PodTemplate of another content is replaced",
    ),
    (
        "FairSharingReevaluatePreemptionCandidates",
        Never,
        "candidates are judged once, as in v0.19.2",
    ),
    ("FairSharingRefill", Never, "a ClusterQueue has one workload in a cycle"),
    ("HighMaxParallelismWithinReconcile", Always, UNLIMITED),
    ("KueueDRADeviceFeasibility", Never, DEVICES),
    ("KueueDRAIntegrationDeviceTaints", Never, DEVICES),
    ("KueueDRAIntegrationPrioritizedList", Never, "a claim with firstAvailable is refused"),
    (
        "MultiKueueBatchJobClearingTTLSecondsAfterFinishedOnWorkerCluster",
        Always,
        "a Job is sent without its ttlSecondsAfterFinished",
    ),
    ("MultiKueueRayInTreeAutoscaling", Never, "a job that scales itself is not sent to workers"),
    ("MultiKueueReuseClientConnectionConfigForWorkers", Never, UNLIMITED),
    (
        "PodGroupSchedulingShapeOrdering",
        Always,
        "the order of a group's pod sets is that of what its pods ask for",
    ),
    ("PodIntegrationCountSucceededPodsAsReady", Always, "a pod that has succeeded was ready"),
    (
        "RayServiceValidateUpgradeStrategy",
        Always,
        "a change that would start a second cluster beside a running RayService is refused",
    ),
    (
        "SchedulingEquivalenceHashingIgnorePodSetName",
        Never,
        "workloads with other names of pod sets are tried one by one",
    ),
    ("TASGroupedPodSetSlicing", Never, TOPOLOGY),
    ("TASLeaderPodSetFeasibility", Never, TOPOLOGY),
    ("TASNodeFeasibilityForAllLevels", Never, TOPOLOGY),
    ("TASPartialSlices", Never, TOPOLOGY),
    ("TASRejectFalseUnconstrainedTopology", Never, TOPOLOGY),
    ("TASReplaceMultipleFailedNodes", Never, TOPOLOGY),
    ("TASTopologySpreading", Never, TOPOLOGY),
    ("WaitForPodsReadyMaxNotReady", Never, "all pods of a group have to be ready"),
    ("WaitForPodsReadyUnscheduledTimeout", Never, UNSCHEDULED),
    ("WorkloadLevelWaitForPodsReady", Never, PER_WORKLOAD),
];

const UNSCHEDULED: &str = "waitForPodsReady.timeout counts for pods that wait for a node, too";
const PER_WORKLOAD: &str = "waitForPodsReady holds for all Workloads alike";

/// Duration fields that v0.19.2 does not know.
const DURATIONS: &[(&str, &str, &str)] = &[
    ("waitForPodsReady", "maxTimeoutOnWorkload", PER_WORKLOAD),
    ("waitForPodsReady", "unscheduledTimeout", UNSCHEDULED),
];

/// Whether a later gate switches something.
pub(super) fn is_switch(name: &str) -> bool {
    GATES.iter().any(|(known, here, _)| *known == name && *here == Switch)
}

/// Names of the later gates.
pub(super) fn gates() -> impl Iterator<Item = &'static str> {
    GATES.iter().map(|(name, ..)| *name)
}

/// Removes later fields from a file.
pub(super) fn take_fields(file: &mut Value, errors: &mut Vec<FieldError>) -> Vec<LaterSetting> {
    let mut taken = Vec::new();
    if file["apiVersion"] == older::V1BETA1 {
        return taken;
    }
    for (section, name, reason) in DURATIONS {
        let Some(fields) = file.get_mut(*section).and_then(Value::as_object_mut) else { continue };
        let Some(value) = fields.remove(*name) else { continue };
        let path = Path::new(section).child(name);
        let duration = value.as_str().and_then(|text| text.parse::<GoDuration>().ok());
        match duration.filter(|duration| !duration.is_negative()) {
            Some(_) => {
                taken.push(LaterSetting { path: path.to_string(), is_honoured: false, reason })
            }
            None => errors.push(FieldError::new(
                &path,
                format!("is {value}, must be a duration such as 5m or 1h30m"),
            )),
        }
    }
    taken
}

/// Removes later gates from a file, except those that switch something.
pub(super) fn take_gates(file: &mut Value) -> Vec<LaterSetting> {
    let Some(gates) = file.get_mut("featureGates").and_then(Value::as_object_mut) else {
        return Vec::new();
    };
    let take = |(name, here, reason): &(&str, LaterEffect, &'static str)| {
        let value = gates.get(*name)?.as_bool();
        if *here != Switch {
            gates.remove(*name);
        }
        let is_honoured = *here == Switch || value == Some(*here == Always);
        Some(LaterSetting {
            path: Path::new("featureGates").child(name).to_string(),
            is_honoured,
            reason,
        })
    };
    GATES.iter().filter_map(take).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use crate::{ConfigError, Configuration, gates, load, load_with_gates};

    const HEAD: &str = "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n";

    fn read(body: &str) -> Result<Configuration, ConfigError> {
        load(&format!("{HEAD}{body}"))
    }

    fn reported(config: &Configuration) -> String {
        config.later().iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn file_of_a_later_release_is_read_and_reported() {
        let config = read(
            "waitForPodsReady: {timeout: 9m, unscheduledTimeout: 2m, maxTimeoutOnWorkload: 1h}
featureGates: {PodIntegrationCountSucceededPodsAsReady: true, HighMaxParallelismWithinReconcile: false, \
             DynamicQuotaOrchestration: true, FairSharingRefill: false, PartialAdmission: false, \
             BestEffortFIFOReleaseFailedPreemptors: true}",
        )
        .unwrap();
        insta::assert_snapshot!(reported(&config), @r"
        waitForPodsReady.maxTimeoutOnWorkload: without effect: waitForPodsReady holds for all Workloads alike
        waitForPodsReady.unscheduledTimeout: without effect: waitForPodsReady.timeout counts for pods that wait for a node, too
        featureGates.BestEffortFIFOReleaseFailedPreemptors: honoured: a gate of Switchyard's: a preemptor that fails later is not the head of its queue any more
        featureGates.DynamicQuotaOrchestration: without effect: there is no DynamicQuotaOrchestrator and no CapacityProvider
        featureGates.FairSharingRefill: honoured: a ClusterQueue has one workload in a cycle
        featureGates.HighMaxParallelismWithinReconcile: without effect: requests are bounded by what is under way, and no client limits them
        featureGates.PodIntegrationCountSucceededPodsAsReady: honoured: a pod that has succeeded was ready
        ");
        assert_eq!(config.wait_for_pods_ready.timeout.to_string(), "9m0s");
        assert!(!config.enabled("PartialAdmission"));
        let named: Vec<_> = config.feature_gates.keys().map(String::as_str).collect();
        assert_eq!(
            named,
            ["BestEffortFIFOReleaseFailedPreemptors", "PartialAdmission"],
            "others switch nothing"
        );
        assert!(config.enabled("BestEffortFIFOReleaseFailedPreemptors"));
    }

    #[test]
    fn gates_of_the_command_line_may_be_later_ones() {
        let config =
            load_with_gates(HEAD, "FairSharingRefill=true,PartialAdmission=false").unwrap();
        assert_eq!(
            reported(&config),
            "featureGates.FairSharingRefill: without effect: a ClusterQueue has one workload in a cycle"
        );
    }

    #[rstest::rstest]
    #[case::a_gate(
        "featureGates: {FairSharingRefil: true}",
        "unknown feature gate, did you mean FairSharingRefill?"
    )]
    #[case::a_gate_that_is_no_switch(
        "featureGates: {FairSharingRefill: 1}",
        "featureGates[FairSharingRefill]: is 1, must be true or false"
    )]
    #[case::a_field(
        "waitForPodsReady: {unscheduledTimeouts: 5m}",
        "waitForPodsReady.unscheduledTimeouts: unknown field"
    )]
    #[case::a_field_that_is_no_duration(
        "waitForPodsReady: {unscheduledTimeout: 5}",
        "waitForPodsReady.unscheduledTimeout: is 5, must be a duration"
    )]
    #[case::a_negative_one(
        "waitForPodsReady: {unscheduledTimeout: -5s}",
        "waitForPodsReady.unscheduledTimeout: is \"-5s\", must be a duration"
    )]
    fn malformed_annotation_is_rejected(#[case] body: &str, #[case] error: &str) {
        let said = read(body).unwrap_err().to_string();
        assert!(said.contains(error), "{said}");
    }

    #[test]
    fn gates_are_in_one_table_only() {
        let known: BTreeSet<_> = gates::names().collect();
        let both: Vec<_> = super::gates().filter(|name| known.contains(name)).collect();
        assert_eq!(both, [""; 0]);
        assert!(super::gates().is_sorted());
    }
}
