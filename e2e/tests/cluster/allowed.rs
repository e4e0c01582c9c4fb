//! What a worker's administrator does not allow is refused there, and the hub's user is told why and what mends it.
use std::time::Duration;

use serde_json::json;
use switchyard_e2e::fleet::{Fleet, Tenant};
use switchyard_e2e::{ClusterSpec, NodeSpec, fixture, job, queues};

const SOON: Duration = Duration::from_secs(120);

async fn tenant<'a>(fleet: &'a Fleet, stem: &str) -> Tenant<'a> {
    let quota = [("cpu", "4")];
    fleet.tenant(stem).hub(&quota).worker("west", &quota).make().await.unwrap()
}

/// The user of a job is told why no cluster runs it.
async fn refused(tenant: &Tenant<'_>, job: &str, words: &str) {
    let told = tenant.await_status(job, "refused", SOON, |row| row.reason.contains(words)).await.unwrap();
    assert!(told.reason.contains("west: this cluster's agent does not let the hub"), "{}", told.reason);
}

#[test]
fn namespaces_service_accounts_and_kinds_that_are_not_allowed_are_refused_with_the_reason() {
    fixture::run(async {
        let west = ClusterSpec::new("west").node(NodeSpec::new("n1").cpu(8));
        let fleet = Fleet::builder("allowed").agent(west).start().await.unwrap();
        fleet.hub().apply([queues::agent_cluster("west")]).await.unwrap();
        let token = fleet.join_token("west").await.unwrap();
        fleet.start_agent("west", &token).await.unwrap();
        fleet.connected("west").await.unwrap();
        let (open, closed) = (tenant(&fleet, "open").await, tenant(&fleet, "closed").await);

        fleet.kill("west");
        let flags =
            ["--allow-namespaces", open.name(), "--allow-service-accounts", "default", "--allow-kinds", "batch/job"];
        fleet.start_agent_with("west", &token, &flags).await.unwrap();
        fleet.connected("west").await.unwrap();
        closed.submit(closed.job("outside")).await.unwrap();
        open.submit(open.job("as-robot").pod_field("serviceAccountName", json!("robot"))).await.unwrap();
        open.submit(open.job("plain").run_for(Duration::from_millis(200))).await.unwrap();
        refused(&closed, "outside", "--allow-namespaces").await;
        refused(&open, "as-robot", "--allow-service-accounts").await;
        job::complete(&fleet.hub().admin, open.name(), "plain", SOON).await.unwrap();
        // Nothing of what was refused was made.
        closed.await_empty("west", SOON).await.unwrap();
        assert_eq!(fleet.pods("west", open.name()).await.unwrap(), 0);

        fleet.kill("west");
        fleet.start_agent_with("west", &token, &["--allow-kinds", "jobset.x-k8s.io/jobset"]).await.unwrap();
        open.submit(open.job("plain-again")).await.unwrap();
        refused(&open, "plain-again", "--allow-kinds").await;
        assert_eq!(fleet.pods("west", open.name()).await.unwrap(), 0);
    });
}
