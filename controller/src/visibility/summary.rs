//! The list of pending workloads, a page of it.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::{Value, json};
use switchyard_api::v1beta2::Workload;
use switchyard_scheduler::LocalQueueKey;

use super::GROUP;
use crate::engine_task::{Part, Pending};

/// How many workloads are listed unless the caller says so, and how many at most. Kueue's.
const DEFAULT_LIMIT: i64 = 1_000;
const MAX_LIMIT: i64 = 100_000;

/// Which part of the list; what is out of bounds is brought into them, as Kueue does.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
pub(super) struct Page {
    limit: Option<i64>,
    offset: Option<i64>,
}

impl Page {
    /// The part of a ClusterQueue's list that is on this page, or of that of one LocalQueue in it.
    pub(super) fn of(self, cluster_queue: String, local_queue: Option<LocalQueueKey>) -> Part {
        let count = |number: i64| usize::try_from(number.max(0)).unwrap_or(usize::MAX);
        let limit = count(self.limit.unwrap_or(DEFAULT_LIMIT).min(MAX_LIMIT));
        Part { cluster_queue, local_queue, offset: count(self.offset.unwrap_or(0)), limit }
    }
}

/// `PendingWorkloadsSummary`. A workload that is gone meanwhile has nothing but its name.
pub(super) fn summary(
    version: &str,
    page: &[Pending],
    workload: impl Fn(&str, &str) -> Option<Arc<Workload>>,
) -> Value {
    let items = page.iter().map(|entry| {
        let known = workload(&entry.key.namespace, &entry.key.name);
        let owners = known.iter().flat_map(|workload| workload.metadata.owner_references.iter().flatten());
        let owners = owners.map(
            |owner| json!({"apiVersion": owner.api_version, "kind": owner.kind, "name": owner.name, "uid": owner.uid}),
        );
        let created = known.as_ref().and_then(|workload| workload.metadata.creation_timestamp.clone());
        json!({
            "metadata": {
                "name": &*entry.key.name, "namespace": &*entry.key.namespace, "creationTimestamp": created,
                "ownerReferences": owners.collect::<Vec<_>>(),
            },
            "priority": entry.priority,
            "localQueueName": entry.local_queue,
            "positionInClusterQueue": entry.position_in_cluster_queue,
            "positionInLocalQueue": entry.position_in_local_queue,
        })
    });
    json!({
        "kind": "PendingWorkloadsSummary", "apiVersion": format!("{GROUP}/{version}"),
        "metadata": {"creationTimestamp": null}, "items": items.collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
    use switchyard_scheduler::WorkloadKey;

    use super::*;

    fn pending() -> Vec<Pending> {
        let entry = |position: usize, position_in_local_queue| Pending {
            key: WorkloadKey::new("a", format!("w{position}")),
            local_queue: "lq".to_owned(),
            priority: 5,
            position_in_cluster_queue: position,
            position_in_local_queue,
        };
        vec![entry(0, 0), entry(3, 1)]
    }

    #[test]
    fn a_page_is_brought_into_its_bounds() {
        for (limit, offset, expected) in [
            (None, None, (0, 1_000)),
            (Some(2), Some(1), (1, 2)),
            (Some(-1), None, (0, 0)),
            (Some(i64::MAX), Some(-3), (0, 100_000)),
        ] {
            let part = Page { limit, offset }.of("cq".to_owned(), None);
            assert_eq!((part.offset, part.limit), expected, "limit {limit:?}, offset {offset:?}");
        }
    }

    #[test]
    fn an_entry_names_its_job_and_its_places() {
        let pending = pending();
        let mut workload = Workload::default();
        let owner = OwnerReference { kind: "Job".to_owned(), controller: Some(true), ..OwnerReference::default() };
        workload.metadata.owner_references = Some(vec![owner]);
        let workload = Arc::new(workload);
        let list = summary("v1beta1", &pending, |_, name| (name == "w3").then(|| workload.clone()));
        assert_eq!(list["apiVersion"], "visibility.kueue.x-k8s.io/v1beta1");
        let last = &list["items"][1];
        assert_eq!((&last["positionInClusterQueue"], &last["positionInLocalQueue"]), (&json!(3), &json!(1)));
        assert_eq!((&last["localQueueName"], &last["priority"]), (&json!("lq"), &json!(5)));
        let owner = &last["metadata"]["ownerReferences"][0];
        assert_eq!((&owner["kind"], owner.get("controller")), (&json!("Job"), None));
        assert_eq!(list["items"][0]["metadata"]["ownerReferences"], json!([]));
    }
}
