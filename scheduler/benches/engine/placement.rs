//! One placement, by nodes and levels: a cycle whose only head is a gang, on a half full site.

use std::time::{Duration, Instant};

use switchyard_scheduler::{EngineSettings, Event, HOSTNAME_LABEL, TopologyGates, TopologyRequest};

use crate::cluster::Cluster;
use crate::gangs::{self, Size};
use crate::samples::{Samples, table};

/// A gang of 16 pods with eight GPUs each: a whole rack.
const PODS: i32 = 16;
const GPUS: i64 = 8;
/// Enough numbers for the workloads that fill the site.
const FIRST: usize = 10_000_000;

pub(crate) fn run(sizes: &[Size], probes: usize, limit: Duration, wants: &dyn Fn(&str) -> bool) {
    let mut rows = Vec::new();
    for size in sizes.iter().filter(|it| wants(&format!("placement/{}/{}", it.nodes, it.levels))) {
        let lowest = if size.levels > 1 { "rack" } else { HOSTNAME_LABEL };
        let preferred =
            TopologyRequest { preferred: Some(lowest.into()), ..TopologyRequest::default() };
        for (name, request) in [
            ("required", gangs::required(lowest)),
            ("preferred", preferred),
            ("none", TopologyRequest::default()),
        ] {
            // The gang does not fit a node.
            if request.required.as_deref() == Some(HOSTNAME_LABEL) {
                continue;
            }
            let placed = measure(*size, &request, probes, limit);
            let micros =
                |permille| format!("{:.0}", placed.permille(permille).as_secs_f64() * 1_000_000.0);
            let [nodes, levels] = [size.nodes, size.levels].map(|it| it.to_string());
            let mut row = vec![nodes, levels, name.to_owned(), placed.len().to_string()];
            row.extend([500, 990, 1000].map(micros));
            rows.push(row);
        }
    }
    let head = ["nodes", "levels", "request", "placements", "p50 us", "p99 us", "max us"];
    table("One gang of 16 pods, each a whole node, placed in a half full site", &head, &rows);
}

/// The settings of an engine that places pods.
pub(crate) fn settings(fair: bool) -> EngineSettings {
    EngineSettings {
        fair_sharing: fair,
        topology: Some(TopologyGates::default()),
        ..EngineSettings::default()
    }
}

fn measure(size: Size, request: &TopologyRequest, probes: usize, limit: Duration) -> Samples {
    let make = |number: usize| match number.checked_sub(FIRST) {
        None => size.workload(number),
        Some(probe) => size.gang(number, probe % size.queues, (PODS, GPUS), request.clone()),
    };
    let mut cluster = Cluster::with_settings(settings(false), size.objects(), &make);
    let end = Instant::now() + limit;
    // About 43 GPUs a gang, and eight a node.
    for number in 0..size.nodes / 11 {
        cluster.submit(number);
    }
    while cluster.engine.has_heads(cluster.now) && Instant::now() < end {
        cluster.cycle();
        cluster.wait(1);
    }
    let mut placed = Samples::default();
    for number in FIRST..FIRST + probes {
        if Instant::now() > end {
            break;
        }
        cluster.submit(number);
        cluster.cycles.clear();
        if cluster.cycle().admitted.contains(&number) {
            placed.add(cluster.cycles.total());
            cluster.finish(number);
        } else {
            let key = make(number).key;
            cluster.apply(Event::WorkloadDeleted { key });
        }
        cluster.wait(1);
    }
    placed
}
