//! A million pending workloads: the start, and cycles while jobs end, arrive and change.

use std::time::{Duration, Instant};

use crate::clock::Clock;
use crate::cluster::Cluster;
use crate::random::Random;
use crate::samples::{millis, table};
use crate::site::Site;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Size {
    pub(crate) queues: usize,
    pub(crate) pending: usize,
    /// Measured cycles.
    pub(crate) cycles: usize,
}

pub(crate) fn run(sizes: &[Size], limit: Duration, wants: &dyn Fn(&str) -> bool) {
    let mut rows = Vec::new();
    for fair in [false, true] {
        for size in sizes {
            let sharing = if fair { "fair" } else { "classical" };
            if wants(&format!("million/{sharing}/{}/{}", size.queues, size.pending)) {
                rows.push(measure(*size, fair, limit));
            }
        }
    }
    let head = [
        "sharing",
        "queues",
        "pending",
        "start s",
        "fill cycles",
        "p50 ms",
        "p99 ms",
        "max ms",
        "cycles",
        "p50 ms",
        "p99 ms",
        "max ms",
        "admitted",
        "preempted",
        "event us",
    ];
    table(
        "Many pending workloads (start: one list of all; fill: until quota is full; then jobs end, come, change)",
        &head,
        &rows,
    );
}

fn measure(size: Size, fair: bool, limit: Duration) -> Vec<String> {
    let site = size.site();
    let make = |number| site.workload(number);
    let mut cluster = Cluster::new(fair, site.objects(), &make);
    let started = list(&mut cluster, size);
    let mut row = vec![
        if fair { "fair" } else { "classical" }.to_owned(),
        size.queues.to_string(),
        size.pending.to_string(),
        format!("{:.2}", started.as_secs_f64()),
    ];
    fill(&mut cluster, size, Instant::now() + limit);
    row.extend(cluster.cycles.columns());
    row.extend(live(&mut cluster, size, Instant::now() + limit));
    row
}

impl Size {
    pub(crate) fn site(self) -> Site {
        Site { queues: self.queues, seed: 42 }
    }
}

/// Sends the events of all workloads. Returns the engine's time.
pub(crate) fn list(cluster: &mut Cluster<'_>, size: Size) -> Duration {
    let mut took = Duration::ZERO;
    // Workloads are made outside the measurement, in batches that limit the memory.
    for first in (0..size.pending).step_by(10_000) {
        let list: Vec<_> = (first..(first + 10_000).min(size.pending))
            .map(|number| size.site().workload(number))
            .collect();
        let start = Clock::start();
        for workload in list {
            cluster
                .engine
                .apply(switchyard_scheduler::Event::Workload(Box::new(workload)), cluster.now);
        }
        took += start.elapsed();
    }
    took
}

/// Runs cycles until one has no heads.
pub(crate) fn fill(cluster: &mut Cluster<'_>, size: Size, end: Instant) {
    while cluster.engine.has_heads(cluster.now)
        && Instant::now() < end
        && cluster.cycles.len() < size.cycles
    {
        cluster.cycle();
    }
}

/// At each tick some jobs end, about as many arrive, and more change. Then the engine cycles while
/// it has heads, as under the controller.
pub(crate) fn live(cluster: &mut Cluster<'_>, size: Size, end: Instant) -> Vec<String> {
    let (mut random, mut next) = (Random::new(7), size.pending);
    let (mut admitted, mut preempted) = (0, 0);
    cluster.cycles.clear();
    cluster.events.clear();
    while cluster.cycles.len() < size.cycles && Instant::now() < end {
        // About one job per second and queue.
        for _ in 0..(size.queues + random.below(100)) / 100 {
            if let Some(number) = cluster.any_running(&mut random) {
                cluster.finish(number);
            }
            cluster.submit(next);
            next += 1;
            for _ in 0..3 {
                if let Some(number) = cluster.any_running(&mut random) {
                    cluster.update(number);
                }
            }
        }
        cluster.wait(10);
        for _ in 0..10 {
            if !cluster.engine.has_heads(cluster.now) {
                break;
            }
            let done = cluster.cycle();
            admitted += done.admitted.len();
            preempted += done.preempted.len();
        }
    }
    let mut row = cluster.cycles.columns();
    row.extend([admitted.to_string(), preempted.to_string()]);
    let events = u32::try_from(cluster.events.len()).unwrap_or(u32::MAX).max(1);
    let micros = (cluster.events.total() / events) * 1000;
    row.push(millis(micros));
    row
}
