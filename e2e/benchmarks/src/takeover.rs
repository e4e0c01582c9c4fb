//! How long it takes until another replica of the hub goes on, when the leader is killed. `cargo xtask figures --takeovers`
//! prints it.

use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use switchyard_e2e::fleet::{Fleet, REPLICAS, Tenant};
use switchyard_e2e::leader::{QUICK, leader};
use switchyard_e2e::wait::eventually;
use switchyard_e2e::{ClusterSpec, NodeSpec, job, queues};

const SOON: Duration = Duration::from_secs(60);
/// Looks are this far apart: below what is measured.
const LOOK: Duration = Duration::from_millis(10);

/// Seconds from the leader's end.
struct Took {
    /// Until the other holds the Lease.
    leads: f64,
    /// Until the worker's agent has a session with it.
    session: f64,
    /// Until a job that was created after the kill has its pod.
    pod: f64,
}

/// Kills the leader so often, and prints what each took.
///
/// # Errors
/// When something does not run, or a job that ran was touched.
pub async fn run(times: usize) -> anyhow::Result<()> {
    let worker = ClusterSpec::new("worker").node(NodeSpec::new("n1").cpu(256));
    let fleet =
        Fleet::builder("takeovers").two_replicas().config(QUICK).agent(worker).start().await?;
    fleet.hub().apply([queues::agent_cluster("worker")]).await?;
    fleet.connect().await?;
    let quota = [("cpu", "64")];
    let tenant = fleet.tenant("takeovers").hub(&quota).worker("worker", &quota).make().await?;
    tenant.submit(tenant.job("runs-on").cpu("1").run_forever()).await?;
    fleet.await_pods("worker", tenant.name(), 1).await?;
    let before = uids(&fleet, &tenant, "runs-on").await?;
    let mut all = Vec::new();
    for turn in 0..times {
        let took = once(&fleet, &tenant, turn).await?;
        println!(
            "takeover {turn}: leads after {:.2} s, session after {:.2} s, a new job's pod after {:.2} s",
            took.leads, took.session, took.pod
        );
        all.push(took);
    }
    ensure!(uids(&fleet, &tenant, "runs-on").await? == before, "the job that ran was touched");
    for (what, of) in
        [("leads", |it: &Took| it.leads), ("session", |it| it.session), ("pod", |it| it.pod)]
            as [(_, fn(&Took) -> f64); 3]
    {
        let mut values: Vec<f64> = all.iter().map(of).collect();
        values.sort_by(f64::total_cmp);
        let (middle, last) = (values[values.len() / 2], values[values.len() - 1]);
        println!("{what}: median {middle:.2} s, longest {last:.2} s of {times}");
    }
    Ok(())
}

fn standbys(log: &str) -> usize {
    log.matches("standing by").count()
}

async fn once(fleet: &Fleet, tenant: &Tenant<'_>, turn: usize) -> anyhow::Result<Took> {
    let old = leader(fleet).await?.context("nobody leads")?;
    let old = REPLICAS.into_iter().find(|replica| *replica == old).context("a stranger leads")?;
    let new = if old == REPLICAS[0] { REPLICAS[1] } else { REPLICAS[0] };
    let sessions = |log: &str| log.matches("session begun").count();
    let had = fleet.with(new, |process| sessions(&process.log()))?;
    let stood_by = fleet.with(old, |process| standbys(&process.log()))?;
    fleet.kill(old);
    let start = Instant::now();
    let name = format!("after-{turn}");
    tenant
        .submit_until_taken(tenant.job(&name).cpu("1").run_for(Duration::from_millis(10)), SOON)
        .await?;
    let (mut leads, mut session, mut pod) = (None, None, None);
    while leads.is_none() || session.is_none() || pod.is_none() {
        ensure!(
            start.elapsed() < SOON,
            "no takeover within {SOON:?}: leads after {leads:?}, session after {session:?}, pod of {name} after {pod:?}"
        );
        let seconds = Some(start.elapsed().as_secs_f64());
        if leads.is_none() && leader(fleet).await?.as_deref() == Some(new) {
            leads = seconds;
        }
        if session.is_none() && fleet.with(new, |process| sessions(&process.log()))? > had {
            session = seconds;
        }
        if pod.is_none() && !uids(fleet, tenant, &name).await?.is_empty() {
            pod = seconds;
        }
        tokio::time::sleep(LOOK).await;
    }
    job::complete(&fleet.hub().admin, tenant.name(), &name, SOON).await?;
    fleet.start_replica(old).await?;
    // It has to have seen the Lease to count from.
    eventually(SOON, "the second replica to stand by", async || {
        ensure!(fleet.with(old, |process| standbys(&process.log()))? > stood_by, "it does not");
        Ok(())
    })
    .await?;
    Ok(Took {
        leads: leads.unwrap_or_default(),
        session: session.unwrap_or_default(),
        pod: pod.unwrap_or_default(),
    })
}

async fn uids(fleet: &Fleet, tenant: &Tenant<'_>, job: &str) -> anyhow::Result<Vec<String>> {
    let pods: Api<Pod> = Api::namespaced(fleet.worker("worker").admin.clone(), tenant.name());
    let of_job = job::pods_of(job);
    Ok(pods
        .list_metadata(&of_job)
        .await?
        .items
        .into_iter()
        .filter_map(|pod| pod.metadata.uid)
        .collect())
}
