//! Watches nodes and pods, from the first Topology on. Without one, a workload that was assigned
//! domains before the gate was turned off starts the watches too. Otherwise a cluster's pods, which
//! may number 100,000, are not read.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::{
    Api, Client,
    runtime::{
        WatchStreamExt as _,
        watcher::{self, Event, watcher},
    },
};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::{
    Stores,
    pods::{InternedRequests, PodRecord},
};
use crate::workload::topology_chain;
use switchyard_platform::{
    readable::{Readable, edit_readable},
    watch::feed,
};

/// Waits until nodes and pods are needed, then watches them until `shutdown`. `on`: the feature
/// gate.
pub(crate) async fn run(
    stores: Stores,
    client: Client,
    on: bool,
    shutdown: CancellationToken,
) -> anyhow::Result<()> {
    let needed = Arc::new(Notify::new());
    if on {
        let notify = needed.clone();
        stores.topologies.subscribe(move |_| notify.notify_one());
    }
    let notify = needed.clone();
    stores.workloads.subscribe(move |change| {
        if change.new.as_deref().and_then(topology_chain).is_some() {
            notify.notify_one();
        }
    });
    tokio::select! {
        biased;
        () = shutdown.cancelled() => return Ok(()),
        () = needed.notified() => (),
    }
    watch_nodes(stores, client, shutdown).await
}

/// Watches nodes and pods until `shutdown`.
///
/// # Errors
/// If a watch ends by itself.
pub async fn watch_nodes(
    stores: Stores,
    client: Client,
    shutdown: CancellationToken,
) -> anyhow::Result<()> {
    let all = watcher::Config::default;
    let nodes = watcher(Api::<Readable<Node>>::all(client.clone()), all()).default_backoff();
    let nodes =
        feed(nodes, "nodes".to_owned(), false, stores.nodes.clone(), |_| (), shutdown.clone());
    let interned = InternedRequests::default();
    let pods = watcher(Api::<Readable<Pod>>::all(client), all()).default_backoff();
    let pods = futures::TryStreamExt::try_filter_map(pods, move |event| {
        std::future::ready(Ok(edit_readable(event, |event| record_event(event, &interned))))
    });
    let pods = feed(pods, "pods".to_owned(), false, stores.pods.clone(), |_| (), shutdown);
    tokio::try_join!(nodes, pods).map(|_| ())
}

/// The event for a store of records. A pod without a record is deleted from it.
fn record_event(event: Event<Pod>, interned: &InternedRequests) -> Option<Event<PodRecord>> {
    let deleted = |pod: &Pod| PodRecord::deleted(pod);
    Some(match event {
        Event::Apply(pod) => {
            let deleted = deleted(&pod);
            PodRecord::of(pod, interned).map_or(Event::Delete(deleted), Event::Apply)
        }
        Event::Delete(pod) => Event::Delete(deleted(&pod)),
        Event::Init => Event::Init,
        Event::InitApply(pod) => Event::InitApply(PodRecord::of(pod, interned)?),
        Event::InitDone => Event::InitDone,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(phase: &str, node: &Value) -> Pod {
        serde_json::from_value(json!({
            "metadata": {"name": "a", "namespace": "ns", "uid": "u"},
            "spec": {"nodeName": node, "containers": []}, "status": {"phase": phase},
        }))
        .unwrap()
    }

    #[test]
    fn ended_pod_is_deleted_from_the_store() {
        let interned = InternedRequests::default();
        let ended = || pod("Succeeded", &json!("n1"));
        assert!(matches!(
            record_event(Event::Apply(pod("Running", &json!("n1"))), &interned),
            Some(Event::Apply(_))
        ));
        assert!(matches!(record_event(Event::Apply(ended()), &interned), Some(Event::Delete(_))));
        assert!(record_event(Event::InitApply(ended()), &interned).is_none());
        assert!(record_event(Event::InitApply(pod("Pending", &Value::Null)), &interned).is_none());
        assert!(matches!(record_event(Event::Delete(ended()), &interned), Some(Event::Delete(_))));
    }
}
