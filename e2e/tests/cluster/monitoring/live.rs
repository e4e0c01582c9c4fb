//! A hub and an agent that are at work, scraped by a Prometheus that evaluates all there is.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::ensure;
use kube::api::{Api, Patch, PatchParams};
use serde_json::json;
use switchyard::status::JobState;
use switchyard_api::v1beta2::ClusterQueue;
use switchyard_e2e::fleet::{Fleet, HUB, Tenant};
use switchyard_e2e::prometheus::{Programs, Prometheus};
use switchyard_e2e::wait::eventually;
use switchyard_e2e::{ClusterSpec, NodeSpec, fixture, queues};

use super::dashboard;
use super::{rules, shipped, text};

const SOON: Duration = Duration::from_secs(60);
const CONFIG: &str = "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n\
                      metrics: {enableClusterQueueResources: true}\n\
                      featureGates: {UnadmittedWorkloadsObservability: true}\n\
                      fairSharing: {preemptionStrategies: [LessThanOrEqualToFinalShare, LessThanInitialShare]}\n";

/// Queries without a series in a healthy fleet, and why.
const SILENT: [(&str, &str); 2] = [
    ("kueue_preempted_workloads_total", "nothing is preempted"),
    (r#"result="failed""#, "no write fails"),
];

fn silent(expression: &str) -> bool {
    SILENT.iter().any(|(part, _)| expression.contains(part))
}

/// The names of Switchyard's metrics in an expression.
fn metrics(expression: &str) -> BTreeSet<String> {
    let words = expression.split(|letter: char| !(letter.is_ascii_alphanumeric() || letter == '_'));
    let ours = ["kueue_", "multikueue_", "switchyard_"];
    words
        .filter(|word| ours.iter().any(|prefix| word.starts_with(prefix)))
        .map(str::to_owned)
        .collect()
}

async fn fleet() -> Fleet {
    let east = ClusterSpec::new("east").node(NodeSpec::new("n1").cpu(64));
    let fleet = Fleet::builder("monitoring")
        .agent(east)
        .config(CONFIG)
        .agent_config(CONFIG)
        .start()
        .await
        .unwrap();
    fleet.hub().apply([queues::agent_cluster("east")]).await.unwrap();
    fleet.connect().await.unwrap();
    fleet
}

/// How the worker's queue of a tenant stops.
async fn stop(fleet: &Fleet, tenant: &Tenant<'_>, policy: &str) {
    let queues: Api<ClusterQueue> = Api::all(fleet.worker("east").admin.clone());
    let patch = Patch::Merge(json!({"spec": {"stopPolicy": policy}}));
    queues.patch(tenant.name(), &PatchParams::default(), &patch).await.unwrap();
}

/// One job that finishes, one that its worker evicts, one that runs, and one that waits.
async fn work(fleet: &Fleet, tenant: &Tenant<'_>) {
    tenant.submit(tenant.job("short").cpu("1").run_for(Duration::from_secs(1))).await.unwrap();
    tenant
        .await_status("short", "finished", SOON, |row| row.state == JobState::Succeeded)
        .await
        .unwrap();
    tenant.submit(tenant.job("stopped").cpu("1").run_forever()).await.unwrap();
    let stopped = tenant
        .await_status("stopped", "admitted", SOON, |row| row.cluster.is_some())
        .await
        .unwrap();
    fleet.await_pods("east", tenant.name(), 1).await.unwrap();
    stop(fleet, tenant, "HoldAndDrain").await;
    tenant.await_status("stopped", "taken back", SOON, |row| row.cluster.is_none()).await.unwrap();
    let patch = Patch::Merge(json!({"spec": {"active": false}}));
    tenant.hub_workloads().patch(&stopped.workload, &PatchParams::default(), &patch).await.unwrap();
    stop(fleet, tenant, "None").await;
    tenant.submit(tenant.job("long").cpu("2").run_forever()).await.unwrap();
    tenant.await_status("long", "admitted", SOON, |row| row.cluster.is_some()).await.unwrap();
    tenant.submit(tenant.job("waits").cpu("2").run_forever()).await.unwrap();
    tenant
        .await_status("waits", "waits", SOON, |row| row.reason.contains("insufficient"))
        .await
        .unwrap();
}

#[test]
fn every_query_is_answered_from_what_a_hub_and_its_agent_show() {
    let programs = Programs::get().unwrap();
    fixture::run(async {
        let fleet = fleet().await;
        let jobs = fleet.metrics_ports().into_iter().map(|(name, port)| {
            let kind = if name == HUB { "hub" } else { "agent" };
            (format!("switchyard-{kind}"), port)
        });
        let jobs: Vec<(String, u16)> = jobs.collect();
        let dir = fleet.hub().dir().to_owned();
        let prometheus = programs.start(&dir, &jobs, &shipped("rules.yaml")).await.unwrap();
        let tenant = fleet
            .tenant("seen")
            .hub(&[("cpu", "3")])
            .worker("east", &[("cpu", "8")])
            .make()
            .await
            .unwrap();
        work(&fleet, &tenant).await;

        all_have_data(&prometheus).await;
        let rules = rules();
        healthy(&prometheus, rules.len()).await;
        for rule in rules.iter().filter(|rule| text(&rule["labels"], "severity") == "critical") {
            // An alert holds for minutes before it is sent; a busy machine may cut a session for seconds.
            eventually(SOON, format!("no {}", text(rule, "alert")), async || {
                let found = prometheus.query(text(rule, "expr")).await?;
                ensure!(found.is_empty(), "{found:?} where all is well");
                Ok(())
            })
            .await
            .unwrap();
        }

        // And it is seen when a cluster goes.
        fleet.kill("east");
        let lost =
            rules.iter().find(|rule| text(rule, "alert") == "SwitchyardClusterLost").unwrap();
        eventually(SOON, "the lost cluster to be seen", async || {
            let found = prometheus.query(text(lost, "expr")).await?;
            ensure!(found.iter().any(|sample| sample.labels["cluster"] == "east"), "{found:?}");
            Ok(())
        })
        .await
        .unwrap();
    });
}

/// Every query of the dashboard gives something, and every metric of an alert is there.
async fn all_have_data(prometheus: &Prometheus) {
    let mut queries = dashboard::queries();
    for rule in rules() {
        let alert = text(&rule, "alert");
        is_answered(prometheus, text(&rule, "expr")).await;
        let shown = metrics(text(&rule, "expr")).into_iter();
        queries.extend(
            shown.map(|metric| dashboard::Query { panel: alert.to_owned(), expression: metric }),
        );
    }
    for query in queries {
        let dashboard::Query { panel, expression } = query;
        if silent(&expression) {
            is_answered(prometheus, &expression).await;
            continue;
        }
        eventually(SOON, format!("{panel}: {expression}"), async || {
            let found = prometheus.query(&expression).await?;
            ensure!(!found.is_empty(), "nothing");
            Ok(())
        })
        .await
        .unwrap();
    }
}

/// Prometheus can read and evaluate the expression.
async fn is_answered(prometheus: &Prometheus, expression: &str) {
    let answer = async || prometheus.query(expression).await.map(drop);
    eventually(SOON, format!("an answer to {expression}"), answer).await.unwrap();
}

/// Prometheus itself evaluates all rules without an error.
async fn healthy(prometheus: &Prometheus, count: usize) {
    eventually(SOON, "all rules to be evaluated", async || {
        let rules = prometheus.rules().await?;
        let ill: Vec<_> =
            rules.iter().filter_map(|(name, error)| Some((name, error.as_ref()?))).collect();
        ensure!(
            rules.len() == count && ill.is_empty(),
            "{} of {count} rules, {ill:?}",
            rules.len()
        );
        Ok(())
    })
    .await
    .unwrap();
}
