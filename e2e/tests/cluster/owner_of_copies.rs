//! A copy on a worker asks for what its hub says. No controller of the worker writes its requests.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use kube::api::{Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};
use switchyard_api::v1beta2::{Workload, WorkloadPriorityClass};
use switchyard_e2e::fleet::Tenant;
use switchyard_e2e::wait::{always, eventually};
use switchyard_e2e::{Cluster, fixture, queues};

use crate::common::fleet;

const SOON: Duration = Duration::from_secs(60);
/// For how long it is seen that nothing changes.
const WHILE: Duration = Duration::from_secs(4);

async fn copy(tenant: &Tenant<'_>) -> anyhow::Result<Workload> {
    let copies = tenant.worker_workloads("west").list(&Default::default()).await?.items;
    copies.into_iter().next().context("no copy")
}

/// Waits until the copy has this priority, and gives its generation: each write of what it asks for adds one.
async fn generation_at(tenant: &Tenant<'_>, priority: i32) -> i64 {
    eventually(SOON, format!("the copy to have priority {priority}"), async || {
        let copy = copy(tenant).await?;
        ensure!(copy.spec.priority == Some(priority), "{:?}", copy.spec.priority);
        Ok(copy.metadata.generation.unwrap_or_default())
    })
    .await
    .unwrap()
}

async fn stays(tenant: &Tenant<'_>, generation: i64, what: &str) {
    always(WHILE, format!("the copy unwritten after {what}"), async || {
        let copy = copy(tenant).await?;
        ensure!(
            copy.metadata.generation == Some(generation),
            "{:?}: {:?}",
            copy.metadata.generation,
            copy.spec
        );
        Ok(())
    })
    .await
    .unwrap();
}

async fn set_value(cluster: &Cluster, class: &str, value: i32) {
    let classes: Api<WorkloadPriorityClass> = Api::all(cluster.admin.clone());
    let patch: Value = json!({ "value": value });
    classes.patch(class, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
}

#[test]
fn priority_and_queue_of_a_copy_are_written_by_its_hub_alone() {
    fixture::run(async {
        let fleet = fleet().await;
        let (hub, west) = (fleet.hub(), fleet.worker("west"));
        let quota = [("cpu", "2")];
        let tenant = fleet.tenant("owner").hub(&quota).worker("west", &quota).make().await.unwrap();
        let class = format!("{}-high", tenant.name());
        hub.apply([queues::priority_class(&class, 1000)]).await.unwrap();
        west.apply([queues::priority_class(&class, 5)]).await.unwrap();
        tenant.submit(tenant.job("a").cpu("1").priority_class(&class).run_forever()).await.unwrap();
        let made = generation_at(&tenant, 1000).await;

        set_value(west, &class, 7).await;
        let queue = json!({"metadata": {"labels": {"kueue.x-k8s.io/queue-name": "other"}}});
        let job = copy(&tenant).await.unwrap();
        let jobs = tenant.worker_jobs("west");
        eventually(SOON, "the copy of the job", async || Ok(jobs.get("a").await?)).await.unwrap();
        // Its webhook refuses that while the job runs; either way the Workload stays where the hub put it.
        let _ = jobs.patch("a", &PatchParams::default(), &Patch::Merge(queue)).await;
        stays(&tenant, made, "a change of its class and of its job's queue").await;
        assert_eq!(
            copy(&tenant).await.unwrap().spec.queue_name,
            job.spec.queue_name,
            "{}",
            job.name_any()
        );

        set_value(hub, &class, 2000).await;
        let followed = generation_at(&tenant, 2000).await;
        assert_eq!(followed, made + 1, "one write");
        stays(&tenant, followed, "a change of its hub's class").await;
    });
}
