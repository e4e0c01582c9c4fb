//! Tests of the job kinds, one file for each subject. Fixtures are below.

#![expect(clippy::needless_pass_by_value, reason = "literals read better by value")]

mod app_wrapper;
mod bad_input;
mod batch_job;
mod build;
mod by_pods;
mod elastic;
mod equivalence;
mod external;
mod infos;
mod job_set;
mod kubeflow;
mod mirror;
mod plain;
mod pod;
mod ray;
mod ray_elastic;
mod spark_application;
mod spec_propagation;
mod topology;
mod topology_refused;
mod train_job;
mod validate;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{batch_job::BatchJob, *};
use switchyard_api::v1beta2::{PodSet, ReclaimablePod, ResourceFlavor, Workload};
use switchyard_syntax::{conditions, field::FieldError};

/// A Job as the API server stores it, suspended in queue `lq`.
pub(super) struct TestJob(Value);

pub(super) fn job() -> TestJob {
    TestJob(json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {
            "name": "train", "namespace": "ns", "uid": "job-uid", "resourceVersion": "7",
            "labels": {"kueue.x-k8s.io/queue-name": "lq"},
        },
        "spec": {
            "suspend": true, "parallelism": 1, "completions": 1, "completionMode": "NonIndexed",
            "selector": {"matchLabels": {"batch.kubernetes.io/controller-uid": "job-uid"}},
            "template": {
                "metadata": {"labels": {
                    "app": "train",
                    "batch.kubernetes.io/controller-uid": "job-uid", "batch.kubernetes.io/job-name": "train",
                    "controller-uid": "job-uid", "job-name": "train",
                }},
                "spec": {
                    "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}],
                    "restartPolicy": "Never",
                },
            },
        },
        "status": {},
    }))
}

impl TestJob {
    pub(super) fn with(mut self, patch: Value) -> Self {
        apply_merge(&mut self.0, &patch);
        self
    }

    pub(super) fn pods(self, parallelism: i32, completions: i32) -> Self {
        self.with(json!({"spec": {"parallelism": parallelism, "completions": completions}}))
    }

    pub(super) fn indexed(self) -> Self {
        self.with(json!({"spec": {"completionMode": "Indexed"}}))
    }

    pub(super) fn running(self) -> Self {
        self.with(json!({"spec": {"suspend": false}}))
    }

    pub(super) fn label(self, key: &str, value: &str) -> Self {
        self.with(json!({"metadata": {"labels": {key: value}}}))
    }

    pub(super) fn annotation(self, key: &str, value: &str) -> Self {
        self.with(json!({"metadata": {"annotations": {key: value}}}))
    }

    pub(super) fn min_parallelism(self, count: &str) -> Self {
        self.annotation("kueue.x-k8s.io/job-min-parallelism", count)
    }

    pub(super) fn status(self, status: Value) -> Self {
        self.with(json!({ "status": status }))
    }

    pub(super) fn condition(mut self, type_: &str, status: &str) -> Self {
        let list = meta::object_mut(&mut self.0, &["status"])
            .unwrap()
            .entry("conditions")
            .or_insert(json!([]));
        list.as_array_mut().unwrap().push(json!({
            "type": type_, "status": status, "reason": "R", "message": format!("{type_} message"),
            "lastTransitionTime": "2026-11-21T10:05:00Z", "lastProbeTime": "2026-11-21T10:05:00Z",
        }));
        self
    }

    pub(super) fn build(self) -> Value {
        self.0
    }

    /// Its Workload, as the reconciler makes it.
    pub(super) fn workload(&self) -> Workload {
        let pod_sets = job_pod_sets(&BatchJob, &self.0).unwrap();
        build_workload(&BatchJob, &self.0, pod_sets, &Priority::default(), BuildOptions::default())
    }
}

/// The Workload with quota in `cq`, flavor `gpu`, for `count` pods.
pub(super) fn reserved(mut workload: Workload, count: i32, admitted: bool) -> Workload {
    let status = workload.status.get_or_insert_default();
    let now = jiff::Timestamp::UNIX_EPOCH;
    conditions::set(
        &mut status.conditions,
        conditions::new(conditions::QUOTA_RESERVED, true, "R", "", None),
        now,
    );
    if admitted {
        conditions::set(
            &mut status.conditions,
            conditions::new(conditions::ADMITTED, true, "A", "", None),
            now,
        );
    }
    let admission = json!({
        "clusterQueue": "cq",
        "podSetAssignments": [{"name": "main", "flavors": {"cpu": "gpu", "memory": "gpu"}, "count": count}],
    });
    status.admission = serde_json::from_value(admission).unwrap();
    workload
}

/// A flavor with one node label and one toleration.
pub(super) fn gpu() -> ResourceFlavor {
    serde_json::from_value(json!({
        "metadata": {"name": "gpu"},
        "spec": {
            "nodeLabels": {"accelerator": "a100"},
            "tolerations": [{"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}],
        },
    }))
    .unwrap()
}

pub(super) fn infos_of(workload: &Workload) -> Vec<PodSetInfo> {
    let gpu = gpu();
    pod_set_infos(workload, |name| (name == "gpu").then_some(&gpu)).unwrap()
}

#[test]
fn kinds_are_found_by_group_and_by_owner_reference() {
    assert!(kind_for("batch", "Job").is_some());
    assert!(kind_of_owner("batch/v1", "Job").is_some());
    assert!(kind_of_owner("v1", "Pod").is_some());
    assert!(kind_for("batch", "CronJob").is_none());
}

#[test]
fn every_kind_has_one_entry() {
    let mut seen = std::collections::BTreeSet::new();
    let mut frameworks = std::collections::BTreeSet::new();
    for kind in kinds() {
        assert!(seen.insert((kind.id().group, kind.id().kind)));
        assert!(frameworks.insert(kind.id().framework));
    }
}

#[test]
fn only_named_kinds_are_enabled() {
    let named = |names: &[&str]| -> Vec<&str> {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        enabled_kinds(&names).iter().map(|kind| kind.id().kind).collect()
    };
    assert_eq!(named(&["batch/job"]), ["Job"]);
    assert_eq!(
        named(&["ray.io/rayjob", "pod", "jobset.x-k8s.io/jobset"]),
        ["JobSet", "RayJob", "Pod"]
    );
}

#[test]
fn shipped_roles_name_every_kind() {
    let roles = [
        include_str!("../../../../deploy/rbac/controller.yaml"),
        include_str!("../../../../deploy/rbac/agent.yaml"),
        include_str!("../../../../deploy/rbac/kubeconfig-worker.yaml"),
    ];
    for kind in kinds().iter().filter(|kind| kind.is_watched()) {
        let id = kind.id();
        let group = format!("apiGroups: [{}]", if id.group.is_empty() { "\"\"" } else { id.group });
        let names = |line: &str| line.split(['[', ']', ',', ' ']).any(|word| word == id.plural);
        // Kinds that a hub does not send.
        let stays = kind.remote().is_none();
        for role in &roles[..if stays { 1 } else { roles.len() }] {
            let mut lines = role.lines().skip_while(|line| !line.contains(&group));
            assert!(lines.any(names), "{} of {}", id.plural, id.group);
        }
        let (hub, status) =
            (include_str!("../../../../deploy/rbac/hub.yaml"), format!("{}/status", id.plural));
        // The controllers of kinds that are queued by their pods write the status, also on the hub.
        let shown = kind.suspend_mode() == SuspendMode::Pods
            || hub.contains(&status)
            || roles[0].contains(&status);
        assert!(shown, "{status}");
    }
}

#[test]
fn user_roles_cover_every_kind_outside_kubernetes() {
    let roles = include_str!("../../../../deploy/rbac/people-jobs.yaml");
    for id in kinds().iter().map(|kind| kind.id()).filter(|id| !["", "apps"].contains(&id.group)) {
        for (resource, verbs) in [
            (id.plural.to_owned(), "create, delete, get, list, patch, update, watch"),
            (id.plural.to_owned(), "get, list, watch"),
            (format!("{}/status", id.plural), "get"),
        ] {
            let rule = format!(
                "- {{apiGroups: [{}], resources: [{resource}], verbs: [{verbs}]}}\n",
                id.group
            );
            assert!(roles.contains(&rule), "{rule}");
        }
    }
}
