//! Reasons of conditions, one module for each condition type.

/// Reasons of [`super::QUOTA_RESERVED`].
pub mod quota_reserved {
    /// True.
    pub const QUOTA_RESERVED: &str = "QuotaReserved";
    /// False: no flavor fits its node selector and tolerations.
    pub const NO_MATCHING_FLAVOR: &str = "NoMatchingFlavor";
    /// False: it requests more than the queue can ever have.
    pub const EXCEEDS_MAX_QUOTA: &str = "ExceedsMaxQuota";
    /// False: enough quota exists and is in use.
    pub const WAITING_FOR_QUOTA: &str = "WaitingForQuota";
    /// False: no topology domain satisfies its topology request.
    pub const TOPOLOGY_PLACEMENT_FAILED: &str = "TopologyPlacementFailed";
    /// False: workloads are being preempted for it.
    pub const WAITING_FOR_PREEMPTED_WORKLOADS: &str = "WaitingForPreemptedWorkloads";
    /// False: its queue does not exist or is misconfigured.
    pub const MISCONFIGURED: &str = "Misconfigured";
    /// False: its queue is stopped.
    pub const SUSPENDED: &str = "Suspended";
    /// False: the scheduler has not evaluated it yet.
    pub const PENDING_EVALUATION: &str = "PendingEvaluation";
    /// Message with reason `PendingEvaluation`. Without fine-grained reasons, only this message
    /// tells such a Workload from an evaluated one.
    pub const TO_BE_EVALUATED: &str = "Workload is pending evaluation in the scheduling queue";
    /// False: admission waits until other workloads' pods are ready.
    pub const WAITING_FOR_PODS_READY: &str = "WaitingForPodsReady";
    /// False: an admission gate annotation holds it.
    pub const ADMISSION_GATED: &str = "AdmissionGated";
    /// False: its owner released the reservation on purpose.
    pub const ON_HOLD: &str = "OnHold";
    /// False: `spec.active` is false.
    pub const DEACTIVATED: &str = "Deactivated";
    /// False, without fine-grained reasons: it waits.
    pub const PENDING: &str = "Pending";
    /// False, without fine-grained reasons: its queue does not exist or is inactive.
    pub const INADMISSIBLE: &str = "Inadmissible";
    /// False, without fine-grained reasons: admission waits until other workloads' pods are ready.
    pub const WAITING: &str = "Waiting";
}

/// Reasons of [`super::ADMITTED`].
pub mod admitted {
    /// True.
    pub const ADMITTED: &str = "Admitted";
    /// False: it holds no quota.
    pub const NO_RESERVATION: &str = "NoReservation";
    /// False: admission checks are not ready.
    pub const UNSATISFIED_ADMISSION_CHECKS: &str = "UnsatisfiedAdmissionChecks";
    /// False: topology domains are still to be chosen.
    pub const PENDING_DELAYED_TOPOLOGY_REQUESTS: &str = "PendingDelayedTopologyRequests";
    /// False, without fine-grained reasons: admission checks are not ready.
    pub const UNSATISFIED_CHECKS: &str = "UnsatisfiedChecks";
    /// False, without fine-grained reasons: both the quota and the checks are missing.
    pub const NO_RESERVATION_UNSATISFIED_CHECKS: &str = "NoReservationUnsatisfiedChecks";
}

/// Reasons of [`super::WAITING_FOR_REPLACEMENT_PODS`], besides the eviction's reason.
pub mod waiting_for_replacement_pods {
    /// True: pods have failed.
    pub const PODS_FAILED: &str = "PodsFailed";
    /// False: no pod is missing.
    pub const PODS_READY: &str = "PodsReady";
}

/// Reasons of the condition `TerminationTarget` of a pod that is deleted because its job is
/// stopped.
pub mod termination_target {
    /// Its Workload was deleted.
    pub const WORKLOAD_DELETED: &str = "WorkloadDeleted";
    /// No Workload matches the job.
    pub const NO_MATCHING_WORKLOAD: &str = "NoMatchingWorkload";
    /// Its Workload is not admitted.
    pub const NOT_ADMITTED: &str = "NotAdmitted";

    /// Its Workload was evicted for this reason.
    #[must_use]
    pub fn evicted_due_to(reason: &str) -> String {
        format!("WorkloadEvictedDueTo{reason}")
    }
}

/// Reasons of [`super::PODS_READY`].
pub mod pods_ready {
    /// False: pods are not ready yet after admission.
    pub const WAIT_FOR_START: &str = "WaitForStart";
    /// True: all pods are ready.
    pub const STARTED: &str = "Started";
    /// False: a ready pod has failed.
    pub const WAIT_FOR_RECOVERY: &str = "WaitForRecovery";
    /// True: all pods are ready again.
    pub const RECOVERED: &str = "Recovered";
}

/// Reasons of [`super::EVICTED`].
pub mod evicted {
    /// For another workload.
    pub const PREEMPTED: &str = "Preempted";
    /// Its pods were not ready in time.
    pub const PODS_READY_TIMEOUT: &str = "PodsReadyTimeout";
    /// An admission check failed.
    pub const ADMISSION_CHECK: &str = "AdmissionCheck";
    /// The ClusterQueue was stopped.
    pub const CLUSTER_QUEUE_STOPPED: &str = "ClusterQueueStopped";
    /// The LocalQueue was stopped.
    pub const LOCAL_QUEUE_STOPPED: &str = "LocalQueueStopped";
    /// Nodes failed.
    pub const NODE_FAILURES: &str = "NodeFailures";
    /// Before the start, a changed RuntimeClass or LimitRange raised the pods' requests above the
    /// charge.
    pub const REQUESTS_CHANGED: &str = "RequestsChanged";
    /// `spec.active` is false.
    pub const DEACTIVATED: &str = "Deactivated";
    /// It moves to a better flavor.
    pub const FLAVOR_MIGRATION: &str = "FlavorMigration";
    /// The variant that it ran as was evicted.
    pub const VARIANT_EVICTED: &str = "VariantEvicted";
    /// No variant of it is admitted.
    pub const CONCURRENT_ADMISSION: &str = "ConcurrentAdmission";
    /// On a worker cluster: the hub moved it to another cluster.
    pub const EVICTED_ON_MANAGER_CLUSTER: &str = "EvictedOnManagerCluster";

    /// One of these reasons, for a metric label. The cause of a deactivation is cut off. Unknown
    /// reasons of workers with another release become `Other`.
    #[must_use]
    pub fn known(reason: &str) -> &'static str {
        const KNOWN: [&str; 12] = [
            PREEMPTED,
            PODS_READY_TIMEOUT,
            ADMISSION_CHECK,
            CLUSTER_QUEUE_STOPPED,
            LOCAL_QUEUE_STOPPED,
            NODE_FAILURES,
            REQUESTS_CHANGED,
            FLAVOR_MIGRATION,
            VARIANT_EVICTED,
            CONCURRENT_ADMISSION,
            EVICTED_ON_MANAGER_CLUSTER,
            DEACTIVATED,
        ];
        let named = KNOWN.into_iter().find(|known| *known == reason);
        named.unwrap_or(if reason.starts_with(DEACTIVATED) { DEACTIVATED } else { "Other" })
    }

    /// The reason for a deactivation with this cause, such as
    /// `DeactivatedDueToRequeuingLimitExceeded`.
    #[must_use]
    pub fn deactivated_due_to(cause: &str) -> String {
        format!("{DEACTIVATED}DueTo{cause}")
    }
}

/// Reasons of [`super::PREEMPTED`].
pub mod preempted {
    /// For a workload of the same queue.
    pub const IN_CLUSTER_QUEUE: &str = "InClusterQueue";
    /// For another queue that reclaims what it lent.
    pub const IN_COHORT_RECLAMATION: &str = "InCohortReclamation";
    /// For fair sharing.
    pub const IN_COHORT_FAIR_SHARING: &str = "InCohortFairSharing";
    /// For a workload of another queue that borrows itself.
    pub const IN_COHORT_RECLAIM_WHILE_BORROWING: &str = "InCohortReclaimWhileBorrowing";
}

/// Reasons of [`super::REQUEUED`]. If false, the reason is the eviction's.
pub mod requeued {
    /// `spec.active` became true again.
    pub const REACTIVATED: &str = "Reactivated";
    /// The requeue backoff is over.
    pub const BACKOFF_FINISHED: &str = "BackoffFinished";
    /// The ClusterQueue is active again.
    pub const CLUSTER_QUEUE_RESTARTED: &str = "ClusterQueueRestarted";
    /// The LocalQueue is active again.
    pub const LOCAL_QUEUE_RESTARTED: &str = "LocalQueueRestarted";
}

/// Reasons of [`super::DEACTIVATION_TARGET`].
pub mod deactivation_target {
    /// It was requeued more often than the limit allows.
    pub const REQUEUING_LIMIT_EXCEEDED: &str = "RequeuingLimitExceeded";
    /// It was admitted for longer than its maximum execution time.
    pub const MAXIMUM_EXECUTION_TIME_EXCEEDED: &str = "MaximumExecutionTimeExceeded";
    /// An admission check rejected it.
    pub const ADMISSION_CHECK: &str = "AdmissionCheck";
    /// On a worker cluster: the hub moved it to another cluster.
    pub const EVICTED_ON_MANAGER_CLUSTER: &str = "EvictedOnManagerCluster";
}

/// Reasons of [`super::FINISHED`].
pub mod finished {
    /// The job succeeded.
    pub const SUCCEEDED: &str = "Succeeded";
    /// The job failed.
    pub const FAILED: &str = "Failed";
    /// The workload does not match its job.
    pub const OUT_OF_SYNC: &str = "OutOfSync";
    /// The owner does not exist.
    pub const OWNER_NOT_FOUND: &str = "OwnerNotFound";
    /// Another slice replaced it.
    pub const WORKLOAD_SLICE_REPLACED: &str = "WorkloadSliceReplaced";
    /// The job could not be started.
    pub const FAILED_TO_START: &str = "FailedToStart";
}

/// Reasons of [`super::WORKER_TROUBLE`] from the hub.
pub mod worker_trouble {
    /// The cluster is not connected.
    pub const CLUSTER_UNREACHABLE: &str = "ClusterUnreachable";
    /// The cluster is connected, and its agent does not reach its own API server.
    pub const AGENT_UNABLE: &str = "AgentUnable";
    /// The MultiKueueCluster was deleted.
    pub const CLUSTER_REMOVED: &str = "ClusterRemoved";
    /// No pod of the job is ready, its policy `onStuck` counts, and no other problem is known.
    pub const NO_READY_POD: &str = "NoReadyPod";
    /// The problem is resolved.
    pub const RESOLVED: &str = "Resolved";
}

/// Reasons of [`super::BLOCKED_ON_PREEMPTION_GATES`].
pub mod blocked_on_preemption_gates {
    /// A gate is closed.
    pub const PREEMPTION_GATED: &str = "PreemptionGated";
}

/// Reasons of [`super::ACTIVE`] on a ClusterQueue.
pub mod cluster_queue {
    /// True.
    pub const READY: &str = "Ready";
    /// It is being deleted.
    pub const TERMINATING: &str = "Terminating";
    /// Its stop policy stops it.
    pub const STOPPED: &str = "Stopped";
    /// A ResourceFlavor does not exist.
    pub const FLAVOR_NOT_FOUND: &str = "FlavorNotFound";
    /// A Topology does not exist.
    pub const TOPOLOGY_NOT_FOUND: &str = "TopologyNotFound";
    /// An AdmissionCheck does not exist.
    pub const ADMISSION_CHECK_NOT_FOUND: &str = "AdmissionCheckNotFound";
    /// An AdmissionCheck's controller is not ready.
    pub const ADMISSION_CHECK_INACTIVE: &str = "AdmissionCheckInactive";
    /// More than one MultiKueue check.
    pub const MULTIPLE_MULTIKUEUE_ADMISSION_CHECKS: &str = "MultipleMultiKueueAdmissionChecks";
    /// A MultiKueue check for some flavors only.
    pub const MULTIKUEUE_ADMISSION_CHECK_APPLIED_PER_FLAVOR: &str =
        "MultiKueueAdmissionCheckAppliedPerFlavor";
    /// A MultiKueue check together with a ProvisioningRequest check.
    pub const MULTIKUEUE_WITH_PROVISIONING_REQUEST: &str = "MultiKueueWithProvisioningRequest";
    /// The chain of parent Cohorts is a cycle.
    pub const COHORT_CYCLE_DETECTED: &str = "CohortCycleDetected";
}

/// Reasons of [`super::ACTIVE`] on a LocalQueue.
pub mod local_queue {
    /// True.
    pub const READY: &str = "Ready";
    /// Its stop policy stops it.
    pub const STOPPED: &str = "Stopped";
    /// The ClusterQueue does not exist.
    pub const CLUSTER_QUEUE_DOES_NOT_EXIST: &str = "ClusterQueueDoesNotExist";
    /// The ClusterQueue is inactive.
    pub const CLUSTER_QUEUE_IS_INACTIVE: &str = "ClusterQueueIsInactive";
}

/// Reasons of [`super::MULTIKUEUE_MANAGER_QUOTA_AUTOMATION`].
pub mod quota_automation {
    /// True: the hub writes the quota from those of its workers.
    pub const QUOTA_AUTOMATED: &str = "QuotaAutomated";
    /// False: its MultiKueueConfig does not ask for it.
    pub const NOT_REQUESTED: &str = "NotRequested";
    /// False: the ClusterQueue has more than one flavor, or lacks a resource of its workers.
    pub const UNSUPPORTED_CONFIGURATION: &str = "UnsupportedConfiguration";
}

/// Reasons of [`super::ACTIVE`] on an AdmissionCheck.
pub mod admission_check {
    /// True: all its clusters are connected, or its provisioning API is available.
    pub const ACTIVE: &str = "Active";
    /// True: some of its clusters are disconnected.
    pub const SOME_ACTIVE_CLUSTERS: &str = "SomeActiveClusters";
    /// False: all its clusters are disconnected.
    pub const NO_USABLE_CLUSTERS: &str = "NoUsableClusters";
    /// False: its MultiKueueConfig is missing or unusable.
    pub const BAD_CONFIG: &str = "BadConfig";
    /// False: its parameters name no usable object.
    pub const BAD_PARAMETERS_REF: &str = "BadParametersRef";
    /// False: the cluster has no ProvisioningRequest API. Specific to Switchyard.
    pub const PROVISIONING_REQUEST_NOT_SUPPORTED: &str = "ProvisioningRequestNotSupported";
}

/// Reasons of [`super::ACTIVE`] on a MultiKueueCluster.
pub mod multi_kueue_cluster {
    /// True: connected.
    pub const ACTIVE: &str = "Active";
    /// The cluster cannot be reached.
    pub const CLIENT_CONNECTION_FAILED: &str = "ClientConnectionFailed";
    /// The kubeconfig is missing or invalid.
    pub const BAD_KUBE_CONFIG: &str = "BadKubeConfig";
    /// The kubeconfig uses a forbidden feature.
    pub const INSECURE_KUBE_CONFIG: &str = "InsecureKubeConfig";
    /// The ClusterProfile cannot be used.
    pub const BAD_CLUSTER_PROFILE: &str = "BadClusterProfile";
    /// The kubeconfig yields no client.
    pub const BAD_REST_CONFIG: &str = "BadRestConfig";
    /// ClusterProfiles are disabled.
    pub const CLUSTER_PROFILE_FEATURE_DISABLED: &str = "MultiKueueClusterProfileFeatureDisabled";
    /// No agent has ever connected for it. Specific to Switchyard.
    pub const AGENT_NOT_ENROLLED: &str = "AgentNotEnrolled";
    /// Its agent is not connected. Specific to Switchyard.
    pub const AGENT_DISCONNECTED: &str = "AgentDisconnected";
    /// Its agent is connected and cannot write to its own API server. Specific to Switchyard.
    pub const AGENT_UNABLE: &str = "AgentUnable";
    /// Evictions stopped: too many workloads were lost at once. Specific to Switchyard.
    pub const MANY_LOST_AT_ONCE: &str = "ManyLostAtOnce";
    /// A fence is unavailable: the cluster has no agent. Specific to Switchyard.
    pub const NO_AGENT: &str = "NoAgent";
    /// No queue asks for a fence. Specific to Switchyard.
    pub const NOT_ASKED_FOR: &str = "NotAskedFor";
    /// Orphans exist: copies with the hub's mark that the hub does not know. Specific to
    /// Switchyard.
    pub const UNKNOWN_WORKLOADS: &str = "UnknownWorkloads";
    /// No orphans are left. Specific to Switchyard.
    pub const ALL_KNOWN: &str = "AllKnown";
    /// Objects with the hub's marks have no proof, or the hub cannot tell yet. Specific to
    /// Switchyard.
    pub const NO_PROOF: &str = "NoProof";
    /// All copies have proofs. Specific to Switchyard.
    pub const PROVED: &str = "Proved";
    /// The clocks of hub and agent are a minute or more apart. Specific to Switchyard.
    pub const CLOCKS_DIFFER: &str = "ClocksDiffer";
    /// The clocks of hub and agent agree again. Specific to Switchyard.
    pub const CLOCKS_AGREE: &str = "ClocksAgree";
    /// Evictions resumed: an administrator released them, or all workloads are back. Specific to
    /// Switchyard.
    pub const RELEASED: &str = "Released";
    /// The address leads to another cluster than the one that has its jobs. Specific to Switchyard.
    pub const OTHER_CLUSTER: &str = "OtherCluster";
    /// Its kubeconfig leads to the hub's own cluster, and no annotation allows that. Specific to
    /// Switchyard.
    pub const OWN_CLUSTER: &str = "OwnCluster";
    /// Another MultiKueueCluster names the same worker. Specific to Switchyard.
    pub const DUPLICATE_CLUSTER: &str = "DuplicateCluster";
}

/// Reasons of events. An eviction has the reason `EvictedDueTo` with the reason of `Evicted`; other
/// events have the reason of the condition that changed.
pub mod events {
    /// On a Workload: an admission check rejected it, so it is deactivated.
    pub const ADMISSION_CHECK_REJECTED: &str = "AdmissionCheckRejected";
    /// On a Workload: an annotation keeps it from admission.
    pub const ADMISSION_GATED: &str = "AdmissionGated";
    /// On a Workload: the annotation that kept it from admission is gone.
    pub const ADMISSION_GATE_CLEARED: &str = "AdmissionGateCleared";
    /// A ProvisioningRequest changed the state of a Workload's admission check.
    pub const ADMISSION_CHECK_UPDATED: &str = "AdmissionCheckUpdated";
    /// A ProvisioningRequest was created for a Workload.
    pub const PROVISIONING_REQUEST_CREATED: &str = "ProvisioningRequestCreated";
    /// A ProvisioningRequest could not be created.
    pub const FAILED_CREATE: &str = "FailedCreate";
    /// A workload got quota.
    pub const QUOTA_RESERVED: &str = "QuotaReserved";
    /// A workload was admitted.
    pub const ADMITTED: &str = "Admitted";
    /// A workload was preempted.
    pub const PREEMPTED: &str = "Preempted";
    /// No topology domain was found for a Workload with a quota reservation.
    pub const SECOND_PASS_FAILED: &str = "SecondPassFailed";
    /// Another workload was preempted for this one.
    pub const PREEMPTED_WORKLOAD: &str = "PreemptedWorkload";
    /// A workload finished.
    pub const FINISHED_WORKLOAD: &str = "FinishedWorkload";
    /// A job's workload was created.
    pub const CREATED_WORKLOAD: &str = "CreatedWorkload";
    /// A job's workload was deleted.
    pub const DELETED_WORKLOAD: &str = "DeletedWorkload";
    /// A job's workload was changed.
    pub const UPDATED_WORKLOAD: &str = "UpdatedWorkload";
    /// A job was started.
    pub const STARTED: &str = "Started";
    /// A job was suspended at its creation.
    pub const SUSPENDED: &str = "Suspended";
    /// A running job was stopped.
    pub const STOPPED: &str = "Stopped";
    /// A job or a finished Workload was deleted.
    pub const DELETED: &str = "Deleted";
    /// An admission check changed.
    pub const UPDATED_ADMISSION_CHECK: &str = "UpdatedAdmissionCheck";
    /// No workload can be made from a job.
    pub const ERR_WORKLOAD_COMPOSE: &str = "ErrWorkloadCompose";
    /// A job's owners are too many levels deep.
    pub const JOB_NESTING_TOO_DEEP: &str = "JobNestingTooDeep";
    /// A job names a WorkloadPriorityClass that does not exist.
    pub const WORKLOAD_PRIORITY_CLASS_NOT_FOUND: &str = "WorkloadPriorityClassNotFound";
    /// An excess pod of a group was deleted.
    pub const EXCESS_POD_DELETED: &str = "ExcessPodDeleted";
    /// Pods that joined a group became owners of its Workload.
    pub const OWNER_REFERENCES_ADDED: &str = "OwnerReferencesAdded";
    /// Another job's Workload has the name of a pod group.
    pub const WORKLOAD_NAME_CONFLICT: &str = "WorkloadNameConflict";
    /// A pod that could not terminate was force-deleted.
    pub const FORCEFULLY_DELETED: &str = "KueueForcefullyDeleted";
    /// About the dispatch of a Workload to worker clusters.
    pub const MULTIKUEUE: &str = "MultiKueue";
    /// A job has a problem on its worker cluster.
    pub const WORKER_TROUBLE: &str = "WorkerTrouble";
    /// The problem of a job on its worker cluster is resolved.
    pub const WORKER_TROUBLE_RESOLVED: &str = "WorkerTroubleResolved";
    /// A job without a ready pod was withdrawn from its worker cluster. Specific to Switchyard.
    pub const STUCK: &str = "Stuck";
    /// The deletion of an object waits for the objects that the note names. Specific to Switchyard.
    pub const DELETION_WAITS: &str = "DeletionWaits";
    /// A pod on a tainted, deleted or unready node was marked as failed.
    pub const POD_TERMINATED: &str = "PodTerminatedByKueue";
    /// A variant of a Workload was created.
    pub const CREATED_VARIANT: &str = "CreatedVariant";
    /// A variant of a Workload was deleted.
    pub const DELETED_VARIANT: &str = "DeletedVariant";
    /// A variant was activated.
    pub const ACTIVATED_VARIANT: &str = "ActivatedVariant";
    /// A variant was deactivated.
    pub const DEACTIVATED_VARIANT: &str = "DeactivatedVariant";
    /// A variant may preempt others now.
    pub const PREEMPTION_UNGATED_VARIANT: &str = "PreemptionUngatedVariant";

    /// The reason of the event for an eviction, such as `EvictedDueToPreempted`.
    #[must_use]
    pub fn evicted_due_to(reason: &str) -> String {
        format!("EvictedDueTo{reason}")
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn composite_reasons_join_with_due_to() {
        assert_eq!(
            super::evicted::deactivated_due_to("AdmissionCheck"),
            "DeactivatedDueToAdmissionCheck"
        );
        assert_eq!(super::events::evicted_due_to("Preempted"), "EvictedDueToPreempted");
    }

    #[rstest::rstest]
    #[case::of_kueue("Preempted", "Preempted")]
    #[case::with_its_cause("DeactivatedDueToAdmissionCheck", "Deactivated")]
    #[case::of_a_later_release("WorkloadWaitForScheduling", "Other")]
    #[case::none("", "Other")]
    fn reasons_of_evictions_as_labels(#[case] reason: &str, #[case] label: &str) {
        assert_eq!(super::evicted::known(reason), label);
    }
}
