//! The engine's memory: `cargo bench -p switchyard-scheduler --bench memory`.
//!
//! Counts allocations, including the engine's copies of other objects. The targets are 1 KiB for each
//! pending workload when a million wait, and 150 MB for 10,000 nodes with 100,000 pods of others.

#[expect(dead_code, reason = "the other bench uses all of it")]
#[path = "engine/gangs.rs"]
mod gangs;
#[path = "engine/random.rs"]
mod random;
#[expect(dead_code, reason = "the other bench uses all of it")]
#[path = "engine/site.rs"]
mod site;

use std::alloc::System;

use cap::Cap;
use switchyard_scheduler::{
    Engine, EngineSettings, Event, NonTasPod, PreemptionSettings, TopologyGates,
};

use crate::site::{START, Site};

#[global_allocator]
static ALLOCATED: Cap<System> = Cap::new(System, usize::MAX);

/// The limit per workload, in bytes.
const TARGET: usize = 1024;
/// The limit for 10,000 nodes and 100,000 pods of others, in bytes.
const TARGET_OF_NODES: usize = 150_000_000;

fn main() {
    if std::env::args().any(|arg| arg == "--list") {
        return;
    }
    let full = std::env::args().any(|arg| arg == "--bench")
        && !std::env::args().any(|arg| arg == "--quick");
    let sizes: &[(usize, usize)] =
        if full { &[(1000, 10_000), (1000, 100_000), (1000, 1_000_000)] } else { &[(10, 2000)] };
    println!(
        "\nMemory (bytes a workload: pending, and after each queue tried and parked what does not fit)"
    );
    for (queues, pending) in sizes {
        measure(*queues, *pending);
    }
    let sites: &[usize] = if full { &[1000, 10_000] } else { &[100] };
    println!(
        "\nMemory of topologies (MB: nodes of three levels, and with ten pods of others on each)"
    );
    for nodes in sites {
        measure_nodes(*nodes);
    }
}

fn measure_nodes(nodes: usize) {
    let size = gangs::Size { nodes, queues: 100, levels: 3 };
    let settings =
        EngineSettings { topology: Some(TopologyGates::default()), ..EngineSettings::default() };
    let mut engine = Engine::with_preemption(settings, PreemptionSettings::default());
    let empty = ALLOCATED.allocated();
    let used = || ALLOCATED.allocated().saturating_sub(empty);
    for event in size.objects() {
        engine.apply(event, START);
    }
    let listed = used();
    for number in 0..10 * nodes {
        engine.apply(non_tas_pod(number, nodes), START);
    }
    engine.cycle(START);
    drop(engine.changed());
    let all = used();
    let megabytes = |bytes: usize| bytes as f64 / 1e6;
    println!("  {nodes:>6} nodes  {:>6.1}  {:>6.1}", megabytes(listed), megabytes(all));
    assert!(nodes > 10_000 || all <= TARGET_OF_NODES, "more than {TARGET_OF_NODES} bytes");
}

fn measure(queues: usize, pending: usize) {
    let site = Site { queues, seed: 42 };
    let mut engine =
        Engine::with_preemption(EngineSettings::default(), PreemptionSettings::default());
    for event in site.objects() {
        engine.apply(event, START);
    }
    let empty = ALLOCATED.allocated();
    for number in 0..pending {
        engine.apply(Event::Workload(Box::new(site.workload(number))), START);
    }
    let each = |allocated: usize| allocated.saturating_sub(empty) / pending;
    let listed = each(ALLOCATED.allocated());
    for _ in 0..20 {
        engine.cycle(START);
    }
    drop(engine.changed());
    let tried = each(ALLOCATED.allocated());
    println!("  {queues:>5} queues  {pending:>8} pending  {listed:>5}  {tried:>5}");
    // With few workloads, the memory of the queues dominates.
    let many = pending >= 100 * queues;
    assert!(!many || tried.max(listed) <= TARGET, "more than {TARGET} bytes for a workload");
}

/// A pod outside topology-aware scheduling, which uses a core of a node.
fn non_tas_pod(number: usize, nodes: usize) -> Event {
    let requests = [("cpu".into(), site::cores(1)), ("memory".into(), site::gibibytes(1))];
    Event::NonTasPod(Box::new(NonTasPod {
        key: format!("kube-system/daemon-{number:07}").into(),
        leaf: gangs::host(number % nodes),
        requests: requests.into(),
    }))
}
