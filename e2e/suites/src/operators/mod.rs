//! `cargo xtask operators`: kinds of jobs with their real operators, each built from its Go module.
//!
//! Three control planes: `alone` in single mode, a `hub`, and its worker `west` with an agent. For each operator in turn:
//! it is installed on all three as its module ships it and started with these rights. Then an object of
//! each of its kinds is queued on `alone`, and one on the hub, which sends it to west. The operator on the hub has to leave it
//! alone.

mod catalog;
mod dashboard;
mod manifests;
mod play;
mod report;
mod running;
mod samples;

use anyhow::{Context as _, bail};
use switchyard_e2e::fleet::{Fleet, HUB};
use switchyard_e2e::{ClusterSpec, NodeSpec, Parts, queues};

use self::catalog::Operator;
use self::dashboard::Dashboard;
use self::manifests::Manifests;
use self::report::{Outcome, Report, Row};
use self::running::{Beside, Certificates, Package, Running};

/// The cluster in single mode.
const ALONE: &str = "alone";
/// The hub's worker.
const WEST: &str = "west";
/// Controllers that the kinds and their operators need, beside those of every cluster.
const CONTROLLERS: [&str; 1] = ["statefulset-controller"];
const CONFIG: &str = "\
apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
integrations:
  frameworks:
  - batch/job
  - jobset.x-k8s.io/jobset
  - leaderworkerset.x-k8s.io/leaderworkerset
  - kubeflow.org/pytorchjob
  - kubeflow.org/mpijob
  - ray.io/raycluster
  - ray.io/rayjob
";

/// Builds the operators, plays their kinds and prints a table.
///
/// # Errors
/// When the clusters do not come up, and after the table when a kind failed or was not played.
pub async fn run(args: &switchyard_flags::operators::Args) -> anyhow::Result<()> {
    let operators = chosen(&args.only)?;
    let packages = tokio::task::spawn_blocking(move || -> anyhow::Result<Vec<_>> {
        let parts = Parts::new()?;
        Ok(operators.into_iter().map(|operator| (operator, package(&parts, operator))).collect())
    });
    let packages = packages.await??;
    eprintln!("==> control planes");
    let fleet = fleet().await?;
    let beside = Beside { certificates: Certificates::new()?, dashboard: Dashboard::open().await? };
    let mut report = Report::default();
    for (operator, package) in packages {
        let rows = match package {
            Ok(package) => all(&fleet, operator, &package, &beside).await,
            Err(error) => not_played(operator, "", &error.context("it is not built")),
        };
        report.rows.extend(rows);
    }
    println!("\n{report}");
    let failed = report.failed();
    if failed > 0 {
        fleet.environment().keep_logs();
        bail!("{failed} of {} kinds did not pass", report.rows.len());
    }
    Ok(())
}

/// The operators of these names; all when there are none.
fn chosen(names: &[String]) -> anyhow::Result<Vec<&'static Operator>> {
    let find = |name: &String| {
        let found = catalog::ALL.iter().find(|operator| operator.part.name() == name);
        let all = || {
            catalog::ALL.iter().map(|operator| operator.part.name()).collect::<Vec<_>>().join(", ")
        };
        found.with_context(|| format!("--only: there is no operator {name}; there are {}", all()))
    };
    match names {
        [] => Ok(catalog::ALL.iter().collect()),
        names => names.iter().map(find).collect(),
    }
}

/// Builds an operator and renders its manifests.
fn package(parts: &Parts, operator: &Operator) -> anyhow::Result<Package> {
    Ok(Package {
        binary: parts.edited(operator.part, operator.edits)?,
        version: parts.version(operator.part)?,
        manifests: Manifests::render(parts, operator)?,
    })
}

/// The clusters, with Switchyard running and connected.
async fn fleet() -> anyhow::Result<Fleet> {
    let worker = |name| {
        let spec = ClusterSpec::new(name).node(NodeSpec::new("n1").cpu(64));
        CONTROLLERS.into_iter().fold(spec, ClusterSpec::controller)
    };
    let fleet =
        Fleet::builder("operators").agent(worker(WEST)).bare(worker(ALONE)).agent_webhooks();
    let fleet =
        fleet.hub_controllers(CONTROLLERS).config(CONFIG).agent_config(CONFIG).start().await?;
    fleet.start_single(ALONE).await?;
    fleet.hub().apply([queues::agent_cluster(WEST)]).await?;
    fleet.connect().await?;
    Ok(fleet)
}

/// Starts an operator on all clusters, plays its kinds, and ends it wherever it has started.
async fn all(fleet: &Fleet, operator: &Operator, package: &Package, beside: &Beside) -> Vec<Row> {
    eprintln!("==> {} {}", operator.part.name(), package.version);
    let (mut running, mut failed) = (Vec::new(), None);
    for cluster in [ALONE, HUB, WEST].map(|name| fleet.worker(name)) {
        match Running::start(cluster, operator, package, beside).await {
            Ok(started) => running.push(started),
            Err(error) => {
                failed = Some(error.context("it does not run"));
                break;
            }
        }
    }
    let rows = match failed {
        None => played(fleet, operator, &package.version).await,
        Some(error) => not_played(operator, &package.version, &error),
    };
    for running in running {
        if let Err(error) = running.stop().await {
            // Its leftovers may hinder the next one.
            eprintln!("    {}: {error:#}", operator.part.name());
        }
    }
    rows
}

async fn played(fleet: &Fleet, operator: &Operator, version: &str) -> Vec<Row> {
    let mut rows = Vec::new();
    for sample in (operator.kinds)() {
        let single = Outcome::of(play::single(fleet, &sample)).await;
        eprintln!("    {}, single: {single}", sample.kind);
        let dispatched = Outcome::of(play::dispatched(fleet, &sample)).await;
        eprintln!("    {}, dispatched: {dispatched}", sample.kind);
        rows.push(Row::new(sample.kind, operator.part, version, single, dispatched));
    }
    rows
}

fn not_played(operator: &Operator, version: &str, why: &anyhow::Error) -> Vec<Row> {
    eprintln!("    {}: {why:#}", operator.part.name());
    let row = |sample: samples::Sample| {
        let outcome = || Outcome::NotPlayed(format!("{why:#}"));
        Row::new(sample.kind, operator.part, version, outcome(), outcome())
    };
    (operator.kinds)().into_iter().map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operators_are_chosen_by_name() {
        let names = |names: &[&str]| {
            let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
            chosen(&names).map(|all| all.iter().map(|it| it.part.name()).collect::<Vec<_>>())
        };
        assert_eq!(names(&[]).unwrap().len(), catalog::ALL.len());
        assert_eq!(names(&["lws", "jobset"]).unwrap(), ["lws", "jobset"]);
        let error = names(&["ray"]).unwrap_err().to_string();
        assert!(
            error.starts_with("--only: there is no operator ray") && error.contains("kuberay"),
            "{error}"
        );
    }

    #[test]
    fn every_kind_is_managed() {
        for sample in catalog::ALL.iter().flat_map(|operator| (operator.kinds)()) {
            let group = sample.api.split('/').next().unwrap();
            let framework = format!("{group}/{}", sample.kind.to_lowercase());
            assert!(CONFIG.contains(&format!("- {framework}\n")), "{framework}");
        }
    }
}
