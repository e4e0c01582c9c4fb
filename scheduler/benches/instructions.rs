//! The engine's cycles on fixed inputs, for a program that counts instructions: `cargo xtask
//! instructions`.
//!
//! Runs the scenario that the first argument names. Its cycles are in a function that callgrind
//! finds by name. `cargo test` names no scenario and runs all of them with small sizes, to prove
//! that they work.

#![expect(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "the other bench, whose parts it has, does"
)]

#[expect(dead_code, reason = "the other bench uses all of it")]
#[path = "engine/cluster.rs"]
mod cluster;
/// This bench needs no times, and callgrind does not support the real clock.
mod clock {
    #[derive(Clone, Copy)]
    pub(crate) struct Clock;

    impl Clock {
        pub(crate) fn start() -> Self {
            Self
        }

        #[expect(clippy::unused_self, reason = "as the real one")]
        pub(crate) fn elapsed(self) -> std::time::Duration {
            std::time::Duration::ZERO
        }
    }
}
#[path = "engine/gangs.rs"]
mod gangs;
#[expect(dead_code, reason = "the other bench uses all of it")]
#[path = "engine/million.rs"]
mod million;
#[expect(dead_code, reason = "the other bench uses all of it")]
#[path = "engine/placement.rs"]
mod placement;
#[path = "engine/random.rs"]
mod random;
#[path = "engine/samples.rs"]
mod samples;
#[path = "engine/site.rs"]
mod site;
#[expect(dead_code, reason = "the other bench uses all of it")]
#[path = "engine/storm.rs"]
mod storm;

use std::time::{Duration, Instant};

use crate::cluster::Cluster;
use crate::storm::Heads;

/// The scenarios, each classical and fair: filling an empty site, living on a full site, living
/// with few pending workloads and much preemption, and preemption storms. `gangs` fills a site with
/// a topology, and lives on it.
const SCENARIOS: [&str; 6] = ["fill", "live", "churn", "storm-one", "storm-all", "gangs"];

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let named: Vec<_> = args.iter().filter(|arg| !arg.starts_with("--")).collect();
    for scenario in SCENARIOS {
        for fair in [false, true] {
            let name = format!("{scenario}/{}", if fair { "fair" } else { "classical" });
            if args.iter().any(|arg| arg == "--list") {
                println!("{name}: benchmark");
            } else if named.is_empty() || named.contains(&&name) {
                run(scenario, fair, named.is_empty());
            }
        }
    }
}

fn run(scenario: &str, fair: bool, small: bool) {
    let factor = if small { 10 } else { 1 };
    let queues = 200 / factor;
    let size =
        |each, cycles| million::Size { queues, pending: queues * each, cycles: cycles / factor };
    let storm = storm::Size { queues: 100 / factor, victims: 1000 / factor, rounds: 2 };
    match scenario {
        "storm-one" => storms(storm, Heads::One, fair),
        "storm-all" => storms(storm, Heads::All, fair),
        "gangs" => {
            place(gangs::Size { nodes: 1280 / factor, queues: 50 / factor, levels: 3 }, fair)
        }
        "fill" => many(size(200, 100), fair, true),
        "live" => many(size(1000, 100), fair, false),
        _ => many(size(100, 50), fair, false),
    }
}

fn many(size: million::Size, fair: bool, fill: bool) {
    let site = size.site();
    let make = |number| site.workload(number);
    let mut cluster = Cluster::new(fair, site.objects(), &make);
    million::list(&mut cluster, size);
    cluster.counted = fill;
    million::fill(&mut cluster, size, far());
    if !fill {
        cluster.counted = true;
        million::live(&mut cluster, size, far());
    }
}

/// Gangs fill the site, then some end and others come.
fn place(site: gangs::Size, fair: bool) {
    let size = million::Size { queues: site.queues, pending: site.nodes, cycles: 40 };
    let make = |number| site.workload(number);
    let mut cluster = Cluster::with_settings(placement::settings(fair), site.objects(), &make);
    for number in 0..size.pending {
        cluster.submit(number);
    }
    cluster.counted = true;
    million::fill(&mut cluster, size, far());
    million::live(&mut cluster, size, far());
}

fn storms(size: storm::Size, heads: Heads, fair: bool) {
    let make = |number| size.workload(number);
    let mut cluster = size.lent(fair, &make);
    storm::settle(&mut cluster);
    cluster.counted = true;
    storm::rounds(&mut cluster, size, heads, far());
}

/// Later than every event, because counts must not depend on time.
fn far() -> Instant {
    Instant::now() + Duration::from_secs(1 << 30)
}
