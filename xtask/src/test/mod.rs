//! `cargo xtask test`: runs all checks and tests, in tiers, and counts them.

mod at_once;
mod build;
mod changed;
mod cluster;
mod fresh;
mod libtest;
mod nodes;
mod parts;
mod workspace;

pub(crate) use cluster::prepare;
pub(crate) use fresh::first_seed;
pub(crate) use libtest::{Outcome, passed, run as run_program};
pub(crate) use nodes::why_not as why_no_nodes;

use std::thread;

use build::Program;
use changed::{ClusterTests, Selection};
use workspace::Workspace;

use crate::report::{Counts, Failure, Report, Tier};
use crate::{lint, run};

/// Why cluster tests cannot run: etcd and Kubernetes are built from their Go modules.
const NO_GO: &str = "there is no go command to build etcd and Kubernetes with; install Go";

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Only these tiers, separated by commas.
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<Tier>,
    /// Only tests that changes since this commit, committed or not, can have broken. Default: HEAD.
    #[arg(long, value_name = "COMMIT", num_args = 0..=1, default_missing_value = "HEAD", conflicts_with = "filter")]
    changed: Option<String>,
    /// Seconds for the simulation and the property tests with new seeds. 0 leaves them out.
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    fresh: u64,
    /// Number of files of cluster tests that run at once. Default: two for each processor.
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u16).range(1..=32))]
    at_once: Option<u16>,
    /// Only tests whose name contains this. Leaves out the lint and new seeds.
    filter: Option<String>,
}

impl Args {
    fn wants(&self, tier: Tier) -> bool {
        match tier {
            Tier::Build => true,
            Tier::Lint => self.named(tier) && self.filter.is_none(),
            Tier::Fresh => self.named(Tier::Unit) && self.filter.is_none() && self.fresh > 0,
            Tier::Unit | Tier::Cluster | Tier::Nodes => self.named(tier),
        }
    }

    /// The flag that left a tier out, for the report.
    fn why_not(&self, tier: Tier) -> &'static str {
        match tier {
            _ if !self.named(if tier == Tier::Fresh { Tier::Unit } else { tier }) => "--only",
            Tier::Fresh if self.filter.is_none() => "--fresh 0",
            _ => "a test name was given",
        }
    }

    fn named(&self, tier: Tier) -> bool {
        self.only.is_empty() || self.only.contains(&tier)
    }

    fn at_once(&self) -> usize {
        let processors = || thread::available_parallelism().map_or(1, usize::from);
        self.at_once.map_or_else(|| processors() * 2, usize::from)
    }
}

/// Builds the tests on real control planes with the programs that they start, and names the program
/// that contains them.
///
/// # Errors
/// When they do not compile.
pub(crate) fn cluster_tests() -> anyhow::Result<std::path::PathBuf> {
    Ok(build::cluster()?.path)
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let workspace = Workspace::read()?;
    let selection = match &args.changed {
        Some(commit) => Some(changed::since(commit, &workspace)?),
        None => None,
    };
    let report = Report::begin(parts::missing(), args.filter.is_none());
    announce(args, selection.as_ref());
    let cluster =
        selection.as_ref().map_or(ClusterTests::All, |selection| selection.cluster.clone());
    let plan = TestRun { args, selection, cluster, workspace, has_go: parts::has_go() };
    for (tier, what) in plan.selected().filter(|_| !plan.has_go) {
        report.skip(tier, what, NO_GO);
    }
    let runs_nodes = plan.has_go && plan.selects_nodes() && nodes::can_run(&report);
    thread::scope(|scope| {
        let parts = scope
            .spawn(|| plan.wants_program(runs_nodes).then(|| parts::build(&report, runs_nodes)));
        if args.wants(Tier::Lint) {
            lint::run(&report);
        }
        let tests = plan.unit_programs(&report);
        // Cargo compiles the cluster tests while the unit tests run.
        let cluster = scope
            .spawn(|| plan.wants_program(runs_nodes).then(|| cluster_program(&report)).flatten());
        plan.unit_tests(&report, &tests);
        if args.wants(Tier::Fresh) && fresh::has_any(&tests) {
            fresh::run(&report, &tests, &plan.workspace, args.fresh, plan.selection.is_none());
        }
        let cluster = cluster.join().ok().flatten();
        let built = parts.join().ok().flatten().unwrap_or(false);
        if let (Some(program), true) = (cluster, built) {
            if plan.selects_cluster() {
                cluster::run(
                    &report,
                    &program,
                    args.filter.as_deref(),
                    &plan.cluster,
                    args.at_once(),
                );
            }
            if runs_nodes {
                nodes::run(&report, &program, args.filter.as_deref());
            }
        } else if plan.wants_program(runs_nodes) && !report.has_failed() {
            let message =
                "the cluster tests or their programs were not built, and no build step reported an error".to_owned();
            report.fail(
                Tier::Cluster,
                Failure { what: "cluster tests".to_owned(), message, ..Failure::default() },
            );
        }
    });
    if let Some(filter) =
        args.filter.as_ref().filter(|_| report.tests() == 0 && !report.has_failed())
    {
        let message = format!("no test has {filter} in its name");
        report.fail(
            Tier::Unit,
            Failure { what: "nothing was tested".to_owned(), message, ..Failure::default() },
        );
    }
    if report.is_empty() {
        let message = "the selection has nothing to run".to_owned();
        report.fail(
            Tier::Unit,
            Failure { what: "nothing was tested".to_owned(), message, ..Failure::default() },
        );
    }
    plan.name_what_is_left_out(&report);
    report.end()
}

/// Prints what will run.
fn announce(args: &Args, selection: Option<&Selection>) {
    let tiers = [Tier::Lint, Tier::Unit, Tier::Fresh, Tier::Cluster, Tier::Nodes];
    let tiers: Vec<&str> =
        tiers.into_iter().filter(|tier| args.wants(*tier)).map(Tier::name).collect();
    println!("tiers: {}", tiers.join(", "));
    if let Some(Selection { packages, cluster }) = selection {
        println!(
            "packages: {}",
            if packages.is_empty() { "none".to_owned() } else { packages.join(", ") }
        );
        match cluster {
            ClusterTests::None => println!("cluster tests: none"),
            ClusterTests::Files(files) => {
                println!(
                    "cluster tests: {}",
                    files.iter().map(String::as_str).collect::<Vec<_>>().join(", ")
                );
            }
            ClusterTests::All => println!("cluster tests: all"),
        }
    }
}

fn cluster_program(report: &Report) -> Option<Program> {
    let title = "build the cluster tests";
    run::announce(title, "about 5 minutes, or one after the unit tests");
    report.part(Tier::Build, title, build::cluster)
}

struct TestRun<'a> {
    args: &'a Args,
    selection: Option<Selection>,
    cluster: ClusterTests,
    workspace: Workspace,
    has_go: bool,
}

impl TestRun<'_> {
    fn selects_cluster(&self) -> bool {
        self.args.wants(Tier::Cluster) && self.cluster.wants_other_than(nodes::FILE)
    }

    fn selects_nodes(&self) -> bool {
        self.args.wants(Tier::Nodes) && self.cluster.wants(nodes::FILE)
    }

    /// The selected tiers that run the program of the cluster tests.
    fn selected(&self) -> impl Iterator<Item = (Tier, &'static str)> {
        let cluster =
            self.selects_cluster().then_some((Tier::Cluster, "tests on real control planes"));
        let nodes = self.selects_nodes().then_some((Tier::Nodes, nodes::TITLE));
        cluster.into_iter().chain(nodes)
    }

    fn wants_program(&self, runs_nodes: bool) -> bool {
        self.has_go && (self.selects_cluster() || runs_nodes)
    }

    /// Adds to the last line what flags left out, because a partial run proves less.
    fn name_what_is_left_out(&self, report: &Report) {
        for tier in [Tier::Lint, Tier::Unit, Tier::Fresh, Tier::Cluster, Tier::Nodes] {
            if !self.args.wants(tier) {
                report.left_out(tier.name(), self.args.why_not(tier));
            }
        }
        if let Some(commit) = &self.args.changed {
            report.left_out("tests that the change cannot break", &format!("--changed {commit}"));
        }
        if let Some(filter) = &self.args.filter {
            report.left_out("tests of other names", filter);
        }
    }

    fn unit_programs(&self, report: &Report) -> Vec<Program> {
        let packages = self.selection.as_ref().map(|selection| selection.packages.as_slice());
        if !self.args.wants(Tier::Unit) || packages.is_some_and(<[String]>::is_empty) {
            return Vec::new();
        }
        let title = "build the unit tests";
        run::announce(title, "about 4 minutes");
        let mut programs = report.part(Tier::Build, title, build::unit).unwrap_or_default();
        programs
            .retain(|program| packages.is_none_or(|packages| packages.contains(&program.package)));
        programs
    }

    fn unit_tests(&self, report: &Report, tests: &[Program]) {
        // Benches count instructions and bytes, and one program at a time is easier to trust.
        let (benches, tests_only): (Vec<&Program>, Vec<&Program>) =
            tests.iter().partition(|program| program.kind == "bench");
        at_once::each(2, tests_only, |program| self.unit(report, program));
        benches.into_iter().for_each(|program| self.unit(report, program));
        if !tests.is_empty() {
            self.doc_tests(report);
        }
    }

    fn unit(&self, report: &Report, program: &Program) {
        let title = program.title();
        let ran = report.part(Tier::Unit, &title, || {
            let mut command = build::start(program, &self.workspace);
            command.args(&self.args.filter);
            libtest::fix_seeds(&mut command);
            libtest::run(&title, command, program.has_harness())
        });
        let Some(outcome) = ran else { return };
        let Counts { passed, failed, skipped } = outcome.counts;
        if passed + failed + skipped > 0 {
            println!("    {title}: {passed} passed, {failed} failed, {skipped} skipped");
        }
        report.count(Tier::Unit, outcome.counts);
        for failure in outcome.failures {
            let test = if failure.what == title { "" } else { failure.what.as_str() };
            let again = program.again(&libtest::seeds(), test);
            report.fail(Tier::Unit, Failure { again, ..failure });
        }
    }

    /// Runs the examples in documentation, which cargo compiles itself.
    fn doc_tests(&self, report: &Report) {
        let title = "examples in documentation";
        let ran = report.part(Tier::Unit, title, || {
            let mut command = run::cargo(&["test", "--workspace", "--doc", "--no-fail-fast"]);
            command.args(&self.args.filter);
            libtest::run(title, command, true)
        });
        let Some(outcome) = ran else { return };
        report.count(Tier::Unit, outcome.counts);
        for failure in outcome.failures {
            report.fail(
                Tier::Unit,
                Failure {
                    again: format!("cargo test --workspace --doc -- {:?}", failure.what),
                    ..failure
                },
            );
        }
    }
}
