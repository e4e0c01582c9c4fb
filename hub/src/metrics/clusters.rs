//! Gauges of worker clusters, read at each scrape. Only the leader has them: other replicas have no
//! sessions.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use kube::ResourceExt as _;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::MetricType;
use switchyard_api::conditions;
use switchyard_api::v1beta2::MultiKueueCluster;
use switchyard_controller::Context;
use switchyard_controller::metrics::ReplicaRole;

use crate::api_objects::{is_unable, multi_kueue_config};
use crate::cluster_reports::ClusterReports;
use crate::server::Registry;

pub(crate) struct ClusterGauges {
    pub(crate) ctx: Arc<Context>,
    pub(crate) registry: Arc<Registry>,
    pub(crate) reports: Arc<ClusterReports>,
}

impl fmt::Debug for ClusterGauges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClusterGauges").finish_non_exhaustive()
    }
}

impl Collector for ClusterGauges {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), fmt::Error> {
        if !self.ctx.leading() {
            return Ok(());
        }
        let clusters = self.ctx.stores.multi_kueue_clusters.all();
        self.by_queue(&mut encoder)?;
        let names: Vec<String> = clusters.iter().map(|it| it.name_any()).collect();
        let connected = |name: &str| f64::from(u8::from(self.registry.get(name).is_some()));
        let help = "Whether a worker cluster has a session";
        by_cluster(&mut encoder, "switchyard_cluster_connected", help, &names, &|name| {
            Some(connected(name))
        })?;
        // An agent's last report of its health counts until it is back. Other clusters have no
        // value.
        let unable: BTreeSet<String> = clusters
            .iter()
            .filter(|cluster| is_unable(cluster))
            .map(|cluster| cluster.name_any())
            .collect();
        let able = |name: &str| match self.registry.get(name) {
            Some(live) => Some(live.unable.is_none()),
            None => (unable.contains(name) || self.registry.left_unable(name).is_some())
                .then_some(false),
        };
        let help = "Whether a worker cluster's agent can write to its own API server, by its last report; absent for a cluster without a session whose last report was good";
        by_cluster(&mut encoder, "switchyard_cluster_able", help, &names, &|name| {
            able(name).map(|able| f64::from(u8::from(able)))
        })?;
        // A status shows at most 64. A cluster without an inventory has no value.
        let count = |name: &str| {
            self.reports.orphans(name).map(|them| u32::try_from(them.len()).unwrap_or(u32::MAX))
        };
        let help =
            "Workloads with this hub's mark on a cluster that the hub does not know, 64 at most";
        by_cluster(&mut encoder, "switchyard_cluster_orphans", help, &names, &|name| {
            count(name).map(f64::from)
        })?;
        let help = "Whether the circuit breaker is open, so that no workload is given up";
        let mut family =
            encoder.encode_descriptor("switchyard_breaker_open", help, None, MetricType::Gauge)?;
        family.encode_gauge(&f64::from(u8::from(self.reports.breaker().is_some())))
    }
}

impl ClusterGauges {
    /// Kueue's gauge: the state of the worker clusters of each ClusterQueue's MultiKueue check.
    fn by_queue(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let help = "Whether a worker cluster of a ClusterQueue's MultiKueue check is active";
        let mut family = encoder.encode_descriptor(
            "multikueue_cluster_status",
            help,
            None,
            MetricType::Gauge,
        )?;
        for queue in self.ctx.stores.cluster_queues.all() {
            let Some(config) = multi_kueue_config(&self.ctx.stores, &queue) else { continue };
            for cluster in &config.spec.clusters {
                let found = self.ctx.stores.multi_kueue_clusters.get("", cluster);
                for (active, value) in activity(found.as_deref()) {
                    let (queue, role) = (queue.name_any(), ReplicaRole::Leader.as_str());
                    let labels = [
                        ("cluster_queue", queue.as_str()),
                        ("cluster", cluster.as_str()),
                        ("active", active),
                        ("replica_role", role),
                    ];
                    family.encode_family(&labels)?.encode_gauge(&value)?;
                }
            }
        }
        Ok(())
    }
}

/// Each value of the label `active`, and whether the cluster has it.
fn activity(cluster: Option<&MultiKueueCluster>) -> [(&'static str, f64); 3] {
    let conditions =
        cluster.and_then(|it| it.status.as_ref()).map(|status| status.conditions.as_slice());
    let active = conditions.and_then(|all| conditions::find(all, conditions::ACTIVE));
    let has = active.map_or(conditions::UNKNOWN, |active| active.status.as_str());
    ["True", "False", "Unknown"].map(|value| (value, f64::from(u8::from(value == has))))
}

fn by_cluster(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    clusters: &[String],
    value: &dyn Fn(&str) -> Option<f64>,
) -> Result<(), fmt::Error> {
    let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
    for cluster in clusters {
        if let Some(value) = value(cluster) {
            family.encode_family(&[("cluster", cluster.as_str())])?.encode_gauge(&value)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[rstest::rstest]
    #[case::active(json!([{"type": "Active", "status": "True", "reason": "Active", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}]), "True")]
    #[case::lost(json!([{"type": "Active", "status": "False", "reason": "ClientConnectionFailed", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}]), "False")]
    #[case::no_conditions(json!([]), "Unknown")]
    fn cluster_has_exactly_one_activity_value(
        #[case] conditions: serde_json::Value,
        #[case] expected: &str,
    ) {
        let cluster = json!({"metadata": {"name": "east"}, "spec": {"clusterSource": {"agent": {}}}, "status": {"conditions": conditions}});
        let cluster: MultiKueueCluster = serde_json::from_value(cluster).unwrap();
        let one: Vec<_> =
            activity(Some(&cluster)).into_iter().filter(|(_, value)| *value > 0.0).collect();
        assert_eq!(one, [(expected, 1.0)]);
    }

    #[test]
    fn missing_cluster_activity_is_unknown() {
        assert_eq!(activity(None), [("True", 0.0), ("False", 0.0), ("Unknown", 1.0)]);
    }
}
