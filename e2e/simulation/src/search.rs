//! Plays many seeds, on one thread per processor.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use switchyard_flags::simulate::Mutation;

use crate::plan::Plan;
use crate::reached::Reached;
use crate::violation::{Law, Violation};

#[derive(Debug, Default)]
pub struct Found {
    /// Played seeds.
    pub seeds: u64,
    /// Events of all seeds.
    pub steps: u64,
    /// In order of seeds. A search that stops at the first failure may find different ones on
    /// different machines.
    pub failures: Vec<(u64, Violation)>,
    /// Counts over all seeds.
    pub reached: Reached,
}

/// Plays `count` seeds from `first` on. With `stop`, ends at the first violation.
pub fn search(first: u64, count: u64, mutation: Option<Mutation>, stop: bool) -> Found {
    search_for(None, first, count, mutation, stop)
}

/// As [`search`]; starts no seed after `end`.
pub fn search_until(
    end: Instant,
    first: u64,
    count: u64,
    mutation: Option<Mutation>,
    stop: bool,
) -> Found {
    search_while(|| Instant::now() < end, None, first, count, mutation, stop)
}

/// As [`search`], for violations of one law, whatever other laws break before.
pub fn search_for(
    only: Option<Law>,
    first: u64,
    count: u64,
    mutation: Option<Mutation>,
    stop: bool,
) -> Found {
    search_while(|| true, only, first, count, mutation, stop)
}

fn search_while(
    goes_on: impl Fn() -> bool + Sync,
    only: Option<Law>,
    first: u64,
    count: u64,
    mutation: Option<Mutation>,
    stop: bool,
) -> Found {
    let (next, steps, seeds) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
    let (over, failures) = (AtomicBool::new(false), Mutex::new(Vec::new()));
    let reached = Mutex::new(Reached::default());
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let work = || {
        while !over.load(Ordering::Relaxed) && goes_on() {
            let index = next.fetch_add(1, Ordering::Relaxed);
            if index >= count {
                break;
            }
            let seed = first + index;
            let report = crate::guarded(&Plan { only, ..Plan::of(seed) }, mutation, false);
            steps.fetch_add(report.steps, Ordering::Relaxed);
            if let Ok(mut reached) = reached.lock() {
                reached.add(&report.reached);
            }
            seeds.fetch_add(1, Ordering::Relaxed);
            if let Some(violation) = report.violation {
                if let Ok(mut failures) = failures.lock() {
                    failures.push((seed, violation));
                }
                over.fetch_or(stop, Ordering::Relaxed);
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(work);
        }
    });
    let mut failures = failures.into_inner().unwrap_or_default();
    failures.sort_by_key(|(seed, _)| *seed);
    let reached = reached.into_inner().unwrap_or_default();
    Found { seeds: seeds.into_inner(), steps: steps.into_inner(), failures, reached }
}

/// A failure with the shortest trace that the search finds.
pub fn explain(
    seed: u64,
    violation: &Violation,
    mutation: Option<Mutation>,
    whole: bool,
) -> String {
    let plan = Plan { only: Some(violation.law), ..Plan::of(seed) };
    let plan = if whole { plan } else { crate::shrink::shrink(&plan, violation.law, mutation) };
    let trace = crate::guarded(&plan, mutation, true).trace;
    format!("seed {seed}: {violation}\n\n{plan:#?}\n\n{}\n", trace.join("\n"))
}
