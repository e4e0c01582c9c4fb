//! Jobs that wait on several workers at once, with Kueue's dispatchers; one worker at a time preempts for them. One worker has an
//! agent, the other runs Switchyard in single mode and is reached by a kubeconfig.
use std::time::Duration;

use anyhow::ensure;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::json;
use switchyard_api::conditions::{self, BLOCKED_ON_PREEMPTION_GATES, PREEMPTED, QUOTA_RESERVED};
use switchyard_api::names::MULTIKUEUE_PREEMPTION_GATE;
use switchyard_api::v1beta2::{ClusterQueue, PreemptionGatePosition, Workload};
use switchyard_e2e::fixture::Shared;
use switchyard_e2e::fleet::{Fleet, Tenant};
use switchyard_e2e::wait::{always, eventually};
use switchyard_e2e::{ClusterSpec, NodeSpec, fixture, job, queues};

const SOON: Duration = Duration::from_secs(60);
/// For so long it is looked whether something stays as it is.
const STAYS: Duration = Duration::from_secs(5);
const WORKERS: [&str; 2] = ["agent", "single"];

static FLEET: Shared<Fleet> = Shared::new(|| {
    Box::pin(async {
        let header = "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n\
                      featureGates: {MultiKueueOrchestratedPreemption: true}\n";
        let dispatcher =
            "multiKueue: {dispatcherName: kueue.x-k8s.io/multikueue-dispatcher-all-at-once}\n";
        let node = || NodeSpec::new("n1").cpu(64);
        let fleet = Fleet::builder("waiting")
            .config(format!("{header}{dispatcher}"))
            .agent_config(header)
            .agent(ClusterSpec::new("agent").node(node()))
            .bare(ClusterSpec::new("single").node(node()));
        let fleet = fleet.start().await?;
        fleet.hub().apply([queues::agent_cluster("agent")]).await?;
        fleet.connect().await?;
        fleet.add_single("single").await?;
        Ok(fleet)
    })
});

async fn fleet() -> &'static Fleet {
    FLEET.get().await.unwrap()
}

async fn copy_on(tenant: &Tenant<'_>, worker: &str, job: &str) -> anyhow::Result<Option<Workload>> {
    let name = tenant.workload_of(job).await?.metadata.name.unwrap_or_default();
    Ok(tenant.worker_workloads(worker).get_opt(&name).await?)
}

fn is(workload: &Workload, condition: &str) -> bool {
    workload
        .status
        .as_ref()
        .is_some_and(|status| conditions::is_true(&status.conditions, condition))
}

/// Whether each worker has a copy that has no quota; their uids.
async fn waits_everywhere(tenant: &Tenant<'_>, job: &str) -> anyhow::Result<Vec<Option<String>>> {
    let mut uids = Vec::new();
    for worker in WORKERS {
        let copy = copy_on(tenant, worker, job).await?;
        ensure!(
            copy.as_ref().is_some_and(|copy| !is(copy, QUOTA_RESERVED)),
            "{job} on {worker}: {copy:?}"
        );
        uids.push(copy.and_then(|copy| copy.metadata.uid));
    }
    Ok(uids)
}

#[test]
fn job_without_room_waits_on_each_worker() {
    fixture::run(async {
        let fleet = fleet().await;
        let tenant =
            fleet.tenant("everywhere").hub(&[("cpu", "8")]).worker("agent", &[("cpu", "1")]);
        let tenant = tenant.worker("single", &[("cpu", "4")]).make().await.unwrap();
        let hub = &fleet.hub().admin;
        tenant.submit(tenant.job("first").cpu("4").run_forever()).await.unwrap();
        fleet.await_pods("single", tenant.name(), 1).await.unwrap();
        tenant.submit(tenant.job("second").cpu("4").run_for(Duration::from_secs(1))).await.unwrap();
        let waits = || {
            eventually(SOON, "the second to wait on each", async || {
                waits_everywhere(&tenant, "second").await
            })
        };
        let uids = waits().await.unwrap();
        let stay = async || {
            let now = waits_everywhere(&tenant, "second").await?;
            ensure!(now == uids, "{now:?} for {uids:?}");
            Ok(())
        };
        always(STAYS, "the same copies wait", stay).await.unwrap();

        // A job that is evicted where it runs waits on all again.
        let running =
            copy_on(&tenant, "single", "first").await.unwrap().unwrap().metadata.name.unwrap();
        let stop = json!({"spec": {"stopPolicy": "HoldAndDrain"}});
        let stopped: Api<ClusterQueue> = Api::all(fleet.worker("single").admin.clone());
        stopped.patch(tenant.name(), &PatchParams::default(), &Patch::Merge(stop)).await.unwrap();
        let again = async || {
            let all = waits_everywhere(&tenant, "first").await?;
            ensure!(
                !is(&tenant.workload_of("first").await?, conditions::ADMITTED),
                "{running} is admitted"
            );
            Ok(all)
        };
        eventually(SOON, "the first to wait on each", again).await.unwrap();

        tenant.hub_jobs().delete("first", &kube::api::DeleteParams::background()).await.unwrap();
        let go = json!({"spec": {"stopPolicy": "None"}});
        stopped.patch(tenant.name(), &PatchParams::default(), &Patch::Merge(go)).await.unwrap();
        job::complete(hub, tenant.name(), "second", SOON).await.unwrap();
        for worker in WORKERS {
            tenant.await_empty(worker, SOON).await.unwrap();
        }
    });
}

#[test]
fn one_worker_at_a_time_preempts_for_a_job() {
    fixture::run(async {
        let fleet = fleet().await;
        let quota = [("cpu", "2")];
        let tenant = fleet
            .tenant("gates")
            .hub(&[("cpu", "6")])
            .worker("agent", &quota)
            .worker("single", &quota);
        let tenant = tenant.make().await.unwrap();
        let class = fixture::unique("high");
        fleet.hub().apply([queues::priority_class(&class, 1000)]).await.unwrap();
        for worker in WORKERS {
            fleet.worker(worker).apply([queues::priority_class(&class, 1000)]).await.unwrap();
            let preempts = json!({"spec": {"preemption": {"withinClusterQueue": "LowerPriority"}}});
            let queues: Api<ClusterQueue> = Api::all(fleet.worker(worker).admin.clone());
            queues
                .patch(tenant.name(), &PatchParams::default(), &Patch::Merge(preempts))
                .await
                .unwrap();
        }
        for low in ["low-1", "low-2"] {
            tenant.submit(tenant.job(low).cpu("2").run_forever()).await.unwrap();
        }
        for worker in WORKERS {
            fleet.await_pods(worker, tenant.name(), 1).await.unwrap();
        }
        tenant
            .submit(tenant.job("high").cpu("2").priority_class(&class).run_forever())
            .await
            .unwrap();
        let cluster = eventually(SOON, "the high one to be admitted", async || {
            let high = tenant.workload_of("high").await?;
            ensure!(is(&high, conditions::ADMITTED), "{}", Tenant::told(&high));
            Ok(high.status.and_then(|status| status.cluster_name).unwrap_or_default())
        });
        let cluster = cluster.await.unwrap();
        let copy = copy_on(&tenant, &cluster, "high").await.unwrap().unwrap();
        assert_eq!(copy.spec.preemption_gates[0].name, MULTIKUEUE_PREEMPTION_GATE);
        let gate = &copy.status.as_ref().unwrap().preemption_gates[0];
        assert_eq!(gate.position, PreemptionGatePosition::Open, "on {cluster}");
        assert!(!is(&copy, BLOCKED_ON_PREEMPTION_GATES));

        // The one that was preempted waits, and the other runs on where it was.
        let one_is_preempted = async || {
            let mut preempted = Vec::new();
            for low in ["low-1", "low-2"] {
                let workload = tenant.workload_of(low).await?;
                match workload.status.as_ref().and_then(|status| status.cluster_name.as_deref()) {
                    Some(other) => {
                        ensure!(other != cluster, "{low} is on {other}");
                        let there = copy_on(&tenant, other, low).await?;
                        ensure!(
                            there.is_some_and(
                                |it| is(&it, conditions::ADMITTED) && !is(&it, PREEMPTED)
                            ),
                            "{low} on {other}"
                        );
                    }
                    None => preempted.push(low),
                }
            }
            ensure!(preempted.len() == 1, "{preempted:?} have no cluster");
            Ok(())
        };
        eventually(SOON, "one of the low ones to wait", one_is_preempted).await.unwrap();
        always(STAYS, "the other low one runs on", one_is_preempted).await.unwrap();
    });
}
