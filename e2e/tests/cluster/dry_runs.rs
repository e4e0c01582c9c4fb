//! A cluster that would refuse a job's pods refuses the job, with its API server's message. The next cluster gets the offer.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use k8s_openapi::api::authorization::v1::SubjectAccessReview;
use k8s_openapi::api::core::v1::{Pod, ResourceQuota};
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use switchyard::{Output, move_job};
use switchyard_e2e::fixture::Shared;
use switchyard_e2e::fleet::{Fleet, NAMESPACE, Tenant};
use switchyard_e2e::wait::eventually;
use switchyard_e2e::{Cluster, ClusterSpec, NodeSpec, fixture, http, queues};
use switchyard_jobs::apply_merge;

const SOON: Duration = Duration::from_secs(120);
/// Less than the rest of the delay of 40 s that follows three refusals.
const AT_ONCE: Duration = Duration::from_secs(20);

/// West and east have agents; south has a kubeconfig.
static FLEET: Shared<Fleet> = Shared::new(|| {
    Box::pin(async {
        let cluster = |name: &str| ClusterSpec::new(name).node(NodeSpec::new("n1").cpu(64));
        let fleet = Fleet::builder("dry-runs")
            .agent(cluster("west"))
            .agent(cluster("east"))
            .bare(cluster("south"));
        let fleet = fleet.start().await?;
        fleet.hub().apply(["west", "east"].map(queues::agent_cluster)).await?;
        fleet.connect().await?;
        fleet.add_single("south").await?;
        Ok(fleet)
    })
});

async fn fleet() -> &'static Fleet {
    FLEET.get().await.unwrap()
}

/// A tenant whose jobs are offered to west first, where they fit more tightly.
async fn tenant<'a>(fleet: &'a Fleet, stem: &str, clusters: &[&str]) -> Tenant<'a> {
    let mut tenant = fleet.tenant(stem).hub(&[("cpu", "32")]);
    for cluster in clusters {
        tenant = tenant
            .worker(cluster, if *cluster == "west" { &[("cpu", "4")] } else { &[("cpu", "16")] });
    }
    tenant.make().await.unwrap()
}

fn account(tenant: &Tenant<'_>, name: &str) -> Value {
    let metadata = json!({"name": name, "namespace": tenant.name()});
    json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata})
}

fn class(name: &str) -> Value {
    json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}, "value": 7})
}

/// Creates a pod with one CPU by dry run.
async fn create_dry(cluster: &Cluster, namespace: &str, spec: &Value) -> anyhow::Result<()> {
    let container = json!({"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}});
    let mut pod = json!({"metadata": {"name": "probe"}, "spec": {"containers": [container]}});
    apply_merge(&mut pod["spec"], spec);
    let pod: Pod = serde_json::from_value(pod)?;
    let pods: Api<Pod> = Api::namespaced(cluster.admin.clone(), namespace);
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    Ok(pods.create(&dry, &pod).await.map(drop)?)
}

/// Waits until a cluster refuses a plain pod in these words: the API server takes a moment to know a new restriction.
async fn await_refusal(cluster: &Cluster, namespace: &str, words: &str) {
    eventually(SOON, format!("a pod to be refused: {words}"), async || {
        let answer = create_dry(cluster, namespace, &json!({})).await;
        let error = answer.err().context("it is accepted")?.to_string();
        ensure!(error.contains(words), "{error}");
        Ok(())
    })
    .await
    .unwrap();
}

/// Waits until a tenant has so many pods on a cluster.
async fn await_pods(fleet: &Fleet, tenant: &Tenant<'_>, cluster: &str, count: usize) {
    eventually(SOON, format!("{count} pods on {cluster}"), async || {
        let found = fleet.pods(cluster, tenant.name()).await?;
        ensure!(found == count, "{found} pods");
        Ok(())
    })
    .await
    .unwrap();
}

/// The job waits, its user reads these words, and no cluster has anything of it.
async fn refused(fleet: &Fleet, tenant: &Tenant<'_>, job: &str, words: &[&str], clusters: &[&str]) {
    let row = tenant
        .await_status(job, "refused", SOON, |row| words.iter().all(|it| row.reason.contains(it)))
        .await;
    println!("{job}: {}", row.unwrap().reason);
    for cluster in clusters {
        assert_eq!(fleet.pods(cluster, tenant.name()).await.unwrap(), 0, "{job} on {cluster}");
    }
}

#[test]
fn job_goes_where_its_service_account_is() {
    fixture::run(async {
        let fleet = fleet().await;
        let tenant = tenant(fleet, "account", &["west", "east"]).await;
        fleet.hub().apply([account(&tenant, "robot")]).await.unwrap();
        fleet.worker("east").apply([account(&tenant, "robot")]).await.unwrap();
        tenant
            .submit(
                tenant.job("long").pod_field("serviceAccountName", json!("robot")).run_forever(),
            )
            .await
            .unwrap();
        await_pods(fleet, &tenant, "east", 1).await;
        assert_eq!(fleet.pods("west", tenant.name()).await.unwrap(), 0);
        let dispatch = tenant.workload_of("long").await.unwrap().status.unwrap().dispatch.unwrap();
        assert!(
            dispatch.history.is_empty(),
            "it was never committed to another: {:?}",
            dispatch.history
        );
    });
}

#[test]
fn job_refused_by_all_clusters_runs_once_one_accepts() {
    fixture::run(async {
        let fleet = fleet().await;
        let tenant = tenant(fleet, "class", &["west", "east"]).await;
        let name = tenant.name().to_owned();
        fleet.hub().apply([class(&name)]).await.unwrap();
        tenant
            .submit(tenant.job("urgent").pod_field("priorityClassName", json!(name)).run_forever())
            .await
            .unwrap();
        let why = |cluster: &str| {
            format!(
                "{cluster}: this cluster would refuse its pods: no PriorityClass with name {name} was found"
            )
        };
        refused(fleet, &tenant, "urgent", &[&why("west"), &why("east")], &["west", "east"]).await;
        // It is refused for ever longer: after 10 s, 20 s and 40 s. Once the class is there, its user need not wait.
        tokio::time::sleep(Duration::from_secs(35)).await;
        fleet.worker("west").apply([class(&name)]).await.unwrap();
        // The API server takes a moment to admit pods of a new class.
        eventually(SOON, "west to accept a pod of the class", async || {
            create_dry(fleet.worker("west"), &name, &json!({"priorityClassName": name})).await
        })
        .await
        .unwrap();
        // The agent repeats an earlier refusal for two seconds.
        tokio::time::sleep(Duration::from_secs(3)).await;
        let args = move_job::Args {
            job: "urgent".to_owned(),
            to: "west".to_owned(),
            namespace: None,
            dry_run: false,
            wait: false,
            timeout: std::time::Duration::from_secs(1),
            output: Output::Json,
        };
        move_job::run(fleet.hub().admin.clone(), tenant.name(), &args).await.unwrap();
        eventually(AT_ONCE, "a pod on west", async || {
            ensure!(
                fleet.pods("west", tenant.name()).await? == 1,
                "{}",
                tenant.status("urgent").await?.reason
            );
            Ok(())
        })
        .await
        .unwrap();
    });
}

#[test]
fn pod_security_and_quota_refuse_before_a_job_is_sent() {
    fixture::run(async {
        let fleet = fleet().await;
        let west = fleet.worker("west");
        let strict = tenant(fleet, "strict", &["west"]).await;
        let labels = json!({"pod-security.kubernetes.io/enforce": "restricted"});
        let namespace = json!({"name": strict.name(), "labels": labels});
        west.apply([json!({"apiVersion": "v1", "kind": "Namespace", "metadata": namespace})])
            .await
            .unwrap();
        await_refusal(west, strict.name(), "violates PodSecurity").await;
        strict.submit(strict.job("root").run_forever()).await.unwrap();
        refused(
            fleet,
            &strict,
            "root",
            &["west: this cluster would refuse its pods: violates PodSecurity"],
            &["west"],
        )
        .await;

        let full = tenant(fleet, "full", &["west", "east"]).await;
        let metadata = json!({"name": "none", "namespace": full.name()});
        let quota = json!({
            "apiVersion": "v1", "kind": "ResourceQuota", "metadata": metadata, "spec": {"hard": {"requests.cpu": "1m"}},
        });
        west.apply([quota]).await.unwrap();
        // The controller that would count what is used does not run here.
        let quotas: Api<ResourceQuota> = Api::namespaced(west.admin.clone(), full.name());
        let status =
            json!({"status": {"hard": {"requests.cpu": "1m"}, "used": {"requests.cpu": "0"}}});
        quotas.patch_status("none", &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
        await_refusal(west, full.name(), "exceeded quota").await;
        full.submit(full.job("elsewhere").cpu("1").run_forever()).await.unwrap();
        await_pods(fleet, &full, "east", 1).await;
        assert_eq!(fleet.pods("west", full.name()).await.unwrap(), 0);
    });
}

#[test]
fn kubeconfig_worker_is_tried_by_the_hub() {
    fixture::run(async {
        let fleet = fleet().await;
        let tenant = tenant(fleet, "remote", &["south"]).await;
        tenant
            .submit(
                tenant.job("robot").pod_field("serviceAccountName", json!("robot")).run_forever(),
            )
            .await
            .unwrap();
        let words = "south: this cluster would refuse its pods: error looking up service account";
        refused(fleet, &tenant, "robot", &[words], &["south"]).await;
        fleet.worker("south").apply([account(&tenant, "robot")]).await.unwrap();
        await_pods(fleet, &tenant, "south", 1).await;
    });
}

#[test]
fn references_are_looked_up_where_the_agent_may_read_them() {
    fixture::run(async {
        let fleet = fleet().await;
        let (west, tenant) = (fleet.worker("west"), tenant(fleet, "references", &["west"]).await);
        let of = |name: &str| json!({"name": name, "namespace": tenant.name()});
        let group = "rbac.authorization.k8s.io";
        let rule = json!({"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]});
        let role = json!({
            "apiVersion": format!("{group}/v1"), "kind": "Role", "metadata": of("references"), "rules": [rule],
        });
        let agent =
            json!({"kind": "ServiceAccount", "name": "switchyard-agent", "namespace": NAMESPACE});
        let binding = json!({
            "apiVersion": format!("{group}/v1"), "kind": "RoleBinding", "metadata": of("references"),
            "roleRef": {"apiGroup": group, "kind": "Role", "name": "references"}, "subjects": [agent],
        });
        west.apply([role, binding]).await.unwrap();
        // The API server takes a moment to know a role.
        let review = json!({
            "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "metadata": {},
            "spec": {
                "user": format!("system:serviceaccount:{NAMESPACE}:switchyard-agent"),
                "resourceAttributes": {
                    "namespace": tenant.name(), "verb": "get", "resource": "configmaps",
                },
            },
        });
        let review: SubjectAccessReview = serde_json::from_value(review).unwrap();
        let reviews: Api<SubjectAccessReview> = Api::all(west.admin.clone());
        eventually(SOON, "the agent to be allowed", async || {
            let answer = reviews.create(&PostParams::default(), &review).await?;
            ensure!(answer.status.as_ref().is_some_and(|it| it.allowed), "{:?}", answer.status);
            Ok(())
        })
        .await
        .unwrap();
        let volume = |kind: Value| json!([{"name": "v", "configMap": kind}]);
        let needs = tenant.job("needs").pod_field("volumes", volume(json!({"name": "settings"})));
        tenant.submit(needs.run_forever()).await.unwrap();
        let words = "west: this cluster would not start its pods: ConfigMap \"settings\" not found";
        refused(fleet, &tenant, "needs", &[words], &["west"]).await;
        let settings = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": of("settings")});
        west.apply([settings]).await.unwrap();
        await_pods(fleet, &tenant, "west", 1).await;

        // Secrets it may not read, and what is optional need not be there.
        let secret = json!([{"name": "v", "secret": {"secretName": "none"}}]);
        tenant
            .submit(tenant.job("secret").pod_field("volumes", secret).run_forever())
            .await
            .unwrap();
        let spare = volume(json!({"name": "none", "optional": true}));
        tenant.submit(tenant.job("spare").pod_field("volumes", spare).run_forever()).await.unwrap();
        await_pods(fleet, &tenant, "west", 3).await;
    });
}

/// Dry runs that an agent has counted.
async fn counted(fleet: &Fleet, agent: &str) -> anyhow::Result<u64> {
    let port = *fleet.metrics_ports().get(agent).context("no metrics")?;
    let page = http::get(port, "/metrics").await?;
    let counts = page.lines().filter(|line| line.starts_with("switchyard_dry_runs_total{"));
    counts.map(|line| Ok(line.rsplit(' ').next().unwrap_or_default().parse::<u64>()?)).sum()
}

#[test]
fn equal_jobs_share_one_dry_run() {
    fixture::run(async {
        const JOBS: usize = 100;
        let fleet = fleet().await;
        let tenant = fleet
            .tenant("many")
            .hub(&[("cpu", "10")])
            .worker("west", &[("cpu", "10")])
            .make()
            .await
            .unwrap();
        let before = counted(fleet, "west").await.unwrap();
        let jobs: Vec<String> = (0..JOBS).map(|index| format!("job-{index}")).collect();
        for job in &jobs {
            tenant.submit(tenant.job(job).cpu("100m").run_forever()).await.unwrap();
        }
        await_pods(fleet, &tenant, "west", JOBS).await;
        let run = counted(fleet, "west").await.unwrap() - before;
        println!("{run} dry runs for {JOBS} jobs");
        // Tests beside this one have some of their own.
        assert!((1..=20).contains(&run), "{run}");
    });
}
