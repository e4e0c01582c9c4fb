//! Gauges of the worker clusters, read at the moment of the scrape. Only a leader has them: the others hear of nothing.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use kube::ResourceExt as _;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::MetricType;
use switchyard_controller::Context;

use crate::server::Registry;
use crate::shell::{Reports, is_unable};

/// Where the gauges are read from.
pub(crate) struct ClusterGauges {
    pub(crate) ctx: Arc<Context>,
    pub(crate) registry: Arc<Registry>,
    pub(crate) reports: Arc<Reports>,
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
        let names: Vec<String> = clusters.iter().map(|it| it.name_any()).collect();
        let connected = |name: &str| f64::from(u8::from(self.registry.get(name).is_some()));
        let help = "Whether a worker cluster has a session";
        by_cluster(&mut encoder, "switchyard_cluster_connected", help, &names, &|name| Some(connected(name)))?;
        // What an agent said of itself stands until it is back. Of others nothing is known.
        let unable: BTreeSet<String> =
            clusters.iter().filter(|cluster| is_unable(cluster)).map(|cluster| cluster.name_any()).collect();
        let able = |name: &str| match self.registry.get(name) {
            Some(live) => Some(live.unable.is_none()),
            None => (unable.contains(name) || self.registry.left_unable(name).is_some()).then_some(false),
        };
        let help = "Whether a worker cluster's agent can write to its own API server, as it last said";
        by_cluster(&mut encoder, "switchyard_cluster_able", help, &names, &|name| {
            able(name).map(|able| f64::from(u8::from(able)))
        })?;
        // What a status shows, at most. Nothing of a cluster that has not told.
        let count = |name: &str| self.reports.orphans(name).map(|them| u32::try_from(them.len()).unwrap_or(u32::MAX));
        let help = "Workloads with this hub's mark on a cluster that the hub does not know, 64 at most";
        by_cluster(&mut encoder, "switchyard_cluster_orphans", help, &names, &|name| count(name).map(f64::from))?;
        let help = "Whether the circuit breaker is open: nothing is given up";
        let mut family = encoder.encode_descriptor("switchyard_breaker_open", help, None, MetricType::Gauge)?;
        family.encode_gauge(&f64::from(u8::from(self.reports.breaker().is_some())))
    }
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
