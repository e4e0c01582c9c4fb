//! Kueue's own plugin of kubectl against single mode: every command, and what becomes of it.

use std::path::PathBuf;
use std::process::{Command, Output};
use std::sync::Arc;
use std::time::Duration;

use crate::visible::{NAMESPACE, lead, listener};
use anyhow::ensure;
use jiff::Timestamp;
use k8s_openapi::api::batch::v1::Job;
use kube::Api;
use kube::api::ListParams;
use serde_json::{Value, json};
use switchyard_api::v1beta2::Workload;
use switchyard_config::Configuration;
use switchyard_controller::webhook::{Advertise, WebhookOptions};
use switchyard_controller::{Handle, Options};
use switchyard_e2e::{
    Cluster, ClusterSpec, Environment, JobBuilder, NodeSpec, Part, Parts, fixture, job, wait,
};

/// Longer than anything here takes on a busy machine.
const WAIT: Duration = Duration::from_secs(120);

/// A controller with webhooks and the visibility API.
async fn controller(cluster: &Cluster) -> Handle {
    cluster.install().await.unwrap();
    let (client, _) = cluster.service_account(NAMESPACE, "switchyard").await.unwrap();
    let mut options = Options::new(client, Arc::new(Configuration::default()), "one", NAMESPACE);
    let ((visibility, at), (webhooks, port)) = (listener(), listener());
    options.visibility = Some(visibility.into());
    options.webhook =
        Some(WebhookOptions::new(webhooks, Advertise::Url(format!("https://127.0.0.1:{port}"))));
    let handle = switchyard_controller::start(options).unwrap();
    handle.ready(WAIT).await.unwrap();
    lead(cluster, at).await;
    handle
}

/// `kubectl kueue` as a user with every right in one namespace.
struct Plugin<'a> {
    cluster: &'a Cluster,
    namespace: String,
    program: PathBuf,
    path: String,
    home: tempfile::TempDir,
}

impl<'a> Plugin<'a> {
    async fn new(cluster: &'a Cluster) -> Self {
        let build = || {
            let parts = Parts::new().unwrap();
            (parts.binary(Part::KubectlKueue).unwrap(), parts.binary(Part::Kubectl).unwrap())
        };
        let (program, kubectl) = tokio::task::spawn_blocking(build).await.unwrap();
        let path = format!("{}:/usr/bin:/bin", kubectl.parent().unwrap().display());
        let namespace = cluster.namespace("kueuectl").await.unwrap();
        Self { cluster, namespace, program, path, home: tempfile::tempdir().unwrap() }
    }

    async fn run(&self, line: &str) -> Output {
        let mut command = Command::new(&self.program);
        command.env_clear().env("KUBECONFIG", self.cluster.kubeconfig()).env("PATH", &self.path);
        // An editor that changes nothing.
        command.env("HOME", self.home.path()).env("KUBE_EDITOR", "true");
        command.args(line.split(' ')).args(["-n", &self.namespace]);
        tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap()
    }

    /// Its output in words; it must succeed.
    async fn ok(&self, line: &str) -> String {
        let output = self.run(line).await;
        assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// Its message when it fails.
    async fn fails(&self, line: &str) -> String {
        let output = self.run(line).await;
        assert!(!output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stdout));
        String::from_utf8(output.stderr).unwrap()
    }

    /// Waits until it prints a line with these words in this order.
    async fn shows(&self, line: &str, words: &[&str]) {
        let check = async || {
            let output = self.run(line).await;
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            let in_order = |row: &str| {
                let mut cells = row.split_whitespace();
                words.iter().all(|word| cells.any(|cell| cell == *word))
            };
            ensure!(
                text.lines().any(in_order),
                "{text}{}",
                String::from_utf8_lossy(&output.stderr)
            );
            Ok(())
        };
        wait::eventually(WAIT, format!("`{line}` to show {words:?}"), check).await.unwrap();
    }

    async fn spec(&self, kind: &str, name: &str) -> Value {
        let api =
            self.cluster.dynamic("kueue.x-k8s.io/v1beta2", kind, &self.namespace).await.unwrap();
        api.get(name).await.unwrap().data["spec"].clone()
    }

    /// Waits until a Workload does not count any more after the plugin deleted its Job. The plugin asks
    /// for no cascade, and for Jobs the API server's default is to orphan. If the garbage collector
    /// knows the Workload already, the Workload stays without an owner and is finished.
    async fn ended_with_its_job(&self, name: &str) {
        let api: Api<Workload> = Api::namespaced(self.cluster.admin.clone(), &self.namespace);
        let check = async || {
            let Some(workload) = api.get_opt(name).await? else { return Ok(()) };
            let conditions = workload.status.unwrap_or_default().conditions;
            let finished = conditions.iter().find(|condition| condition.type_ == "Finished");
            let reason = finished.map(|condition| condition.reason.as_str());
            ensure!(reason == Some("OwnerNotFound"), "{conditions:?}");
            ensure!(workload.metadata.owner_references.is_none(), "it has an owner");
            Ok(())
        };
        wait::eventually(WAIT, format!("Workload {name} to end"), check).await.unwrap();
    }

    async fn gone(&self, kind: &str, name: &str) {
        let api =
            self.cluster.dynamic("kueue.x-k8s.io/v1beta2", kind, &self.namespace).await.unwrap();
        let check = async || {
            ensure!(api.get_opt(name).await?.is_none(), "it is there");
            Ok(())
        };
        wait::eventually(WAIT, format!("{kind} {name} to be gone"), check).await.unwrap();
    }

    async fn submit(&self, name: &str, cpu: &str) {
        let job = JobBuilder::new(&self.namespace, name)
            .queue("lq")
            .cpu(cpu)
            .request("memory", "1Gi")
            .run_forever();
        job.create(&self.cluster.admin).await.unwrap();
    }

    async fn suspended(&self, name: &str, suspended: bool) {
        job::suspended(&self.cluster.admin, &self.namespace, name, WAIT, suspended).await.unwrap();
    }

    /// The name of a job's Workload.
    async fn workload(&self, job: &str) -> String {
        let api: Api<Workload> = Api::namespaced(self.cluster.admin.clone(), &self.namespace);
        let check = async || {
            let of_job = |it: &Workload| {
                it.metadata.owner_references.iter().flatten().any(|owner| owner.name == job)
            };
            let found = api.list(&ListParams::default()).await?.items.into_iter().find(of_job);
            found.and_then(|it| it.metadata.name).ok_or_else(|| anyhow::anyhow!("none"))
        };
        wait::eventually(WAIT, format!("the Workload of {job}"), check).await.unwrap()
    }
}

async fn creates(plugin: &Plugin<'_>) {
    let said = plugin.ok("create resourceflavor plain").await;
    assert_eq!(said.trim(), "resourceflavor.kueue.x-k8s.io/plain created");
    let taints = "--node-taints=spot=true:NoSchedule --tolerations=spot=true:NoSchedule";
    plugin.ok(&format!("create rf spot --node-labels=pool=spot {taints}")).await;
    let spot = plugin.spec("ResourceFlavor", "spot").await;
    assert_eq!(spot["nodeLabels"], json!({"pool": "spot"}));
    assert_eq!(spot["nodeTaints"][0]["key"], "spot");
    assert_eq!(spot["tolerations"][0]["key"], "spot");

    let limits = "--borrowing-limit plain:cpu=1;memory=1Gi --lending-limit plain:cpu=1;memory=1Gi";
    let create = format!(
        "create clusterqueue cq --cohort team --queuing-strategy StrictFIFO --reclaim-within-cohort Any \
         --preemption-within-cluster-queue LowerPriority --nominal-quota plain:cpu=2;memory=8Gi {limits}"
    );
    for dry in ["server", "client"] {
        plugin.ok(&format!("{create} --dry-run={dry}")).await;
        plugin.gone("ClusterQueue", "cq").await;
    }
    plugin.ok(&create).await;
    let queue = plugin.spec("ClusterQueue", "cq").await;
    assert_eq!(
        (&queue["cohortName"], &queue["queueingStrategy"]),
        (&json!("team"), &json!("StrictFIFO"))
    );
    let preemption = &queue["preemption"];
    assert_eq!(preemption["reclaimWithinCohort"], "Any");
    assert_eq!(preemption["withinClusterQueue"], "LowerPriority");
    let cpu = &queue["resourceGroups"][0]["flavors"][0]["resources"][0];
    assert_eq!(
        (&cpu["nominalQuota"], &cpu["borrowingLimit"], &cpu["lendingLimit"]),
        (&json!("2"), &json!("1"), &json!("1"))
    );
    let refused = plugin.fails("create clusterqueue Not_A_Name").await;
    assert!(refused.contains("Not_A_Name"), "{refused}");

    plugin.ok("create clusterqueue narrow --namespace-selector team=a,tier=b").await;
    let selector = &plugin.spec("ClusterQueue", "narrow").await["namespaceSelector"];
    assert_eq!(*selector, json!({"matchLabels": {"team": "a", "tier": "b"}}));
    plugin.ok("delete clusterqueue narrow").await;

    plugin.ok("create localqueue lq -c cq").await;
    assert_eq!(plugin.spec("LocalQueue", "lq").await["clusterQueue"], "cq");
    let refused = plugin.fails("create localqueue other -c none").await;
    assert!(refused.contains("\"none\" not found"), "{refused}");
    plugin.ok("create lq other -c none -i").await;
}

async fn lists(plugin: &Plugin<'_>) {
    plugin.submit("first", "2").await;
    plugin.suspended("first", false).await;
    // Workloads created in the same second are ordered by their uid.
    let second = Timestamp::now().as_second();
    let next = async || {
        ensure!(Timestamp::now().as_second() > second, "it is the same");
        Ok(())
    };
    wait::eventually(WAIT, "the next second", next).await.unwrap();
    plugin.submit("second", "2").await;
    let (first, second) = (plugin.workload("first").await, plugin.workload("second").await);
    plugin.shows("list clusterqueue", &["cq", "team", "1", "1", "true"]).await;
    plugin.shows("list cq --active=true", &["cq"]).await;
    plugin.shows("list localqueue", &["lq", "cq", "1", "1"]).await;
    plugin.shows("list localqueue -c none", &["other", "none"]).await;
    plugin.shows("list resourceflavor", &["spot", "pool=spot"]).await;
    plugin.shows("list workload", &[&first, "job", "first", "lq", "cq", "ADMITTED"]).await;
    plugin.shows("list workload", &[&second, "job", "second", "lq", "cq", "PENDING", "0"]).await;
    for (line, there, not) in [
        ("list workload --status pending", second.as_str(), first.as_str()),
        ("list workload --status admitted", &first, &second),
        ("list workload --for job/first", &first, &second),
        ("list workload --status all", &first, "\0"),
        ("list workload --status all", &second, "\0"),
        ("list workload -A", &second, "\0"),
        ("list workload -o yaml", &first, "ADMITTED"),
        ("list localqueue -A", "lq", "\0"),
        ("list localqueue -o json", "\"LocalQueue\"", "\0"),
    ] {
        let text = plugin.ok(line).await;
        assert!(text.contains(there) && !text.contains(not), "{line}: {text}");
    }
    for line in [
        "list workload --status finished",
        "list workload -l no=such",
        "list clusterqueue -l no=such",
    ] {
        let text = plugin.ok(line).await;
        assert!(!text.contains(&first) && !text.contains("team"), "{line}: {text}");
    }
    assert!(plugin.ok(&format!("get workload {first}")).await.contains(&first));
    assert!(
        plugin
            .ok(&format!("describe workload {first}"))
            .await
            .contains("Quota reserved in ClusterQueue cq")
    );
    let text = plugin.run(&format!("edit workload {first}")).await;
    assert!(String::from_utf8_lossy(&text.stderr).contains("no changes made"), "{text:?}");
    plugin
        .ok(&format!(
            r#"patch workload {first} --type=merge -p {{"metadata":{{"labels":{{"a":"b"}}}}}}"#
        ))
        .await;
    plugin.shows("list workload -l a=b", &[&first]).await;
    plugin
        .shows(&format!("list workload -q lq --field-selector metadata.name={second}"), &[&second])
        .await;
    plugin.shows("list workload -c cq", &[&first]).await;
    let pods = async || {
        let text = String::from_utf8_lossy(&plugin.run("list pods --for job/first").await.stdout)
            .into_owned();
        ensure!(text.lines().any(|line| line.starts_with("first-")), "{text}");
        Ok(())
    };
    wait::eventually(WAIT, "the pods of the job to be listed", pods).await.unwrap();
    assert_eq!(plugin.ok("list pods --for job/second").await.trim(), "");
}

async fn stops_and_resumes(plugin: &Plugin<'_>) {
    let first = plugin.workload("first").await;
    plugin.ok(&format!("stop workload {first}")).await;
    plugin.suspended("first", true).await;
    plugin.suspended("second", false).await;
    plugin.ok(&format!("resume workload {first}")).await;
    plugin.shows("list workload --status pending", &[&first, "PENDING"]).await;

    plugin.ok("stop localqueue lq --keep-already-running").await;
    assert_eq!(plugin.spec("LocalQueue", "lq").await["stopPolicy"], "Hold");
    plugin.shows("list clusterqueue", &["cq", "true"]).await;
    plugin.suspended("second", false).await;
    plugin.ok("resume localqueue lq").await;
    assert_eq!(plugin.spec("LocalQueue", "lq").await["stopPolicy"], "None");

    plugin.ok("stop clusterqueue cq --keep-already-running").await;
    assert_eq!(plugin.spec("ClusterQueue", "cq").await["stopPolicy"], "Hold");
    plugin.suspended("second", false).await;
    plugin.ok("resume clusterqueue cq").await;
    plugin.ok("stop clusterqueue cq").await;
    assert_eq!(plugin.spec("ClusterQueue", "cq").await["stopPolicy"], "HoldAndDrain");
    plugin.suspended("second", true).await;
    plugin.shows("list clusterqueue", &["cq", "false"]).await;
    plugin.ok("resume cq cq").await;
    plugin.suspended("first", false).await;
}

async fn deletes(plugin: &Plugin<'_>) {
    let first = plugin.workload("first").await;
    let text = plugin.ok(&format!("delete workload {first} --dry-run=client")).await;
    assert!(text.contains("jobs.batch/first deleted (client dry run)"), "{text}");
    let text = plugin.ok(&format!("delete workload {first} --yes")).await;
    assert!(text.contains("jobs.batch/first deleted"), "{text}");
    plugin.ended_with_its_job(&first).await;
    plugin.suspended("second", false).await;
    plugin.ok("delete workload --all --yes").await;
    let jobs: Api<Job> = Api::namespaced(plugin.cluster.admin.clone(), &plugin.namespace);
    let none = async || {
        let left = jobs.list(&ListParams::default()).await?.items.len();
        ensure!(left == 0, "{left} jobs");
        Ok(())
    };
    wait::eventually(WAIT, "all jobs to be gone", none).await.unwrap();
}

/// Commands that kubectl performs, and commands without a server.
async fn passes_through(plugin: &Plugin<'_>) {
    for (verb, kind, name) in [
        ("get", "clusterqueue", "cq"),
        ("get", "lq", "lq"),
        ("get", "rf", "spot"),
        ("describe", "localqueue", "lq"),
    ] {
        let text = plugin.ok(&format!("{verb} {kind} {name}")).await;
        assert!(text.contains(name), "{verb} {kind}: {text}");
    }
    plugin.ok(r#"patch clusterqueue cq --type=merge -p {"spec":{"queueingStrategy":"BestEffortFIFO"}}"#).await;
    assert_eq!(plugin.spec("ClusterQueue", "cq").await["queueingStrategy"], "BestEffortFIFO");
    let text = plugin.run("edit localqueue lq").await;
    assert!(String::from_utf8_lossy(&text.stderr).contains("no changes made"), "{text:?}");
    for (kind, name, object) in [
        ("localqueue", "lq", "LocalQueue"),
        ("localqueue", "other", "LocalQueue"),
        ("clusterqueue", "cq", "ClusterQueue"),
        ("resourceflavor", "spot", "ResourceFlavor"),
    ] {
        plugin.ok(&format!("delete {kind} {name}")).await;
        plugin.gone(object, name).await;
    }
    assert!(plugin.ok("version").await.starts_with("Client Version: "));
    assert!(plugin.ok("completion bash").await.contains("bash completion"));
}

#[test]
fn kueues_plugin_of_kubectl_works() {
    fixture::run(async {
        let one = ClusterSpec::new("one").node(NodeSpec::new("n").cpu(16));
        let environment = Environment::builder("kueuectl").cluster(one).start().await.unwrap();
        let cluster = environment.cluster("one");
        let handle = controller(cluster).await;
        let plugin = Plugin::new(cluster).await;
        creates(&plugin).await;
        lists(&plugin).await;
        stops_and_resumes(&plugin).await;
        deletes(&plugin).await;
        passes_through(&plugin).await;
        handle.shutdown();
        handle.ended().await.unwrap();
    });
}
