//! Dispatching in `/metrics`: Kueue's counters under Kueue's names, attempts taken back, and the
//! state of clusters.

mod clusters;
mod troubles;

use std::sync::Arc;

pub(crate) use clusters::ClusterGauges;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use switchyard_controller::metrics::Metrics;
use troubles::TroubleGauge;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DispatchLabels {
    cluster_queue: String,
    cluster: String,
    replica_role: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct EvictedLabels {
    cluster_queue: String,
    cluster: String,
    reason: &'static str,
    replica_role: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct TakenBackLabels {
    cluster: String,
    reason: &'static str,
}

#[derive(Debug)]
pub struct HubMetrics {
    /// The controller's metrics, which know this replica's role.
    shown: Arc<Metrics>,
    dispatched: Family<DispatchLabels, Counter>,
    admitted: Family<DispatchLabels, Counter>,
    evicted: Family<EvictedLabels, Counter>,
    taken_back: Family<TakenBackLabels, Counter>,
    /// Workloads with trouble on their cluster.
    pub(crate) troubles: TroubleGauge,
    /// Clusters with a session.
    pub sessions: Gauge,
}

impl HubMetrics {
    /// Registers the metrics with the controller's.
    pub fn register(shown: &Arc<Metrics>) -> Arc<Self> {
        let (dispatched, admitted, evicted, taken_back, sessions, troubles) = Default::default();
        let metrics = Arc::new(Self {
            shown: shown.clone(),
            dispatched,
            admitted,
            evicted,
            taken_back,
            sessions,
            troubles,
        });
        shown.register(|registry| {
            registry.register(
                "multikueue_workloads_dispatched",
                "Workloads offered to a worker cluster",
                metrics.dispatched.clone(),
            );
            registry.register(
                "multikueue_workloads_admitted",
                "Workloads committed to a worker cluster",
                metrics.admitted.clone(),
            );
            registry.register(
                "multikueue_workloads_evicted",
                "Workloads evicted by the worker cluster that they were committed to",
                metrics.evicted.clone(),
            );
            let ours = registry.sub_registry_with_prefix("switchyard");
            ours.register(
                "workloads_taken_back",
                "Attempts taken from a cluster before their job had ended, by the reason in the Workload's history",
                metrics.taken_back.clone(),
            );
            ours.register(
                "workloads_in_trouble",
                "Workloads with condition WorkerTrouble, by its reason and the cluster that they were sent to; leader only",
                metrics.troubles.family.clone(),
            );
            ours.register(
                "cluster_sessions",
                "Worker clusters with a session, those by kubeconfig included",
                metrics.sessions.clone(),
            );
        });
        metrics
    }

    /// A workload was offered to a cluster.
    pub fn dispatched(&self, cluster_queue: &str, cluster: &str) {
        self.dispatched.get_or_create(&self.labels(cluster_queue, cluster)).inc();
    }

    /// A workload was committed to a cluster.
    pub fn admitted(&self, cluster_queue: &str, cluster: &str) {
        self.admitted.get_or_create(&self.labels(cluster_queue, cluster)).inc();
    }

    /// A worker cluster evicted a workload, for one of Kueue's reasons.
    pub fn evicted(&self, cluster_queue: &str, cluster: &str, reason: &'static str) {
        let DispatchLabels { cluster_queue, cluster, replica_role } =
            self.labels(cluster_queue, cluster);
        self.evicted
            .get_or_create(&EvictedLabels { cluster_queue, cluster, reason, replica_role })
            .inc();
    }

    /// An attempt was taken from a cluster.
    pub fn taken_back(&self, cluster: &str, reason: &'static str) {
        self.taken_back
            .get_or_create(&TakenBackLabels { cluster: cluster.to_owned(), reason })
            .inc();
    }

    fn labels(&self, cluster_queue: &str, cluster: &str) -> DispatchLabels {
        let replica_role = self.shown.role().as_str();
        DispatchLabels {
            cluster_queue: cluster_queue.to_owned(),
            cluster: cluster.to_owned(),
            replica_role,
        }
    }
}

#[cfg(test)]
mod tests {
    use switchyard_controller::metrics::ReplicaRole;

    use super::*;

    #[test]
    fn hub_counters_have_kueues_names() {
        let shown = Arc::new(Metrics::default());
        shown.set_role(ReplicaRole::Leader);
        let metrics = HubMetrics::register(&shown);
        metrics.dispatched("cq", "east");
        metrics.admitted("cq", "east");
        metrics.evicted("cq", "east", "Preempted");
        metrics.taken_back("east", "ClusterLost");
        metrics.sessions.set(2);
        let page = shown.render();
        for line in [
            r#"multikueue_workloads_dispatched_total{cluster_queue="cq",cluster="east",replica_role="leader"} 1"#,
            r#"multikueue_workloads_admitted_total{cluster_queue="cq",cluster="east",replica_role="leader"} 1"#,
            r#"multikueue_workloads_evicted_total{cluster_queue="cq",cluster="east",reason="Preempted",replica_role="leader"} 1"#,
            r#"switchyard_workloads_taken_back_total{cluster="east",reason="ClusterLost"} 1"#,
            "switchyard_cluster_sessions 2",
        ] {
            assert!(page.contains(line), "{line} is missing in:\n{page}");
        }
    }
}
