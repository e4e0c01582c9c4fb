//! Tests of [`decide`]: tables of situations, and whole lives of jobs in a small world.
#![expect(clippy::needless_pass_by_value, reason = "literals read better by value")]

mod admission;
mod dispatched_slices;
mod hub;
mod kinds;
mod life;
mod matching;
mod pod_group_owners;
mod pods;
mod ray_slices;
mod slices;
mod topology;

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::{Value, json};
use switchyard_api::{
    conditions,
    v1beta2::{ResourceFlavor, Workload},
};
use switchyard_jobs::{
    BuildOptions, JobKind, Priority, PriorityLookup, SuspendMode, apply_merge, batch_job::BatchJob,
    build_workload, job_pod_sets, merge_diff, pod_set_infos,
};

use super::{Action, Ancestor, Decision, Gates, JobInputs, Next, PodsReadyDelay, Prebuilt, decide};
use crate::{
    role::Role,
    workload::{Edit, ReasonDetail},
};

pub(super) fn now() -> Timestamp {
    "2026-11-21T10:00:00Z".parse().unwrap()
}

/// Job `ns/train` in queue `lq`, suspended.
pub(super) struct TestJob(pub(super) Value);

pub(super) fn job() -> TestJob {
    TestJob(json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {
            "name": "train", "namespace": "ns", "uid": "job-uid", "resourceVersion": "7",
            "labels": {"kueue.x-k8s.io/queue-name": "lq"},
        },
        "spec": {
            "suspend": true, "parallelism": 3, "completions": 3,
            "template": {"metadata": {"labels": {"app": "train"}}, "spec": {
                "containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}],
            }},
        },
    }))
}

impl TestJob {
    pub(super) fn with(mut self, patch: Value) -> Self {
        apply_merge(&mut self.0, &patch);
        self
    }

    pub(super) fn label(self, key: &str, value: &str) -> Self {
        self.with(json!({"metadata": {"labels": {key: value}}}))
    }

    pub(super) fn unsuspended(self) -> Self {
        self.with(json!({"spec": {"suspend": false}}))
    }

    pub(super) fn running(self) -> Self {
        self.unsuspended()
            .with(json!({"status": {"active": 3, "ready": 3, "startTime": "2026-11-21T09:59:00Z"}}))
    }

    pub(super) fn condition(self, type_: &str) -> Self {
        self.with(json!({"status": {"conditions": [
            {"type": type_, "status": "True", "message": format!("{type_}!"), "lastTransitionTime": "2026-11-21T09:59:55Z"},
        ]}}))
    }

    /// As [`Action::UpdateJob`] leaves it after the start.
    pub(super) fn started(mut self, workload: &Workload) -> Self {
        let gpu = gpu();
        let infos = pod_set_infos(workload, |_| Some(&gpu)).unwrap();
        BatchJob.run(&mut self.0, &infos).unwrap();
        self
    }

    pub(super) fn workload(&self) -> TestWorkload {
        let pod_sets = job_pod_sets(&BatchJob, &self.0).unwrap();
        let mut workload = build_workload(
            &BatchJob,
            &self.0,
            pod_sets,
            &Priority::default(),
            BuildOptions::default(),
        );
        workload.metadata.uid = Some("workload-uid".into());
        workload.metadata.resource_version = Some("3".into());
        TestWorkload(workload)
    }
}

pub(super) struct TestWorkload(pub(super) Workload);

impl TestWorkload {
    pub(super) fn edit(mut self, edit: impl FnOnce(&mut Workload)) -> Self {
        edit(&mut self.0);
        self
    }

    pub(super) fn status(mut self, edit: impl FnOnce(&mut Edit)) -> Self {
        let mut changed =
            Edit::new(&self.0, ReasonDetail::Full, now() - jiff::SignedDuration::from_secs(60));
        edit(&mut changed);
        self.0.status = Some(changed.status);
        self
    }

    pub(super) fn reserved(self) -> Self {
        let pod_sets: Vec<Value> = self
            .0
            .spec
            .pod_sets
            .iter()
            .map(|p| json!({"name": p.name, "count": p.count, "flavors": {"cpu": "gpu"}}))
            .collect();
        let admission =
            serde_json::from_value(json!({"clusterQueue": "cq", "podSetAssignments": pod_sets}))
                .unwrap();
        self.status(|edit| edit.reserve(admission))
    }

    pub(super) fn admitted(self) -> Self {
        self.reserved().status(|edit| {
            edit.sync_admitted();
        })
    }

    pub(super) fn evicted(self) -> Self {
        self.status(|edit| {
            edit.set(conditions::EVICTED, true, "Preempted", "Preempted to accommodate another");
        })
    }

    pub(super) fn finished(self) -> Self {
        self.status(|edit| {
            edit.finish("Succeeded", "done");
        })
    }

    pub(super) fn deleting(self) -> Self {
        self.edit(|workload| workload.metadata.deletion_timestamp = Some(Time(now())))
    }

    pub(super) fn named(self, name: &str) -> Self {
        self.edit(|workload| workload.metadata.name = Some(name.into()))
    }
}

fn gpu() -> ResourceFlavor {
    serde_json::from_value(json!({
        "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ResourceFlavor",
        "metadata": {"name": "gpu"}, "spec": {"nodeLabels": {"accelerator": "a100"}},
    }))
    .unwrap()
}

struct Classes;

impl PriorityLookup for Classes {
    fn workload_class(&self, name: &str) -> Option<i32> {
        (name == "high").then_some(100)
    }

    fn pod_class(&self, _: &str) -> Option<i32> {
        None
    }

    fn default_pod_class(&self) -> Option<(String, i32)> {
        None
    }
}

/// The inputs besides the job.
pub(super) struct World {
    pub(super) kind: &'static dyn JobKind,
    pub(super) job: Option<TestJob>,
    pub(super) workloads: Vec<Arc<Workload>>,
    pub(super) prebuilt: Prebuilt,
    pub(super) managed: bool,
    pub(super) ancestor: Ancestor,
    pub(super) role: Role,
    pub(super) elastic: bool,
    pub(super) check: Option<&'static str>,
    pub(super) flavors: bool,
    pub(super) waits: bool,
    pub(super) ready_for: Duration,
    pub(super) keep_deactivated: Option<Duration>,
    pub(super) gates: Gates,
    pub(super) reclaims: bool,
    pub(super) releases_fast: bool,
    pub(super) defers_end: bool,
    pub(super) below_active: bool,
    pub(super) awaited: bool,
    pub(super) exceeded: Option<&'static str>,
    /// Amount of cpu with which a template exceeds its charge.
    pub(super) too_much: Option<&'static str>,
}

pub(super) fn world(job: TestJob) -> World {
    World {
        kind: &BatchJob,
        job: Some(job),
        workloads: Vec::new(),
        prebuilt: Prebuilt::NotNamed,
        managed: true,
        ancestor: Ancestor::None,
        role: Role::Single,
        elastic: true,
        reclaims: true,
        releases_fast: false,
        defers_end: true,
        below_active: false,
        awaited: true,
        exceeded: None,
        too_much: None,
        check: None,
        flavors: true,
        waits: true,
        ready_for: Duration::from_secs(60),
        keep_deactivated: None,
        gates: Gates::default(),
    }
}

impl World {
    pub(super) fn workload(mut self, workload: TestWorkload) -> Self {
        self.workloads.push(Arc::new(workload.0));
        self
    }

    pub(super) fn decide(&self) -> Decision {
        let flavor = |name: &str| (self.flavors && name == "gpu").then(|| Arc::new(gpu()));
        let inputs = JobInputs {
            role: self.role,
            reasons: ReasonDetail::Full,
            elastic: self.elastic,
            reclaims: self.reclaims,
            releases_fast: self.releases_fast,
            defers_end: self.defers_end,
            managed: self.managed,
            ancestor: self.ancestor,
            workloads: self.workloads.clone(),
            prebuilt: self.prebuilt.clone(),
            multi_kueue_check: self.check.map(str::to_owned),
            below_active: &|| self.below_active,
            awaited: &|_| self.awaited,
            exceeded: &|workload| {
                let asks = |cpu| {
                    serde_json::to_string(&workload.spec.pod_sets)
                        .unwrap()
                        .contains(&format!("\"cpu\":\"{cpu}\""))
                };
                let too_much = self.too_much.filter(|cpu| asks(*cpu)).map(|_| "cpu");
                self.exceeded.or(too_much).map(|it| (it.to_owned(), "main".to_owned()))
            },
            flavor: &flavor,
            priorities: &Classes,
            copied: BuildOptions::default(),
            pods_ready: self.waits.then_some(PodsReadyDelay {
                ready_for: self.ready_for,
                after_ready: Duration::from_secs(30),
                after_admission: Duration::from_secs(150),
            }),
            keep_deactivated: self.keep_deactivated,
            gates: self.gates,
        };
        decide(self.kind, self.job.as_ref().map(|job| &job.0), &inputs, now())
    }

    /// The actions, one per line, and when to reconcile next.
    pub(super) fn told(&self) -> String {
        let decision = self.decide();
        let mut lines: Vec<String> =
            decision.actions.iter().map(|action| self.line(action)).collect();
        match decision.next {
            Next::OnChange => {}
            Next::After(delay) => lines.push(format!("again after {delay:?}")),
            Next::Retry(reason) => lines.push(format!("retry: {reason}")),
        }
        lines.join("\n")
    }

    fn line(&self, action: &Action) -> String {
        let job = self.job.as_ref().map(|job| job.0.clone()).unwrap_or_default();
        match action {
            Action::UpdateJob(wanted) if self.kind.suspend_mode() == SuspendMode::Gate => {
                self.pods(&job, wanted)
            }
            Action::UpdateJob(wanted) => format!("job {}", merge_diff(&job, wanted).unwrap()),
            Action::UpdateJobStatus(wanted) => {
                format!("job status {}", merge_diff(&job, wanted).unwrap()["status"])
            }
            Action::CreateWorkload(workload) => {
                format!("create {}", workload.metadata.name.as_deref().unwrap())
            }
            Action::UpdateWorkload { old, new } => {
                let json = |workload: &Workload| serde_json::to_value(workload).unwrap();
                format!("workload {}", merge_diff(&json(old), &json(new)).unwrap())
            }
            Action::UpdateWorkloadStatus { old, status } => {
                let old = serde_json::to_value(old.status.clone().unwrap_or_default()).unwrap();
                let mut change = merge_diff(&old, &serde_json::to_value(status).unwrap()).unwrap();
                if let Some(list) = change.get_mut("conditions") {
                    *list = Value::from(short(&old["conditions"], list));
                }
                format!("workload status {change}")
            }
            Action::DeleteWorkload(workload) => {
                format!("delete {}", workload.metadata.name.as_deref().unwrap())
            }
            Action::DeleteJob => "delete the job".to_owned(),
            Action::Terminate { members, why } => {
                let names: Vec<&str> = members.iter().map(switchyard_jobs::meta::name).collect();
                let why = why.as_ref().map(|(reason, message)| format!(" for {reason}: {message}"));
                format!("end {}{}", names.join(", "), why.unwrap_or_default())
            }
            Action::Event { warning, reason, note } => {
                format!("{} {reason}: {note}", if *warning { "Warning" } else { "Normal" })
            }
            Action::MemberEvents { members, reason, note } => {
                let names: Vec<&str> = members.iter().map(switchyard_jobs::meta::name).collect();
                format!("tell {}: {reason}: {note}", names.join(", "))
            }
            Action::WorkloadEvent { workload, reason, note } => {
                format!("tell {}: {reason}: {note}", workload.metadata.name.as_deref().unwrap())
            }
        }
    }
}

impl World {
    /// Changes of pods, one per line.
    fn pods(&self, job: &Value, wanted: &Value) -> String {
        let (now, wanted) = (self.kind.members(job), self.kind.members(wanted));
        let one = |wanted: &Value| {
            let now = now
                .iter()
                .find(|now| now["metadata"]["name"] == wanted["metadata"]["name"])
                .unwrap();
            Some(format!(
                "pod {} {}",
                wanted["metadata"]["name"].as_str()?,
                merge_diff(now, wanted)?
            ))
        };
        wanted.iter().filter_map(one).collect::<Vec<_>>().join("\n")
    }
}

/// The conditions that changed, as `Type=Status/Reason: message`.
fn short(before: &Value, after: &Value) -> Vec<String> {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let before = list(before);
    let changed = list(after).into_iter().filter(|condition| !before.contains(condition));
    let text =
        |condition: &Value, field: &str| condition[field].as_str().unwrap_or_default().to_owned();
    changed
        .map(|c| {
            format!(
                "{}={}/{}: {}",
                text(&c, "type"),
                text(&c, "status"),
                text(&c, "reason"),
                text(&c, "message")
            )
        })
        .collect()
}
