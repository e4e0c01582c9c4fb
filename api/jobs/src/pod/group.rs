//! Pod groups: pods that form one job.
//!
//! [`compose`] represents a group as one of its pods, with all pods beside it. The group has one
//! Workload with the group's name and one pod set for each role. [`super::sorted`] decides which
//! pods count.

use std::collections::BTreeMap;

use serde_json::Value;

use super::one::{
    created, group_name, is_held, is_runnable_or_succeeded, is_terminated, is_unretriable, phase,
    role,
};
use crate::meta::{annotation, is_deleting, label, name, prebuilt_workload_name};
use crate::{JobEnd, JobError, number};
use switchyard_api::v1beta2::{PodSet, ReclaimablePod, Workload};
use switchyard_syntax::names;

/// The field with all pods of the group, beside a pod's own fields. Never written to the API
/// server.
const MEMBERS: &str = "switchyard.dev/members";

/// Composes the group of these pods: the oldest pod that has not failed, with all pods, the oldest
/// first, beside it.
pub(super) fn compose(mut pods: Vec<Value>) -> Value {
    pods.sort_by(|a, b| (created(a), name(a)).cmp(&(created(b), name(b))));
    let head = pods.iter().find(|pod| phase(pod) != "Failed").or(pods.first());
    let mut group = head.cloned().unwrap_or_default();
    if let Some(fields) = group.as_object_mut() {
        fields.insert(MEMBERS.to_owned(), Value::Array(pods));
    }
    group
}

/// The pods of a group. A pod without a group is its only member.
pub(super) fn members(job: &Value) -> &[Value] {
    job.get(MEMBERS).and_then(Value::as_array).map_or(std::slice::from_ref(job), Vec::as_slice)
}

pub(super) fn members_mut(job: &mut Value) -> &mut [Value] {
    if job.get(MEMBERS).is_none() {
        return std::slice::from_mut(job);
    }
    job.get_mut(MEMBERS).and_then(Value::as_array_mut).map(Vec::as_mut_slice).unwrap_or_default()
}

/// Whether this is a composed group.
pub(super) fn is_group(job: &Value) -> bool {
    job.get(MEMBERS).is_some()
}

/// Whether the group is queued with its first pod.
pub(super) fn is_fast(job: &Value) -> bool {
    annotation(job, names::POD_GROUP_FAST_ADMISSION) == Some("true")
}

/// Whether the group serves and never finishes.
pub(super) fn is_serving(job: &Value) -> bool {
    is_group(job) && annotation(job, names::POD_GROUP_SERVING) == Some("true")
}

/// Whether the group still needs the pod: it can run, runs, or has succeeded. In a serving group,
/// another pod replaces a pod that has ended.
pub(super) fn counts(group: &Value, pod: &Value) -> bool {
    is_runnable_or_succeeded(pod) && !(is_serving(group) && is_terminated(pod))
}

/// The group's number of pods, as this pod's annotation says.
///
/// # Errors
/// The error of the annotation.
pub(super) fn total_count(pod: &Value) -> Result<i32, String> {
    let key = names::POD_GROUP_TOTAL_COUNT;
    let text =
        annotation(pod, key).ok_or_else(|| format!("failed to extract '{key}' annotation"))?;
    let count: i32 =
        number::whole(text).map_err(|problem| format!("{problem}: should be a whole number"))?;
    if count < 1 {
        return Err(format!(
            "incorrect annotation value '{key}={text}': group total count should be greater than zero"
        ));
    }
    Ok(count)
}

/// The pods to run in a worker cluster, at most the group's number. A failed pod is included only
/// if it has no replacement.
pub(super) fn to_run(group: &Value) -> Vec<&Value> {
    let total =
        total_count(group).map_or(usize::MAX, |count| usize::try_from(count).unwrap_or(usize::MAX));
    let there = members(group).iter().filter(|pod| !is_deleting(pod));
    let (good, failed): (Vec<&Value>, Vec<&Value>) = there.partition(|pod| counts(group, pod));
    let lacking = total.saturating_sub(good.len());
    good.into_iter().take(total).chain(failed.into_iter().take(lacking)).collect()
}

/// The pod sets, one for each role, by name. A group that is queued with its first pod has only
/// that pod's role.
pub(super) fn pod_sets(
    group: &Value,
    one: impl Fn(&Value) -> PodSet,
) -> Result<Vec<PodSet>, JobError> {
    let mut active = members(group).iter().filter(|pod| counts(group, pod));
    if is_fast(group) {
        let malformed = |problem| JobError::Malformed { field: count_field(), problem };
        let count = total_count(group).map_err(malformed)?;
        let first = active.next().ok_or_else(|| JobError::Malformed {
            field: "status.phase".into(),
            problem: "failed to find a runnable pod in the group".into(),
        })?;
        return Ok(vec![PodSet { name: role(first), count, ..one(first) }]);
    }
    let mut roles: BTreeMap<String, PodSet> = BTreeMap::new();
    for pod in active {
        let role = role(pod);
        match roles.get_mut(&role) {
            Some(pod_set) => pod_set.count += 1,
            None => drop(roles.insert(role.clone(), PodSet { name: role, count: 1, ..one(pod) })),
        }
    }
    Ok(roles.into_values().collect())
}

fn count_field() -> String {
    format!("metadata.annotations[{}]", names::POD_GROUP_TOTAL_COUNT)
}

/// The end of the group: all pods have succeeded, or all have ended if the group does not replace
/// pods.
pub(super) fn finished(group: &Value) -> Option<JobEnd> {
    let total = total_count(group).ok().filter(|_| !is_serving(group))?;
    let pods = members(group);
    let succeeded = pods.iter().filter(|pod| phase(pod) == "Succeeded").count();
    let all = usize::try_from(total) == Ok(succeeded);
    let given_up = pods.iter().any(is_unretriable) && pods.iter().all(is_terminated);
    (all || given_up)
        .then(|| JobEnd { success: true, message: format!("Pods succeeded: {succeeded}/{total}.") })
}

/// The succeeded pods of each role.
pub(super) fn reclaimable(group: &Value) -> Vec<ReclaimablePod> {
    if is_serving(group) {
        return Vec::new();
    }
    let mut roles: BTreeMap<String, i32> = BTreeMap::new();
    for pod in members(group).iter().filter(|pod| phase(pod) == "Succeeded") {
        *roles.entry(role(pod)).or_default() += 1;
    }
    roles.into_iter().map(|(name, count)| ReclaimablePod { name, count }).collect()
}

/// Pods of a group that cannot run any more and still have Kueue's finalizer.
#[must_use]
pub fn inactive(group: &Value) -> Vec<Value> {
    members(group).iter().filter(|pod| !counts(group, pod) && is_held(pod)).cloned().collect()
}

/// The pods' labels with these keys, for the Workload.
///
/// # Errors
/// If two pods have different values.
pub(crate) fn labels(group: &Value, keys: &[String]) -> Result<BTreeMap<String, String>, String> {
    agreed(group, keys, label)
        .map_err(|key| format!("constructing workload: pods have different label values of {key}"))
}

/// As [`labels`], for annotations.
///
/// # Errors
/// If two pods have different values.
pub(crate) fn annotations(
    group: &Value,
    keys: &[String],
) -> Result<BTreeMap<String, String>, String> {
    agreed(group, keys, annotation).map_err(|key| {
        format!("constructing workload: pods have different annotation values of {key}")
    })
}

/// The common values of the pods that have the keys, or the first key with two values.
fn agreed(
    group: &Value,
    keys: &[String],
    value: for<'v> fn(&'v Value, &str) -> Option<&'v str>,
) -> Result<BTreeMap<String, String>, String> {
    let mut found = BTreeMap::new();
    for pod in members(group) {
        for (key, value) in keys.iter().filter_map(|key| Some((key, value(pod, key)?))) {
            if found.insert(key.clone(), value.to_owned()).is_some_and(|other| other != value) {
                return Err(key.clone());
            }
        }
    }
    Ok(found)
}

/// Whether the Workload matches these pods: it has the group's name and at least as many pods of
/// each role.
#[must_use]
pub fn fits(group: &Value, workload: &Workload, finished: bool) -> bool {
    let mut roles: BTreeMap<String, i32> = BTreeMap::new();
    for pod in members(group).iter().filter(|pod| counts(group, pod)) {
        *roles.entry(role(pod)).or_default() += 1;
    }
    has_room_for(
        group,
        roles.iter().map(|(role, count)| (role.as_str(), *count)),
        workload,
        finished,
    )
}

/// As [`fits`], with the pod sets of the group.
#[must_use]
pub fn is_in_sync(group: &Value, pod_sets: &[PodSet], workload: &Workload, finished: bool) -> bool {
    has_room_for(group, pod_sets.iter().map(|it| (it.name.as_str(), it.count)), workload, finished)
}

fn has_room_for<'a>(
    group: &Value,
    mut roles: impl Iterator<Item = (&'a str, i32)>,
    workload: &Workload,
    finished: bool,
) -> bool {
    let named = match prebuilt_workload_name(group) {
        "" => group_name(group).unwrap_or_default(),
        prebuilt => prebuilt,
    };
    // Both lists are sorted by name.
    let mut pod_sets = workload.spec.pod_sets.iter();
    workload.metadata.name.as_deref() == Some(named)
        && roles.all(|(role, count)| {
            pod_sets.find(|it| it.name == role).is_some_and(|it| finished || it.count >= count)
        })
}
