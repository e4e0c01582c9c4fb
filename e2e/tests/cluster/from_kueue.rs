//! Takes over a live cluster from stock Kueue by the commands of `docs/migrate.md` as they stand there, and checks the defaults
//! that both must share for it.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::ensure;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams};
use serde_json::{Value, json};
use switchyard_config::gates;
use switchyard_e2e::single::Single;
use switchyard_e2e::stock::{Kueue, NAMESPACE, Options};
use switchyard_e2e::wait::eventually;
use switchyard_e2e::{
    Cluster, ClusterSpec, Environment, JobBuilder, NodeSpec, Part, Parts, fixture, job, paths,
    queues,
};

/// Longer than anything here takes on a busy machine.
const WAIT: Duration = Duration::from_secs(120);
/// The page with the commands, and their heading.
const PAGE: &str = "docs/migrate.md";
const HEADING: &str = "## With Helm";
/// The name in Kueue's manifests.
const DEPLOYMENT: &str = "kueue-controller-manager";

/// The commands under the heading, one after the other.
fn commands() -> Vec<String> {
    let page = fs::read_to_string(paths::root().join(PAGE)).unwrap();
    let (_, section) = page.split_once(&format!("{HEADING}\n")).expect("the heading");
    let section = section.split("\n## ").next().unwrap_or_default();
    let code =
        section.lines().filter_map(|line| line.strip_prefix("    ")).collect::<Vec<_>>().join("\n");
    // Nothing pulls images here.
    let code = code.replace("\\\n", "").replace("REGISTRY", "registry.example");
    code.lines().map(ToOwned::to_owned).collect()
}

/// A shell in the repository's root, for a user with every right on a cluster.
struct Shell<'a> {
    cluster: &'a Cluster,
    path: String,
    home: tempfile::TempDir,
}

impl<'a> Shell<'a> {
    async fn new(cluster: &'a Cluster) -> Self {
        let build = || {
            let parts = Parts::new().unwrap();
            [Part::Helm, Part::Kubectl].map(|part| parts.binary(part).unwrap())
        };
        let [helm, kubectl] = tokio::task::spawn_blocking(build).await.unwrap();
        let dirs = [helm, kubectl, paths::binary("switchyard").unwrap()].map(|program| {
            let dir: PathBuf = program.parent().unwrap().into();
            dir.display().to_string()
        });
        let home = tempfile::tempdir().unwrap();
        // Files of the commands must not be left in the repository.
        std::os::unix::fs::symlink(paths::root().join("deploy"), home.path().join("deploy"))
            .unwrap();
        Self { cluster, path: format!("{}:/usr/bin:/bin", dirs.join(":")), home }
    }

    /// The output of a command; it must succeed.
    fn run(&self, line: &str) -> String {
        let mut command = Command::new("sh");
        command.args(["-c", line]).current_dir(self.home.path()).env_clear();
        let output = command
            .env("PATH", &self.path)
            .env("HOME", self.home.path())
            .env("KUBECONFIG", self.cluster.kubeconfig())
            .output()
            .unwrap();
        assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
        let said = String::from_utf8(output.stdout).unwrap();
        println!("$ {line}\n{said}");
        said
    }
}

#[test]
fn commands_of_the_guide_take_over_a_cluster_from_kueue() {
    fixture::run(async {
        let nodes = [NodeSpec::new("node").cpu(8)];
        // Helm waits for the pods of the Deployment.
        let controllers =
            ["deployment-controller", "replicaset-controller", "endpointslice-controller"];
        let spec = controllers
            .into_iter()
            .fold(ClusterSpec::new("one").nodes(nodes), ClusterSpec::controller);
        let environment = Environment::builder("from-kueue").cluster(spec).start().await.unwrap();
        let cluster = environment.cluster("one");
        let kueue =
            Kueue::start(cluster, &Options { webhooks: true, ..Options::default() }).await.unwrap();
        installed(cluster).await;
        let namespace = cluster.namespace("team").await.unwrap();
        cluster.apply(queues::simple(&namespace, "main", &[("cpu", "1")])).await.unwrap();
        let job =
            |name: &str| JobBuilder::new(&namespace, name).queue("queue").cpu("1").run_forever();
        job("first").create(&cluster.admin).await.unwrap();
        let pod = pod_of(cluster, &namespace, "first").await;
        job("second").create(&cluster.admin).await.unwrap();

        let shell = Shell::new(cluster).await;
        let commands = commands();
        let [config, stop, unhook, install, see] = &commands[..] else {
            panic!("five commands: {commands:#?}")
        };
        shell.run(config);
        shell.run(stop);
        assert_eq!(replicas(cluster, NAMESPACE, DEPLOYMENT).await, 0);
        kueue.stop().await;
        converts_behind_a_service(cluster).await;
        assert_eq!(
            shell.run(unhook).lines().count(),
            2,
            "both configurations; there is no APIService here"
        );
        shell.run(install);
        assert_eq!(replicas(cluster, "switchyard-system", "switchyard").await, 2);
        assert!(configured(cluster).await.contains("batch/job"), "what Kueue was told");
        assert_eq!(
            shell.run("kubectl get apiservice -o name | grep visibility.kueue").lines().count(),
            2
        );

        let _ours = Single::start(cluster).await.unwrap();
        let status = eventually(WAIT, "both jobs in the status", async || {
            let said = shell.run(see);
            ensure!(said.contains("first") && said.contains("second"), "{said}");
            Ok(())
        });
        status.await.unwrap();
        assert_eq!(pod_of(cluster, &namespace, "first").await, pod, "it was not restarted");
        assert!(
            job::suspended(&cluster.admin, &namespace, "second", WAIT, true).await.is_ok(),
            "no quota is free"
        );
        let jobs: Api<Job> = Api::namespaced(cluster.admin.clone(), &namespace);
        jobs.delete("first", &DeleteParams::background()).await.unwrap();
        pod_of(cluster, &namespace, "second").await;
    });
}

/// The gates of its newest version, in its source: whether they are on, and their stage.
fn gates_of_kueue() -> BTreeMap<String, (bool, String)> {
    let source = Parts::new().unwrap().own_source_dir(Part::Kueue).unwrap();
    let text = fs::read_to_string(source.join("pkg/features/kube_features.go")).unwrap();
    let (mut gates, mut name) = (BTreeMap::new(), None);
    for line in text.lines() {
        if let Some(gate) = line.strip_prefix('\t').and_then(|line| line.strip_suffix(": {")) {
            name = Some(gate.to_owned());
        } else if let (Some(name), Some((_, spec))) = (&name, line.split_once("Default: ")) {
            let stage = spec
                .split_once("featuregate.")
                .map(|(_, stage)| stage.split([',', '}']).next().unwrap_or(stage));
            gates.insert(
                name.clone(),
                (spec.starts_with("true"), stage.unwrap_or_default().to_owned()),
            );
        }
    }
    gates
}

#[test]
fn feature_gates_are_as_they_are_in_kueue_where_nothing_is_said() {
    let kueue = gates_of_kueue();
    let ours: BTreeMap<_, _> = gates::names()
        .map(|name| (name.to_owned(), gates::default(name).unwrap_or_default()))
        .collect();
    assert!(kueue.len() > 80 && kueue.keys().eq(ours.keys()), "{:?}", (kueue.keys(), ours.keys()));
    let other: Vec<_> = ours
        .iter()
        .filter(|&(name, on)| kueue[name].0 != *on)
        .map(|(name, _)| name.as_str())
        .collect();
    // A path outside of the folder of kubeconfigs is refused whatever the gate says.
    assert_eq!(other, ["MultiKueueKubeConfigPathValidation"]);
    for (name, (_, stage)) in &kueue {
        let ours = gates::stage(name).unwrap();
        let same = match stage.as_str() {
            "Alpha" => ours == gates::Stage::Alpha,
            "Beta" => ours == gates::Stage::Beta,
            "GA" | "Deprecated" => ours == gates::Stage::Settled,
            other => panic!("{name} is of the stage {other:?}"),
        };
        assert!(same, "{name} is of {stage} there, and of {ours:?} here");
    }
}

/// The objects of Kueue's installation that the commands expect; Kueue itself is a process here.
async fn installed(cluster: &Cluster) {
    let labels = json!({"control-plane": "controller-manager"});
    let container = json!({"name": "manager", "image": "kueue"});
    let source = Parts::new().unwrap().own_source_dir(Part::Kueue).unwrap();
    let config =
        fs::read_to_string(source.join("config/components/manager/controller_manager_config.yaml"))
            .unwrap();
    let deployment = json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": DEPLOYMENT, "namespace": NAMESPACE},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
        },
    });
    let config = json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "kueue-manager-config", "namespace": NAMESPACE},
        "data": {"controller_manager_config.yaml": config},
    });
    cluster.apply([deployment, config]).await.unwrap();
}

/// Kueue's manifests have its conversion behind a Service, where no server answers once its pods are gone.
async fn converts_behind_a_service(cluster: &Cluster) {
    let crds: Api<CustomResourceDefinition> = Api::all(cluster.admin.clone());
    for crd in crds.list(&ListParams::default()).await.unwrap() {
        if crd.spec.conversion.as_ref().is_some_and(|conversion| conversion.webhook.is_some()) {
            let service = json!({"name": "kueue-webhook-service", "namespace": NAMESPACE, "path": "/convert"});
            let client: Value = json!({"url": null, "service": service});
            let patch = json!({"spec": {"conversion": {"webhook": {"clientConfig": client}}}});
            let name = crd.metadata.name.unwrap();
            crds.patch(&name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
        }
    }
}

async fn replicas(cluster: &Cluster, namespace: &str, name: &str) -> i32 {
    let deployments: Api<Deployment> = Api::namespaced(cluster.admin.clone(), namespace);
    deployments.get(name).await.unwrap().spec.unwrap().replicas.unwrap()
}

/// The configuration that the chart gives Switchyard.
async fn configured(cluster: &Cluster) -> String {
    let maps: Api<ConfigMap> = Api::namespaced(cluster.admin.clone(), "switchyard-system");
    let text = maps.get("switchyard-config").await.unwrap().data.unwrap()["controller_manager_config.yaml"].clone();
    switchyard_config::load(&text).unwrap();
    text
}

/// The uid of a job's only pod, once it runs.
async fn pod_of(cluster: &Cluster, namespace: &str, job: &str) -> Option<String> {
    let pods: Api<Pod> = Api::namespaced(cluster.admin.clone(), namespace);
    let of = ListParams::default().labels(&format!("batch.kubernetes.io/job-name={job}"));
    let pod = eventually(WAIT, format!("the pod of {job} to run"), async || {
        let pods = pods.list(&of).await?.items;
        let [pod] = &pods[..] else { anyhow::bail!("{} pods", pods.len()) };
        let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
        ensure!(phase == Some("Running"), "{phase:?}");
        Ok(pod.metadata.uid.clone())
    });
    pod.await.unwrap()
}
