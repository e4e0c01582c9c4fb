//! Much is lost at once, and what operators do about it.

use std::time::Duration;

use anyhow::{Context, ensure};
use kube::api::{DeleteParams, ListParams};
use kube::{Api, Client};
use serde_json::json;
use switchyard::operate::{self, ClusterArgs, DeclareLostArgs};
use switchyard::{Output, breaker, move_job};
use switchyard_api::v1beta2::{MultiKueueCluster, Workload};
use switchyard_api::{conditions, names};
use switchyard_e2e::fleet::{Fleet, Tenant};
use switchyard_e2e::wait::{always, eventually};
use switchyard_e2e::{ClusterSpec, NodeSpec, fixture, queues};

use super::gates::Gates;
use super::{REASSIGNED, SOON};

/// The job's own word: the clusters would keep it. Long enough for two losses in a row to be one.
const ON_DISCONNECT: (&str, &str) = ("switchyard.dev/on-disconnect", "Duplicate/20s");

fn hub(fleet: &Fleet) -> Client {
    fleet.hub().admin.clone()
}

fn named(name: &str) -> ClusterArgs {
    ClusterArgs { name: name.to_owned(), dry_run: false, output: Output::default() }
}

async fn operate(fleet: &Fleet, command: operate::Command) {
    operate::run(hub(fleet), &command).await.unwrap();
}

/// Until jobs have so many pods on each of these clusters.
async fn spread(fleet: &Fleet, tenant: &Tenant<'_>, pods: &[(&str, usize)]) {
    eventually(REASSIGNED, format!("pods to be {pods:?}"), async || {
        for (cluster, count) in pods {
            let found = fleet.pods(cluster, tenant.name()).await?;
            ensure!(found == *count, "{found} on {cluster}");
        }
        Ok(())
    })
    .await
    .unwrap();
}

/// By job: the attempt, where it is, and the reason why the last attempt ended.
async fn places(tenant: &Tenant<'_>) -> Vec<(i64, String, String)> {
    let all = tenant.hub_workloads().list(&ListParams::default()).await.unwrap().items;
    let place = |workload: Workload| {
        let status = workload.status.unwrap_or_default();
        let dispatch = status.dispatch.unwrap_or_default();
        let reason = dispatch.history.last().map(|past| past.reason.clone()).unwrap_or_default();
        (dispatch.attempt, status.cluster_name.unwrap_or_default(), reason)
    };
    let mut places: Vec<_> = all.into_iter().map(place).collect();
    places.sort();
    places
}

/// Whether a workload's last attempt was on a cluster.
fn was_on(workload: &Workload, cluster: &str) -> bool {
    let dispatch = workload.status.as_ref().and_then(|status| status.dispatch.as_ref());
    dispatch
        .and_then(|dispatch| dispatch.history.last())
        .is_some_and(|past| past.cluster_name == cluster)
}

async fn condition(fleet: &Fleet, cluster: &str, type_: &str, holds: bool) {
    let clusters: Api<MultiKueueCluster> = Api::all(hub(fleet));
    eventually(REASSIGNED, format!("{type_} of {cluster} to be {holds}"), async || {
        let status = clusters.get(cluster).await?.status.unwrap_or_default();
        let found =
            conditions::find(&status.conditions, type_).with_context(|| format!("no {type_}"))?;
        ensure!((found.status == conditions::TRUE) == holds, "{}: {}", found.status, found.message);
        Ok(())
    })
    .await
    .unwrap();
}

#[test]
fn mass_loss_moves_nothing_until_operators_resume_evictions() {
    fixture::run(async {
        let spec = |name: &str| ClusterSpec::new(name).node(NodeSpec::new("n1").cpu(8));
        let fleet = Fleet::builder("operators").agent(spec("a")).agent(spec("b")).agent(spec("c"));
        let fleet = fleet.start().await.unwrap();
        let [a, b, mut c] = ["a", "b", "c"].map(queues::agent_cluster);
        // As `switchyard cluster cordon` does it, but before any job can come.
        c["metadata"]["annotations"] = json!({names::SCHEDULING: names::CORDON});
        fleet.hub().apply([a, b, c]).await.unwrap();
        let gates = Gates::connect(&fleet, &["a", "b", "c"]).await.unwrap();
        let (small, large) = ([("cpu", "1")], [("cpu", "4")]);
        let tenant = fleet
            .tenant("jobs")
            .hub(&large)
            .worker("a", &small)
            .worker("b", &small)
            .worker("c", &large);
        let tenant = tenant.make().await.unwrap();

        // Cordoned, a cluster gets nothing.
        for name in ["one", "two"] {
            let job = tenant
                .job(name)
                .cpu("1")
                .annotation(ON_DISCONNECT.0, ON_DISCONNECT.1)
                .run_forever();
            tenant.submit(job).await.unwrap();
        }
        spread(&fleet, &tenant, &[("a", 1), ("b", 1), ("c", 0)]).await;
        operate(&fleet, operate::Command::Uncordon(named("c"))).await;

        // Two of three are lost: nothing moves, and the hub says why.
        gates.shut("a");
        gates.shut("b");
        condition(&fleet, "a", conditions::EVICTIONS_STOPPED, true).await;
        condition(&fleet, "b", conditions::EVICTIONS_STOPPED, true).await;
        let kept = [(1, "a".to_owned(), String::new()), (1, "b".to_owned(), String::new())];
        assert_eq!(places(&tenant).await, kept);
        let said = breaker::run(
            hub(&fleet),
            &breaker::Command::Status(breaker::Args { output: Output::Json }),
        )
        .await;
        assert!(said.unwrap().contains("2 of 3 clusters were lost at about one time"));

        let release = |dry_run, yes| {
            let args = breaker::Args { output: Output::Json };
            let timeout = Duration::from_secs(60);
            breaker::Command::Release(breaker::Release { args, yes, dry_run, wait: yes, timeout })
        };
        let refused = breaker::run(hub(&fleet), &release(false, false)).await.unwrap_err();
        assert!(refused.to_string().contains("confirm it with --yes"), "{refused}");
        // A dry run changes nothing. After `resume`, each job follows its own policy.
        for dry_run in [true, false] {
            let release = release(dry_run, !dry_run);
            let said = breaker::run(hub(&fleet), &release).await.unwrap();
            assert_eq!(said.contains("\"dryRun\": true"), dry_run, "{said}");
            assert_eq!(said.contains("\"released\": true"), !dry_run, "{said}");
            assert_eq!(said.contains("\"isResumed\": true"), !dry_run, "{said}");
            if dry_run {
                always(Duration::from_secs(3), "evictions to stay stopped", async || {
                    ensure!(places(&tenant).await == kept, "a job moved");
                    Ok(())
                })
                .await
                .unwrap();
                condition(&fleet, "a", conditions::EVICTIONS_STOPPED, true).await;
            }
        }
        spread(&fleet, &tenant, &[("c", 2)]).await;
        let lost = "ClusterLost".to_owned();
        assert_eq!(
            places(&tenant).await,
            [(2, "c".to_owned(), lost.clone()), (2, "c".to_owned(), lost.clone())]
        );
        condition(&fleet, "a", conditions::EVICTIONS_STOPPED, false).await;

        // The others come back and drop what they have.
        for name in ["a", "b"] {
            gates.unshut(name);
            tenant.await_empty(name, SOON).await.unwrap();
            condition(&fleet, name, conditions::ACTIVE, true).await;
        }
        spread(&fleet, &tenant, &[("c", 2)]).await;

        // One is moved back on request, the other by a drain.
        let all = tenant.hub_workloads().list(&ListParams::default()).await.unwrap().items;
        let workload = all
            .iter()
            .find(|workload| was_on(workload, "a"))
            .unwrap()
            .metadata
            .name
            .clone()
            .unwrap();
        let args = move_job::Args {
            job: workload,
            to: "a".to_owned(),
            namespace: None,
            dry_run: false,
            wait: false,
            timeout: std::time::Duration::from_secs(1),
            output: Output::Json,
        };
        move_job::run(hub(&fleet), tenant.name(), &args).await.unwrap();
        spread(&fleet, &tenant, &[("a", 1), ("c", 1)]).await;
        operate(
            &fleet,
            operate::Command::Drain(operate::DrainArgs {
                cluster: named("c"),
                wait: false,
                timeout: std::time::Duration::from_secs(1),
            }),
        )
        .await;
        spread(&fleet, &tenant, &[("a", 1), ("b", 1), ("c", 0)]).await;
        let moved = [
            (3, "a".to_owned(), "Moved".to_owned()),
            (3, "b".to_owned(), "ClusterDrained".to_owned()),
        ];
        assert_eq!(places(&tenant).await, moved);
        operate(&fleet, operate::Command::Uncordon(named("c"))).await;
        tenant
            .hub_jobs()
            .delete_collection(&DeleteParams::background(), &ListParams::default())
            .await
            .unwrap();
        for name in ["a", "b", "c"] {
            tenant.await_empty(name, SOON).await.unwrap();
        }

        // A job that is kept with its lost cluster goes elsewhere when an operator declares it lost.
        tenant.submit(tenant.job("kept").cpu("1").run_forever()).await.unwrap();
        let row = tenant
            .await_status("kept", "dispatched", SOON, |row| row.cluster.is_some())
            .await
            .unwrap();
        let first = row.cluster.unwrap();
        fleet.await_pods(&first, tenant.name(), 1).await.unwrap();
        gates.shut(&first);
        condition(&fleet, &first, conditions::ACTIVE, false).await;
        let lost =
            DeclareLostArgs { cluster: named(&first), yes: true, wait: true, timeout: REASSIGNED };
        operate(&fleet, operate::Command::DeclareLost(lost)).await;
        let row = tenant.await_status("kept", "elsewhere", REASSIGNED, |row| {
            row.cluster.as_ref().is_some_and(|cluster| *cluster != first)
        });
        let second = row.await.unwrap().cluster.unwrap();
        fleet.await_pods(&second, tenant.name(), 1).await.unwrap();
        gates.unshut(&first);
        tenant.await_empty(&first, SOON).await.unwrap();
        assert_eq!(places(&tenant).await, [(2, second, "ClusterLost".to_owned())]);
    });
}
