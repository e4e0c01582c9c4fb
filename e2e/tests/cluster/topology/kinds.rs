//! Each kind of jobs with a required level, a preferred level and slices.

use std::collections::BTreeSet;

use anyhow::{Context as _, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, ResourceExt as _,
    api::{DeleteParams, DynamicObject, ListParams, PostParams},
};
use serde_json::{Value, json};
use switchyard_api::{conditions, v1beta2::Workload};
use switchyard_e2e::{fixture, job::RUN_FOR, wait::eventually};

use super::racks::{BLOCK, HOST, PREFERRED, RACK, REQUIRED, Racks, SLICE_LEVEL, SLICE_SIZE};
use crate::bed::WAIT;
use crate::job_kinds::{
    samples::{Sample, samples},
    table,
};

/// The gate, as it stands in a template.
const GATE: &str = "\"kueue.x-k8s.io/topology\"";

/// The annotations of each request, and whether its pods share a rack.
fn requests() -> [(&'static str, Value, bool); 3] {
    [
        ("required", json!({REQUIRED: RACK}), true),
        ("preferred", json!({PREFERRED: BLOCK}), false),
        ("slices", json!({PREFERRED: BLOCK, SLICE_LEVEL: RACK, SLICE_SIZE: "1"}), false),
    ]
}

/// The spec of a sample, with annotations on the pod templates that its user writes.
fn annotated(sample: &Sample, annotations: &Value) -> Value {
    let mut job = json!({"spec": sample.spec});
    for labels in sample.labels {
        let metadata = match sample.kind {
            "AppWrapper" => "/spec/components/0/template/spec/template/metadata",
            _ => labels.trim_end_matches("/labels"),
        };
        if let Some(metadata) = job.pointer_mut(metadata) {
            metadata["annotations"] = annotations.clone();
        }
    }
    job["spec"].take()
}

struct Kind<'a> {
    racks: &'a Racks,
    sample: &'a Sample,
    jobs: Api<DynamicObject>,
}

impl Kind<'_> {
    async fn create(&self, name: &str, annotations: &Value) {
        let job: DynamicObject = serde_json::from_value(json!({
            "apiVersion": self.sample.api, "kind": self.sample.kind,
            "metadata": {"name": name, "labels": {"kueue.x-k8s.io/queue-name": "queue"}},
            "spec": annotated(self.sample, annotations),
        }))
        .unwrap();
        self.jobs.create(&PostParams::default(), &job).await.unwrap();
    }

    async fn admitted(&self, name: &str) -> Workload {
        let check = async || {
            let all = self.racks.bed.workloads().await;
            let owned = |it: &Workload| {
                it.owner_references()
                    .iter()
                    .any(|owner| owner.kind == self.sample.kind && owner.name == name)
            };
            let workload = all.into_iter().find(owned).context("no Workload")?;
            let status = workload.status.clone().unwrap_or_default();
            ensure!(
                conditions::is_true(&status.conditions, conditions::ADMITTED),
                "{:?}",
                status.conditions
            );
            Ok(workload)
        };
        let what = format!("{} {name} to be admitted", self.sample.kind);
        eventually(WAIT, what, check).await.unwrap()
    }

    /// Waits until the started job has the gate on the pods of each pod set.
    async fn gated(&self, name: &str) {
        let check = async || {
            let job = serde_json::to_string(&self.jobs.get(name).await?)?;
            let gates = job.matches(GATE).count();
            ensure!(gates == self.sample.pod_sets.len(), "{gates} gates: {job}");
            Ok(())
        };
        let what = format!("gates of {} {name}", self.sample.kind);
        eventually(WAIT, what, check).await.unwrap();
    }
}

#[test]
fn pods_of_every_kind_are_placed_by_each_request() {
    fixture::run(async {
        let racks = Racks::new("kinds").await;
        let bed = &racks.bed;
        table::install_crds(&[bed.cluster()]).await.unwrap();
        for sample in &samples() {
            let jobs =
                bed.cluster().dynamic(sample.api, sample.kind, &bed.namespace).await.unwrap();
            let kind = Kind { racks: &racks, sample, jobs };
            for (name, annotations, _) in requests() {
                kind.create(name, &annotations).await;
            }
            for (name, _, one_rack) in requests() {
                let workload = kind.admitted(name).await;
                let placed = Racks::placed(&workload);
                let counts: Vec<i32> =
                    placed.iter().map(|it| it.count.unwrap_or_default()).collect();
                let expected: Vec<i32> = sample.pod_sets.iter().map(|(_, count)| *count).collect();
                assert_eq!(counts, expected, "{} {name}", sample.kind);
                for assignment in &placed {
                    let topology = assignment.topology_assignment.as_ref().unwrap();
                    assert_eq!(topology.levels, [HOST], "{} {name}", sample.kind);
                    let pods: i32 = topology.domains().map(|domain| domain.count).sum();
                    assert_eq!(Some(pods), assignment.count, "{} {name}", sample.kind);
                    assert!(
                        !one_rack || Racks::racks_of(assignment).len() == 1,
                        "{} {name}: {topology:?}",
                        sample.kind
                    );
                }
                kind.gated(name).await;
            }
            for (name, ..) in requests() {
                kind.jobs.delete(name, &DeleteParams::background()).await.unwrap();
            }
            bed.no_workloads().await;
        }
    });
}

fn template(annotations: &Value) -> Value {
    let mut all = annotations.clone();
    all[RUN_FOR] = json!("forever");
    json!({
        "metadata": {"annotations": all, "labels": {"app": "a"}},
        "spec": {
            "terminationGracePeriodSeconds": 1,
            "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}],
        },
    })
}

/// Waits until so many pods run on the hosts that their node selectors name, and gives these.
async fn on_their_hosts(racks: &Racks, count: usize) -> Vec<String> {
    let check = async || {
        let pods: Vec<Pod> = racks.pods().list(&ListParams::default()).await?.items;
        let hosts = pods.iter().map(|pod| {
            let spec = pod.spec.as_ref().context("no spec")?;
            let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
            let host = spec.node_selector.as_ref().and_then(|it| it.get(HOST));
            ensure!(phase == Some("Running"), "{} is {phase:?}", pod.name_any());
            ensure!(
                host.is_some() && host == spec.node_name.as_ref(),
                "{} on {host:?}",
                pod.name_any()
            );
            Ok(host.cloned().unwrap_or_default())
        });
        let hosts = hosts.collect::<anyhow::Result<Vec<_>>>()?;
        ensure!(hosts.len() == count, "{} pods", hosts.len());
        Ok(hosts)
    };
    eventually(WAIT, format!("{count} pods on their hosts"), check).await.unwrap()
}

fn rack(host: &str) -> Option<usize> {
    host.rsplit('-').next()?.parse::<usize>().ok().map(|index| index / 2)
}

async fn no_pods(racks: &Racks) {
    let check = async || {
        let left = racks.pods().list(&ListParams::default()).await?.items.len();
        ensure!(left == 0, "{left} pods");
        Ok(())
    };
    eventually(WAIT, "no pods", check).await.unwrap();
    racks.bed.no_workloads().await;
}

#[test]
fn pods_of_groups_and_sets_run_where_they_are_placed() {
    fixture::run(async {
        let racks = Racks::new("pods").await;
        let cluster = racks.bed.cluster();
        for (name, annotations, one_rack) in requests() {
            for member in 0..4 {
                let mut pod = template(&annotations);
                pod["metadata"]["name"] = json!(format!("{name}-{member}"));
                pod["metadata"]["labels"] = json!({
                    "kueue.x-k8s.io/queue-name": "queue", "kueue.x-k8s.io/pod-group-name": name,
                });
                pod["metadata"]["annotations"]["kueue.x-k8s.io/pod-group-total-count"] = json!("4");
                pod["spec"]["restartPolicy"] = json!("Never");
                let pod: Pod = serde_json::from_value(pod).unwrap();
                racks.pods().create(&PostParams::default(), &pod).await.unwrap();
            }
            let hosts = on_their_hosts(&racks, 4).await;
            let used: BTreeSet<_> = hosts.iter().map(|host| rack(host)).collect();
            assert!(!one_rack || used.len() == 1, "{name}: {hosts:?}");
            // Deleted pods of a group would wait for others in their place.
            racks.bed.delete_workload(name).await;
            no_pods(&racks).await;

            let set = json!({
                "apiVersion": "apps/v1", "kind": "StatefulSet",
                "metadata": {"name": name, "namespace": racks.bed.namespace, "labels": {"kueue.x-k8s.io/queue-name": "queue"}},
                "spec": {
                    "replicas": 3, "serviceName": name, "selector": {"matchLabels": {"app": "a"}},
                    "template": template(&annotations), "podManagementPolicy": "Parallel",
                },
            });
            cluster.apply([set]).await.unwrap();
            let hosts = on_their_hosts(&racks, 3).await;
            let used: BTreeSet<_> = hosts.iter().map(|host| rack(host)).collect();
            assert!(!one_rack || used.len() == 1, "{name}: {hosts:?}");
            racks.delete_object("apps/v1", "StatefulSet", name).await;
            no_pods(&racks).await;
        }
        // Each pod of a Deployment is a workload of its own, so slices of several pods do not apply.
        let deployment = json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "serve", "namespace": racks.bed.namespace, "labels": {"kueue.x-k8s.io/queue-name": "queue"}},
            "spec": {
                "replicas": 3, "selector": {"matchLabels": {"app": "a"}},
                "template": template(&json!({REQUIRED: HOST})),
            },
        });
        cluster.apply([deployment]).await.unwrap();
        on_their_hosts(&racks, 3).await;
        racks.delete_object("apps/v1", "Deployment", "serve").await;
        no_pods(&racks).await;
    });
}
