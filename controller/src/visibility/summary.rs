//! The list of pending workloads, a page of it.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::{Value, json};
use switchyard_api::v1beta2::Workload;

use super::GROUP;
use crate::engine_task::Pending;

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
    /// The workloads on this page of a ClusterQueue's list, or of those of one LocalQueue in it (namespace and name).
    pub(super) fn of<'a>(&self, pending: &'a [Pending], local_queue: Option<(&str, &str)>) -> Vec<&'a Pending> {
        let count = |number: i64| usize::try_from(number.max(0)).unwrap_or(usize::MAX);
        let limit = count(self.limit.unwrap_or(DEFAULT_LIMIT).min(MAX_LIMIT));
        let offset = count(self.offset.unwrap_or(0));
        let asked = |entry: &&Pending| {
            local_queue.is_none_or(|(namespace, name)| &*entry.key.namespace == namespace && entry.local_queue == name)
        };
        pending.iter().filter(asked).skip(offset).take(limit).collect()
    }
}

/// `PendingWorkloadsSummary`. A workload that is gone meanwhile has nothing but its name.
pub(super) fn summary(
    version: &str,
    page: &[&Pending],
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

    /// Two LocalQueues of one name in two namespaces, and one of another name.
    fn pending() -> Vec<Pending> {
        let places = [("a", "lq", 0), ("b", "lq", 0), ("a", "other", 0), ("a", "lq", 1)];
        let entry = |(position, (namespace, local_queue, within)): (usize, &(&str, &str, usize))| Pending {
            key: WorkloadKey { namespace: (*namespace).into(), name: format!("w{position}").as_str().into() },
            local_queue: (*local_queue).to_owned(),
            priority: 5,
            position_in_cluster_queue: position,
            position_in_local_queue: *within,
            inadmissible: false,
            reason: None,
        };
        places.iter().enumerate().map(entry).collect()
    }

    #[test]
    fn a_page_is_cut_from_the_queues_own_list() {
        let pending = pending();
        let names = |limit, offset, local_queue| -> Vec<String> {
            let page = Page { limit, offset }.of(&pending, local_queue);
            page.iter().map(|entry| entry.key.name.to_string()).collect()
        };
        assert_eq!(names(None, None, None), ["w0", "w1", "w2", "w3"]);
        assert_eq!(names(Some(2), Some(1), None), ["w1", "w2"]);
        assert_eq!(names(None, None, Some(("a", "lq"))), ["w0", "w3"]);
        assert_eq!(names(Some(1), Some(1), Some(("a", "lq"))), ["w3"]);
        assert_eq!(names(Some(-1), None, None), [""; 0]);
        assert_eq!(names(Some(i64::MAX), Some(-3), None).len(), 4);
        assert_eq!(names(None, Some(i64::MAX), None), [""; 0]);
    }

    #[test]
    fn an_entry_names_its_job_and_its_places() {
        let pending = pending();
        let page = Page::default().of(&pending, Some(("a", "lq")));
        let mut workload = Workload::default();
        let owner = OwnerReference { kind: "Job".to_owned(), controller: Some(true), ..OwnerReference::default() };
        workload.metadata.owner_references = Some(vec![owner]);
        let workload = Arc::new(workload);
        let list = summary("v1beta1", &page, |_, name| (name == "w3").then(|| workload.clone()));
        assert_eq!(list["apiVersion"], "visibility.kueue.x-k8s.io/v1beta1");
        let last = &list["items"][1];
        assert_eq!((&last["positionInClusterQueue"], &last["positionInLocalQueue"]), (&json!(3), &json!(1)));
        assert_eq!((&last["localQueueName"], &last["priority"]), (&json!("lq"), &json!(5)));
        let owner = &last["metadata"]["ownerReferences"][0];
        assert_eq!((&owner["kind"], owner.get("controller")), (&json!("Job"), None));
        assert_eq!(list["items"][0]["metadata"]["ownerReferences"], json!([]));
    }
}
