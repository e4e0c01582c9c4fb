//! The hub shows the trouble of a job on its worker cluster, in the worker's words, and no longer than it lasts.

use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use clap::Parser as _;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Event, Node, Pod, ServiceAccount};
use kube::api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};
use switchyard::status::JobState;
use switchyard_api::conditions::{FALSE, TRUE, WORKER_TROUBLE, find};
use switchyard_api::names;
use switchyard_api::v1beta2::MultiKueueCluster;
use switchyard_e2e::fleet::{Fleet, Tenant};
use switchyard_e2e::job::pods_of;
use switchyard_e2e::wait::{always, eventually};
use switchyard_e2e::{ClusterSpec, NodeSpec, Part, fixture, queues};

const SOON: Duration = Duration::from_secs(120);
/// From the beginning of trouble on the worker until the hub shows it: a few seconds until it is no passing one, and what a
/// busy machine adds.
const SAID_WITHIN: Duration = Duration::from_secs(60);
/// The same from the fault that causes it. Kubernetes' back-off adds ten seconds.
const SAID_AFTER_FAULT: Duration = Duration::from_secs(90);

fn worker(name: &str) -> ClusterSpec {
    ClusterSpec::new(name).node(NodeSpec::new("n1").cpu(8))
}

/// Waits for the condition with all these words, and gives its message. Prints how long it took since the fault. The hub
/// writes a change of the message alone at most once in 60 s.
async fn said(
    tenant: &Tenant<'_>,
    job: &str,
    (status, reason): (&str, &str),
    words: &[&str],
    since: Instant,
) -> String {
    let what = format!("{WORKER_TROUBLE}={status} {reason} of {job} with {words:?}");
    let message = eventually(SOON, what, async || {
        let conditions = tenant.workload_of(job).await?.status.unwrap_or_default().conditions;
        let found = find(&conditions, WORKER_TROUBLE).context("no condition")?.clone();
        ensure!(
            found.status == status
                && found.reason == reason
                && words.iter().all(|it| found.message.contains(*it)),
            "{} {}: {}",
            found.status,
            found.reason,
            found.message
        );
        Ok(found.message)
    })
    .await
    .unwrap();
    // The time after the fault has Kubernetes' own back-off in it, ten seconds before a Job's pod is made again.
    let seen = began(&message).map_or(0, |it| Timestamp::now().duration_since(it).as_millis());
    let after = since.elapsed().as_secs_f64();
    println!(
        "{reason} of {job} was said {after:.1} s after the fault, {seen} ms after it began there: {message}"
    );
    message
}

/// When the trouble in a message began.
fn began(message: &str) -> Option<Timestamp> {
    let words = message.split(|it: char| it.is_whitespace() || "(),".contains(it));
    words.filter_map(|word| word.parse::<Timestamp>().ok()).min()
}

/// The same, and its reason appears in time after the fault. The words may follow later.
async fn is_said(
    tenant: &Tenant<'_>,
    job: &str,
    reason: &str,
    words: &[&str],
    since: Instant,
) -> String {
    let message = said(tenant, job, (TRUE, reason), &[], since).await;
    if let Some(began) = began(&message) {
        let took = Timestamp::now().duration_since(began).as_secs_f64();
        assert!(took < SAID_WITHIN.as_secs_f64(), "{took} s after it began: {message}");
    }
    assert!(since.elapsed() < SAID_AFTER_FAULT, "{:?}", since.elapsed());
    said(tenant, job, (TRUE, reason), words, since).await
}

/// Waits until the trouble of a job is over.
async fn resolved(tenant: &Tenant<'_>, job: &str) {
    said(tenant, job, (FALSE, "Resolved"), &[], Instant::now()).await;
}

/// The output of `switchyard why` for a job.
pub(crate) async fn why(fleet: &Fleet, tenant: &Tenant<'_>, job: &str) -> String {
    command(fleet, &["why", "-n", tenant.name(), job]).await
}

pub(crate) async fn command(fleet: &Fleet, words: &[&str]) -> String {
    try_command(fleet, words).await.unwrap()
}

/// The output of a command that may fail.
pub(crate) async fn try_command(fleet: &Fleet, words: &[&str]) -> anyhow::Result<String> {
    let kubeconfig = fleet.hub().kubeconfig().to_str().unwrap().to_owned();
    let command = ["switchyard", "--kubeconfig", &kubeconfig];
    let args = switchyard::Args::try_parse_from(command.iter().chain(words))?;
    let mut out = Vec::new();
    switchyard::run(args, &mut out).await?;
    let said = String::from_utf8(out)?;
    println!("$ switchyard {}\n{said}", words.join(" "));
    Ok(said)
}

/// Waits until the line of a job in the output of a command has these words.
pub(crate) async fn shows(
    fleet: &Fleet,
    tenant: &Tenant<'_>,
    command: &[&str],
    job: &str,
    expected: &[&str],
) {
    let words = [command, &["-n", tenant.name()]].concat();
    eventually(SOON, format!("{job} in the output of {command:?}"), async || {
        let shown = try_command(fleet, &words).await?;
        let line = shown.lines().find(|line| line.starts_with(job)).unwrap_or_default();
        ensure!(expected.iter().all(|word| line.contains(word)), "{shown}");
        Ok(())
    })
    .await
    .unwrap();
}

pub(crate) async fn cordon(fleet: &Fleet, cluster: &str, cordoned: bool) {
    let nodes: Api<Node> = Api::all(fleet.worker(cluster).admin.clone());
    let patch = Patch::Merge(json!({"spec": {"unschedulable": cordoned}}));
    nodes.patch("n1", &PatchParams::default(), &patch).await.unwrap();
}

/// Deletes the pods of a tenant on a worker: their job makes others.
async fn delete_pods(fleet: &Fleet, tenant: &Tenant<'_>, cluster: &str) {
    let pods: Api<Pod> = Api::namespaced(fleet.worker(cluster).admin.clone(), tenant.name());
    pods.delete_collection(&DeleteParams::default().grace_period(0), &ListParams::default())
        .await
        .unwrap();
}

/// The notes of the events of a reason about a job on the hub.
async fn notes(fleet: &Fleet, tenant: &Tenant<'_>, job: &str, reason: &str) -> Vec<String> {
    let events: Api<Event> = Api::namespaced(fleet.hub().admin.clone(), tenant.name());
    let events = events.list(&ListParams::default()).await.unwrap();
    let of = |event: &Event| {
        event.involved_object.name.as_deref() == Some(job)
            && event.reason.as_deref() == Some(reason)
    };
    events.into_iter().filter(of).filter_map(|event| event.message).collect()
}

/// A job runs, its node is cordoned, and its pod needs a replacement.
async fn unschedulable(fleet: &Fleet, tenant: &Tenant<'_>, cluster: &str) {
    tenant.submit(tenant.job("long").run_forever().backoff_limit(6)).await.unwrap();
    fleet.await_pods(cluster, tenant.name(), 1).await.unwrap();
    cordon(fleet, cluster, true).await;
    let fault = Instant::now();
    delete_pods(fleet, tenant, cluster).await;
    let start = format!("on \"{cluster}\": Unschedulable (since ");
    let words = [start.as_str(), "unschedulable"];
    let message = is_said(tenant, "long", "Unschedulable", &words, fault).await;
    assert!(message.starts_with(&start), "{message}");

    shows(fleet, tenant, &["status"], "long", &[" 0/1 ", "Unschedulable"]).await;
    let explained = command(fleet, &["explain", "-n", tenant.name(), "long"]).await;
    assert!(explained.starts_with("Verdict:   Admitted, and in trouble: on \""), "{explained}");
    let last = "To start, it needs: nodes of the worker cluster have room that the pods may use; or the job is moved\n";
    assert!(explained.ends_with(last), "{explained}");
    eventually(SOON, "an event on the job", async || {
        let notes = notes(fleet, tenant, "long", "WorkerTrouble").await;
        ensure!(notes.iter().any(|note| note.contains("unschedulable")), "{notes:?}");
        Ok(())
    })
    .await
    .unwrap();

    cordon(fleet, cluster, false).await;
    resolved(tenant, "long").await;
    assert!(!command(fleet, &["status", "-n", tenant.name()]).await.contains("Unschedulable"));
}

/// Pods of a job that runs can no longer be made.
async fn failed_create(fleet: &Fleet, tenant: &Tenant<'_>, cluster: &str) {
    let accounts: Api<ServiceAccount> =
        Api::namespaced(fleet.worker(cluster).admin.clone(), tenant.name());
    let account: ServiceAccount =
        serde_json::from_value(json!({"metadata": {"name": "builder"}})).unwrap();
    accounts.create(&PostParams::default(), &account).await.unwrap();
    let job = tenant
        .job("builds")
        .pod_field("serviceAccountName", json!("builder"))
        .run_forever()
        .backoff_limit(6);
    tenant.submit(job).await.unwrap();
    fleet.await_pods(cluster, tenant.name(), 2).await.unwrap();
    accounts.delete("builder", &DeleteParams::default()).await.unwrap();
    let fault = Instant::now();
    delete_pods(fleet, tenant, cluster).await;
    let words = ["serviceaccount \"builder\" not found"];
    is_said(tenant, "builds", "FailedCreate", &words, fault).await;
    tenant.hub_jobs().delete("builds", &DeleteParams::background()).await.unwrap();
}

/// Changes the status of the only container of a job's pod on a worker, as its kubelet would.
async fn report_container(
    fleet: &Fleet,
    tenant: &Tenant<'_>,
    cluster: &str,
    job: &str,
    state: Value,
) {
    let pods: Api<Pod> = Api::namespaced(fleet.worker(cluster).admin.clone(), tenant.name());
    let of_job = pods_of(job);
    let pod = eventually(SOON, format!("a running pod of {job}"), async || {
        let found = pods.list(&of_job).await?.items.into_iter().next().context("no pod")?;
        let phase = found.status.as_ref().and_then(|status| status.phase.as_deref());
        ensure!(phase == Some("Running"), "{phase:?}");
        Ok(found.name_any())
    })
    .await
    .unwrap();
    let ready = state.get("running").is_some();
    let ended = json!({"terminated": {"exitCode": 3, "reason": "Error"}});
    let container = json!({
        "name": "main", "image": "i", "imageID": "", "ready": ready, "restartCount": 4,
        "state": state, "lastState": ended,
    });
    let condition = json!({"type": "Ready", "status": if ready { "True" } else { "False" }});
    let status = json!({"conditions": [condition], "containerStatuses": [container]});
    let patch = Patch::Merge(json!({ "status": status }));
    pods.patch_status(&pod, &PatchParams::default(), &patch).await.unwrap();
}

/// The container of a pod ends again and again, and stays up at last.
async fn crash_loop(fleet: &Fleet, tenant: &Tenant<'_>, cluster: &str) {
    tenant.submit(tenant.job("loops").run_forever()).await.unwrap();
    let waiting = json!({"reason": "CrashLoopBackOff", "message": "back-off 20s"});
    report_container(fleet, tenant, cluster, "loops", json!({ "waiting": waiting })).await;
    let ended = "CrashLoopBackOff: back-off 20s; it ended 4 times, last with exit code 3 (Error)";
    is_said(tenant, "loops", "CrashLoop", &[ended], Instant::now()).await;
    shows(fleet, tenant, &["get", "jobs"], "loops", &[" 0/1 ", "CrashLoop"]).await;
    let explained = why(fleet, tenant, "loops").await;
    let last = "it needs: the container stays up; its logs say why it ends\n";
    assert!(explained.ends_with(last), "{explained}");
    report_container(fleet, tenant, cluster, "loops", json!({"running": {}})).await;
    resolved(tenant, "loops").await;
    tenant.hub_jobs().delete("loops", &DeleteParams::background()).await.unwrap();
}

/// A webhook of the worker that is away fails each creation of the tenant's objects of a kind.
fn broken_webhook(tenant: &Tenant<'_>, group: &str, resource: &str) -> Value {
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": tenant.name()},
        "webhooks": [{
            "name": "away.example.com", "sideEffects": "None", "admissionReviewVersions": ["v1"], "timeoutSeconds": 2,
            "clientConfig": {"url": "https://127.0.0.1:1/away"},
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": tenant.name()}},
            "rules": [{"apiGroups": [group], "apiVersions": ["*"], "resources": [resource], "operations": ["CREATE"]}],
        }],
    })
}

/// Makes the creation of objects such as this one fail. Returns once the API server calls the broken webhook.
pub(crate) async fn break_creation(
    fleet: &Fleet,
    tenant: &Tenant<'_>,
    cluster: &str,
    (kind, resource): (&str, &str),
    spec: Value,
) {
    let (group, version) =
        if kind == "Job" { ("batch", "v1") } else { ("kueue.x-k8s.io", "v1beta2") };
    let worker = fleet.worker(cluster);
    worker.apply([broken_webhook(tenant, group, resource)]).await.unwrap();
    let api_version = format!("{group}/{version}");
    let objects: Api<DynamicObject> =
        worker.dynamic(&api_version, kind, tenant.name()).await.unwrap();
    let metadata = json!({"name": "probe", "namespace": tenant.name()});
    let probe =
        json!({"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": spec});
    let probe: DynamicObject = serde_json::from_value(probe).unwrap();
    let dry_run = PostParams { dry_run: true, ..PostParams::default() };
    eventually(SOON, "the broken webhook to be called", async || {
        let answer =
            objects.create(&dry_run, &probe).await.map(drop).map_err(|error| error.to_string());
        ensure!(
            answer.as_ref().is_err_and(|error| error.contains("away.example.com")),
            "{answer:?}"
        );
        Ok(())
    })
    .await
    .unwrap();
}

pub(crate) fn template() -> Value {
    json!({"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}})
}

pub(crate) async fn mend_creation(fleet: &Fleet, tenant: &Tenant<'_>, cluster: &str) {
    let (version, kind) = ("admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration");
    let webhooks: Api<DynamicObject> =
        fleet.worker(cluster).dynamic(version, kind, "").await.unwrap();
    webhooks.delete(tenant.name(), &DeleteParams::default()).await.unwrap();
}

/// Not even the Workload can be created: no cluster has the job.
async fn reservation_failed(fleet: &Fleet, tenant: &Tenant<'_>, cluster: &str) {
    let pod_set = json!({"name": "main", "count": 1, "template": template()});
    let spec = json!({"queueName": "none", "podSets": [pod_set]});
    break_creation(fleet, tenant, cluster, ("Workload", "workloads"), spec).await;
    let fault = Instant::now();
    tenant.submit(tenant.job("waits").run_forever()).await.unwrap();
    let explained = eventually(SOON, "the failed creation to be explained", async || {
        let explained = try_command(fleet, &["explain", "-n", tenant.name(), "waits"]).await?;
        ensure!(explained.contains("the Workload could not be created"), "{explained}");
        Ok(explained)
    })
    .await
    .unwrap();
    println!(
        "the failed creation of a Workload was said after {:.1} s: {explained}",
        fault.elapsed().as_secs_f64()
    );
    mend_creation(fleet, tenant, cluster).await;
    tenant
        .await_status("waits", "sent", SOON, |row| row.cluster.as_deref() == Some(cluster))
        .await
        .unwrap();
    tenant.hub_jobs().delete("waits", &DeleteParams::background()).await.unwrap();
}

async fn creation_failed(fleet: &Fleet, tenant: &Tenant<'_>, cluster: &str) {
    let spec = json!({"suspend": true, "template": template()});
    break_creation(fleet, tenant, cluster, ("Job", "jobs"), spec).await;
    let fault = Instant::now();
    tenant.submit(tenant.job("refused").run_forever()).await.unwrap();
    let words = ["the job could not be created", "away.example.com"];
    is_said(tenant, "refused", "CreationFailed", &words, fault).await;
    mend_creation(fleet, tenant, cluster).await;
    resolved(tenant, "refused").await;
    tenant.hub_jobs().delete("refused", &DeleteParams::background()).await.unwrap();
}

#[test]
fn trouble_on_an_agents_cluster_is_said_and_ends() {
    fixture::run(async {
        let fleet = Fleet::builder("trouble").agent(worker("west")).start().await.unwrap();
        fleet.hub().apply([queues::agent_cluster("west")]).await.unwrap();
        fleet.connect().await.unwrap();
        let quota = [("cpu", "4")];
        let tenant =
            fleet.tenant("trouble").hub(&quota).worker("west", &quota).make().await.unwrap();
        unschedulable(&fleet, &tenant, "west").await;
        failed_create(&fleet, &tenant, "west").await;
        crash_loop(&fleet, &tenant, "west").await;
        creation_failed(&fleet, &tenant, "west").await;
        reservation_failed(&fleet, &tenant, "west").await;
    });
}

#[test]
fn trouble_on_a_kubeconfig_cluster_is_said_and_ends() {
    fixture::run(async {
        let fleet = Fleet::builder("hosted-trouble").bare(worker("east")).start().await.unwrap();
        fleet.add_single("east").await.unwrap();
        let quota = [("cpu", "4")];
        let tenant =
            fleet.tenant("trouble").hub(&quota).worker("east", &quota).make().await.unwrap();
        unschedulable(&fleet, &tenant, "east").await;
        failed_create(&fleet, &tenant, "east").await;
        crash_loop(&fleet, &tenant, "east").await;
    });
}

#[test]
fn silence_and_removal_of_a_cluster_are_said() {
    fixture::run(async {
        let fleet = Fleet::builder("silence").agent(worker("west")).start().await.unwrap();
        let mut cluster = queues::agent_cluster("west");
        cluster["spec"]["onDisconnect"] = json!({"policy": "Hold"});
        fleet.hub().apply([cluster]).await.unwrap();
        fleet.start_agent("west", &fleet.join_token("west").await.unwrap()).await.unwrap();
        fleet.connected("west").await.unwrap();
        let quota = [("cpu", "4")];
        let tenant =
            fleet.tenant("silence").hub(&quota).worker("west", &quota).make().await.unwrap();
        tenant.submit(tenant.job("long").run_forever().backoff_limit(6)).await.unwrap();
        for policy in ["Fence/5s", "Duplicate/5m"] {
            let name = policy.split_once('/').unwrap().0.to_lowercase();
            let job = tenant.job(&name).run_forever().annotation(names::ON_DISCONNECT, policy);
            tenant.submit(job).await.unwrap();
        }
        fleet.await_pods("west", tenant.name(), 3).await.unwrap();
        let none = async || {
            let conditions =
                tenant.workload_of("long").await?.status.unwrap_or_default().conditions;
            ensure!(find(&conditions, WORKER_TROUBLE).is_none(), "{conditions:?}");
            Ok(())
        };
        always(Duration::from_secs(5), "no word of trouble", none).await.unwrap();

        let fault = Instant::now();
        fleet.kill("west");
        let unreachable = (TRUE, "ClusterUnreachable");
        let held = "onDisconnect is Hold: it stays there until the cluster is back";
        let message = said(&tenant, "long", unreachable, &[held], fault).await;
        assert!(message.starts_with("nothing was heard of \"west\" since "), "{message}");
        let fenced =
            "onDisconnect is Fence: its agent stops the job there, and the hub queues it again at ";
        said(&tenant, "fence", unreachable, &[fenced], fault).await;
        let doubled =
            ["onDisconnect is Duplicate: the hub queues it again at ", "it may run twice"];
        said(&tenant, "duplicate", unreachable, &doubled, fault).await;
        fleet.restart_agent("west").unwrap();
        for job in ["long", "fence", "duplicate"] {
            resolved(&tenant, job).await;
        }

        let clusters: Api<MultiKueueCluster> = Api::all(fleet.hub().admin.clone());
        let fault = Instant::now();
        clusters.delete("west", &DeleteParams::default()).await.unwrap();
        let removed = (TRUE, "ClusterRemoved");
        let policy = "whatever its policy (onDisconnect is Hold), the hub gives it up there at ";
        let message = said(&tenant, "long", removed, &[policy], fault).await;
        assert!(message.starts_with("MultiKueueCluster \"west\" was deleted"), "{message}");
        for (job, policy) in [("fence", "Fence"), ("duplicate", "Duplicate")] {
            let policy = format!("whatever its policy (onDisconnect is {policy})");
            let words = [policy.as_str(), "to end it, delete it here and on the cluster"];
            said(&tenant, job, removed, &words, fault).await;
        }
        let explained = command(
            &fleet,
            &[
                "explain",
                "-n",
                tenant.name(),
                &tenant.workload_of("long").await.unwrap().name_any(),
            ],
        )
        .await;
        assert!(
            explained.contains(
                "To start, it needs: the MultiKueueCluster is created again, or the job is deleted"
            ),
            "{explained}"
        );
    });
}

/// The condition tells an agent that is connected and cannot act from a silent cluster, and names each job's own policy.
#[test]
fn agent_without_its_api_server_is_said_with_the_policy() {
    fixture::run(async {
        let west = worker("west").own_etcd();
        let fleet = Fleet::builder("unable-words").agent(west).start().await.unwrap();
        let mut cluster = queues::agent_cluster("west");
        cluster["spec"]["onDisconnect"] = json!({"policy": "Fence", "after": "5s"});
        fleet.hub().apply([cluster]).await.unwrap();
        fleet.connect().await.unwrap();
        let quota = [("cpu", "4")];
        let tenant =
            fleet.tenant("unable").hub(&quota).worker("west", &quota).make().await.unwrap();
        tenant.submit(tenant.job("fenced").run_forever()).await.unwrap();
        let held = tenant.job("held").run_forever().annotation(names::ON_DISCONNECT, "Hold");
        tenant.submit(held).await.unwrap();
        for job in ["fenced", "held"] {
            let running =
                tenant.await_status(job, "running", SOON, |row| row.state == JobState::Running);
            running.await.unwrap();
        }

        let fault = Instant::now();
        fleet.environment().cluster("west").kill(Part::ApiServer).unwrap();
        for (job, policy) in [("fenced", "onDisconnect is Fence"), ("held", "onDisconnect is Hold")]
        {
            let words = ["does not reach its own API server", policy];
            let message = said(&tenant, job, (TRUE, "AgentUnable"), &words, fault).await;
            assert!(message.starts_with("\"west\" is connected, but since "), "{message}");
            assert!(!message.contains("nothing was heard"), "{message}");
        }
        let explained = command(&fleet, &["why", "-n", tenant.name(), "fenced"]).await;
        assert!(
            explained.starts_with("Verdict:   Running, and in trouble: \"west\""),
            "{explained}"
        );
        let last = explained.lines().last().unwrap();
        assert!(last.contains("answers its agent again"), "{last}");
        let jobs = command(&fleet, &["get", "jobs", "-n", tenant.name()]).await;
        let line = jobs.lines().find(|line| line.starts_with("fenced")).unwrap();
        assert!(!line.contains("1/1") && line.contains("its agent does not reach"), "{jobs}");

        fleet.environment().cluster("west").restart(Part::ApiServer).await.unwrap();
        for job in ["fenced", "held"] {
            resolved(&tenant, job).await;
        }
    });
}
