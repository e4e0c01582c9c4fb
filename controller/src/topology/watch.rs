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
    pods::{PodRecord, Shapes},
    ungate::chain_of,
};
use crate::stores::{Stores, feed};

/// Waits until nodes and pods are needed, then watches them until `shutdown`. `on`: the feature
/// gate.
pub(crate) async fn run(
    stores: Stores,
    client: Client,
    on: bool,
    shutdown: CancellationToken,
) -> anyhow::Result<()> {
    let exists = Arc::new(Notify::new());
    if on {
        let told = exists.clone();
        stores.topologies.subscribe(move |_| told.notify_one());
    }
    let told = exists.clone();
    stores.workloads.subscribe(move |change| {
        if change.new.as_deref().and_then(chain_of).is_some() {
            told.notify_one();
        }
    });
    tokio::select! {
        biased;
        () = shutdown.cancelled() => return Ok(()),
        () = exists.notified() => (),
    }
    let all = watcher::Config::default;
    let nodes = watcher(Api::<Node>::all(client.clone()), all()).default_backoff();
    let nodes =
        feed(nodes, "nodes".to_owned(), false, stores.nodes.clone(), |_| (), shutdown.clone());
    let shapes = Shapes::default();
    let pods = watcher(Api::<Pod>::all(client), all()).default_backoff();
    let pods = futures::TryStreamExt::try_filter_map(pods, move |event| {
        std::future::ready(Ok(kept(event, &shapes)))
    });
    let pods = feed(pods, "pods".to_owned(), false, stores.pods.clone(), |_| (), shutdown);
    tokio::try_join!(nodes, pods).map(|_| ())
}

/// The event for a store of records. A pod without a record is deleted from it.
fn kept(event: Event<Pod>, shapes: &Shapes) -> Option<Event<PodRecord>> {
    let gone = |pod: &Pod| PodRecord::gone(pod);
    Some(match event {
        Event::Apply(pod) => {
            let gone = gone(&pod);
            PodRecord::of(pod, shapes).map_or(Event::Delete(gone), Event::Apply)
        }
        Event::Delete(pod) => Event::Delete(gone(&pod)),
        Event::Init => Event::Init,
        Event::InitApply(pod) => Event::InitApply(PodRecord::of(pod, shapes)?),
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
        let shapes = Shapes::default();
        let ended = || pod("Succeeded", &json!("n1"));
        assert!(matches!(
            kept(Event::Apply(pod("Running", &json!("n1"))), &shapes),
            Some(Event::Apply(_))
        ));
        assert!(matches!(kept(Event::Apply(ended()), &shapes), Some(Event::Delete(_))));
        assert!(kept(Event::InitApply(ended()), &shapes).is_none());
        assert!(kept(Event::InitApply(pod("Pending", &Value::Null)), &shapes).is_none());
        assert!(matches!(kept(Event::Delete(ended()), &shapes), Some(Event::Delete(_))));
    }
}
