//! Options of a controller.

use std::{net::TcpListener, path::PathBuf, sync::Arc, time::Duration};

use kube::Client;
use switchyard_config::{
    Configuration, PreemptionStrategy, QuotaCheckStrategy, RequeuingTimestamp,
};
use switchyard_scheduler::{
    self as engine, AdmissionFairSharing, Engine, EngineSettings, FairStrategy, Name,
    PreemptionSettings,
};

use crate::{
    engine::placement::Placement, reconcilers::topology, role::Role, webhook::WebhookOptions,
};
use switchyard_platform::{
    clock::{Clock, SystemClock},
    lease::Timing,
};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LeaderMode {
    /// Write only while holding the Lease.
    #[default]
    Elect,
    /// There is a single replica: lead at once, with epoch 0.
    Always,
}

/// An HTTPS server.
#[derive(Debug)]
pub struct Endpoint {
    pub listener: TcpListener,
    /// A folder with `tls.crt` and `tls.key` that another program provides, such as a mounted
    /// Secret of cert-manager. `None`: each replica makes its own certificate.
    pub certificates: Option<PathBuf>,
}

impl From<TcpListener> for Endpoint {
    fn from(listener: TcpListener) -> Self {
        Self { listener, certificates: None }
    }
}

/// Options of a controller.
pub struct Options {
    pub client: Client,
    pub config: Arc<Configuration>,
    /// Name of this replica in the Lease and in events; unique among replicas.
    pub identity: String,
    /// Switchyard's own namespace, for the Lease and Secrets.
    pub namespace: String,
    pub leader: LeaderMode,
    /// For `/healthz`, `/livez`, `/readyz` and `/metrics`; `None`: not served.
    pub health: Option<TcpListener>,
    /// For the webhooks; `None`: neither served nor registered, and the reconcilers do what they
    /// can.
    pub webhook: Option<WebhookOptions>,
    /// For `/metrics` over HTTPS to clients that the API server lets read it; `None`: not served.
    pub metrics: Option<Endpoint>,
    /// For the visibility API; `None`: not served.
    pub visibility: Option<Endpoint>,
    pub clock: Arc<dyn Clock>,
    pub role: Role,
    /// Recording of the engine's events and decisions; `None`: off.
    pub recording: Option<crate::engine::recording::RecordingOptions>,
    /// Interval between audits of charges against pods; `None`: off.
    pub audit: Option<Duration>,
    /// Chooses clusters for dispatched workloads; only on a hub.
    pub placement: Option<Arc<dyn Placement>>,
}

impl Options {
    /// Options of a single-cluster controller that leads at once and serves nothing.
    #[must_use]
    pub fn new(
        client: Client,
        config: Arc<Configuration>,
        identity: impl Into<String>,
        namespace: impl Into<String>,
    ) -> Self {
        Self {
            client,
            config,
            identity: identity.into(),
            namespace: namespace.into(),
            leader: LeaderMode::Always,
            health: None,
            webhook: None,
            metrics: None,
            visibility: None,
            clock: Arc::new(SystemClock),
            role: Role::Single,
            recording: None,
            audit: None,
            placement: None,
        }
    }
}

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
        topology: topology::gates(config),
        gates: engine::EngineGates {
            flavor_fungibility: config.enabled("FlavorFungibility"),
            preserve_scan_progress: config.enabled("FlavorFungibilityPreserveScanProgress"),
            priority_sorting: config.enabled("PrioritySortingWithinCohort"),
            preempt_within_nominal: config.enabled("FairSharingPreemptWithinNominal"),
            prioritize_non_borrowing: config.enabled("FairSharingPrioritizeNonBorrowing"),
            prioritize_preemptors: config.enabled("PrioritizePreemptorWorkloads"),
            timestamp_buffer: config.enabled("SchedulerTimestampPreemptionBuffer"),
            release_failed_preemptors: config.enabled("BestEffortFIFOReleaseFailedPreemptors"),
            usage_from_reservation: config.enabled("AdmissionFairSharingAnchorAtQuotaReservation"),
        },
    }
}

/// How the engine preempts; [`crate::engine::admission`] performs it.
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

/// Times of `leaderElection`.
pub(crate) fn lease_timing(config: &Configuration) -> Timing {
    let election = &config.leader_election;
    Timing {
        lease: election.lease_duration.std(),
        renew: election.renew_deadline.std(),
        retry: election.retry_period.std(),
    }
}

/// Whether a workload requeues after a PodsReady timeout by its eviction time, behind others.
pub(crate) fn requeues_by_eviction_time(config: &Configuration) -> bool {
    config.wait_for_pods_ready.requeuing_strategy.timestamp == RequeuingTimestamp::Eviction
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
                     AdmissionFairSharingAnchorAtQuotaReservation: true}";
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
