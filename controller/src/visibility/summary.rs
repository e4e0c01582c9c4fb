//! A page of the list of pending workloads.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use serde::Deserialize;
use switchyard_api::v1beta2::Workload;
use switchyard_api::visibility::{GROUP, PendingWorkload, PendingWorkloadsSummary, SUMMARY};
use switchyard_scheduler::LocalQueueKey;

use crate::engine::handle::{PendingPage, PendingPosition};

/// Default and largest page size, as in Kueue.
const DEFAULT_LIMIT: i64 = 1_000;
const MAX_LIMIT: i64 = 100_000;

/// Query parameters. As in Kueue, values out of bounds are clamped, and a limit of 0 is the
/// default.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
pub(super) struct Page {
    limit: Option<i64>,
    offset: Option<i64>,
}

impl Page {
    /// The part of a ClusterQueue's list on this page; with `local_queue`, only its workloads.
    pub(super) fn of(
        self,
        cluster_queue: String,
        local_queue: Option<LocalQueueKey>,
    ) -> PendingPage {
        let count = |number: i64| usize::try_from(number.max(0)).unwrap_or(usize::MAX);
        let limit =
            count(self.limit.filter(|limit| *limit != 0).unwrap_or(DEFAULT_LIMIT).min(MAX_LIMIT));
        PendingPage { cluster_queue, local_queue, offset: count(self.offset.unwrap_or(0)), limit }
    }
}

/// A workload that is gone by now is listed with its name, positions and priority only.
pub(super) fn summary(
    version: &str,
    page: &[PendingPosition],
    workload: impl Fn(&str, &str) -> Option<Arc<Workload>>,
) -> PendingWorkloadsSummary {
    let items = page
        .iter()
        .map(|entry| item(entry, workload(&entry.key.namespace, &entry.key.name).as_deref()));
    PendingWorkloadsSummary {
        api_version: format!("{GROUP}/{version}"),
        kind: SUMMARY.to_owned(),
        metadata: ObjectMeta::default(),
        items: items.collect(),
    }
}

fn item(entry: &PendingPosition, workload: Option<&Workload>) -> PendingWorkload {
    let place = |position: usize| i32::try_from(position).unwrap_or(i32::MAX);
    let owners =
        workload.iter().flat_map(|workload| workload.metadata.owner_references.iter().flatten());
    let owners: Vec<OwnerReference> = owners
        .map(|owner| OwnerReference {
            block_owner_deletion: None,
            controller: None,
            ..owner.clone()
        })
        .collect();
    PendingWorkload {
        metadata: ObjectMeta {
            name: Some(entry.key.name.to_string()),
            namespace: Some(entry.key.namespace.to_string()),
            creation_timestamp: workload
                .and_then(|workload| workload.metadata.creation_timestamp.clone()),
            owner_references: Some(owners).filter(|owners| !owners.is_empty()),
            ..ObjectMeta::default()
        },
        // As in Kueue, a priority boost affects only the order.
        priority: workload.map_or(entry.priority, |workload| workload.spec.priority.unwrap_or(0)),
        local_queue_name: entry.local_queue.clone(),
        position_in_cluster_queue: place(entry.position_in_cluster_queue),
        position_in_local_queue: place(entry.position_in_local_queue),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use switchyard_scheduler::WorkloadKey;

    use super::*;

    fn pending() -> Vec<PendingPosition> {
        let entry = |position: usize, position_in_local_queue| PendingPosition {
            key: WorkloadKey::new("a", format!("w{position}")),
            local_queue: "lq".to_owned(),
            priority: 5,
            position_in_cluster_queue: position,
            position_in_local_queue,
        };
        vec![entry(0, 0), entry(3, 1)]
    }

    #[test]
    fn page_parameters_are_clamped() {
        for (limit, offset, expected) in [
            (None, None, (0, 1_000)),
            (Some(2), Some(1), (1, 2)),
            (Some(0), Some(1), (1, 1_000)),
            (Some(-1), None, (0, 0)),
            (Some(i64::MAX), Some(-3), (0, 100_000)),
        ] {
            let part = Page { limit, offset }.of("cq".to_owned(), None);
            assert_eq!((part.offset, part.limit), expected, "limit {limit:?}, offset {offset:?}");
        }
    }

    #[test]
    fn entry_has_owner_positions_and_priority() {
        let pending = pending();
        let mut workload = Workload::default();
        let owner = OwnerReference {
            kind: "Job".to_owned(),
            controller: Some(true),
            ..OwnerReference::default()
        };
        workload.metadata.owner_references = Some(vec![owner]);
        workload.spec.priority = Some(3);
        let workload = Arc::new(workload);
        let list = summary("v1beta1", &pending, |_, name| (name == "w3").then(|| workload.clone()));
        let list = serde_json::to_value(list).unwrap();
        assert_eq!(list["apiVersion"], "visibility.kueue.x-k8s.io/v1beta1");
        let last = &list["items"][1];
        assert_eq!(
            (&last["positionInClusterQueue"], &last["positionInLocalQueue"]),
            (&json!(3), &json!(1))
        );
        assert_eq!(
            (&last["localQueueName"], &last["priority"]),
            (&json!("lq"), &json!(3)),
            "without its boost"
        );
        let owner = &last["metadata"]["ownerReferences"][0];
        assert_eq!((&owner["kind"], owner.get("controller")), (&json!("Job"), None));
        assert_eq!(list["items"][0]["metadata"], json!({"name": "w0", "namespace": "a"}));
    }
}
