//! How the controller of the cluster decides, as far as it can be told.

use serde::Serialize;
use switchyard_api::config::{Configuration, FairSharing, PreemptionStrategy};
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
    /// Kueue's defaults; fair sharing as the queues' status tells.
    Status,
}

impl Settings {
    /// The given configuration, or Kueue's defaults with fair sharing where the status of any ClusterQueue shows its
    /// share: controllers write that only where it is on.
    pub fn of(given: Option<Configuration>, stores: &Stores) -> Self {
        if let Some(config) = given {
            return Self { config, source: Source::File };
        }
        let shown = stores
            .cluster_queues
            .any(|queue| queue.status.as_ref().is_some_and(|status| status.fair_sharing.is_some()));
        let strategies =
            vec![PreemptionStrategy::LessThanOrEqualToFinalShare, PreemptionStrategy::LessThanInitialShare];
        let mut config = Configuration::default();
        config.fair_sharing = shown.then_some(FairSharing { preemption_strategies: strategies });
        Self { config, source: Source::Status }
    }
}
