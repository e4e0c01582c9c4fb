//! How the controller of the cluster decides, as far as it can be told.

use serde::Serialize;
use switchyard_api::conditions;
use switchyard_api::v1beta2::Workload;
use switchyard_config::{AdmissionFairSharing, Configuration, FairSharing, PreemptionStrategy};
use switchyard_controller::stores::Stores;

/// The configuration that an explanation assumes.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The configuration.
    pub config: Configuration,
    /// Where it is from.
    pub source: Source,
}

/// Where a configuration is from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Source {
    /// The caller gave the file.
    File,
    /// Kueue's defaults; what is shared fairly as the queues' status tells.
    Status,
}

impl Settings {
    /// The given configuration, or Kueue's defaults with fair sharing where the status of any ClusterQueue shows its
    /// share, past use where that of any LocalQueue shows it, and preemption gates where that of any Workload says that they
    /// hold it back: controllers write these only where they count. Gates that nobody has met yet are not seen.
    pub fn of(given: Option<Configuration>, stores: &Stores) -> Self {
        if let Some(config) = given {
            return Self { config, source: Source::File };
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
        Self { config, source: Source::Status }
    }
}
