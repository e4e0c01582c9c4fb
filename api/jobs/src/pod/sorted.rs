//! Sorts the pods of a group into those that count, excess pods and replaced pods. The owner of a
//! failed pod replaces it with another pod of its role. Replaced and excess pods lose their
//! finalizer.

use std::cmp::Ordering;
use std::collections::BTreeSet;

use jiff::Timestamp;
use serde_json::Value;

use super::group::{
    annotations, compose, counts, is_fast, is_serving, labels, members, total_count,
};
use super::one::{created, group_name, is_gated, is_held, is_terminated, last_active, phase, role};
use crate::meta::{is_deleting, label, name, queue_name};
use crate::{BuildOptions, MAX_POD_SETS};
use switchyard_api::v1beta2::Workload;
use switchyard_syntax::names;

/// The pods of a group, sorted by what happens to them.
#[derive(Debug, Clone, PartialEq)]
pub struct SortedPods {
    /// The pods that count, as a group. Null if there are none.
    pub group: Value,
    /// Excess pods, to be released and deleted.
    pub excess: Vec<Value>,
    /// Failed pods that have replacements, to be released.
    pub replaced: Vec<Value>,
    /// Pods that replace pods which have not ended yet.
    pub waiting: Vec<Value>,
    /// The number of missing pods.
    pub absent: i32,
}

/// Sorts the pods of a group without a Workload. The Workload gets the pods' labels and annotations
/// with the keys in `copied`. A pod that is being deleted starts no Workload: its spec may include
/// additions of an earlier admission.
///
/// # Errors
/// Why no Workload can be made: too few pods, or pods that contradict each other.
pub fn sort_new(group: &Value, copied: BuildOptions<'_>) -> Result<SortedPods, String> {
    let (active, replaced): (Vec<Value>, Vec<Value>) =
        members(group).iter().cloned().partition(|pod| counts(group, pod) && !is_deleting(pod));
    let total = total_count(group)?;
    check(group, active.len(), total)?;
    labels(group, copied.label_keys_to_copy)?;
    annotations(group, copied.annotation_keys_to_copy)?;
    let (kept, excess) = split(active, total);
    let group = compose(kept);
    let roles: BTreeSet<String> = members(&group).iter().map(role).collect();
    if !is_fast(&group) && roles.len() > MAX_POD_SETS {
        return Err(format!("pod group can't include more than {MAX_POD_SETS} roles"));
    }
    let replaced = replaced.into_iter().filter(is_held).collect();
    Ok(SortedPods { group, excess, replaced, waiting: Vec::new(), absent: 0 })
}

/// The error of the pods' metadata.
fn check(group: &Value, active: usize, total: i32) -> Result<(), String> {
    if let Some(index) = label(group, names::POD_GROUP_POD_INDEX) {
        let below =
            index.parse::<u32>().ok().is_some_and(|index| i64::from(index) < i64::from(total));
        if !below {
            return Err(format!(
                "incorrect label value {index:?} of {} for Pod \"{}\": value should be a whole number less than {total}",
                names::POD_GROUP_POD_INDEX,
                name(group)
            ));
        }
    }
    if !is_fast(group) && i64::try_from(active).is_ok_and(|active| active < i64::from(total)) {
        let group = group_name(group).unwrap_or_default();
        return Err(format!("'{group}' group has fewer runnable pods than expected"));
    }
    let queue = queue_name(group);
    for pod in members(group).iter().filter(|pod| phase(pod) != "Failed") {
        let pair = || format!("pods '{}' and '{}' has different", name(group), name(pod));
        if queue_name(pod) != queue {
            return Err(format!("{} queue names: {queue}!={}", pair(), queue_name(pod)));
        }
        let count =
            total_count(pod).map_err(|problem| format!("pod '{}': {problem}", name(pod)))?;
        if count != total {
            return Err(format!(
                "{} '{}' values: {total}!={count}",
                pair(),
                names::POD_GROUP_TOTAL_COUNT
            ));
        }
    }
    Ok(())
}

/// Sorts the pods of a group by the roles of its Workload.
#[must_use]
pub fn sort(group: &Value, workload: &Workload, now: Timestamp) -> SortedPods {
    let mut kept = Vec::new();
    let mut sorted = SortedPods {
        group: Value::Null,
        excess: Vec::new(),
        replaced: Vec::new(),
        waiting: Vec::new(),
        absent: 0,
    };
    for pod_set in &workload.spec.pod_sets {
        let of_role = members(group).iter().filter(|pod| role(pod) == pod_set.name).cloned();
        let (active, mut gone): (Vec<Value>, Vec<Value>) =
            of_role.partition(|pod| counts(group, pod));
        let active_count = i32::try_from(active.len()).unwrap_or(i32::MAX);
        sorted.absent += match is_fast(group) {
            true => i32::from(pod_set.count > 0 && active.is_empty()),
            false => (pod_set.count - active_count).max(0),
        };
        // A failed pod keeps its finalizer until its replacement exists.
        let wanted =
            usize::try_from(pod_set.count.saturating_sub(active_count)).unwrap_or_default();
        let (within, mut beyond) = split(active, pod_set.count);
        let mut ending = within.iter().filter(|pod| is_deleting(pod)).count();
        sorted.waiting.extend(beyond.extract_if(.., |pod| {
            let waits = ending > 0 && is_gated(pod) && !is_deleting(pod);
            ending -= usize::from(waits);
            waits
        }));
        gone.sort_by(|a, b| by_last_activity(a, b, now));
        let replaced = gone.split_off(wanted.min(gone.len()));
        // A controller can replace a serving pod only once its name is free. Its end is recorded,
        // so it is released.
        let nameless = gone
            .iter()
            .filter(|pod| is_serving(group) && is_terminated(pod) && is_deleting(pod))
            .cloned();
        sorted.replaced.extend(nameless.chain(replaced).filter(is_held));
        kept.extend(within);
        kept.extend(gone);
        sorted.excess.extend(beyond);
    }
    if !kept.is_empty() {
        sorted.group = compose(kept);
    }
    sorted
}

/// The first `count` pods, and the rest. Finalized pods come first, then running ones, then older
/// ones.
fn split(mut pods: Vec<Value>, count: i32) -> (Vec<Value>, Vec<Value>) {
    pods.sort_by(|a, b| {
        is_held(b)
            .cmp(&is_held(a))
            .then(is_gated(a).cmp(&is_gated(b)))
            .then_with(|| created(a).cmp(&created(b)))
    });
    let count = usize::try_from(count).unwrap_or_default().min(pods.len());
    let beyond = pods.split_off(count);
    (pods, beyond)
}

fn by_last_activity(a: &Value, b: &Value, now: Timestamp) -> Ordering {
    is_held(b)
        .cmp(&is_held(a))
        .then_with(|| last_active(b, now).cmp(&last_active(a, now)))
        .then_with(|| created(a).cmp(&created(b)))
}
