//! The project's own commands. `cargo xtask --help` lists them.

mod book;
mod fuzz;
mod image;
mod instructions;
mod journeys;
mod kubernetes_versions;
mod lint;
mod mutants;
mod nightly;
mod programs;
mod reference;
mod release;
mod report;
mod rights;
mod run;
mod skew;
mod test;
mod times;
mod tools;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use switchyard_flags::{bench, demo, failover, figures, kueue_e2e, life, operators, simulate};

#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", about = "Switchyard's own commands")]
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
    /// Run the lint alone: format, Clippy, dependencies, shape and words.
    Lint(lint::Args),
    /// Run what needs hours: fresh seeds, fuzzers, mutants, Kueue's suites, benchmarks.
    Nightly(nightly::Args),
    /// Compare the engine's decisions with those of Kueue's own scheduler on random scenarios.
    FuzzDecisions(fuzz::Args),
    /// Put errors into copies of the engine, the dispatcher and the ledger, and check that a law or a test finds each.
    BreakEngine(mutants::Args),
    /// Run hub, agents and clusters under seeded faults in virtual time.
    Simulate(simulate::Args),
    /// Measure latency, API writes per job and memory of a hub and one worker, built for release.
    Figures(figures::Args),
    /// Measure Switchyard beside stock Kueue and beside no dispatcher, built for release.
    Bench {
        #[command(subcommand)]
        bench: bench::Bench,
    },
    /// Inject the same faults into Switchyard and stock MultiKueue, and measure what happens to their jobs.
    Failover(failover::Args),
    /// Build the static programs of the images, and run each alone. Needs rustup and musl-gcc.
    Image(image::Args),
    /// Build a release: static programs, images, the chart, manifests, SBOMs. Needs rustup, musl-gcc, Git and Go.
    Release(release::Args),
    /// Run Kueue's own end-to-end suites against Switchyard, and compare with the results of Kueue.
    KueueE2e(kueue_e2e::Args),
    /// Run kinds of jobs with their real operators, built from their Go modules, on one cluster and from a hub.
    Operators(operators::Args),
    /// Run random actions on a hub and two worker clusters, and check that queues are charged for what runs, and that nothing
    /// is left at the end.
    Life(life::Args),
    /// Run the cluster tests with audit logs, and list the rights of deploy/rbac that no test used.
    Rights(rights::Args),
    /// Build the pages of docs as a book, in target/book. Needs mdBook.
    Book,
    /// Run the commands of the docs as a new user does, and time each journey. Or list the commands of the pages.
    Journeys(journeys::Args),
    /// Run a hub and agents of two versions together, in both directions.
    Skew(skew::Args),
    /// Run the demo and cluster tests of each mode on the oldest and the newest supported Kubernetes.
    KubernetesVersions(kubernetes_versions::Args),
    /// Count the instructions of the engine's cycles on fixed inputs, and compare them with those recorded. Needs
    /// valgrind.
    Instructions(instructions::Args),
    /// Write the generated files: deploy/crds, and the reference pages that are made from sources.
    Generate {
        /// Only the reference pages that need no compilation.
        #[arg(long)]
        pages: bool,
    },
}

fn main() -> ExitCode {
    perform(Args::parse().command).unwrap_or_else(|error| {
        eprintln!("error: {error:#}");
        ExitCode::FAILURE
    })
}

/// The harness's program parses the flags again. They are parsed here too, to find errors before the build.
fn perform(command: Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Demo(demo::Args { .. }) => programs::debug("switchyard-demo", &[]),
        Command::Simulate(simulate::Args { .. }) => programs::simulation(),
        Command::Figures(figures::Args { .. }) => programs::released("switchyard-figures"),
        Command::Bench { bench: bench::Bench::Topology(args) } => {
            let players = fuzz::players(args.oracle.as_deref())?;
            programs::released_with("switchyard-bench", &players)
        }
        Command::Bench { bench: _ } => programs::released("switchyard-bench"),
        Command::Failover(failover::Args { .. }) => programs::released("switchyard-failover"),
        Command::KueueE2e(kueue_e2e::Args { .. }) => {
            programs::debug("switchyard-kueue-e2e", &["run"])
        }
        Command::Life(life::Args { .. }) => programs::debug("switchyard-life", &[]),
        Command::Operators(operators::Args { .. }) => programs::debug("switchyard-operators", &[]),
        Command::Test(args) => done(test::run(&args)),
        Command::Lint(args) => done(lint::command(&args)),
        Command::Nightly(args) => done(nightly::run(&args)),
        Command::FuzzDecisions(args) => done(fuzz::run(&args)),
        Command::BreakEngine(args) => done(mutants::run(&args)),
        Command::Rights(args) => rights::run(&args),
        Command::Book => done(book::run()),
        Command::Journeys(args) => done(journeys::run(&args)),
        Command::Skew(args) => done(skew::run(&args)),
        Command::KubernetesVersions(args) => done(kubernetes_versions::run(&args)),
        Command::Image(args) => done(image::run(&args)),
        Command::Release(args) => done(release::run(&args)),
        Command::Instructions(args) => done(instructions::run(&args)),
        Command::Generate { pages: true } => done(reference::write()),
        Command::Generate { pages: false } => done(generate()),
    }
}

fn generate() -> anyhow::Result<()> {
    let crds = ["run", "-q", "-p", "switchyard-api", "--example", "crdgen", "--", "deploy/crds"];
    let title = "build the generator and generate deploy/crds";
    run::long_step(title, "about a minute", run::cargo(&crds))?;
    reference::write()?;
    // The tests that compare these pages also write them, because they are made from Rust types.
    for (package, test) in [
        ("switchyard", "reference"),
        ("switchyard-config", "page"),
        ("switchyard-hub", "flags_page"),
    ] {
        let mut command = run::cargo(&["test", "-q", "-p", package, "--lib", test]);
        command.env("UPDATE_DOCS", "1");
        run::long_step(&format!("make the reference page of {package}"), "minutes", command)?;
    }
    Ok(())
}

fn done(result: anyhow::Result<()>) -> anyhow::Result<ExitCode> {
    result.map(|()| ExitCode::SUCCESS)
}
