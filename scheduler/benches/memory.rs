//! The engine's memory: `cargo bench -p switchyard-scheduler --bench memory`.
//!
//! Counts allocations, including the engine's copies of other objects. The target is 1 KiB for each
//! of a million pending workloads.

#[path = "engine/random.rs"]
mod random;
#[expect(dead_code, reason = "the other bench uses all of it")]
#[path = "engine/site.rs"]
mod site;

use std::alloc::System;

use cap::Cap;
use switchyard_scheduler::{Engine, EngineSettings, Event, PreemptionSettings};

use crate::site::{START, Site};

#[global_allocator]
static ALLOCATED: Cap<System> = Cap::new(System, usize::MAX);

/// The limit per workload, in bytes.
const TARGET: usize = 1024;

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
