//! Jobs that wait on a hub as Kubernetes' own tools show them, and the warnings of the hub's webhooks.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use http::Request;
use k8s_openapi::api::batch::v1::Job;
use kube::Api;
use kube::api::DeleteParams;
use kube::client::Body;
use serde_json::Value;
use switchyard_api::conditions::{self, ADMITTED};
use switchyard_api::names;
use switchyard_e2e::fleet::{Fleet, Tenant};
use switchyard_e2e::wait::{always, eventually};
use switchyard_e2e::{ClusterSpec, NodeSpec, fixture, job, queues};

const SOON: Duration = Duration::from_secs(120);
/// Seconds after which a job that waits is shown as suspended.
const SHOWN_AFTER: i64 = 5;

async fn fleet(name: &str) -> Fleet {
    let worker = ClusterSpec::new("west").node(NodeSpec::new("n1").cpu(8));
    let fleet = Fleet::builder(name).agent(worker).start().await.unwrap();
    fleet.hub().apply([queues::agent_cluster("west")]).await.unwrap();
    fleet.connect().await.unwrap();
    fleet
}

/// Sends a request, and gives the warnings that `kubectl` would print.
async fn warnings(fleet: &Fleet, method: &str, path: &str, body: Option<Value>) -> Vec<String> {
    let body = body.map(|body| body.to_string().into_bytes()).unwrap_or_default();
    let request =
        Request::builder().method(method).uri(path).header("content-type", "application/json");
    let response = fleet.hub().admin.send(request.body(Body::from(body)).unwrap()).await.unwrap();
    assert!(response.status().is_success(), "{}", response.status());
    let text = |value: &http::HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    response.headers().get_all("warning").iter().map(text).collect()
}

/// The column STATUS of `kubectl get jobs`.
pub(crate) async fn shown(fleet: &Fleet, tenant: &Tenant<'_>, job: &str) -> anyhow::Result<String> {
    let path = format!("/apis/batch/v1/namespaces/{}/jobs/{job}", tenant.name());
    let accept = "application/json;as=Table;g=meta.k8s.io;v=v1";
    let request = Request::get(path).header("accept", accept).body(Vec::new())?;
    let table: Value = fleet.hub().admin.request(request).await?;
    let columns = table["columnDefinitions"].as_array().context("no columns")?;
    let status = columns.iter().position(|column| column["name"] == "Status");
    let at = status.context("no column of the status")?;
    Ok(table["rows"][0]["cells"][at].as_str().unwrap_or_default().to_owned())
}

#[test]
fn job_that_waits_is_shown_as_suspended() {
    fixture::run(async {
        let fleet = fleet("waiting").await;
        let (quota, more) = ([("cpu", "1")], [("cpu", "4")]);
        let tenant =
            fleet.tenant("waiting").hub(&quota).worker("west", &more).make().await.unwrap();
        tenant.submit(tenant.job("first").cpu("1").run_forever()).await.unwrap();
        fleet.await_pods("west", tenant.name(), 1).await.unwrap();
        let first = tenant.hub_jobs().get("first").await.unwrap();
        let admitted = eventually(SOON, "the first job to be admitted", async || {
            let known = tenant.workload_of("first").await?.status.unwrap_or_default().conditions;
            let admitted = conditions::find(&known, ADMITTED).filter(|it| it.status == "True");
            Ok(admitted.context("it is not admitted")?.last_transition_time.0)
        });
        let created = first.metadata.creation_timestamp.as_ref().unwrap().0;
        let waited = admitted.await.unwrap().duration_since(created);
        assert!(
            waited.as_secs() >= SHOWN_AFTER || !job::has_condition(&first, "Suspended"),
            "it waited {waited} only: {:?}",
            first.status
        );

        tenant.submit(tenant.job("second").cpu("1").run_forever()).await.unwrap();
        eventually(SOON, "the job to be shown as suspended", async || {
            let shown = shown(&fleet, &tenant, "second").await?;
            ensure!(shown == "Suspended", "{shown}");
            Ok(())
        })
        .await
        .unwrap();
        let before = tenant.hub_jobs().get("second").await.unwrap().metadata.resource_version;
        always(Duration::from_secs(8), "no further write", async || {
            let now = tenant.hub_jobs().get("second").await?.metadata.resource_version;
            ensure!(now == before, "{now:?} after {before:?}");
            Ok(())
        })
        .await
        .unwrap();

        tenant.hub_jobs().delete("first", &DeleteParams::background()).await.unwrap();
        eventually(SOON, "the job to be shown as running", async || {
            let shown = shown(&fleet, &tenant, "second").await?;
            ensure!(shown == "Running", "{shown}");
            Ok(())
        })
        .await
        .unwrap();
    });
}

/// A job that was never evicted lost its quota at no time.
#[test]
fn short_loss_of_a_cluster_costs_no_waiting_job_its_quota() {
    fixture::run(async {
        let fleet = fleet("short-loss").await;
        let (quota, less) = ([("cpu", "4")], [("cpu", "1")]);
        let tenant =
            fleet.tenant("short-loss").hub(&quota).worker("west", &less).make().await.unwrap();
        tenant.submit(tenant.job("first").cpu("1").run_forever()).await.unwrap();
        fleet.await_pods("west", tenant.name(), 1).await.unwrap();
        tenant.submit(tenant.job("second").cpu("1").run_forever()).await.unwrap();
        let reserved = async || {
            let workload = tenant.workload_of("second").await?;
            let conditions = workload.status.unwrap_or_default().conditions;
            let holds = |type_: &str| conditions.iter().find(|it| it.type_ == type_);
            ensure!(holds("Evicted").is_none(), "it was evicted: {conditions:?}");
            ensure!(holds("QuotaReserved").is_some_and(|it| it.status == "True"), "{conditions:?}");
            Ok(())
        };
        eventually(SOON, "the second job to have quota", reserved).await.unwrap();

        fleet.kill("west");
        fleet.says("west", "AgentDisconnected", "").await.unwrap();
        always(Duration::from_secs(3), "quota of the second job", reserved).await.unwrap();
        fleet.restart_agent("west").unwrap();
        fleet.connected("west").await.unwrap();
        always(Duration::from_secs(3), "quota of the second job", reserved).await.unwrap();
        tenant.hub_jobs().delete("first", &DeleteParams::background()).await.unwrap();
        eventually(SOON, "the second job to run", async || {
            let shown = shown(&fleet, &tenant, "second").await?;
            ensure!(shown == "Running", "{shown}");
            reserved().await
        })
        .await
        .unwrap();
    });
}

#[test]
fn queue_of_an_annotation_and_a_deleted_cluster_are_warned_of() {
    fixture::run(async {
        let fleet = fleet("warned").await;
        let quota = [("cpu", "4")];
        let tenant =
            fleet.tenant("warned").hub(&quota).worker("west", &quota).make().await.unwrap();
        let mut old = tenant.job("old").run_forever().build();
        let queue = old["metadata"]["labels"][names::QUEUE_NAME].take();
        old["metadata"]["labels"].as_object_mut().unwrap().remove(names::QUEUE_NAME);
        old["metadata"]["annotations"][names::QUEUE_NAME] = queue.clone();
        let path = format!("/apis/batch/v1/namespaces/{}/jobs", tenant.name());
        let said = warnings(&fleet, "POST", &path, Some(old)).await;
        println!("$ kubectl create -f job.yaml  # its queue is an annotation\n{said:?}\n");
        assert!(said.iter().any(|it| it.contains("is of Kueue 0.1")), "{said:?}");
        let jobs: Api<Job> = tenant.hub_jobs();
        let labels = jobs.get("old").await.unwrap().metadata.labels.unwrap();
        assert_eq!(labels.get(names::QUEUE_NAME).map(String::as_str), queue.as_str());
        let sent =
            tenant.await_status("old", "sent", SOON, |row| row.cluster.as_deref() == Some("west"));
        sent.await.unwrap();

        let path = "/apis/kueue.x-k8s.io/v1beta2/multikueueclusters/west";
        let said = warnings(&fleet, "DELETE", path, None).await;
        println!("$ kubectl delete multikueuecluster west\n{said:?}\n");
        assert!(
            said.iter().any(|it| it.contains("1 workload (") && it.contains("is on cluster")),
            "{said:?}"
        );
    });
}
