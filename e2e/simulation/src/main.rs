//! `cargo xtask simulate`: plays many seeds, or one seed again.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Parser;
use switchyard_flags::simulate::Args;
use switchyard_simulation::{explain, search, search_until};

#[derive(Parser)]
#[command(name = "cargo xtask simulate", about = "Hub, agents and clusters under seeded faults")]
struct Command {
    #[command(flatten)]
    args: Args,
}

fn main() -> ExitCode {
    let Command { args } = Command::parse();
    let first = args.seed.unwrap_or(0);
    let count = args.seeds.unwrap_or(match (args.seconds, args.seed) {
        (Some(_), _) => u64::MAX - first,
        (None, Some(_)) => 1,
        (None, None) => 1_000,
    });
    let started = Instant::now();
    let found = match args.seconds {
        Some(seconds) => search_until(
            started + Duration::from_secs(seconds),
            first,
            count,
            args.mutate,
            !args.all,
        ),
        None => search(first, count, args.mutate, !args.all),
    };
    if args.reached {
        print!("{}", found.reached);
    }
    for (seed, violation) in &found.failures {
        println!("seed {seed}: {violation}");
    }
    let (seconds, failed) = (started.elapsed().as_secs_f64(), found.failures.len());
    println!(
        "{} seeds from {first}, {} steps, {seconds:.1} s, {failed} failed",
        found.seeds, found.steps
    );
    let Some((seed, violation)) = found.failures.first() else { return ExitCode::SUCCESS };
    if !args.all {
        println!("\n{}", explain(*seed, violation, args.mutate, args.whole));
        let mutate = args.mutate.map(|it| format!(" --mutate {}", it.name())).unwrap_or_default();
        println!("again: cargo xtask simulate --seed {seed}{mutate}");
    }
    ExitCode::FAILURE
}
