//! Jobs for tests.

use std::time::Duration;

use anyhow::ensure;
use k8s_openapi::api::batch::v1 as batch;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Value, json};

use crate::wait::{eventually, never};

/// Annotation of a pod: how long it runs.
pub const RUN_FOR: &str = "e2e.switchyard.dev/run-for";
/// Annotation of a pod: its exit code.
pub const EXIT_CODE: &str = "e2e.switchyard.dev/exit-code";
/// Annotation of a pod: the delay before it runs.
pub const START_AFTER: &str = "e2e.switchyard.dev/start-after";
/// Annotation of a pod: how long it takes to end after its deletion.
pub const STOP_AFTER: &str = "e2e.switchyard.dev/stop-after";

/// Label of a pod: the name of its Job.
pub const JOB_NAME: &str = "batch.kubernetes.io/job-name";

/// Longer than a pod takes to start on a busy machine.
const STARTED: Duration = Duration::from_secs(60);

/// Selects the pods of a Job.
pub fn pods_of(name: &str) -> ListParams {
    ListParams::default().labels(&format!("{JOB_NAME}={name}"))
}

/// A `batch/v1` Job, written as a user would: one pod with 1 CPU that runs for a second.
#[derive(Clone, Debug)]
pub struct JobBuilder {
    object: Value,
}

impl JobBuilder {
    /// A Job in a namespace.
    pub fn new(namespace: &str, name: &str) -> Self {
        let object = json!({
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"namespace": namespace, "name": name, "labels": {}, "annotations": {}},
            "spec": {
                "backoffLimit": 0,
                "template": {
                    "metadata": {"labels": {}, "annotations": {}},
                    "spec": {
                        "restartPolicy": "Never",
                        "containers": [{
                            "name": "main",
                            "image": "example.org/job:1",
                            "resources": {"requests": {"cpu": "1"}, "limits": {}},
                        }],
                    },
                },
            },
        });
        Self { object }
    }

    /// Sets its LocalQueue.
    #[must_use]
    pub fn queue(self, name: &str) -> Self {
        self.label("kueue.x-k8s.io/queue-name", name)
    }

    /// A label of the Job.
    #[must_use]
    pub fn label(self, key: &str, value: &str) -> Self {
        self.set("/metadata/labels", key, value)
    }

    /// An annotation of the Job.
    #[must_use]
    pub fn annotation(self, key: &str, value: &str) -> Self {
        self.set("/metadata/annotations", key, value)
    }

    /// A WorkloadPriorityClass.
    #[must_use]
    pub fn priority_class(self, name: &str) -> Self {
        self.label("kueue.x-k8s.io/priority-class", name)
    }

    /// Sets how many pods run at one time.
    #[must_use]
    pub fn parallelism(self, count: u32) -> Self {
        self.set("/spec", "parallelism", count)
    }

    /// Sets how many pods must succeed.
    #[must_use]
    pub fn completions(self, count: u32) -> Self {
        self.set("/spec", "completions", count)
    }

    /// Creates it suspended.
    #[must_use]
    pub fn suspended(self) -> Self {
        self.set("/spec", "suspend", true)
    }

    /// Sets the CPU request of each pod, a quantity.
    #[must_use]
    pub fn cpu(self, quantity: &str) -> Self {
        self.request("cpu", quantity)
    }

    /// Sets the GPUs (`nvidia.com/gpu`) of each pod.
    #[must_use]
    pub fn gpu(self, count: u32) -> Self {
        let count = count.to_string();
        self.request("nvidia.com/gpu", &count).set(
            "/spec/template/spec/containers/0/resources/limits",
            "nvidia.com/gpu",
            count,
        )
    }

    /// Sets a request of each pod.
    #[must_use]
    pub fn request(self, resource: &str, quantity: &str) -> Self {
        self.set("/spec/template/spec/containers/0/resources/requests", resource, quantity)
    }

    /// Sets how long each pod runs, in whole milliseconds.
    #[must_use]
    pub fn run_for(self, time: Duration) -> Self {
        self.pod_annotation(RUN_FOR, &format!("{}ms", time.as_millis()))
    }

    /// How long each pod runs, as set by [`JobBuilder::run_for`].
    pub fn runs_for(&self) -> Duration {
        let annotations = &self.object["spec"]["template"]["metadata"]["annotations"];
        let said = annotations[RUN_FOR]
            .as_str()
            .and_then(|it| it.strip_suffix("ms"))
            .and_then(|it| it.parse().ok());
        Duration::from_millis(said.unwrap_or(1000))
    }

    /// Makes each pod run until it is deleted.
    #[must_use]
    pub fn run_forever(self) -> Self {
        self.pod_annotation(RUN_FOR, "forever")
    }

    /// Makes each pod fail with exit code 1. The Job fails with the first pod.
    #[must_use]
    pub fn fails(self) -> Self {
        self.pod_annotation(EXIT_CODE, "1")
    }

    /// Sets how often failed pods are retried (default 0).
    #[must_use]
    pub fn backoff_limit(self, count: u32) -> Self {
        self.set("/spec", "backoffLimit", count)
    }

    /// A label of the pods.
    #[must_use]
    pub fn pod_label(self, key: &str, value: &str) -> Self {
        self.set("/spec/template/metadata/labels", key, value)
    }

    /// An annotation of the pods.
    #[must_use]
    pub fn pod_annotation(self, key: &str, value: &str) -> Self {
        self.set("/spec/template/metadata/annotations", key, value)
    }

    /// Sets the script of its container on a real node, for BusyBox's shell.
    #[must_use]
    pub fn script(self, script: &str) -> Self {
        let container = "/spec/template/spec/containers/0";
        self.set(container, "image", crate::nodes::BUSYBOX).set(
            container,
            "command",
            json!(["/bin/sh", "-c", script]),
        )
    }

    /// Adds a label to its node selector.
    #[must_use]
    pub fn node_selector(mut self, key: &str, value: &str) -> Self {
        if self.object.pointer("/spec/template/spec/nodeSelector").is_none() {
            self = self.pod_field("nodeSelector", json!({}));
        }
        self.set("/spec/template/spec/nodeSelector", key, value)
    }

    /// Adds a toleration for `key=value:NoSchedule`.
    #[must_use]
    pub fn toleration(self, key: &str, value: &str) -> Self {
        self.pod_field("tolerations", json!([{"key": key, "value": value, "effect": "NoSchedule"}]))
    }

    /// Sets a field of the pod's spec.
    #[must_use]
    pub fn pod_field(self, name: &str, value: Value) -> Self {
        self.set("/spec/template/spec", name, value)
    }

    /// Sets a field of the Job's spec.
    #[must_use]
    pub fn field(self, name: &str, value: Value) -> Self {
        self.set("/spec", name, value)
    }

    fn set(mut self, pointer: &str, key: &str, value: impl Into<Value>) -> Self {
        if let Some(object) = self.object.pointer_mut(pointer).and_then(Value::as_object_mut) {
            object.insert(key.to_owned(), value.into());
        }
        self
    }

    /// The object.
    pub fn build(self) -> Value {
        self.object
    }

    /// Creates it through the API.
    pub async fn create(self, client: &Client) -> anyhow::Result<batch::Job> {
        let namespace =
            self.object["metadata"]["namespace"].as_str().unwrap_or("default").to_owned();
        let job: batch::Job = serde_json::from_value(self.object)?;
        Ok(Api::namespaced(client.clone(), &namespace).create(&PostParams::default(), &job).await?)
    }
}

/// Waits until a pod of a Job is ready.
///
/// # Errors
/// After the deadline: the Job's status.
pub async fn ready(
    client: &Client,
    namespace: &str,
    name: &str,
    within: Duration,
) -> anyhow::Result<()> {
    let jobs: Api<batch::Job> = Api::namespaced(client.clone(), namespace);
    eventually(within, format!("a ready pod of Job {namespace}/{name}"), async || {
        let status = jobs.get(name).await?.status.unwrap_or_default();
        ensure!(status.ready > Some(0), "{status:?}");
        Ok(())
    })
    .await
}

/// Lets the pods of a Job succeed, except those under deletion. Waits until they have started: kwok
/// would overwrite the end of a pending pod.
///
/// # Errors
/// When the API server refuses, or a pod does not start.
pub async fn pods_succeed(client: &Client, namespace: &str, name: &str) -> anyhow::Result<()> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let ended = Patch::Merge(json!({"status": {"phase": "Succeeded"}}));
    for pod in pods.list(&pods_of(name)).await? {
        let pod = pod.name_any();
        let has_started = eventually(STARTED, format!("pod {pod} to start"), async || {
            let found = pods.get_opt(&pod).await?;
            let Some(found) = found.filter(|it| it.metadata.deletion_timestamp.is_none()) else {
                return Ok(false);
            };
            let phase = found.status.and_then(|status| status.phase);
            ensure!(phase.as_deref() != Some("Pending"), "it is pending");
            Ok(true)
        });
        if has_started.await? {
            pods.patch_status(&pod, &PatchParams::default(), &ended).await?;
        }
    }
    Ok(())
}

/// As [`pods_succeed`], once the Job has pods and all of them run.
///
/// # Errors
/// After the deadline: the phases of its pods.
pub async fn running_pods_succeed(
    client: &Client,
    namespace: &str,
    name: &str,
    within: Duration,
) -> anyhow::Result<()> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    eventually(within, format!("the pods of {name} to run"), async || {
        let found = pods.list(&pods_of(name)).await?.items;
        let phases: Vec<Option<&str>> = found
            .iter()
            .map(|pod| pod.status.as_ref().and_then(|status| status.phase.as_deref()))
            .collect();
        let run = !phases.is_empty() && phases.iter().all(|phase| *phase == Some("Running"));
        ensure!(run, "{phases:?}");
        Ok(())
    })
    .await?;
    pods_succeed(client, namespace, name).await
}

/// Whether a Job's condition of this type is True.
pub fn has_condition(job: &batch::Job, kind: &str) -> bool {
    let conditions = job.status.as_ref().and_then(|status| status.conditions.as_ref());
    conditions.into_iter().flatten().any(|one| one.type_ == kind && one.status == "True")
}

/// Waits until a Job's `suspend` has this value.
pub async fn suspended(
    client: &Client,
    namespace: &str,
    name: &str,
    within: Duration,
    suspended: bool,
) -> anyhow::Result<()> {
    let api: Api<batch::Job> = Api::namespaced(client.clone(), namespace);
    let check = async || {
        let is = api.get(name).await?.spec.and_then(|spec| spec.suspend).unwrap_or_default();
        ensure!(is == suspended, "suspend is {is}");
        Ok(())
    };
    eventually(within, format!("{name} to have suspend {suspended}"), check).await
}

/// Waits until a Job is Complete. Fails at once if the Job has failed.
pub async fn complete(
    client: &Client,
    namespace: &str,
    name: &str,
    within: Duration,
) -> anyhow::Result<batch::Job> {
    finished(client, namespace, name, within, "Complete", "Failed").await
}

/// Waits until a Job is Failed. Fails at once if the Job is Complete.
pub async fn failed(
    client: &Client,
    namespace: &str,
    name: &str,
    within: Duration,
) -> anyhow::Result<batch::Job> {
    finished(client, namespace, name, within, "Failed", "Complete").await
}

async fn finished(
    client: &Client,
    namespace: &str,
    name: &str,
    within: Duration,
    wanted: &str,
    other: &str,
) -> anyhow::Result<batch::Job> {
    let jobs: Api<batch::Job> = Api::namespaced(client.clone(), namespace);
    eventually(within, format!("Job {namespace}/{name} to be {wanted}"), async || {
        let job = jobs.get(name).await?;
        if has_condition(&job, other) {
            return Err(never(format!("it is {other}: {:?}", job.status)));
        }
        let suspended = job.spec.as_ref().and_then(|spec| spec.suspend).unwrap_or(false);
        ensure!(has_condition(&job, wanted), "suspend {suspended}, status {:?}", job.status);
        Ok(job)
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_setting_lands_where_kubernetes_reads_it() {
        let job = JobBuilder::new("ns", "j")
            .queue("q")
            .parallelism(3)
            .gpu(2)
            .run_for(Duration::from_millis(1500))
            .fails()
            .node_selector("pool", "a")
            .toleration("gpu", "yes")
            .build();
        let typed: batch::Job = serde_json::from_value(job.clone()).unwrap();
        assert_eq!(serde_json::to_value(&typed).unwrap()["spec"]["parallelism"], 3);
        assert_eq!(job["metadata"]["labels"]["kueue.x-k8s.io/queue-name"], "q");
        let pod = &job["spec"]["template"];
        assert_eq!(pod["metadata"]["annotations"], json!({RUN_FOR: "1500ms", EXIT_CODE: "1"}));
        assert_eq!(pod["spec"]["nodeSelector"], json!({"pool": "a"}));
        assert_eq!(pod["spec"]["tolerations"][0]["key"], "gpu");
        let requests = json!({"cpu": "1", "nvidia.com/gpu": "2"});
        assert_eq!(pod["spec"]["containers"][0]["resources"]["requests"], requests);
    }
}
