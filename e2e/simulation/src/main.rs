//! `cargo xtask simulate`: many seeds, or one again.

use std::process::ExitCode;
use std::time::Instant;

use clap::Parser;
use switchyard_simulation::{Mutation, explain, search};

#[derive(Parser)]
#[command(name = "cargo xtask simulate", about = "Hub, agents and clusters under seeded faults")]
struct Args {
    /// How many seeds. 1000, or with --seed only that one.
    #[arg(long)]
    seeds: Option<u64>,
    /// The first of them.
    #[arg(long)]
    seed: Option<u64>,
    /// Break the code in this way.
    #[arg(long, value_enum)]
    mutate: Option<Mutation>,
    /// Run all of them whatever happens, and print one line for each failure.
    #[arg(long)]
    all: bool,
    /// Print a failure as it is, not the shortest like it.
    #[arg(long)]
    whole: bool,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let first = args.seed.unwrap_or(0);
    let count = args.seeds.unwrap_or(if args.seed.is_some() { 1 } else { 1_000 });
    let started = Instant::now();
    let found = search(first, count, args.mutate, !args.all);
    for (seed, violation) in &found.failures {
        println!("seed {seed}: {violation}");
    }
    let (seconds, failed) = (started.elapsed().as_secs_f64(), found.failures.len());
    println!("{} seeds from {first}, {} steps, {seconds:.1} s, {failed} failed", found.seeds, found.steps);
    let Some((seed, violation)) = found.failures.first() else { return ExitCode::SUCCESS };
    if !args.all {
        println!("\n{}", explain(*seed, violation, args.mutate, args.whole));
        let mutate = args.mutate.map(|it| format!(" --mutate {}", it.name())).unwrap_or_default();
        println!("again: cargo xtask simulate --seed {seed}{mutate}");
    }
    ExitCode::FAILURE
}
