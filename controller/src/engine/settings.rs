//! The engine's settings from the configuration.

use std::time::Duration;

use switchyard_config::{
    Configuration, PreemptionStrategy, QuotaCheckStrategy, RequeuingTimestamp,
};
use switchyard_scheduler::{
    self as engine, AdmissionFairSharing, Engine, EngineSettings, FairStrategy, Name,
    PreemptionSettings, TopologyGates,
};

use crate::stores::TOPOLOGY_GATE;

/// How long freed quota waits for more before parked workloads are tried again. Kueue waits a
/// second, with the quota idle. Switchyard's cycles are cheap, and its writes are bounded
/// elsewhere.
const REQUEUE_WINDOW: Duration = Duration::from_millis(100);

/// The engine's settings from the configuration.
pub(crate) fn engine_settings(config: &Configuration) -> EngineSettings {
    EngineSettings {
        quota_check: match config.resources.quota_check_strategy {
            QuotaCheckStrategy::IgnoreUndeclared if config.enabled("QuotaCheckStrategy") => {
                engine::QuotaCheckStrategy::IgnoreUndeclared
            }
            QuotaCheckStrategy::BlockUndeclared | QuotaCheckStrategy::IgnoreUndeclared => {
                engine::QuotaCheckStrategy::BlockUndeclared
            }
        },
        equivalence_hashing: config.enabled("SchedulingEquivalenceHashing"),
        partial_admission: config.enabled("PartialAdmission"),
        fair_sharing: config.fair_sharing.is_some(),
        block_admission: config.wait_for_pods_ready.block_admission
            && config.waits_for_pods_ready(),
        requeue_window: REQUEUE_WINDOW,
        topology: topology_gates(config),
        gates: engine::EngineGates {
            flavor_fungibility: config.enabled("FlavorFungibility"),
            preserve_scan_progress: config.enabled("FlavorFungibilityPreserveScanProgress"),
            priority_sorting: config.enabled("PrioritySortingWithinCohort"),
            preempt_within_nominal: config.enabled("FairSharingPreemptWithinNominal"),
            prioritize_non_borrowing: config.enabled("FairSharingPrioritizeNonBorrowing"),
            prioritize_preemptors: config.enabled("PrioritizePreemptorWorkloads"),
            timestamp_buffer: config.enabled("SchedulerTimestampPreemptionBuffer"),
            release_failed_preemptors: config.enabled("BestEffortFIFOReleaseFailedPreemptors"),
            released_quota_only: config.enabled("AdmitIntoReleasedQuotaOnly"),
            usage_from_reservation: config.enabled("AdmissionFairSharingAnchorAtQuotaReservation"),
        },
    }
}

/// How the engine preempts; [`super::admission`] performs it.
pub(crate) fn preemption(config: &Configuration) -> PreemptionSettings {
    let recompute_overlaps = config.enabled("RecomputeAssignmentUponPreemptionTargetsOverlap");
    let Some(sharing) = &config.fair_sharing else {
        return PreemptionSettings { recompute_overlaps, ..PreemptionSettings::default() };
    };
    let fair_strategies = sharing.preemption_strategies.iter().map(|strategy| match strategy {
        PreemptionStrategy::LessThanOrEqualToFinalShare => {
            FairStrategy::LessThanOrEqualToFinalShare
        }
        PreemptionStrategy::LessThanInitialShare => FairStrategy::LessThanInitialShare,
    });
    PreemptionSettings { recompute_overlaps, fair_strategies: fair_strategies.collect() }
}

/// An empty engine for this configuration.
pub(crate) fn new_engine(config: &Configuration) -> Engine {
    let engine = Engine::with_preemption(engine_settings(config), preemption(config));
    let sharing =
        config.admission_fair_sharing.as_ref().filter(|_| config.enabled("AdmissionFairSharing"));
    let Some(sharing) = sharing else { return engine };
    engine.with_admission_fair_sharing(AdmissionFairSharing {
        half_life: sharing.usage_half_life_time.std(),
        sampling_interval: sharing.usage_sampling_interval.std(),
        resource_weights: sharing
            .resource_weights
            .iter()
            .map(|(resource, weight)| (Name::from(resource.as_str()), *weight))
            .collect(),
    })
}

/// Whether a workload requeues after a PodsReady timeout by its eviction time, behind others.
pub(crate) fn requeues_by_eviction_time(config: &Configuration) -> bool {
    config.wait_for_pods_ready.requeuing_strategy.timestamp == RequeuingTimestamp::Eviction
}

/// The engine's feature gates. `None` if topology-aware scheduling is off.
fn topology_gates(config: &Configuration) -> Option<TopologyGates> {
    config.enabled(TOPOLOGY_GATE).then(|| TopologyGates {
        mixed_profile: config.enabled("TASProfileMixed"),
        fail_fast: config.enabled("TASFailedNodeReplacementFailFast"),
        keep_single_pods: config.enabled("SkipReassignmentForPodOwnedWorkloads"),
        overlapping_flavors: config.enabled("TASHandleOverlappingFlavors"),
        recompute: config.enabled("TASRecomputeAssignmentWithinSchedulingCycle"),
        balanced: config.enabled("TASBalancedPlacement"),
        elastic: config.enabled("ElasticJobsViaWorkloadSlicesWithTAS"),
    })
}

#[cfg(test)]
mod tests {
    use switchyard_config::load;

    use super::*;

    #[test]
    fn feature_gates_reach_the_engine() {
        assert_eq!(
            engine_settings(&Configuration::default()).gates,
            engine::EngineGates::default()
        );
        let file = "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n\
                    resources: {quotaCheckStrategy: IgnoreUndeclared}\n";
        let settings = engine_settings(&load(file).unwrap());
        assert_eq!(settings.quota_check, engine::QuotaCheckStrategy::IgnoreUndeclared);
        let gates = "featureGates: {QuotaCheckStrategy: false, FlavorFungibility: false, PrioritySortingWithinCohort: false, \
                     FlavorFungibilityPreserveScanProgress: false, FairSharingPreemptWithinNominal: false, \
                     FairSharingPrioritizeNonBorrowing: false, PrioritizePreemptorWorkloads: true, \
                     SchedulerTimestampPreemptionBuffer: true, BestEffortFIFOReleaseFailedPreemptors: true, \
                     AdmissionFairSharingAnchorAtQuotaReservation: true, AdmitIntoReleasedQuotaOnly: true}";
        let config = load(&format!("{file}{gates}\n")).unwrap();
        let settings = engine_settings(&config);
        assert_eq!(settings.quota_check, engine::QuotaCheckStrategy::BlockUndeclared);
        let switched = engine::EngineGates {
            flavor_fungibility: false,
            preserve_scan_progress: false,
            priority_sorting: false,
            preempt_within_nominal: false,
            prioritize_non_borrowing: false,
            prioritize_preemptors: true,
            timestamp_buffer: true,
            release_failed_preemptors: true,
            released_quota_only: true,
            usage_from_reservation: true,
        };
        assert_eq!(settings.gates, switched);
        assert_eq!(config.ignored(), [], "all have an effect");
    }

    #[test]
    fn fair_sharing_strategies_reach_the_engine_in_order() {
        use FairStrategy::{LessThanInitialShare as Initial, LessThanOrEqualToFinalShare as Final};
        let file = "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n";
        for (section, strategies) in [
            ("", vec![Final, Initial]),
            ("fairSharing: {preemptionStrategies: [LessThanInitialShare]}", vec![Initial]),
            ("fairSharing: {preemptionStrategies: [LessThanOrEqualToFinalShare]}", vec![Final]),
            (
                "fairSharing: {preemptionStrategies: [LessThanOrEqualToFinalShare, LessThanInitialShare]}",
                vec![Final, Initial],
            ),
        ] {
            let config = load(&format!("{file}{section}\n")).unwrap();
            assert_eq!(preemption(&config).fair_strategies, strategies, "{section}");
            assert_eq!(engine_settings(&config).fair_sharing, !section.is_empty());
        }
    }
}
