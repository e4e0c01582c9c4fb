//! Takes over what stock MultiKueue created on a kubeconfig worker, before the agent does anything
//! else there. The copies get this hub's marks, and the hub's Workload gets an attempt. Running jobs
//! go on.
//!
//! MultiKueue gives a copy the name of its original, and a Workload's name contains a hash of its
//! job's uid. So a copy with MultiKueue's origin label belongs to the dispatching Workload of that
//! name.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{Api, ApiResource, DynamicObject, ListParams, ObjectMeta, Patch, PatchParams};
use kube::{Client, Resource as _, ResourceExt as _};
use serde_json::{Value, json};
use switchyard_agent::proof::Seal;
use switchyard_api::v1beta2::{CheckState, Workload};
use switchyard_api::{conditions, names};
use switchyard_controller::Context;
use switchyard_controller::workload::{has_reservation, is_evicted, is_finished};
use switchyard_jobs::{JobKind, enabled_kinds, meta::LABEL_VALUE_MAX};
use switchyard_platform::readable::Readable;

use crate::api_objects::dispatches;
use crate::dispatcher_task::{first_replica, is_later_replica};

const WORKLOAD: &str = "kueue.x-k8s.io/v1beta2, Kind=Workload";

/// Deadline of one API call.
const CALL: Duration = Duration::from_secs(30);
/// Tries to write a Workload that others write, too.
const CONFLICTS: u32 = 8;

/// Takes over the copies on one worker cluster.
pub(super) struct Adoption<'a> {
    pub(super) ctx: &'a Arc<Context>,
    pub(super) cluster: &'a str,
    pub(super) seal: &'a Seal,
    pub(super) origin: &'a str,
    /// All job kinds that the hub sends, also those that only its configuration knows.
    pub(super) frameworks: &'a [String],
    pub(super) remote: &'a Client,
}

impl Adoption<'_> {
    /// Marks all copies that are not marked yet. Returns their number.
    ///
    /// # Errors
    /// An API server refused a call, or the job of a copy may not be read. Marks made before stay,
    /// and the next run continues.
    pub(super) async fn run(&self) -> Result<usize, String> {
        let copies: Api<Readable<Workload>> = Api::all(self.remote.clone());
        let copies = call(copies.list(&self.unmarked())).await?.items;
        let copies: Vec<Workload> =
            copies.into_iter().filter_map(|copy| copy.or_warn("workloads")).collect();
        if copies.is_empty() {
            return Ok(0);
        }
        let jobs = self.jobs().await?;
        // Before the marks, which take longer: until then, the job may be offered to other clusters.
        for copy in &copies {
            self.record_cluster(copy, &jobs).await?;
        }
        let mut adopted = 0;
        for copy in copies {
            let (namespace, name) = (copy.namespace().unwrap_or_default(), copy.name_any());
            let Some(original) = self.ctx.stores.workloads.get(&namespace, &name) else { continue };
            // A Workload with marks and a job without them would be two copies.
            let key = (namespace.clone(), name.clone());
            if jobs.unreadable.contains(&key) || !dispatches(&self.ctx.stores, &original) {
                continue;
            }
            if let Some(kind) = jobs.forbidden_owner(&original) {
                if !self.may_run_here(&original) {
                    continue;
                }
                return Err(format!(
                    "MultiKueue's copy {namespace}/{name} cannot be taken over: the account of the kubeconfig \
                     may not list {kind}s; deploy/rbac/kubeconfig-worker.yaml has the rights that it needs"
                ));
            }
            let attempt = self.number(&original).await?;
            let uid = original.uid().unwrap_or_default();
            for job in jobs.readable.get(&key).into_iter().flatten() {
                self.mark_job(job, &name, &uid, attempt).await?;
            }
            let api: Api<Workload> = Api::namespaced(self.remote.clone(), &namespace);
            // Workloads of an elastic job also carry the proof for the name of their slice chain.
            let chain = copy
                .annotations()
                .get(names::WORKLOAD_SLICE_NAME)
                .filter(|chain| !chain.is_empty());
            let names: Vec<&str> =
                std::iter::once(&name).chain(chain).map(String::as_str).collect();
            let mut marks = self.marks(&uid, attempt, WORKLOAD, (&namespace, &names));
            marks["metadata"]["uid"] = copy.uid().into();
            if is_later_replica(&original) {
                marks["metadata"]["annotations"][names::FOLLOWS] = "true".into();
            }
            call(api.patch(&name, &params(), &Patch::Merge(marks))).await?;
            tracing::info!(
                cluster = self.cluster,
                namespace,
                workload = name,
                attempt,
                "copy of MultiKueue's taken over"
            );
            adopted += 1;
        }
        Ok(adopted)
    }

    /// The attempt of the copy. A Workload that MultiKueue committed to this cluster gets the first
    /// one.
    async fn number(&self, original: &Workload) -> Result<u64, String> {
        let status = original.status.as_ref();
        let known = status
            .and_then(|status| status.dispatch.as_ref())
            .map_or(0, |dispatch| dispatch.attempt);
        let here = status.and_then(|status| status.cluster_name.as_deref()) == Some(self.cluster);
        // If a check is not Ready, the dispatcher commits the copy when the cluster reports it.
        let is_ready = status.is_some_and(|status| {
            let mut checks = status.admission_checks.iter();
            checks.all(|check| check.state == CheckState::Ready)
        });
        if known == 0 && here && is_ready {
            let api: Api<Workload> =
                Api::namespaced(self.ctx.client.clone(), &original.namespace().unwrap_or_default());
            let first = json!({
                "metadata": {"uid": original.uid(), "resourceVersion": original.resource_version()},
                "status": {"dispatch": {"attempt": 1}},
            });
            let written =
                call(api.patch_status(&original.name_any(), &params(), &Patch::Merge(first)))
                    .await?;
            // The dispatcher must know the attempt before the cluster reports it.
            self.ctx.stores.workloads.observe(written);
        }
        Ok(u64::try_from(known).unwrap_or(0).max(1))
    }

    /// Whether the first replica of the original's object is committed to this cluster.
    fn is_first_here(&self, original: &Workload) -> bool {
        first_replica(&self.ctx.stores, original).is_some_and(|first| {
            let status = first.status.as_ref();
            let cluster = status.and_then(|status| status.cluster_name.as_deref());
            cluster == Some(self.cluster) && !is_evicted(&first) && !is_finished(&first)
        })
    }

    /// Records this cluster for a job that was started here, if the manager stopped before it did so.
    /// The dispatcher takes the attempt from the cluster's report.
    async fn record_cluster(&self, copy: &Workload, jobs: &Jobs) -> Result<(), String> {
        let key = (copy.namespace().unwrap_or_default(), copy.name_any());
        let mut original = self.ctx.stores.workloads.get(&key.0, &key.1);
        let api: Api<Workload> = Api::namespaced(self.ctx.client.clone(), &key.0);
        for _ in 0..CONFLICTS {
            let Some(found) = original.filter(|original| {
                let is_here = jobs.readable.contains_key(&key) || self.is_first_here(original);
                let dispatches = dispatches(&self.ctx.stores, original);
                is_here && dispatches && is_started_unrecorded(original, copy)
            }) else {
                return Ok(());
            };
            // The hub's webhook lets a new attempt alone set the cluster.
            let patch = json!({
                "metadata": {"uid": found.uid(), "resourceVersion": found.resource_version()},
                "status": {
                    "clusterName": self.cluster, "nominatedClusterNames": null,
                    "dispatch": {"attempt": 0},
                },
            });
            let (params, patch) = (params(), Patch::Merge(patch));
            let written = api.patch_status(&key.1, &params, &patch);
            match tokio::time::timeout(CALL, written).await {
                Ok(Ok(written)) => {
                    self.ctx.stores.workloads.observe(written);
                    return Ok(());
                }
                Ok(Err(kube::Error::Api(status))) if status.is_conflict() => {
                    original = call(api.get_opt(&key.1)).await?.map(Arc::new);
                }
                Ok(Err(error)) => return Err(error.to_string()),
                Err(_) => return Err(late()),
            }
        }
        Err(format!("others kept writing the Workload {}/{}", key.0, key.1))
    }

    /// Whether the original is not finished, and not committed to another cluster.
    fn may_run_here(&self, original: &Workload) -> bool {
        let status = original.status.as_ref();
        let committed = status.and_then(|status| status.cluster_name.as_deref());
        committed.is_none_or(|cluster| cluster == self.cluster) && !is_finished(original)
    }

    /// Selects copies of MultiKueue without this hub's mark.
    fn unmarked(&self) -> ListParams {
        ListParams::default().labels(&format!(
            "{}={},!{}",
            names::MULTIKUEUE_ORIGIN,
            self.origin,
            names::HUB_ID
        ))
    }

    /// Reads the unmarked jobs.
    async fn jobs(&self) -> Result<Jobs, String> {
        let mut all = Jobs::default();
        for kind in enabled_kinds(self.frameworks) {
            let resource = kind.id().api_resource();
            let api: Api<Readable<DynamicObject>> = Api::all_with(self.remote.clone(), &resource);
            let found = match tokio::time::timeout(CALL, api.list(&self.unmarked())).await {
                Ok(Ok(found)) => found,
                // The worker lacks this kind. The 404 for an unknown group has no reason, and kube's
                // `is_not_found` looks at nothing else.
                Ok(Err(kube::Error::Api(status))) if status.code == 404 => continue,
                // Kueue's documentation gives a manager the rights on the kinds in use only.
                Ok(Err(kube::Error::Api(status))) if status.code == 403 => {
                    all.forbidden.insert((resource.group.clone(), resource.kind.clone()));
                    continue;
                }
                Ok(Err(error)) => return Err(error.to_string()),
                Err(_) => return Err(late()),
            };
            for job in found.items {
                let namespace = job.meta().namespace.clone().unwrap_or_default();
                let workload = prebuilt(job.meta());
                let name = job.meta().name.clone().unwrap_or_default();
                let Some(job) = job.or_warn(&resource.plural) else {
                    let Some(workload) = workload else {
                        return Err(format!("{} {namespace}/{name} cannot be read", resource.kind));
                    };
                    all.unreadable.insert((namespace, workload));
                    continue;
                };
                let value = serde_json::to_value(&job).map_err(|error| error.to_string())?;
                let workload = workload.or_else(|| first_group(kind, &value));
                let Some(workload) = workload else { continue };
                let of_workload = all.readable.entry((namespace, workload)).or_default();
                let is_member = kind.group_of(&value).is_some();
                of_workload.push(Copy { resource: resource.clone(), job, is_member });
            }
        }
        Ok(all)
    }

    async fn mark_job(
        &self,
        copy: &Copy,
        workload: &str,
        uid: &str,
        attempt: u64,
    ) -> Result<(), String> {
        let Copy { resource, job, is_member } = copy;
        let mut finalizers = job.finalizers().to_vec();
        if !finalizers.iter().any(|finalizer| finalizer == names::TERMINAL_STATE) {
            finalizers.push(names::TERMINAL_STATE.to_owned());
        }
        let (namespace, name) = (job.namespace().unwrap_or_default(), job.name_any());
        let gvk = format!("{}, Kind={}", resource.api_version, resource.kind);
        let mut marks = self.marks(uid, attempt, &gvk, (&namespace, &[&name]));
        // A merge patch replaces the whole list, so patch only the version that was read.
        marks["metadata"]["resourceVersion"] = job.resource_version().into();
        marks["metadata"]["finalizers"] = finalizers.into();
        // The agent lists the members of a group by this label. Kueue sets an annotation.
        if *is_member && workload.len() <= LABEL_VALUE_MAX {
            marks["metadata"]["labels"][names::PREBUILT_WORKLOAD_NAME] = workload.into();
        }
        let api: Api<DynamicObject> =
            Api::namespaced_with(self.remote.clone(), &namespace, resource);
        call(api.patch(&name, &params(), &Patch::Merge(marks))).await.map(drop)
    }

    fn marks(&self, uid: &str, attempt: u64, gvk: &str, place: (&str, &[&str])) -> Value {
        let proof = self.seal.proof(uid, attempt, gvk, place);
        json!({"metadata": {
            "labels": {names::HUB_ID: self.seal.hub_id()},
            "annotations": {names::WORKLOAD_UID: uid, names::ATTEMPT: attempt.to_string(), names::PROOF: proof},
        }})
    }
}

/// Whether the copy was admitted on a worker, and no cluster is recorded for the original.
fn is_started_unrecorded(original: &Workload, copy: &Workload) -> bool {
    let (Some(status), Some(there)) = (&original.status, &copy.status) else { return false };
    let holds_quota = has_reservation(original) && !is_evicted(original) && !is_finished(original);
    let is_recorded = status.cluster_name.is_some() || status.dispatch.is_some();
    // A slice goes with the one that it replaces.
    let is_slice = original.annotations().contains_key(names::WORKLOAD_SLICE_REPLACEMENT_FOR);
    let finished = conditions::find(&there.conditions, conditions::FINISHED);
    let finished = finished.filter(|finished| finished.status == conditions::TRUE);
    let is_jobs_end = finished.is_none_or(|end| ["Succeeded", "Failed"].contains(&&*end.reason));
    let was_started = conditions::is_true(&there.conditions, conditions::ADMITTED) && is_jobs_end;
    holds_quota && !is_recorded && !is_slice && was_started
}

/// A job on the worker, without marks.
struct Copy {
    resource: ApiResource,
    job: DynamicObject,
    /// It is one of several objects that form the job.
    is_member: bool,
}

/// The unmarked jobs, by namespace and name of their Workloads.
#[derive(Default)]
struct Jobs {
    readable: BTreeMap<(String, String), Vec<Copy>>,
    unreadable: BTreeSet<(String, String)>,
    /// Groups and kinds that the hub may not list.
    forbidden: BTreeSet<(String, String)>,
}

impl Jobs {
    /// The kind of the Workload's job, if jobs of that kind may not be listed.
    fn forbidden_owner(&self, original: &Workload) -> Option<String> {
        let kind = |owner: &OwnerReference| {
            let group = owner.api_version.rsplit_once('/').map_or("", |(group, _)| group);
            (group.to_owned(), owner.kind.clone())
        };
        let found = original.owner_references().iter().map(kind);
        found.into_iter().find(|kind| self.forbidden.contains(kind)).map(|(_, kind)| kind)
    }
}

/// The Workload that a job names. Kueue sets an annotation; older versions set a label.
fn prebuilt(metadata: &ObjectMeta) -> Option<String> {
    let of = |map: &Option<BTreeMap<String, String>>| {
        map.as_ref()?.get(names::PREBUILT_WORKLOAD_NAME).cloned()
    };
    of(&metadata.annotations).or_else(|| of(&metadata.labels))
}

/// The Workload of the first pod group, for a job that does not name its Workload.
fn first_group(kind: &dyn JobKind, object: &Value) -> Option<String> {
    let groups = kind.serving()?.groups(object);
    groups.into_iter().next().map(|group| group.name)
}

fn params() -> PatchParams {
    PatchParams { field_manager: Some(names::FIELD_MANAGER.to_owned()), ..PatchParams::default() }
}

async fn call<T>(request: impl Future<Output = kube::Result<T>>) -> Result<T, String> {
    match tokio::time::timeout(CALL, request).await {
        Ok(answer) => answer.map_err(|error| error.to_string()),
        Err(_) => Err(late()),
    }
}

fn late() -> String {
    format!("taking over MultiKueue's copies: no answer within {CALL:?}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[rstest::rstest]
    #[case::of_its_kind("jobset.x-k8s.io/v1alpha2", "JobSet", Some("JobSet"))]
    #[case::of_another_group("example.com/v1", "JobSet", None)]
    #[case::of_the_core("v1", "Pod", Some("Pod"))]
    fn job_that_may_not_be_listed_is_named(
        #[case] api_version: &str,
        #[case] kind: &str,
        #[case] expected: Option<&str>,
    ) {
        let forbidden = [("jobset.x-k8s.io", "JobSet"), ("", "Pod")];
        let forbidden = forbidden.map(|(group, kind)| (group.to_owned(), kind.to_owned()));
        let jobs = Jobs { forbidden: forbidden.into(), ..Jobs::default() };
        let owner = json!({"apiVersion": api_version, "kind": kind, "name": "j", "uid": "u"});
        let workload = json!({
            "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload",
            "metadata": {"name": "w", "ownerReferences": [owner]}, "spec": {"podSets": []},
        });
        let workload = serde_json::from_value(workload).unwrap();
        assert_eq!(jobs.forbidden_owner(&workload).as_deref(), expected);
    }
}
