//! The engine's speed: `cargo bench -p switchyard-scheduler --bench engine [-- ROW...]`. A row is
//! named by its part and first columns, such as `storm/fair` or `million/classical/1000/1000000`; a
//! part of the name is enough.
//!
//! Times are processor time of the engine alone. Inputs are the same in every run. `cargo test`
//! runs the bench without `--bench`, with small sizes, to prove that it works. `--quick` does the
//! same.

#![expect(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "a bench measures time; the engine does not"
)]

mod baseline;
mod clock;
mod cluster;
mod gangs;
mod million;
mod placement;
mod random;
mod samples;
mod site;
mod storm;

use std::time::Duration;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let flag = |name: &str| args.iter().any(|arg| arg == name);
    if flag("--list") {
        return;
    }
    let full = flag("--bench") && !flag("--quick");
    let named: Vec<_> = args.iter().filter(|arg| !arg.starts_with("--")).collect();
    let wants = |row: &str| {
        !full || named.is_empty() || named.iter().any(|name| row.contains(name.as_str()))
    };
    let limit = Duration::from_secs(if full { 40 } else { 2 });
    million::run(&many(full), limit, &wants);
    baseline::run(if full { 1 } else { 50 }, &wants);
    storm::run(&storms(full), limit, &wants);
    placement::run(&sites(full), if full { 500 } else { 5 }, limit, &wants);
}

/// Growth with the nodes, and with the levels.
fn sites(full: bool) -> Vec<gangs::Size> {
    let size = |nodes, levels| gangs::Size { nodes, queues: 10, levels };
    if !full {
        return vec![size(64, 1), size(64, 4)];
    }
    let sizes = [320, 1280, 5120, 10_000].into_iter();
    sizes.flat_map(|nodes| (1..=4).map(move |levels| size(nodes, levels))).collect()
}

/// Growth with the queues, and with the workloads alone.
fn many(full: bool) -> Vec<million::Size> {
    if !full {
        return vec![million::Size { queues: 20, pending: 400, cycles: 20 }];
    }
    let size = |queues, pending| million::Size { queues, pending, cycles: 3000 };
    vec![
        size(10, 10_000),
        size(100, 100_000),
        size(1000, 10_000),
        size(1000, 100_000),
        size(1000, 1_000_000),
    ]
}

fn storms(full: bool) -> Vec<storm::Size> {
    if !full {
        return vec![storm::Size { queues: 10, victims: 50, rounds: 2 }];
    }
    let size = |victims, rounds| storm::Size { queues: 100, victims, rounds };
    vec![size(1000, 200), size(10_000, 50), size(100_000, 5)]
}
