//! The metric of dry runs.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResultLabel {
    result: &'static str,
}

/// Dry runs by result: `accepted`, `refused` or `unknown`.
#[derive(Clone, Debug, Default)]
pub struct DryRunCounts(Family<ResultLabel, Counter>);

impl DryRunCounts {
    /// Registers the metric.
    pub fn register(&self, registry: &mut Registry) {
        registry.register(
            "dry_runs",
            "Dry runs of pods before a job was accepted, by result: accepted, refused or unknown",
            self.0.clone(),
        );
    }

    pub(crate) fn count(&self, result: &'static str) {
        self.0.get_or_create(&ResultLabel { result }).inc();
    }
}
