//! The uid of the cluster that the agent runs for.

use std::time::Duration;

use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, ResourceExt as _};

/// A namespace that every cluster has and never recreates. Its uid identifies the cluster.
const NAMESPACE: &str = "kube-system";
/// The deadline of a request, which is then repeated.
const ANSWER_DEADLINE: Duration = Duration::from_secs(10);
/// The delay before a request is repeated.
const PAUSE: Duration = Duration::from_secs(1);

/// The uid of a cluster; empty if it may not be read. Waits for an unavailable API server.
pub async fn cluster_uid(client: &kube::Client) -> String {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    loop {
        match tokio::time::timeout(ANSWER_DEADLINE, namespaces.get_metadata(NAMESPACE)).await {
            Ok(Ok(found)) => return found.uid().unwrap_or_default(),
            Ok(Err(kube::Error::Api(status))) if status.code < 500 && status.code != 429 => {
                let error = &status.message;
                tracing::warn!(
                    error,
                    "namespace {NAMESPACE} not read: it cannot be told which cluster this is"
                );
                return String::new();
            }
            Ok(Err(_)) | Err(_) => tokio::time::sleep(PAUSE).await,
        }
    }
}
