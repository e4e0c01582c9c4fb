//! No dispatcher at all: a plain client makes the unavoidable writes, directly where they belong.

use std::time::Duration;

use kube::Api;
use kube::api::{DynamicObject, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use switchyard_e2e::{Cluster, ClusterSpec, Environment, paths};
use switchyard_flags::bench::burst::Form;

use super::setup::{HUB, QUEUE, WORKERS, job, name, worker};

/// Where the Jobs are.
pub(super) const NAMESPACE: &str = "burst";
const KUEUE: &str = "kueue.x-k8s.io/v1beta2";

/// Clusters with Kueue's kinds and no controller for them.
pub(super) struct Floor {
    environment: Environment,
    form: Form,
    /// Workloads of the hub, then of each worker.
    workloads: Vec<Api<DynamicObject>>,
}

impl Floor {
    pub(super) async fn start(form: Form) -> anyhow::Result<Self> {
        let builder = Environment::builder("bench-floor").cluster(ClusterSpec::new(HUB));
        let environment =
            WORKERS.iter().fold(builder, |builder, name| builder.cluster(worker(name, form)));
        let environment = environment.start().await?;
        let namespace =
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}});
        let mut workloads = Vec::new();
        for name in std::iter::once(HUB).chain(WORKERS) {
            let cluster = environment.cluster(name);
            cluster.apply([namespace.clone()]).await?;
            cluster.apply_dir(paths::root().join("deploy/crds")).await?;
            workloads.push(cluster.dynamic(KUEUE, "Workload", NAMESPACE).await?);
        }
        Ok(Self { environment, form, workloads })
    }

    pub(super) fn environment(&self) -> &Environment {
        &self.environment
    }

    /// Dispatch: Job, Workload and its status on the hub, Workload, its status and the Job on a worker. Finish: the Job on a
    /// worker.
    pub(super) async fn submit(&self, index: usize, time: Duration) -> anyhow::Result<()> {
        let place = index % WORKERS.len();
        let (hub, worker) =
            (self.environment.cluster(HUB), self.environment.cluster(WORKERS[place]));
        if self.form == Form::Dispatch {
            let sent = job(NAMESPACE, index, time)
                .suspended()
                .field("managedBy", json!("kueue.x-k8s.io/multikueue"));
            sent.create(&hub.admin).await?;
            self.workload(hub, &self.workloads[0], (index, time), Some(WORKERS[place])).await?;
            self.workload(worker, &self.workloads[1 + place], (index, time), None).await?;
        }
        job(NAMESPACE, index, time).create(&worker.admin).await.map(drop)
    }

    /// Creates a Workload and admits it.
    async fn workload(
        &self,
        cluster: &Cluster,
        workloads: &Api<DynamicObject>,
        (index, time): (usize, Duration),
        sent_to: Option<&str>,
    ) -> anyhow::Result<()> {
        let name = format!("job-{}", name(index));
        let workload = serde_json::from_value(workload(&name, index, time))?;
        workloads.create(&PostParams::default(), &workload).await?;
        let patch = json!({"status": status(cluster.name(), sent_to)});
        workloads.patch_status(&name, &PatchParams::default(), &Patch::Merge(patch)).await?;
        Ok(())
    }
}

fn workload(name: &str, index: usize, time: Duration) -> Value {
    let template = job(NAMESPACE, index, time).build()["spec"]["template"].clone();
    json!({
        "apiVersion": KUEUE, "kind": "Workload",
        "metadata": {"name": name, "namespace": NAMESPACE, "finalizers": ["kueue.x-k8s.io/resource-in-use"]},
        "spec": {
            "queueName": QUEUE, "priority": 0,
            "podSets": [{"name": "main", "count": 1, "template": template}],
        },
    })
}

/// As an admitted Workload has it.
fn status(queue: &str, sent_to: Option<&str>) -> Value {
    let time = "2026-01-01T00:00:00Z";
    let condition = |kind: &str, message: &str| json!({"type": kind, "status": "True", "reason": kind, "message": message, "lastTransitionTime": time});
    let assignment = json!({
        "name": "main", "count": 1, "flavors": {"cpu": "all"}, "resourceUsage": {"cpu": "1"},
    });
    let mut status = json!({
        "conditions": [
            condition("QuotaReserved", "Quota reserved in ClusterQueue all"),
            condition("Admitted", "The workload is admitted"),
        ],
        "admission": {"clusterQueue": queue, "podSetAssignments": [assignment]},
    });
    if let Some(cluster) = sent_to {
        let message = format!("The workload got reservation on \"{cluster}\"");
        status["clusterName"] = cluster.into();
        status["admissionChecks"] = json!([{"name": "all", "state": "Ready", "message": message, "lastTransitionTime": time}]);
    }
    status
}
