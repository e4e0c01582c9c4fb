//! A cluster that a job had to leave, or could not go to, gets the next offer as soon as it can run it.

use std::time::{Duration, Instant};

use anyhow::ensure;
use kube::Api;
use kube::api::DeleteParams;
use switchyard::operate::{self, ClusterArgs, Command, DrainArgs};
use switchyard::{Output, move_job};
use switchyard_api::v1beta2::{LocalQueue, MultiKueueCluster};
use switchyard_e2e::fleet::{Fleet, Tenant};
use switchyard_e2e::wait::{always, eventually};
use switchyard_e2e::{ClusterSpec, NodeSpec, fixture, queues};

const SOON: Duration = Duration::from_secs(60);
/// From what was in the way being gone to the job's pod. It is about a second, and was 80 to 100.
const AT_ONCE: Duration = Duration::from_secs(30);

async fn operate(fleet: &Fleet, command: fn(ClusterArgs) -> Command) {
    let named = ClusterArgs { name: "west".to_owned(), dry_run: false, output: Output::default() };
    operate::run(fleet.hub().admin.clone(), &command(named)).await.unwrap();
}

fn drain(cluster: ClusterArgs) -> Command {
    Command::Drain(DrainArgs { cluster, wait: false, timeout: SOON })
}

/// The job waits, and its user reads why. The cluster is not shown as refusing.
async fn waits(tenant: &Tenant<'_>, job: &str, words: &str) {
    tenant.await_status(job, "waiting", SOON, |row| row.reason.contains(words)).await.unwrap();
    always(Duration::from_secs(5), "nothing else is said", async || {
        let said = tenant.status(job).await?.reason;
        ensure!(said.contains(words) && !said.contains("refused"), "{said}");
        Ok(())
    })
    .await
    .unwrap();
}

async fn runs_at_once(fleet: &Fleet, tenant: &Tenant<'_>, case: &str) {
    let since = Instant::now();
    fleet.await_pods("west", tenant.name(), 1).await.unwrap();
    println!("{case}: a pod after {:?}", since.elapsed());
    assert!(since.elapsed() < AT_ONCE, "{case}: {:?}", since.elapsed());
}

#[test]
fn cluster_takes_a_job_as_soon_as_it_can() {
    fixture::run(async {
        let west = ClusterSpec::new("west").node(NodeSpec::new("n1").cpu(8));
        let fleet = Fleet::builder("asked-again").agent(west).start().await.unwrap();
        fleet.hub().apply([queues::agent_cluster("west")]).await.unwrap();
        fleet.connect().await.unwrap();
        let quota = [("cpu", "4")];
        let tenant = fleet.tenant("again").hub(&quota).worker("west", &quota).make().await.unwrap();
        tenant.submit(tenant.job("long").run_forever()).await.unwrap();
        fleet.await_pods("west", tenant.name(), 1).await.unwrap();

        operate(&fleet, drain).await;
        fleet.await_pods("west", tenant.name(), 0).await.unwrap();
        waits(&tenant, "long", "west: cordoned").await;
        operate(&fleet, Command::Uncordon).await;
        runs_at_once(&fleet, &tenant, "drained, then uncordoned").await;
        tenant.hub_jobs().delete("long", &DeleteParams::background()).await.unwrap();
        tenant.await_empty("west", SOON).await.unwrap();

        let local: Api<LocalQueue> =
            Api::namespaced(fleet.worker("west").admin.clone(), tenant.name());
        let mut queue =
            local.list(&kube::api::ListParams::default()).await.unwrap().items.remove(0);
        local
            .delete(queue.metadata.name.as_deref().unwrap(), &DeleteParams::default())
            .await
            .unwrap();
        let clusters: Api<MultiKueueCluster> = Api::all(fleet.hub().admin.clone());
        eventually(SOON, "the hub to hear that the queue is gone", async || {
            let agent = clusters
                .get("west")
                .await?
                .status
                .and_then(|status| status.agent)
                .unwrap_or_default();
            ensure!(agent.capacity.is_empty(), "{:?}", agent.capacity);
            Ok(())
        })
        .await
        .unwrap();
        tenant.submit(tenant.job("early").run_forever()).await.unwrap();
        waits(&tenant, "early", "west: the cluster has no LocalQueue").await;
        // A user who asks for the cluster gets the same answer, and no other wait.
        let args = move_job::Args {
            job: "early".to_owned(),
            to: "west".to_owned(),
            namespace: None,
            dry_run: false,
            wait: false,
            timeout: std::time::Duration::from_secs(1),
            output: Output::Json,
        };
        move_job::run(fleet.hub().admin.clone(), tenant.name(), &args).await.unwrap();
        waits(&tenant, "early", "west: the cluster has no LocalQueue").await;
        queue.metadata = kube::api::ObjectMeta {
            name: queue.metadata.name.take(),
            namespace: queue.metadata.namespace.take(),
            ..Default::default()
        };
        local.create(&kube::api::PostParams::default(), &queue).await.unwrap();
        runs_at_once(&fleet, &tenant, "the queue is made").await;
    });
}
