//! The project's own commands. `cargo xtask --help` lists them.

mod demo;
mod figures;
mod fuzz;
mod image;
mod instructions;
mod lint;
mod mutants;
mod programs;
mod run;
mod test;
mod tools;

use clap::{Parser, Subcommand};
use programs::Flags;

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
    Simulate(Flags),
    /// Measure what a hub and one worker cost, built for release: latency, API writes per job, memory.
    Figures(figures::Args),
    /// Measure ours beside stock MultiKueue and beside no dispatcher at all, built for release.
    Bench(Flags),
    /// Strike ours and stock MultiKueue with the same faults on real control planes, and measure what becomes of their jobs.
    Failover(Flags),
    /// Build the static programs that images consist of, and try each alone. Needs rustup and musl-gcc.
    Image(image::Args),
    /// Run Kueue's own end-to-end suites against ours, beside what Kueue passes.
    KueueE2e(Flags),
    /// Run kinds of jobs with their real operators, built from their Go modules, on one cluster and from a hub.
    Operators(Flags),
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
        Command::Simulate(flags) => flags.hand_to("simulate", programs::simulation()),
        Command::Figures(args) => figures::run(&args),
        Command::Bench(flags) => flags.hand_to("bench", programs::released("switchyard-bench")?),
        Command::Failover(flags) => flags.hand_to("failover", programs::released("switchyard-failover")?),
        Command::Image(args) => image::run(&args),
        Command::KueueE2e(flags) => {
            let mut suites = programs::debug("switchyard-kueue-e2e")?;
            suites.arg("run");
            flags.hand_to("Kueue's suites", suites)
        }
        Command::Operators(flags) => {
            flags.hand_to("kinds with their operators", programs::debug("switchyard-operators")?)
        }
        Command::Instructions(args) => instructions::run(&args),
        Command::Generate => run::step(
            "generate deploy/crds",
            run::cargo(&["run", "-q", "-p", "switchyard-api", "--example", "crdgen", "--", "deploy/crds"]),
        ),
    }
}
