//! The life of a job, the same for each kind. It is admitted where it was created, and from a hub elsewhere. It starts with the
//! fields of admission, its status is shown, and its end or its deletion leaves nothing behind.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use kube::{
    Api,
    api::{DeleteParams, DynamicObject, Patch, PatchParams},
};
use serde_json::{Value, json};
use switchyard_api::{conditions, v1beta2::Workload};
use switchyard_e2e::Cluster;
use switchyard_e2e::wait::eventually;
use switchyard_jobs::kind_of_owner;

use crate::common::module_of_kueue;

use super::samples::{CRDS, Sample, training_runtime};

/// Longer than anything here takes on a busy machine.
pub(crate) const SOON: Duration = Duration::from_secs(180);

/// Installs the CRDs of all kinds, as their modules have them, and what their objects refer to.
pub(crate) async fn install_crds(clusters: &[&Cluster]) -> anyhow::Result<()> {
    for (module, paths) in CRDS {
        let folder = module_of_kueue(module).await;
        for path in *paths {
            let path = folder.join(path);
            for cluster in clusters {
                if path.is_dir() {
                    cluster.apply_dir(&path).await?;
                } else {
                    let text = std::fs::read_to_string(&path)
                        .with_context(|| path.display().to_string())?;
                    cluster.apply_yaml(&text).await.with_context(|| path.display().to_string())?;
                }
            }
        }
    }
    for cluster in clusters {
        cluster.apply([training_runtime()]).await?;
    }
    Ok(())
}

/// The jobs of one kind in a namespace of a cluster.
pub(crate) struct Jobs<'a> {
    sample: &'a Sample,
    jobs: Api<DynamicObject>,
    workloads: Api<Workload>,
    at: String,
}

impl<'a> Jobs<'a> {
    pub(crate) async fn new(
        sample: &'a Sample,
        cluster: &Cluster,
        namespace: &str,
    ) -> anyhow::Result<Self> {
        Ok(Self {
            sample,
            jobs: cluster.dynamic(sample.api, sample.kind, namespace).await?,
            workloads: Api::namespaced(cluster.admin.clone(), namespace),
            at: cluster.name().to_owned(),
        })
    }

    pub(crate) async fn create(
        &self,
        namespace: &str,
        queue: &str,
        name: &str,
    ) -> anyhow::Result<Value> {
        let job: DynamicObject = serde_json::from_value(json!({
            "apiVersion": self.sample.api, "kind": self.sample.kind,
            "metadata": {"name": name, "namespace": namespace, "labels": {"kueue.x-k8s.io/queue-name": queue}},
            "spec": self.sample.spec,
        }))?;
        let created = self.jobs.create(&Default::default(), &job).await;
        Ok(serde_json::to_value(created.with_context(|| self.what(name, "created"))?)?)
    }

    fn what(&self, name: &str, what: &str) -> String {
        format!("{} {name} on {}: {what}", self.sample.kind, self.at)
    }

    pub(crate) async fn until(
        &self,
        name: &str,
        what: &str,
        right: impl Fn(&Value) -> bool,
    ) -> anyhow::Result<Value> {
        let check = async || {
            let found = serde_json::to_value(self.jobs.get(name).await?)?;
            ensure!(right(&found), "{found}");
            Ok(found)
        };
        eventually(SOON, self.what(name, what), check).await
    }

    /// Waits until admission has started the job, with its labels on the pods of every pod set. A job that its user did not
    /// suspend looks started for a moment before.
    async fn started(&self, name: &str) -> anyhow::Result<Value> {
        let given = |job: &Value, labels: &str, pod_set: &str| {
            let given = job.pointer(labels).and_then(|labels| labels.get("kueue.x-k8s.io/podset"));
            given.and_then(Value::as_str).is_some_and(|given| given.ends_with(pod_set))
        };
        let right = |job: &Value| {
            let mut pod_sets = self.sample.labels.iter().zip(self.sample.pod_sets);
            job.pointer(self.sample.suspend) == Some(&json!(false))
                && pod_sets.all(|(labels, (pod_set, _))| given(job, labels, pod_set))
        };
        self.until(name, "started", right).await
    }

    /// Says what the kind's own controller would.
    pub(crate) async fn report(&self, name: &str, status: &Value) -> anyhow::Result<()> {
        let patch = Patch::Merge(json!({ "status": status }));
        let reported = self.jobs.patch_status(name, &PatchParams::default(), &patch).await;
        reported.with_context(|| self.what(name, "reported"))?;
        Ok(())
    }

    pub(crate) async fn shows(&self, name: &str, status: &Value) -> anyhow::Result<Value> {
        self.until(name, &format!("shows {status}"), |job| contains(&job["status"], status)).await
    }

    /// Changes what its copies follow, here, and waits until it is so there.
    async fn change_followed(&self, there: &Self, name: &str) -> anyhow::Result<()> {
        let kind =
            kind_of_owner(self.sample.api, self.sample.kind).map(|kind| kind.propagated_fields());
        for pointer in kind.unwrap_or_default() {
            for value in [json!("first"), json!("second")] {
                let patch = pointer.split('/').skip(1).collect::<Vec<_>>();
                let patch = patch
                    .into_iter()
                    .rev()
                    .fold(value.clone(), |below, field| json!({ field: below }));
                self.jobs.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await?;
                there.until(name, pointer, |job| job.pointer(pointer) == Some(&value)).await?;
            }
        }
        Ok(())
    }

    pub(crate) async fn delete(&self, name: &str) -> anyhow::Result<()> {
        self.jobs
            .delete(name, &DeleteParams::background())
            .await
            .with_context(|| self.what(name, "deleted"))?;
        Ok(())
    }

    pub(crate) async fn gone(&self, name: &str) -> anyhow::Result<()> {
        eventually(SOON, self.what(name, "gone"), async || {
            ensure!(self.jobs.get_opt(name).await?.is_none(), "it is still there");
            Ok(())
        })
        .await
    }

    /// The Workload of a job, if it has one.
    async fn workload(&self, name: &str) -> anyhow::Result<Option<Workload>> {
        let all = self.workloads.list(&Default::default()).await?.items;
        let owned = |workload: &Workload| {
            let mut owners = workload.metadata.owner_references.iter().flatten();
            owners.any(|owner| owner.kind == self.sample.kind && owner.name == name)
        };
        Ok(all.into_iter().find(owned))
    }

    pub(crate) async fn finished(&self, name: &str) -> anyhow::Result<()> {
        self.workload_is(name, conditions::FINISHED).await
    }

    /// Waits until a condition of the job's Workload is True.
    async fn workload_is(&self, name: &str, condition: &str) -> anyhow::Result<()> {
        eventually(SOON, self.what(name, condition), async || {
            let workload = self.workload(name).await?.context("it has none")?;
            let status = workload.status.unwrap_or_default();
            ensure!(conditions::is_true(&status.conditions, condition), "{:?}", status.conditions);
            Ok(())
        })
        .await
    }

    async fn no_workload(&self, name: &str) -> anyhow::Result<()> {
        eventually(SOON, self.what(name, "its Workload gone"), async || {
            let left = self.workload(name).await?;
            ensure!(left.is_none(), "{:?}", left.map(|workload| workload.metadata));
            Ok(())
        })
        .await
    }
}

/// Whether a status says at least so much.
fn contains(status: &Value, wanted: &Value) -> bool {
    match (status, wanted) {
        (Value::Object(status), Value::Object(wanted)) => wanted
            .iter()
            .all(|(key, wanted)| status.get(key).is_some_and(|it| contains(it, wanted))),
        (Value::Array(status), Value::Array(wanted)) => {
            status.len() == wanted.len()
                && status.iter().zip(wanted).all(|(status, wanted)| contains(status, wanted))
        }
        (status, wanted) => status == wanted,
    }
}

/// A job of a cluster's own: admitted, started, run, ended if its kind ends, deleted.
pub(crate) async fn runs_here(here: &Jobs<'_>, namespace: &str, queue: &str) -> anyhow::Result<()> {
    let name = "local";
    here.create(namespace, queue, name).await?;
    here.started(name).await?;
    let workload = here.workload(name).await?.with_context(|| here.what(name, "its Workload"))?;
    let shape: Vec<(&str, i32)> =
        workload.spec.pod_sets.iter().map(|it| (it.name.as_str(), it.count)).collect();
    let wanted = here.sample.pod_sets;
    let same = |(got, wanted): (&(&str, i32), &(&str, i32))| {
        got.0.ends_with(wanted.0) && got.1 == wanted.1
    };
    let right = shape.len() == wanted.len() && shape.iter().zip(wanted).all(same);
    ensure!(right, "{}: {shape:?} instead of {wanted:?}", here.what(name, "pod sets"));
    here.report(name, &here.sample.running).await?;
    if let Some(ended) = &here.sample.ended {
        here.report(name, ended).await?;
        here.finished(name).await?;
    }
    here.delete(name).await?;
    here.no_workload(name).await
}

/// A job of the hub: sent, started there, its status shown here, its copy collected.
pub(crate) async fn runs_there(
    here: &Jobs<'_>,
    there: &Jobs<'_>,
    namespace: &str,
    queue: &str,
) -> anyhow::Result<()> {
    let name = "sent";
    let created = here.create(namespace, queue, name).await?;
    let sample = here.sample;
    ensure!(
        created.pointer(sample.suspend) == Some(&json!(true)),
        "{}",
        here.what(name, "not held")
    );
    if let Some(managed_by) = sample.managed_by {
        let manager = created.pointer(managed_by);
        ensure!(
            manager == Some(&json!("kueue.x-k8s.io/multikueue")),
            "{}: {manager:?}",
            here.what(name, "manager")
        );
    }
    eventually(SOON, there.what(name, "its copy"), async || Ok(there.jobs.get(name).await?))
        .await?;
    let copy = there.started(name).await?;
    ensure!(
        copy["metadata"]["labels"]["kueue.x-k8s.io/multikueue-origin"] == "multikueue",
        "{copy}"
    );
    if let Some(manager) = sample.managed_by.and_then(|managed_by| copy.pointer(managed_by)) {
        ensure!(
            manager != "kueue.x-k8s.io/multikueue",
            "{}: {manager}",
            there.what(name, "manager")
        );
    }
    there.report(name, &sample.running).await?;
    let shown = here.shows(name, &sample.running).await?;
    // The hub's `waitForPodsReady` goes by this.
    here.workload_is(name, conditions::PODS_READY).await?;
    if sample.managed_by.is_some() {
        // Its controller here knows that it is not its own.
        here.until(name, "shown as started", |job| {
            job.pointer(sample.suspend) == Some(&json!(false))
        })
        .await?;
    } else {
        ensure!(
            shown.pointer(sample.suspend) == Some(&json!(true)),
            "{}",
            here.what(name, "runs on the hub")
        );
    }
    here.change_followed(there, name).await?;
    if let Some(ended) = &sample.ended {
        there.report(name, ended).await?;
        here.shows(name, ended).await?;
        here.finished(name).await?;
        there.gone(name).await?;
        here.delete(name).await?;
    } else {
        here.delete(name).await?;
        there.gone(name).await?;
    }
    here.no_workload(name).await
}
