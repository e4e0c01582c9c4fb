//! Workloads with trouble on their worker cluster, by cluster and reason.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use switchyard_api::conditions::reasons::worker_trouble as reasons;
use switchyard_dispatcher::Uid;
use switchyard_proto::trouble;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct TroubleLabels {
    cluster: String,
    reason: &'static str,
}

/// Counts each workload once.
#[derive(Debug, Default)]
pub(crate) struct TroubleGauge {
    pub(super) family: Family<TroubleLabels, Gauge>,
    counted: Mutex<BTreeMap<Uid, TroubleLabels>>,
}

impl TroubleGauge {
    /// Sets the cluster and the reason of a workload's trouble.
    pub(crate) fn set(&self, uid: &Uid, trouble: Option<(&str, &str)>) {
        let labels = |(cluster, reason): (&str, &str)| TroubleLabels {
            cluster: cluster.to_owned(),
            reason: known(reason),
        };
        let now = trouble.map(labels);
        let mut counted = self.counted.lock();
        if counted.get(uid) == now.as_ref() {
            return;
        }
        if let Some(before) = counted.remove(uid)
            && self.family.get_or_create(&before).dec() == 1
        {
            self.family.remove(&before);
        }
        if let Some(now) = now {
            self.family.get_or_create(&now).inc();
            counted.insert(uid.clone(), now);
        }
    }

    /// Forgets all workloads: another replica counts them now.
    pub(crate) fn clear(&self) {
        self.counted.lock().clear();
        self.family.clear();
    }
}

/// The reason as a label value from a closed set.
fn known(reason: &str) -> &'static str {
    match reason {
        reasons::CLUSTER_UNREACHABLE => reasons::CLUSTER_UNREACHABLE,
        reasons::AGENT_UNABLE => reasons::AGENT_UNABLE,
        reasons::CLUSTER_REMOVED => reasons::CLUSTER_REMOVED,
        reasons::NO_READY_POD => reasons::NO_READY_POD,
        reason => trouble::known_reason(reason),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use switchyard_controller::metrics::Metrics;

    use crate::metrics::HubMetrics;

    #[test]
    fn workloads_are_counted_once_by_bounded_reasons() {
        let shown = Arc::new(Metrics::default());
        let metrics = HubMetrics::register(&shown);
        let lines = || {
            let page = shown.render();
            page.lines()
                .filter_map(|line| line.strip_prefix("switchyard_workloads_in_trouble"))
                .map(str::to_owned)
                .collect::<Vec<_>>()
        };
        let set = |uid: &str, trouble| metrics.troubles.set(&uid.into(), trouble);
        set("a", Some(("west", "Unschedulable")));
        set("a", Some(("west", "Unschedulable")));
        set("b", Some(("west", "Unschedulable")));
        assert_eq!(lines(), [r#"{cluster="west",reason="Unschedulable"} 2"#]);
        set("a", Some(("west", "made up by a tenant")));
        set("b", None);
        assert_eq!(lines(), [r#"{cluster="west",reason="Other"} 1"#]);
        metrics.troubles.clear();
        assert!(lines().is_empty());
    }
}
