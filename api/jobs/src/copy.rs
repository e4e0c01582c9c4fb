//! Relations between a hub's copies in a worker cluster.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{KindId, meta};
use switchyard_api::v1beta2::Workload;
use switchyard_syntax::names;

/// Labels and annotations of a hub's copy of a Workload that identify the original.
const MARKS: [&str; 9] = [
    names::HUB_ID,
    names::MULTIKUEUE_ORIGIN,
    names::WORKLOAD_UID,
    names::ATTEMPT,
    names::PROOF,
    names::FENCE_AFTER,
    names::FLAVOR_PINS,
    names::JOB_OWNER_GVK,
    names::JOB_OWNER_NAME,
];

/// A kind in the format of the annotation `kueue.x-k8s.io/job-owner-gvk`: `batch/v1, Kind=Job`.
#[must_use]
pub fn owner_gvk(kind: KindId) -> String {
    format!("{}, Kind={}", kind.api_version(), kind.kind)
}

/// True if the job and the Workload are copies of the same hub's Workload for the same attempt, and
/// the Workload names the job (`job-owner-gvk`, `job-owner-name`).
///
/// The pair needs no owner reference, because the agent deletes both. A copy of the copy under
/// another name has the same marks, but the Workload does not name it.
#[must_use]
pub fn same_copy(kind: KindId, job: &Value, workload: &Workload) -> bool {
    let same = |a: Option<&str>, b: Option<&str>| a.is_some_and(|it| !it.is_empty()) && a == b;
    same(hub_id(workload), meta::label(job, names::HUB_ID))
        && [names::WORKLOAD_UID, names::ATTEMPT]
            .iter()
            .all(|key| same(annotation(workload, key), meta::annotation(job, key)))
        && named_job(workload) == Some((&*owner_gvk(kind), meta::name(job)))
}

/// True if a Switchyard hub sent the job.
#[must_use]
pub fn is_copy_of_hub(job: &Value) -> bool {
    meta::label(job, names::HUB_ID).is_some_and(|hub| !hub.is_empty())
}

/// Marks a Workload as another copy of the same original, for the same attempt.
pub fn mark_as_copy(of: &Workload, workload: &mut Workload) {
    let marks = |map: &Option<BTreeMap<String, String>>| -> BTreeMap<String, String> {
        let map = map.iter().flatten().filter(|(key, _)| MARKS.contains(&key.as_str()));
        map.map(|(key, value)| (key.clone(), value.clone())).collect()
    };
    let (labels, annotations) = (marks(&of.metadata.labels), marks(&of.metadata.annotations));
    workload.metadata.labels.get_or_insert_default().extend(labels);
    workload.metadata.annotations.get_or_insert_default().extend(annotations);
}

/// True if the Workload is a hub's copy that names another job.
#[must_use]
pub fn copy_of_another(kind: KindId, job: &Value, workload: &Workload) -> bool {
    hub_id(workload).is_some()
        && named_job(workload).is_some_and(|named| named != (&*owner_gvk(kind), meta::name(job)))
}

/// Kind (as [`owner_gvk`]) and name of the job that the Workload names.
#[must_use]
pub fn named_job(workload: &Workload) -> Option<(&str, &str)> {
    annotation(workload, names::JOB_OWNER_GVK).zip(annotation(workload, names::JOB_OWNER_NAME))
}

fn hub_id(workload: &Workload) -> Option<&str> {
    workload.metadata.labels.as_ref()?.get(names::HUB_ID).map(String::as_str)
}

fn annotation<'a>(workload: &'a Workload, key: &str) -> Option<&'a str> {
    workload.metadata.annotations.as_ref()?.get(key).map(String::as_str)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;
    use crate::{KindProfile as _, apply_merge, batch_job::BatchJob};

    #[test]
    fn second_copy_gets_only_the_marks_of_the_first() {
        let marks = json!({"switchyard.dev/workload-uid": "u", "switchyard.dev/attempt": "1", "switchyard.dev/flavor-pins": "{}", "team": "x"});
        let labels = json!({"switchyard.dev/hub-id": "hub", "kueue.x-k8s.io/multikueue-origin": "m", "app": "y"});
        let metadata = json!({"name": "a", "labels": labels, "annotations": marks});
        let first: Workload =
            serde_json::from_value(json!({"metadata": metadata, "spec": {"podSets": []}})).unwrap();
        let mut other = Workload::default();
        other.metadata.labels = Some(BTreeMap::from([("own".to_owned(), "z".to_owned())]));
        mark_as_copy(&first, &mut other);
        let keys = |map: &Option<BTreeMap<String, String>>| {
            map.iter().flatten().map(|it| it.0.clone()).collect::<Vec<_>>()
        };
        assert_eq!(
            keys(&other.metadata.annotations),
            ["switchyard.dev/attempt", "switchyard.dev/flavor-pins", "switchyard.dev/workload-uid"]
        );
        let labels = ["kueue.x-k8s.io/multikueue-origin", "own", "switchyard.dev/hub-id"];
        assert_eq!(keys(&other.metadata.labels), labels);
    }

    #[rstest]
    #[case::as_they_were_made(json!({}), json!({}), true)]
    #[case::another_hubs(json!({"labels": {"switchyard.dev/hub-id": "other"}}), json!({}), false)]
    #[case::of_another_workload(json!({"annotations": {"switchyard.dev/workload-uid": "other"}}), json!({}), false)]
    #[case::of_another_attempt(json!({"annotations": {"switchyard.dev/attempt": "2"}}), json!({}), false)]
    #[case::a_copy_of_the_copy(json!({"name": "b"}), json!({}), false)]
    #[case::a_workload_that_names_no_job(json!({}), json!({"annotations": {"kueue.x-k8s.io/job-owner-name": null}}), false)]
    #[case::a_workload_of_another_kind_of_job(json!({}), json!({"annotations": {"kueue.x-k8s.io/job-owner-gvk": "x/v1, Kind=Job"}}), false)]
    #[case::without_marks(json!({"labels": null, "annotations": null}), json!({"labels": null}), false)]
    fn which_belong_together(
        #[case] of_job: Value,
        #[case] of_workload: Value,
        #[case] want: bool,
    ) {
        let marks = json!({"switchyard.dev/workload-uid": "u", "switchyard.dev/attempt": "1"});
        let labels = json!({"switchyard.dev/hub-id": "hub"});
        let mut job = json!({"metadata": {"name": "a", "namespace": "ns", "labels": labels, "annotations": marks}});
        let mut workload = json!({
            "metadata": {"name": "w", "namespace": "ns", "labels": labels, "annotations": marks},
            "spec": {"podSets": []},
        });
        let named = json!({"kueue.x-k8s.io/job-owner-gvk": "batch/v1, Kind=Job", "kueue.x-k8s.io/job-owner-name": "a"});
        apply_merge(&mut workload, &json!({"metadata": {"annotations": named}}));
        apply_merge(&mut job, &json!({"metadata": of_job}));
        apply_merge(&mut workload, &json!({"metadata": of_workload}));
        let workload: Workload = serde_json::from_value(workload).unwrap();
        assert_eq!(same_copy(BatchJob.id(), &job, &workload), want);
        assert!(!want || !copy_of_another(BatchJob.id(), &job, &workload));
        let other = json!({"metadata": {"name": "other"}});
        assert!(!want || copy_of_another(BatchJob.id(), &other, &workload));
    }
}
