//! The controller's configuration, as far as it is visible.

use serde::Serialize;
use switchyard_api::conditions;
use switchyard_api::v1beta2::Workload;
use switchyard_config::{AdmissionFairSharing, Configuration, FairSharing, PreemptionStrategy};
use switchyard_controller::stores::Stores;

/// The configuration that an explanation assumes.
#[derive(Clone, Debug)]
pub struct AssumedConfig {
    pub config: Configuration,
    pub source: ConfigSource,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum ConfigSource {
    /// Given by the caller.
    File,
    /// Kueue's defaults, with features that the status of objects shows.
    Status,
}

impl AssumedConfig {
    /// The given configuration, or Kueue's defaults with the features that a status shows.
    /// Controllers write these fields only if the feature is on. Fair sharing: a ClusterQueue has a
    /// share. Admission fair sharing: a LocalQueue has past usage. Preemption gates: a Workload is
    /// blocked on one. A gate that blocked no workload yet is not seen.
    pub fn of(given: Option<Configuration>, stores: &Stores) -> Self {
        if let Some(config) = given {
            return Self { config, source: ConfigSource::File };
        }
        let shown = stores
            .cluster_queues
            .any(|queue| queue.status.as_ref().is_some_and(|status| status.fair_sharing.is_some()));
        let strategies = vec![
            PreemptionStrategy::LessThanOrEqualToFinalShare,
            PreemptionStrategy::LessThanInitialShare,
        ];
        let mut config = Configuration::default();
        config.fair_sharing = shown.then_some(FairSharing { preemption_strategies: strategies });
        let remembered = stores.local_queues.any(|queue| {
            let sharing = queue.status.as_ref().and_then(|status| status.fair_sharing.as_ref());
            sharing.is_some_and(|sharing| sharing.admission_fair_sharing_status.is_some())
        });
        config.admission_fair_sharing = remembered.then(AdmissionFairSharing::default);
        let blocked = conditions::BLOCKED_ON_PREEMPTION_GATES;
        let gated = |workload: &Workload| {
            workload.status.as_ref().is_some_and(|it| conditions::is_true(&it.conditions, blocked))
        };
        if stores.workloads.any(gated) {
            config.feature_gates.insert("MultiKueueOrchestratedPreemption".to_owned(), true);
        }
        Self { config, source: ConfigSource::Status }
    }
}
