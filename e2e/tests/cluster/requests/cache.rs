//! Whether the API server's cache of LimitRanges has caught up.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};
use switchyard_e2e::Cluster;
use switchyard_e2e::wait::eventually;

use super::server::Server;

const DEADLINE: Duration = Duration::from_secs(30);

/// A namespace with a LimitRange from before others are made, and one from after.
///
/// The cache is fed in the order of writes, so it has the others when a pod gets the second default. While the cache knows no
/// LimitRange of a namespace, the API server lists them and keeps the answer for 30 seconds. So a pod is made before there is a
/// second one.
pub(super) struct CacheProbe<'a> {
    cluster: &'a Cluster,
    server: &'a Server<'a>,
    namespace: String,
}

impl<'a> CacheProbe<'a> {
    pub(super) async fn begin(cluster: &'a Cluster, server: &'a Server<'a>) -> Self {
        let namespace = cluster.namespace("cache").await.unwrap();
        let probe = Self { cluster, server, namespace };
        probe.limit_range("first", "cpu").await;
        probe.expect("cpu").await;
        probe
    }

    pub(super) async fn wait(&self) {
        self.limit_range("last", "memory").await;
        self.expect("memory").await;
    }

    async fn limit_range(&self, name: &str, resource: &str) {
        let limits = json!([{"type": "Container", "defaultRequest": {resource: "7"}}]);
        let metadata = json!({"name": name, "namespace": self.namespace});
        let range = json!({"apiVersion": "v1", "kind": "LimitRange", "metadata": metadata, "spec": {"limits": limits}});
        self.cluster.apply([range]).await.unwrap();
    }

    /// Waits until a pod gets the default request of a resource.
    async fn expect(&self, resource: &str) {
        let spec = json!({"containers": [{"name": "c", "image": "i"}]});
        eventually(DEADLINE, format!("a default of {resource}"), async || {
            let pods = self.server.pods(&[(&self.namespace, &spec)]).await?;
            let pod =
                pods.first().and_then(|answer| answer.admitted()).context("the pod is refused")?;
            let requests =
                pod.pointer("/spec/containers/0/resources/requests").unwrap_or(&Value::Null);
            ensure!(requests.get(resource).is_some(), "requests are {requests}");
            Ok(())
        })
        .await
        .unwrap();
    }
}
