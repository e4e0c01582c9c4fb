//! Leads an API server to the visibility API of a controller in this process.

use std::net::TcpListener;

use serde_json::json;
use switchyard_e2e::Cluster;

/// The controller's own.
pub(crate) const NAMESPACE: &str = "switchyard-system";

/// A listener on loopback, and its port.
pub(crate) fn listener() -> (TcpListener, u16) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    (listener, port)
}

/// Leads the API server to the port, by the name of this machine.
pub(crate) async fn lead(cluster: &Cluster, port: u16) {
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "visibility", "namespace": NAMESPACE},
        "spec": {"type": "ExternalName", "externalName": "localhost", "ports": [{"port": port}]},
    });
    let version = |version: &str| {
        json!({
            "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
            "metadata": {"name": format!("{version}.visibility.kueue.x-k8s.io")},
            "spec": {
                "group": "visibility.kueue.x-k8s.io", "version": version, "groupPriorityMinimum": 100,
                "versionPriority": 100, "insecureSkipTLSVerify": true,
                "service": {"name": "visibility", "namespace": NAMESPACE, "port": port},
            },
        })
    };
    cluster.apply([service, version("v1beta1"), version("v1beta2")]).await.unwrap();
}
