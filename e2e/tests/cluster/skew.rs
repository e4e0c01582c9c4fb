//! A hub and agents of two versions work together, in both directions. The other version's programs are built from an older
//! commit: `cargo xtask skew` does it.

use std::env;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use clap::Parser as _;
use kube::api::DeleteParams;
use switchyard::status::{JobRow, JobState};
use switchyard_e2e::fleet::{Fleet, HUB, Tenant};
use switchyard_e2e::wait::eventually;
use switchyard_e2e::{ClusterSpec, NodeSpec, fixture, job, queues};

const SOON: Duration = Duration::from_secs(90);
const WORKERS: [&str; 2] = ["west", "east"];
/// The variable that names the directory of the other version's programs.
const OTHER: &str = "SWITCHYARD_OTHER_BINARIES";

/// Where the job `long` runs, with the uid of its pod.
async fn place(fleet: &Fleet, tenant: &Tenant<'_>) -> anyhow::Result<(String, String)> {
    let mut found = Vec::new();
    for worker in WORKERS {
        let pods = kube::Api::<k8s_openapi::api::core::v1::Pod>::namespaced(
            fleet.worker(worker).admin.clone(),
            tenant.name(),
        );
        let long = job::pods_of("long");
        for pod in pods.list(&long).await?.items {
            let phase = pod.status.and_then(|status| status.phase);
            if phase.as_deref() == Some("Running") && pod.metadata.deletion_timestamp.is_none() {
                found.push((worker.to_owned(), pod.metadata.uid.unwrap_or_default()));
            }
        }
    }
    ensure!(found.len() == 1, "it runs in {found:?}");
    found.pop().context("it runs nowhere")
}

/// Moves `long` to the other cluster, and lets a short job end.
async fn move_and_end(fleet: &Fleet, tenant: &Tenant<'_>, short: &str) {
    let (from, _) = place(fleet, tenant).await.unwrap();
    let to = WORKERS.into_iter().find(|worker| *worker != from).unwrap();
    let kubeconfig = fleet.hub().kubeconfig().to_str().unwrap();
    // A hub that was just started refuses while the cluster is not connected yet.
    eventually(SOON, format!("a move to {to} to be accepted"), async || {
        let words = ["switchyard", "--kubeconfig", kubeconfig, "move", "long", "--to", to];
        let words = words.into_iter().chain(["--namespace", tenant.name()]);
        let args = switchyard::Args::try_parse_from(words)?;
        switchyard::run(args, &mut Vec::new()).await.map(drop)
    })
    .await
    .unwrap();
    eventually(SOON, format!("long to move from {from}"), async || {
        let (now, _) = place(fleet, tenant).await?;
        ensure!(now == to, "it runs in {now}");
        Ok(())
    })
    .await
    .unwrap();
    tenant.submit(tenant.job(short).cpu("1").run_for(Duration::from_secs(1))).await.unwrap();
    let ended = |row: &JobRow| row.state == JobState::Succeeded;
    tenant.await_status(short, "finished", SOON, ended).await.unwrap();
}

async fn connected(fleet: &Fleet) {
    for worker in WORKERS {
        fleet.connected(worker).await.unwrap();
    }
}

#[test]
#[ignore = "needs the programs of another version: cargo xtask skew"]
fn hub_and_agents_of_two_versions_work_together() {
    let other = env::var_os(OTHER).map(PathBuf::from).expect("`cargo xtask skew` sets it");
    fixture::run(async move {
        let current = switchyard_e2e::paths::binary("switchyard-hub").unwrap();
        let current = current.parent().unwrap();
        let worker = |name: &str| ClusterSpec::new(name).node(NodeSpec::new("n1").cpu(16));
        let [west, east] = WORKERS.map(worker);
        let fleet = Fleet::builder("skew").agent(west).agent(east).start().await.unwrap();
        fleet.hub().apply(WORKERS.map(queues::agent_cluster)).await.unwrap();
        fleet.connect().await.unwrap();
        let quota = [("cpu", "4")];
        let tenant = fleet.tenant("skew").hub(&quota).worker("west", &quota).worker("east", &quota);
        let tenant = tenant.make().await.unwrap();
        tenant.submit(tenant.job("long").cpu("1").run_forever()).await.unwrap();
        let first = eventually(SOON, "long to run", || place(&fleet, &tenant)).await.unwrap();

        // The other version's hub, then its agents with the current hub. The job notices nothing.
        fleet.restart_from(HUB, &other).await.unwrap();
        connected(&fleet).await;
        assert_eq!(place(&fleet, &tenant).await.unwrap(), first, "after another hub");
        move_and_end(&fleet, &tenant, "with-other-hub").await;
        let second = place(&fleet, &tenant).await.unwrap();

        fleet.restart_from(HUB, current).await.unwrap();
        for worker in WORKERS {
            fleet.restart_from(worker, &other).await.unwrap();
        }
        connected(&fleet).await;
        assert_eq!(place(&fleet, &tenant).await.unwrap(), second, "after other agents");
        move_and_end(&fleet, &tenant, "with-other-agents").await;
        let third = place(&fleet, &tenant).await.unwrap();

        // All of the current version again.
        for worker in WORKERS {
            fleet.restart_from(worker, current).await.unwrap();
        }
        connected(&fleet).await;
        move_and_end(&fleet, &tenant, "with-current").await;
        assert_ne!(place(&fleet, &tenant).await.unwrap(), third);
        tenant.hub_jobs().delete("long", &DeleteParams::background()).await.unwrap();
        for worker in WORKERS {
            tenant.await_empty(worker, SOON).await.unwrap();
        }
    });
}
