//! Foreign objects with a hub's label: counted, and logged at a bounded rate.

use std::sync::Arc;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;
use switchyard_platform::log_limit::LogLimit;
use tokio::time::Instant;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ClusterLabel {
    cluster: String,
}

/// Foreign objects, counted per cluster.
#[derive(Clone, Debug, Default)]
pub struct ForeignMarks(Family<ClusterLabel, Counter>);

impl ForeignMarks {
    /// Registers the metric.
    pub fn show(&self, shown: &mut Registry) {
        shown.sub_registry_with_prefix("switchyard").register(
            "foreign_marks",
            "Changes of objects with the hub's label that are no copies, since they lack its proof, by cluster",
            self.0.clone(),
        );
    }

    /// The counter of one cluster.
    pub fn of(&self, cluster: &str) -> Foreign {
        let counter = self.0.get_or_create_owned(&ClusterLabel { cluster: cluster.to_owned() });
        Foreign(Arc::new(Inner { counter, log: LogLimit::default() }))
    }
}

/// The foreign objects of one cluster.
#[derive(Clone, Debug, Default)]
pub struct Foreign(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    counter: Counter,
    log: LogLimit,
}

impl Foreign {
    /// Counts an object.
    pub(crate) fn note(&self, kind: &str, namespace: &str, name: &str) {
        self.0.counter.inc();
        if let Some(left_out) = self.0.log.admit(Instant::now()) {
            tracing::warn!(
                kind,
                namespace,
                name,
                left_out,
                "carries the hub's label and is no copy of it: left alone"
            );
        }
    }

    #[cfg(test)]
    pub(crate) fn counted(&self) -> u64 {
        self.0.counter.get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_objects_are_counted_per_cluster() {
        let (mut shown, marks) = (Registry::default(), ForeignMarks::default());
        marks.show(&mut shown);
        marks.of("east").note("v1, Kind=Pod", "ns", "p");
        let mut page = String::new();
        prometheus_client::encoding::text::encode(&mut page, &shown).unwrap();
        assert!(page.contains(r#"switchyard_foreign_marks_total{cluster="east"} 1"#), "{page}");
    }
}
