//! A user of the hub reads why a job cannot run: the verdict with the clusters' answers first, the
//! necessary change last. With `--nocapture`, the test prints the commands and their output.

use std::time::Duration;

use anyhow::{bail, ensure};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::{Api, ResourceExt as _};
use serde_json::json;
use switchyard::status::JobState;
use switchyard_api::v1beta2::{LocalQueue, MultiKueueCluster};
use switchyard_e2e::fleet::{Fleet, Tenant};
use switchyard_e2e::wait::eventually;
use switchyard_e2e::{ClusterSpec, JobBuilder, NodeSpec, fixture, queues, ready};

use crate::trouble::{break_creation, command, cordon, mend_creation, template, why};
use crate::waiting_jobs::shown;

const SOON: Duration = Duration::from_secs(120);

/// The output of `why` and `get jobs` about a job.
struct Words {
    why: String,
    row: String,
}

impl Words {
    fn verdict(&self) -> &str {
        self.why.lines().next().unwrap_or_default()
    }

    fn change(&self) -> &str {
        self.why.lines().last().unwrap_or_default()
    }
}

/// The words about a job, once the verdict has these.
async fn words(fleet: &Fleet, tenant: &Tenant<'_>, job: &str, verdict: &str) -> Words {
    let said = eventually(SOON, format!("a verdict on {job} with {verdict:?}"), async || {
        let why = why(fleet, tenant, job).await;
        let jobs = command(fleet, &["get", "jobs", "-n", tenant.name()]).await;
        let row = jobs.lines().find(|line| line.starts_with(job)).unwrap_or_default().to_owned();
        let words = Words { why, row };
        ensure!(words.verdict().contains(verdict), "{}", words.why);
        Ok(words)
    })
    .await
    .unwrap();
    assert!(said.verdict().starts_with("Verdict:"), "{}", said.why);
    assert!(said.change().starts_with("To start, it needs: "), "{}", said.why);
    said
}

/// Creates a job, and waits for its Workload.
async fn submit(tenant: &Tenant<'_>, job: JobBuilder) {
    let name = tenant.submit(job.run_forever()).await.unwrap().name_any();
    let made = async || tenant.workload_of(&name).await.map(drop);
    eventually(SOON, format!("the Workload of {name}"), made).await.unwrap();
}

async fn end(tenant: &Tenant<'_>, job: &str) {
    tenant.hub_jobs().delete(job, &DeleteParams::background()).await.unwrap();
    tenant.await_empty("west", SOON).await.unwrap();
}

/// The cluster refuses the job, and the verdict says in whose words.
async fn refused_before_it_is_sent(fleet: &Fleet, tenant: &Tenant<'_>) {
    submit(tenant, tenant.job("robot").pod_field("serviceAccountName", json!("robot"))).await;
    let said =
        words(fleet, tenant, "robot", "no cluster can run it now: west: this cluster would").await;
    assert!(said.verdict().contains("serviceaccount \"robot\" not found"), "{}", said.why);
    assert!(said.row.contains("would refuse its pods"), "{}", said.row);
    end(tenant, "robot").await;

    let (version, metadata) = ("scheduling.k8s.io/v1", json!({"name": "nowhere"}));
    let class =
        json!({"apiVersion": version, "kind": "PriorityClass", "metadata": metadata, "value": 7});
    fleet.hub().apply([class]).await.unwrap();
    submit(tenant, tenant.job("class").pod_field("priorityClassName", json!("nowhere"))).await;
    let said = words(fleet, tenant, "class", "no cluster can run it now: west: ").await;
    assert!(
        said.verdict().contains("no PriorityClass with name nowhere was found"),
        "{}",
        said.why
    );
    end(tenant, "class").await;
}

/// Cordons the node of `west`, and waits until its scheduler finds no node for a pod.
async fn cordon_west(fleet: &Fleet) {
    cordon(fleet, "west", true).await;
    let pods: Api<Pod> = Api::namespaced(fleet.worker("west").admin.clone(), "default");
    let container = json!({"name": "c", "image": "i"});
    let probe = json!({"metadata": {"name": "probe"}, "spec": {"containers": [container]}});
    let probe: Pod = serde_json::from_value(probe).unwrap();
    let at_once = DeleteParams::default().grace_period(0);
    eventually(SOON, "a pod to find no node", async || {
        let Some(found) = pods.get_opt("probe").await? else {
            pods.create(&PostParams::default(), &probe).await?;
            bail!("it is new");
        };
        if found.spec.is_some_and(|spec| spec.node_name.is_some()) {
            pods.delete("probe", &at_once).await?;
            bail!("it has a node");
        }
        let known = found.status.and_then(|status| status.conditions).unwrap_or_default();
        let scheduled = known.into_iter().find(|it| it.type_ == "PodScheduled");
        let reason = scheduled.and_then(|it| it.reason);
        ensure!(reason.as_deref() == Some("Unschedulable"), "{reason:?}");
        Ok(())
    })
    .await
    .unwrap();
    pods.delete("probe", &at_once).await.unwrap();
}

/// The trouble comes up after the job was sent.
async fn stopped_after_it_is_sent(fleet: &Fleet, tenant: &Tenant<'_>) {
    cordon_west(fleet).await;
    submit(tenant, tenant.job("full")).await;
    let said = words(fleet, tenant, "full", "and in trouble: on \"west\": Unschedulable").await;
    assert!(said.row.contains(" 0/1 "), "{}", said.row);
    assert!(said.change().contains("nodes of the worker cluster have room"), "{}", said.change());
    cordon(fleet, "west", false).await;
    end(tenant, "full").await;

    let spec = json!({"suspend": true, "template": template()});
    break_creation(fleet, tenant, "west", ("Job", "jobs"), spec).await;
    submit(tenant, tenant.job("denied")).await;
    let said = words(fleet, tenant, "denied", "and in trouble: on \"west\": CreationFailed").await;
    assert!(said.verdict().contains("away.example.com"), "{}", said.why);
    mend_creation(fleet, tenant, "west").await;
    end(tenant, "denied").await;
}

/// Something on the cluster is missing, or in the way.
async fn not_prepared(fleet: &Fleet, tenant: &Tenant<'_>) {
    let jobs: Api<Job> = tenant.worker_jobs("west");
    let foreign = tenant.job("taken").suspended().build();
    let foreign: Job = serde_json::from_value(foreign).unwrap();
    // The API server may still call the broken webhook.
    let create = async || Ok(jobs.create(&Default::default(), &foreign).await?);
    eventually(SOON, "west to accept a Job", create).await.unwrap();
    submit(tenant, tenant.job("taken")).await;
    let said = words(fleet, tenant, "taken", "west: ").await;
    assert!(!said.verdict().contains("it fits"), "{}", said.why);
    jobs.delete("taken", &DeleteParams::background()).await.unwrap();
    end(tenant, "taken").await;

    let local: Api<LocalQueue> = Api::namespaced(fleet.worker("west").admin.clone(), tenant.name());
    let queue = local.list(&ListParams::default()).await.unwrap().items.remove(0);
    let name = queue.metadata.name.clone().unwrap();
    local.delete(&name, &DeleteParams::default()).await.unwrap();
    submit(tenant, tenant.job("early")).await;
    let said =
        words(fleet, tenant, "early", "no cluster can run it now: west: the cluster has no").await;
    assert!(said.row.contains("the cluster has no LocalQueue"), "{}", said.row);
    tenant.hub_jobs().delete("early", &DeleteParams::background()).await.unwrap();
    let metadata = json!({"name": name, "namespace": tenant.name()});
    let again = json!({
        "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "LocalQueue", "metadata": metadata, "spec": queue.spec,
    });
    fleet.worker("west").apply([again]).await.unwrap();
    ready::local_queue(fleet.worker("west"), tenant.name(), &name, SOON).await.unwrap();
}

/// Operators close the cluster, and then remove it under a job.
async fn closed_and_removed(fleet: &Fleet, tenant: &Tenant<'_>) {
    command(fleet, &["cluster", "cordon", "west"]).await;
    submit(tenant, tenant.job("held")).await;
    let said = words(fleet, tenant, "held", "no cluster can run it now: west: cordoned").await;
    assert!(!said.row.contains("refused"), "{}", said.row);
    eventually(SOON, "kubectl to show the job as suspended", async || {
        let status = shown(fleet, tenant, "held").await?;
        ensure!(status == "Suspended", "{status}");
        println!("$ kubectl get jobs: STATUS of held\n{status}\n");
        Ok(())
    })
    .await
    .unwrap();
    command(fleet, &["cluster", "uncordon", "west"]).await;
    let running =
        tenant.await_status("held", "running", SOON, |row| row.state == JobState::Running);
    running.await.unwrap();
    let clusters: Api<MultiKueueCluster> = Api::all(fleet.hub().admin.clone());
    clusters.delete("west", &DeleteParams::default()).await.unwrap();
    let said =
        words(fleet, tenant, "held", "in trouble: MultiKueueCluster \"west\" was deleted").await;
    assert!(said.verdict().contains("whatever its policy (onDisconnect is Hold)"), "{}", said.why);
    assert!(said.row.contains("was deleted"), "{}", said.row);
    // The hub does not know whether its pod is ready.
    assert!(!said.row.contains(" 1/1 "), "{}", said.row);
}

#[test]
fn verdict_is_first_and_necessary_change_last() {
    fixture::run(async {
        let west = ClusterSpec::new("west").node(NodeSpec::new("n1").cpu(8));
        let fleet = Fleet::builder("words").agent(west).start().await.unwrap();
        fleet.hub().apply([queues::agent_cluster("west")]).await.unwrap();
        fleet.connect().await.unwrap();
        let quota = [("cpu", "4")];
        let tenant = fleet.tenant("words").hub(&quota).worker("west", &quota).make().await.unwrap();
        refused_before_it_is_sent(&fleet, &tenant).await;
        stopped_after_it_is_sent(&fleet, &tenant).await;
        not_prepared(&fleet, &tenant).await;
        closed_and_removed(&fleet, &tenant).await;
    });
}
