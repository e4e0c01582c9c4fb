//! `v1` Pod, alone or in a group.
//!
//! A pod cannot be suspended. It is created with the scheduling gate of admission, which admission
//! removes. Stopping it deletes it, and its owner may create another pod. A single pod is a job
//! with one pod set. The pods of a group form one job (`group.rs`).

mod group;
mod one;
mod shape;
mod sorted;
mod validate;

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::{Value, json};

pub use group::{fits, inactive, is_in_sync};
pub use one::{group_name, is_gated, is_terminated, role};
pub(super) use shape::changed_shape;
pub use shape::shape_hash;
pub use sorted::{SortedPods, sort, sort_new};

use super::meta::{last_transition, object_mut, str_at};
use super::remote::{list, remote_object};
use super::status::{self, conditions};
use super::topology::{PodRanks, TopologySource};
use super::{
    Grouped, JobEnd, JobError, JobKind, KindId, KindProfile, PodSetInfo, Remote, RemoteMeta, Stop,
    SuspendMode,
};
use switchyard_api::v1beta2::{DEFAULT_POD_SET_NAME, PodSet, ReclaimablePod};
use switchyard_syntax::field::FieldError;
use switchyard_syntax::names;

/// The kind `v1` Pod.
#[derive(Debug, Clone, Copy)]
pub struct Pod;

fn pod_set(pod: &Value) -> PodSet {
    PodSet {
        name: DEFAULT_POD_SET_NAME.into(),
        template: json!({ "spec": pod.get("spec").cloned().unwrap_or_default() }).into(),
        count: 1,
        ..PodSet::default()
    }
}

/// Deletes the pods for which `ends` is true, except those that are being deleted already.
fn terminate(job: &Value, ends: impl Fn(&Value) -> bool) -> Stop {
    let pods = group::members(job).iter().filter(|pod| !super::meta::is_deleting(pod) && ends(pod));
    let pods: Vec<Value> = pods.cloned().collect();
    if pods.is_empty() { Stop::Done } else { Stop::Terminate(pods) }
}

fn scheduled(pod: &Value) -> Option<&Value> {
    conditions(pod).find(|it| str_at(it, "/type") == "PodScheduled")
}

/// Leaves out the fields that the other cluster's API server computes.
fn copy_of_one(pod: &Value, remote: RemoteMeta<'_>) -> Value {
    let mut copy = remote_object(Pod.id(), pod, remote);
    if let Some(spec) = object_mut(&mut copy, &["spec"]) {
        for field in ["nodeName", "priority", "preemptionPolicy"] {
            spec.remove(field);
        }
    }
    one::gate(&mut copy);
    copy
}

impl KindProfile for Pod {
    fn id(&self) -> KindId {
        KindId { group: "", version: "v1", kind: "Pod", plural: "pods", framework: "pod" }
    }

    /// A pod is skipped until it has a group.
    fn skips(&self, job: &Value) -> bool {
        one::awaits_group(job)
    }

    fn apply_topology_defaults(&self, job: &mut Value) {
        for pod in group::members_mut(job) {
            one::copy_index(pod);
            one::gate_topology(pod);
        }
    }

    fn is_active(&self, job: &Value) -> bool {
        group::members(job).iter().any(|pod| one::phase(pod) == "Running")
    }

    fn finished(&self, job: &Value) -> Option<JobEnd> {
        if group::is_group(job) {
            return group::finished(job);
        }
        one::is_terminated(job).then(|| JobEnd {
            success: one::phase(job) == "Succeeded",
            message: str_at(job, "/status/message").to_owned(),
        })
    }

    fn ended_at(&self, job: &Value) -> Option<Timestamp> {
        group::members(job).iter().filter_map(last_transition).max()
    }

    fn pods_ready(&self, job: &Value) -> bool {
        if !group::is_group(job) {
            return one::is_ready(job);
        }
        // A succeeded pod was ready, except in a serving group. A failed pod counts if a
        // replacement exists.
        let serves = group::is_serving(job);
        let is_ready =
            |pod: &&Value| one::is_ready(pod) || !serves && one::phase(pod) == "Succeeded";
        let pods = group::members(job);
        let ready = pods.iter().filter(is_ready).count();
        pods.iter().any(one::is_ready)
            && group::total_count(job)
                .is_ok_and(|total| usize::try_from(total).is_ok_and(|total| ready >= total))
    }

    fn reclaimable(&self, job: &Value) -> Vec<ReclaimablePod> {
        if group::is_group(job) { group::reclaimable(job) } else { Vec::new() }
    }

    fn validate(&self, job: &Value) -> Vec<FieldError> {
        validate::pod(job)
    }
}

impl JobKind for Pod {
    fn grouped(&self) -> Option<&dyn Grouped> {
        Some(self)
    }

    fn remote(&self) -> Option<&dyn Remote> {
        Some(self)
    }

    fn suspend_mode(&self) -> SuspendMode {
        SuspendMode::Gate
    }

    fn release(&self, job: &mut Value) -> bool {
        let mut changed = false;
        for pod in group::members_mut(job) {
            changed |= one::release(pod);
        }
        changed
    }

    fn pod_sets(&self, job: &Value) -> Result<Vec<PodSet>, JobError> {
        if !job.get("spec").is_some_and(Value::is_object) {
            return Err(JobError::Malformed { field: "spec".into(), problem: "is missing".into() });
        }
        if group::is_group(job) { group::pod_sets(job, pod_set) } else { Ok(vec![pod_set(job)]) }
    }

    fn topology_source(&self, job: &Value, _index: usize, pod_set: &PodSet) -> TopologySource {
        // The pod that the pod set was made of.
        let is_of_role = |pod: &&Value| !group::is_group(job) || one::role(pod) == pod_set.name;
        let pod = group::members(job).iter().filter(|pod| group::counts(job, pod)).find(is_of_role);
        TopologySource::at(pod.unwrap_or(job), &[], PodRanks::by(names::POD_GROUP_POD_INDEX))
    }

    fn is_suspended(&self, job: &Value) -> bool {
        group::members(job).iter().any(one::is_suspended)
    }

    fn suspend(&self, job: &mut Value) {
        group::members_mut(job).iter_mut().for_each(one::gate);
    }

    /// The pod's status stays current as long as a finalizer or its node keeps the pod.
    fn counts_while_deleted(&self) -> bool {
        true
    }

    fn active_until(&self, job: &Value) -> Option<Timestamp> {
        let running = group::members(job).iter().filter(|pod| one::phase(pod) == "Running");
        running.map(one::active_until).collect::<Option<Vec<_>>>()?.into_iter().max()
    }

    fn run(&self, job: &mut Value, infos: &[PodSetInfo]) -> Result<(), JobError> {
        if !group::is_group(job) {
            let [info] = infos else {
                return Err(JobError::PodSetCount { want: 1, got: infos.len() });
            };
            return one::start(job, info);
        }
        for pod in group::members_mut(job).iter_mut().filter(|pod| one::is_gated(pod)) {
            let role = one::role(pod);
            let info = infos.iter().find(|info| info.name == role);
            one::start(pod, info.ok_or(JobError::PodSetMissing { name: role })?)?;
        }
        Ok(())
    }

    /// A pod that has started is never restored.
    fn restore(&self, _job: &mut Value, _pod_sets: &[PodSet]) -> bool {
        false
    }

    fn stop(&self, job: &Value, _pod_sets: Option<&[PodSet]>) -> Stop {
        terminate(job, |pod| !one::is_suspended(pod))
    }

    fn discard(&self, job: &Value, _pod_sets: &[PodSet]) -> Stop {
        terminate(job, |_| true)
    }

    fn validate_update(&self, old: &Value, new: &Value) -> Vec<FieldError> {
        validate::pod_update(old, new)
    }
}

impl Grouped for Pod {
    fn group_of<'a>(&self, job: &'a Value) -> Option<&'a str> {
        one::group_name(job)
    }

    fn compose(&self, members: Vec<Value>) -> Value {
        group::compose(members)
    }

    fn members<'a>(&self, job: &'a Value) -> &'a [Value] {
        group::members(job)
    }

    fn is_composed(&self, job: &Value) -> bool {
        group::is_group(job)
    }

    fn syncs_queue(&self, job: &Value) -> bool {
        !(group::is_serving(job) && one::is_suspended_by_parent(job))
    }
}

impl Remote for Pod {
    /// For a group, all pods that are to run.
    fn remote_copy(&self, job: &Value, remote: RemoteMeta<'_>) -> Value {
        if !group::is_group(job) {
            return copy_of_one(job, remote);
        }
        list(
            &group::to_run(job).into_iter().map(|pod| copy_of_one(pod, remote)).collect::<Vec<_>>(),
        )
    }

    /// The copy's status, with one exception: until the copy has a node, a gated pod keeps its own
    /// condition `PodScheduled`, so that no autoscaler makes room for it in this cluster. A pod
    /// that has ended never changes again.
    fn mirror_status(&self, local: &Value, remote: &Value) -> Option<Value> {
        let mut wanted = status::fields(remote);
        if one::is_terminated(local) || wanted.is_empty() {
            return None;
        }
        let has_node = scheduled(remote).is_some_and(|it| str_at(it, "/status") == "True");
        if let Some(kept) = scheduled(local).filter(|_| one::is_gated(local) && !has_node) {
            let mut shown: Vec<Value> = conditions(remote)
                .filter(|it| str_at(it, "/type") != "PodScheduled")
                .cloned()
                .collect();
            shown.push(kept.clone());
            wanted.insert("conditions".to_owned(), Value::Array(shown));
        }
        (wanted != status::fields(local)).then_some(Value::Object(wanted))
    }

    fn reset_status(&self, local: &Value, now: Timestamp) -> Option<Value> {
        let before = status::fields(local);
        let gated = scheduled(local).is_some_and(|it| str_at(it, "/reason") == "SchedulingGated");
        if one::is_terminated(local) || before.is_empty() || one::phase(local) == "Pending" && gated
        {
            return None;
        }
        let waiting = json!({
            "type": "PodScheduled", "status": "False", "reason": "SchedulingGated",
            "message": "Scheduling is blocked due to non-empty scheduling gates",
            "lastProbeTime": null, "lastTransitionTime": super::meta::rfc3339(now),
        });
        let mut wanted = json!({"phase": "Pending", "conditions": [waiting]});
        if let Some((class, wanted)) = before.get("qosClass").zip(wanted.as_object_mut()) {
            wanted.insert("qosClass".to_owned(), class.clone());
        }
        Some(wanted)
    }
}

/// The group's labels with these keys, if its pods agree on them.
pub(super) fn group_labels(job: &Value, keys: &[String]) -> BTreeMap<String, String> {
    group::labels(job, keys).unwrap_or_default()
}

/// The group's annotations with these keys, if its pods agree on them.
pub(super) fn group_annotations(job: &Value, keys: &[String]) -> BTreeMap<String, String> {
    group::annotations(job, keys).unwrap_or_default()
}

/// Whether an owner of the pod gates it and handles its deletion.
#[must_use]
pub fn is_suspended_by_parent(pod: &Value) -> bool {
    one::is_suspended_by_parent(pod)
}
