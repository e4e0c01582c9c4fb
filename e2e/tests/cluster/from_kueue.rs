//! Before a takeover from stock Kueue: what `switchyard migrate preflight` finds, and the defaults that both share.

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

use anyhow::ensure;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, Patch, PatchParams};
use serde_json::{Value, json};
use switchyard_config::gates;
use switchyard_e2e::wait::eventually;
use switchyard_e2e::{
    Cluster, ClusterSpec, Environment, JobBuilder, NodeSpec, Part, Parts, fixture, job, queues,
};

use crate::common::kueue_chart::{self, DEPLOYMENT, NAMESPACE};
use crate::common::shell::Shell;
use crate::takeover::start_kueue;

/// Longer than anything here takes on a busy machine.
const WAIT: Duration = Duration::from_secs(120);

#[test]
fn preflight_names_what_a_takeover_from_kueue_would_lose() {
    fixture::run(async {
        let spec = ClusterSpec::new("one").node(NodeSpec::new("node").cpu(8));
        let environment = Environment::builder("from-kueue").cluster(spec).start().await.unwrap();
        let cluster = environment.cluster("one");
        let shell = Shell::new(&[cluster]).await;
        kueue_chart::install(&shell, "");
        let _kueue = start_kueue(cluster).await;
        let namespace = cluster.namespace("team").await.unwrap();
        // The API server takes a moment to reach the webhooks of a Kueue that has just started.
        eventually(WAIT, "the queue to be accepted", async || {
            cluster.apply(queues::simple(&namespace, "main", &[("cpu", "1")])).await
        })
        .await
        .unwrap();
        let job = |name| JobBuilder::new(&namespace, name).queue("queue").cpu("1").run_forever();
        job("first").create(&cluster.admin).await.unwrap();
        job::suspended(&cluster.admin, &namespace, "first", WAIT, false).await.unwrap();
        job("second").create(&cluster.admin).await.unwrap();

        of_the_same_version(&shell).await;
        of_a_later_version(cluster, &shell).await;
    });
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

/// Stock Kueue v0.19.2 may be taken over.
async fn of_the_same_version(shell: &Shell) {
    eventually(WAIT, "the report to have both jobs", async || {
        let (report, _) = preflight(shell);
        ensure!((&report["running"], &report["waiting"]) == (&1.into(), &1.into()), "{report:#}");
        Ok(())
    })
    .await
    .unwrap();
    let (report, code) = preflight(shell);
    assert_eq!((code, &report["isRefused"]), (0, &false.into()), "{report:#}");
    assert_eq!(report["kueue"], "v0.19.2");
    assert_eq!(found(&report, "notSupported"), [""; 0], "{report:#}");
    for subject in ["Kueue ", "Workload ", "ClusterQueue ", "LocalQueue "] {
        assert!(found(&report, "same").contains(&subject.to_owned()), "{subject}: {report:#}");
    }
}

/// A kind, a value and a version of Kueue 0.20: each is named, and refused where jobs would suffer.
async fn of_a_later_version(cluster: &Cluster, shell: &Shell) {
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
