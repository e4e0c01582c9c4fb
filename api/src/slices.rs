//! Slices: the Workloads of an elastic job, Kueue's `ElasticJobsViaWorkloadSlices` (KEP-77).

use std::sync::Arc;

use crate::{
    names,
    v1beta2::{ReclaimablePod, Workload},
};

/// The feature gate, on by default as in Kueue.
pub const FEATURE_GATE: &str = "ElasticJobsViaWorkloadSlices";

/// Whether the Workload belongs to an elastic job.
#[must_use]
pub fn is_slice(workload: &Workload) -> bool {
    annotation(workload, names::ELASTIC_JOB) == Some("true")
}

/// Marks a named Workload as the first slice of a chain.
pub fn mark_first(workload: &mut Workload) {
    let name = workload.metadata.name.clone().unwrap_or_default();
    let annotations = workload.metadata.annotations.get_or_insert_default();
    annotations.insert(names::ELASTIC_JOB.into(), "true".into());
    annotations.insert(names::WORKLOAD_SLICE_NAME.into(), name);
}

/// Whether a count of reclaimable pods exceeds the pods of an elastic job. It is then from
/// before the job shrank and is ignored.
#[must_use]
pub fn is_outdated(workload: &Workload, pods: &ReclaimablePod) -> bool {
    let pod_set = workload.spec.pod_sets.iter().find(|pod_set| pod_set.name == pods.name);
    is_slice(workload) && pod_set.is_some_and(|pod_set| pods.count > pod_set.count)
}

/// The name of the chain, which is the name of its first slice. The pods bear it, too.
#[must_use]
pub fn slice_name(workload: &Workload) -> &str {
    annotation(workload, names::WORKLOAD_SLICE_NAME)
        .or(workload.metadata.name.as_deref())
        .unwrap_or_default()
}

/// The slice that this one replaces, as `namespace/name`.
#[must_use]
pub fn replacement_for(workload: &Workload) -> Option<&str> {
    annotation(workload, names::WORKLOAD_SLICE_REPLACEMENT_FOR)
}

/// Whether `new` replaces `old`.
#[must_use]
pub fn replaces(new: &Workload, old: &Workload) -> bool {
    replacement_for(new).is_some_and(|replaced| replaced == key(old))
}

/// The Workloads of one job in the order of creation. Creation times have whole seconds. Within a
/// second, a slice comes after the slice that it replaces.
#[must_use]
pub fn in_order(mut workloads: Vec<Arc<Workload>>) -> Vec<Arc<Workload>> {
    let all = workloads.clone();
    let before = |new: &Arc<Workload>| all.iter().find(|old| replaces(new, old));
    // Ends the walk if a user has linked the chain to a ring.
    let place = |workload: &Arc<Workload>| {
        std::iter::successors(before(workload), |it| before(it)).take(all.len()).count()
    };
    workloads.sort_by_cached_key(|it| {
        let made = it.metadata.creation_timestamp.as_ref().map(|time| time.0);
        (made, place(it), it.metadata.uid.clone())
    });
    workloads
}

fn annotation<'a>(workload: &'a Workload, name: &str) -> Option<&'a str> {
    workload.metadata.annotations.as_ref()?.get(name).map(String::as_str)
}

/// A Workload as `namespace/name`.
#[must_use]
pub fn key(workload: &Workload) -> String {
    let part = |part: &Option<String>| part.clone().unwrap_or_default();
    format!("{}/{}", part(&workload.metadata.namespace), part(&workload.metadata.name))
}
