//! The project's own commands. `cargo xtask --help` lists them.

mod bench;
mod demo;
mod failover;
mod figures;
mod fuzz;
mod image;
mod instructions;
mod kueue_e2e;
mod lint;
mod mutants;
mod operators;
mod run;
mod simulate;
mod test;
mod tools;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(name = "cargo xtask", about = "Switchyard's own commands")]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run a hub and two worker clusters on real control planes, and send them sample jobs.
    Demo(demo::Args),
    /// Run every check and every test.
    Test(test::Args),
    /// Compare the engine's decisions with those of Kueue's own scheduler on random scenarios.
    FuzzDecisions(fuzz::Args),
    /// Put errors into a copy of the engine, each of which one of its laws must find.
    BreakEngine(mutants::Args),
    /// Play hub, agents and clusters under seeded faults in virtual time.
    Simulate(simulate::Args),
    /// Measure what a hub and one worker cost, built for release: latency, API writes per job, memory.
    Figures(figures::Args),
    /// Measure ours beside stock MultiKueue and beside no dispatcher at all, built for release.
    Bench(bench::Args),
    /// Strike ours and stock MultiKueue with the same faults on real control planes, and measure what becomes of their jobs.
    Failover(failover::Args),
    /// Build the static programs that images consist of, and try each alone. Needs rustup and musl-gcc.
    Image(image::Args),
    /// Run Kueue's own end-to-end suites against ours, beside what Kueue passes.
    KueueE2e(kueue_e2e::Args),
    /// Run kinds of jobs with their real operators, built from their Go modules, on one cluster and from a hub.
    Operators(operators::Args),
    /// Count the instructions of the engine's cycles on fixed inputs, and compare them with those recorded. Needs
    /// valgrind.
    Instructions(instructions::Args),
    /// Write the generated files: deploy/crds.
    Generate,
}

fn main() -> anyhow::Result<()> {
    match Args::parse().command {
        Command::Demo(args) => demo::run(&args),
        Command::Test(args) => test::run(&args),
        Command::FuzzDecisions(args) => fuzz::run(&args),
        Command::BreakEngine(args) => mutants::run(&args),
        Command::Simulate(args) => simulate::run(&args),
        Command::Figures(args) => figures::run(&args),
        Command::Bench(args) => bench::run(&args),
        Command::Failover(args) => failover::run(&args),
        Command::Image(args) => image::run(&args),
        Command::KueueE2e(args) => kueue_e2e::run(&args),
        Command::Operators(args) => operators::run(&args),
        Command::Instructions(args) => instructions::run(&args),
        Command::Generate => run::step(
            "generate deploy/crds",
            run::cargo(&["run", "-q", "-p", "switchyard-api", "--example", "crdgen", "--", "deploy/crds"]),
        ),
    }
}
