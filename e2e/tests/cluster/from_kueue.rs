//! Takes over a live cluster from stock Kueue, and gives it back, by the commands of `docs/migrate.md` as they stand there.
//! Checks the defaults that both must share for it.

use std::collections::BTreeMap;
use std::fs;
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
use switchyard_e2e::stock::{Kueue, NAMESPACE};
use switchyard_e2e::wait::eventually;
use switchyard_e2e::{
    Cluster, ClusterSpec, Environment, JobBuilder, NodeSpec, Part, Parts, fixture, job, queues,
};

use crate::common::kueue_chart::{self, DEPLOYMENT, IMAGE};
use crate::common::shell::{self, Shell};
use crate::takeover::start_kueue;

/// Longer than anything here takes on a busy machine.
const WAIT: Duration = Duration::from_secs(120);
/// The page with the commands, and their heading.
const PAGE: &str = "docs/migrate.md";
const HEADING: &str = "## With Helm";
const BACK: &str = "### Back with Helm";
const SCALE_UP: &str =
    "kubectl -n kueue-system scale deployment kueue-controller-manager --replicas=1";

/// The commands under a heading, one after the other. Nothing pulls images here.
fn commands(heading: &str) -> Vec<String> {
    shell::commands(PAGE, heading)
        .into_iter()
        .map(|line| line.replace("REGISTRY", "registry.example").replace("NAME...", "main"))
        .map(|line| kueue_chart::from_module(&line))
        .collect()
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
        let shell = Shell::new(&[cluster]).await;
        kueue_chart::install(&shell);
        let kueue = start_kueue(cluster).await;
        let namespace = cluster.namespace("team").await.unwrap();
        cluster.apply(queues::simple(&namespace, "main", &[("cpu", "1")])).await.unwrap();
        let site = Site { cluster, shell, namespace };
        site.create("first").await;
        let pod = site.pod("first").await;
        site.create("second").await;

        preflight_sees_what_is_lost(cluster, &site.shell).await;
        let ours = site.takeover(kueue).await;
        assert_eq!(site.pod("first").await, pod, "it was not restarted");
        let second = site.next_starts("first", "second").await;

        site.create("third").await;
        let _kueue = site.back(ours).await;
        assert_eq!(site.pod("second").await, second, "it was not restarted");
        site.next_starts("second", "third").await;
    });
}

/// The cluster with its jobs of one CPU each, of which one fits.
struct Site<'a> {
    cluster: &'a Cluster,
    shell: Shell,
    namespace: String,
}

impl Site<'_> {
    async fn create(&self, name: &str) {
        let job = JobBuilder::new(&self.namespace, name).queue("queue").cpu("1").run_forever();
        job.create(&self.cluster.admin).await.unwrap();
    }

    async fn pod(&self, job: &str) -> Option<String> {
        pod_of(self.cluster, &self.namespace, job).await
    }

    async fn waits(&self, job: &str) {
        let waits = job::suspended(&self.cluster.admin, &self.namespace, job, WAIT, true).await;
        assert!(waits.is_ok(), "no quota is free");
    }

    /// The next job waits until the running one is deleted. Returns its pod.
    async fn next_starts(&self, running: &str, next: &str) -> Option<String> {
        self.waits(next).await;
        let jobs: Api<Job> = Api::namespaced(self.cluster.admin.clone(), &self.namespace);
        jobs.delete(running, &DeleteParams::background()).await.unwrap();
        self.pod(next).await
    }

    /// The replicas of Kueue and of Switchyard; -1 without a Deployment.
    async fn replicas(&self) -> [i32; 2] {
        let of = async |namespace, name| {
            let deployments: Api<Deployment> =
                Api::namespaced(self.cluster.admin.clone(), namespace);
            let found = deployments.get_opt(name).await.unwrap();
            found.map_or(-1, |it| it.spec.unwrap().replicas.unwrap())
        };
        [of(NAMESPACE, DEPLOYMENT).await, of("switchyard-system", "switchyard").await]
    }

    /// The number of objects with this word in their name.
    fn count(&self, kind: &str, word: &str) -> usize {
        let all = self.shell.run(&format!("kubectl get {kind} -o name"));
        all.lines().filter(|line| line.contains(word)).count()
    }

    /// The commands with Helm. Before the installation, each is aborted once.
    async fn takeover(&self, kueue: Kueue) -> Single {
        let shell = &self.shell;
        let commands = commands(HEADING);
        let [config, stop, unhook, install, see] = &commands[..] else {
            panic!("five commands: {commands:#?}")
        };
        shell.run(config);
        shell.run(stop);
        assert_eq!(self.replicas().await, [0, -1]);
        shell.run(shell::in_text(PAGE, SCALE_UP));
        assert_eq!(self.replicas().await, [1, -1]);

        let stopped = async |kueue: Kueue| {
            shell.run(stop);
            kueue.stop().await;
            kueue_chart::converts_behind_a_service(self.cluster).await;
            let deleted = shell.run(unhook);
            assert_eq!(deleted.lines().count(), 4, "configurations and APIServices");
        };
        stopped(kueue).await;
        shell.run(&self::commands(BACK)[5]);
        assert_eq!(self.replicas().await, [1, -1]);
        assert_eq!(self.count("validatingwebhookconfiguration", "kueue"), 1);
        let kueue = start_kueue(self.cluster).await;
        self.waits("second").await;

        stopped(kueue).await;
        shell.run(install);
        assert_eq!(self.replicas().await, [0, 2]);
        assert!(configured(self.cluster).await.contains("batch/job"), "the file of Kueue");
        assert_eq!(self.count("apiservice", "visibility.kueue"), 2);

        let ours = Single::start(self.cluster).await.unwrap();
        eventually(WAIT, "both jobs in the status", async || {
            let said = shell.run(see);
            ensure!(said.contains("first") && said.contains("second"), "{said}");
            Ok(())
        })
        .await
        .unwrap();
        ours
    }

    /// The way back with Helm.
    async fn back(&self, ours: Single) -> Kueue {
        let shell = &self.shell;
        let commands = commands(BACK);
        let [stop, uninstall, convert, hand_back, hold, start, held, open] = &commands[..] else {
            panic!("eight commands: {commands:#?}")
        };
        shell.run(stop);
        assert_eq!(self.replicas().await, [0, 0]);
        assert_eq!(ours.stop().await, Some(0));
        shell.run(uninstall);
        assert_eq!(self.count("mutatingwebhookconfiguration", ""), 0);
        assert_eq!(self.count("apiservice", "visibility.kueue"), 0);
        assert_eq!(self.count("crd", "kueue.x-k8s.io"), 11, "Helm keeps them");
        for command in [convert, hand_back, hold, start] {
            shell.run(command);
        }
        assert_eq!(self.replicas().await, [1, -1]);
        let owner = "{.metadata.annotations.meta\\.helm\\.sh/release-name}";
        let crd = "kubectl get crd workloads.kueue.x-k8s.io";
        assert_eq!(shell.run(&format!("{crd} -o jsonpath='{owner}'")), "kueue");
        let fields = shell.run(&format!("{crd} -o yaml | grep -c 'Not part of Kueue' || true"));
        assert_eq!(fields.trim(), "0", "the fields of Switchyard are gone");
        let kueue = start_kueue(self.cluster).await;
        shell.run(held);
        shell.run(open);
        kueue
    }
}

/// The report of `switchyard migrate preflight`, and its exit code.
fn preflight(shell: &Shell) -> (Value, i32) {
    let code = "switchyard migrate preflight -o json > report; echo $?";
    let code = shell.run(code).trim().parse().unwrap();
    (serde_json::from_str(&shell.run("cat report")).unwrap(), code)
}

/// The findings with an effect, as `subject field`.
fn found(report: &Value, effect: &str) -> Vec<String> {
    let findings = report["findings"].as_array().unwrap();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let of_effect = findings.iter().filter(|finding| finding["effect"] == effect);
    of_effect.map(|it| format!("{} {}", text(&it["subject"]), text(&it["field"]))).collect()
}

/// Stock Kueue may be taken over; what Kueue 0.20 adds is named, and refused where jobs would suffer.
async fn preflight_sees_what_is_lost(cluster: &Cluster, shell: &Shell) {
    let (report, code) = preflight(shell);
    assert_eq!((code, &report["isRefused"]), (0, &false.into()), "{report:#}");
    assert_eq!(report["kueue"], "v0.19.2");
    assert_eq!((&report["running"], &report["waiting"]), (&1.into(), &1.into()), "{report:#}");
    assert_eq!(found(&report, "notSupported"), [""; 0], "{report:#}");
    for subject in ["Kueue ", "Workload ", "ClusterQueue ", "LocalQueue "] {
        assert!(found(&report, "same").contains(&subject.to_owned()), "{subject}: {report:#}");
    }

    // A kind, a value and a version of Kueue 0.20.
    let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    let names = json!({"kind": "PreemptionConfig", "plural": "preemptionconfigs", "singular": "preemptionconfig"});
    let crd = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "preemptionconfigs.kueue.x-k8s.io",
            "annotations": {"api-approved.kubernetes.io": "unapproved, for a test"}},
        "spec": {"group": "kueue.x-k8s.io", "scope": "Cluster", "names": names,
            "versions": [{"name": "v1alpha1", "served": true, "storage": true, "schema": schema}]},
    });
    cluster.apply([crd]).await.unwrap();
    let object = json!({"apiVersion": "kueue.x-k8s.io/v1alpha1", "kind": "PreemptionConfig", "metadata": {"name": "all"}});
    eventually(WAIT, "the CRD to be served", async || cluster.apply([object.clone()]).await)
        .await
        .unwrap();
    let crds: Api<CustomResourceDefinition> = Api::all(cluster.admin.clone());
    set_least_min_count(&crds, -1).await;
    let api: Api<switchyard_api::v1beta2::Workload> = Api::all(cluster.admin.clone());
    let template =
        json!({"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}});
    let workload = json!({
        "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload",
        "metadata": {"name": "below-zero", "namespace": "default"},
        "spec": {"queueName": "none", "podSets": [{"name": "main", "count": 1, "minCount": -1, "template": template}]},
    });
    eventually(WAIT, "a minimum below zero", async || cluster.apply([workload.clone()]).await)
        .await
        .unwrap();
    set_image(cluster, "registry.k8s.io/kueue/kueue:v0.20.0").await;
    let (report, code) = preflight(shell);
    assert_eq!((code, &report["isRefused"]), (2, &true.into()), "{report:#}");
    assert_eq!(found(&report, "refused"), ["Workload spec.podSets[].minCount"], "{report:#}");
    assert_eq!(found(&report, "notSupported"), ["PreemptionConfig "], "{report:#}");
    let findings = report["findings"].as_array().unwrap();
    let lost = findings.iter().find(|it| it["subject"] == "PreemptionConfig").unwrap();
    assert_eq!(lost["objects"], json!(["all"]), "{report:#}");
    let gate = "feature gate UnadmittedWorkloadsObservability".to_owned();
    assert!(found(&report, "differs").contains(&gate), "{report:#}");

    // As before.
    let in_default: Api<switchyard_api::v1beta2::Workload> =
        Api::namespaced(cluster.admin.clone(), "default");
    in_default.delete("below-zero", &DeleteParams::default()).await.unwrap();
    eventually(WAIT, "the Workload to be gone", async || {
        ensure!(api.list(&ListParams::default()).await?.items.len() == 2, "it is there");
        Ok(())
    })
    .await
    .unwrap();
    set_least_min_count(&crds, 1).await;
    crds.delete("preemptionconfigs.kueue.x-k8s.io", &DeleteParams::default()).await.unwrap();
    set_image(cluster, IMAGE).await;
}

/// Sets the least `minCount` that the CRD of Workloads allows, as a later release may lower it.
async fn set_least_min_count(crds: &Api<CustomResourceDefinition>, least: i64) {
    const NAME: &str = "workloads.kueue.x-k8s.io";
    let mut versions = json!(crds.get(NAME).await.unwrap().spec.versions);
    let minimum = "/schema/openAPIV3Schema/properties/spec/properties/podSets/items/properties/minCount/minimum";
    for version in versions.as_array_mut().unwrap() {
        *version.pointer_mut(minimum).unwrap() = json!(least);
    }
    let patch = Patch::Merge(json!({"spec": {"versions": versions}}));
    crds.patch(NAME, &PatchParams::default(), &patch).await.unwrap();
}

async fn set_image(cluster: &Cluster, image: &str) {
    let deployments: Api<Deployment> = Api::namespaced(cluster.admin.clone(), NAMESPACE);
    let container = json!({"name": "manager", "image": image});
    let patch = json!({"spec": {"template": {"spec": {"containers": [container]}}}});
    deployments.patch(DEPLOYMENT, &PatchParams::default(), &Patch::Strategic(patch)).await.unwrap();
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
    let of = job::pods_of(job);
    let pod = eventually(WAIT, format!("the pod of {job} to run"), async || {
        let pods = pods.list(&of).await?.items;
        let [pod] = &pods[..] else { anyhow::bail!("{} pods", pods.len()) };
        let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
        ensure!(phase == Some("Running"), "{phase:?}");
        Ok(pod.metadata.uid.clone())
    });
    pod.await.unwrap()
}
