//! Metrics of Switchyard's pods, by the API server's proxy to pods.

use std::time::Duration;

use anyhow::bail;
use futures::AsyncReadExt as _;
use http::Request;
use k8s_openapi::api::core::v1::Pod;
use kube::{Client, ResourceExt as _};
use tokio::time::timeout;

const DEADLINE: Duration = Duration::from_secs(15);
/// Longest page that is kept.
const LONGEST: u64 = 8 << 20;

/// Names of the programs, with which the names of their pods begin.
const PROGRAMS: [&str; 2] = ["switchyard-hub", "switchyard-agent"];

/// The label of the chart's pods, in each mode.
const NAME_LABEL: &str = "app.kubernetes.io/name";

/// Whether a pod runs a program of Switchyard.
pub(super) fn is_switchyard(pod: &Pod) -> bool {
    let is_labelled = pod.labels().get(NAME_LABEL).is_some_and(|it| it.starts_with("switchyard"));
    is_labelled || PROGRAMS.iter().any(|program| pod.name_any().starts_with(program))
}

/// The places where a pod may serve metrics, as scheme and port: first the one that needs no
/// authentication, for the API server forwards no token.
fn endpoints(pod: &Pod) -> Vec<(&'static str, i32)> {
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    let ports: Vec<_> = containers.flat_map(|it| it.ports.iter().flatten()).collect();
    let named = |name: &str| {
        let found = ports.iter().find(|port| port.name.as_deref() == Some(name));
        found.map(|port| port.container_port)
    };
    let health = named("health").map(|port| ("http", port));
    health.into_iter().chain(named("metrics").map(|port| ("https", port))).collect()
}

/// The metrics page of a pod.
///
/// # Errors
/// Why each place refuses.
pub(super) async fn read(client: &Client, namespace: &str, pod: &Pod) -> anyhow::Result<String> {
    let name = pod.name_any();
    let mut refusals = Vec::new();
    for (scheme, port) in endpoints(pod) {
        let path =
            format!("/api/v1/namespaces/{namespace}/pods/{scheme}:{name}:{port}/proxy/metrics");
        match timeout(DEADLINE, page(client, &path, LONGEST)).await {
            Ok(Ok(text)) => return Ok(text),
            Ok(Err(error)) => refusals.push(format!("port {port}: {error:#}")),
            Err(_) => refusals.push(format!("port {port}: no answer within {DEADLINE:?}")),
        }
    }
    match refusals.is_empty() {
        true => bail!("the pod names no port \"health\" or \"metrics\""),
        false => bail!("{}", refusals.join("; ")),
    }
}

/// At most `longest` bytes of a page.
async fn page(client: &Client, path: &str, longest: u64) -> anyhow::Result<String> {
    let request = Request::get(path).body(Vec::new())?;
    let reader = client.request_stream(request).await;
    let reader = reader.map_err(|error| anyhow::anyhow!(crate::cause(&error)))?;
    let mut bytes = Vec::new();
    std::pin::pin!(reader.take(longest + 1)).read_to_end(&mut bytes).await?;
    let is_cut = bytes.len() as u64 > longest;
    let mut text = String::from_utf8_lossy(&bytes).into_owned();
    if is_cut {
        // The last line is not whole.
        text.truncate(text.rfind('\n').map_or(0, |end| end + 1));
        text.push_str(&format!("# cut after {longest} bytes\n"));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use http::Response;
    use kube::client::Body;
    use serde_json::json;

    use super::*;

    fn pod(ports: &serde_json::Value) -> Pod {
        serde_json::from_value(json!({
            "metadata": {"name": "switchyard-hub-0"},
            "spec": {"containers": [{"name": "manager", "ports": ports}]},
        }))
        .unwrap()
    }

    /// A client whose API server answers by the path.
    fn client(answer: fn(&str) -> (u16, String)) -> Client {
        let service = tower::service_fn(move |request: http::Request<Body>| async move {
            let (code, text) = answer(request.uri().path());
            let response = Response::builder().status(code).body(Body::from(text.into_bytes()));
            Ok::<_, std::convert::Infallible>(response.unwrap())
        });
        Client::new(service, "default")
    }

    fn both() -> Pod {
        pod(
            &json!([{"name": "health", "containerPort": 8081}, {"name": "metrics", "containerPort": 8443}]),
        )
    }

    #[tokio::test]
    async fn metrics_are_read_from_the_first_port_that_has_them() {
        let agent = client(|path| match path {
            "/api/v1/namespaces/ns/pods/http:switchyard-hub-0:8081/proxy/metrics" => {
                (200, "up 1\n".to_owned())
            }
            other => (500, other.to_owned()),
        });
        assert_eq!(read(&agent, "ns", &both()).await.unwrap(), "up 1\n");
        let hub = client(|path| match path {
            "/api/v1/namespaces/ns/pods/https:switchyard-hub-0:8443/proxy/metrics" => {
                (200, "up 2\n".to_owned())
            }
            _ => (404, "metrics are served over HTTPS\n".to_owned()),
        });
        assert_eq!(read(&hub, "ns", &both()).await.unwrap(), "up 2\n");
    }

    #[tokio::test]
    async fn pod_without_metrics_is_an_error_with_each_cause() {
        let closed = client(|path| match path.contains("https:") {
            true => (401, "Unauthorized".to_owned()),
            false => (404, "elsewhere".to_owned()),
        });
        let error = read(&closed, "ns", &both()).await.unwrap_err().to_string();
        assert_eq!(error, "port 8081: elsewhere; port 8443: Unauthorized");
        let error = read(&closed, "ns", &pod(&json!([]))).await.unwrap_err().to_string();
        assert!(error.contains("names no port"), "{error}");
    }

    #[tokio::test]
    async fn long_page_is_cut_after_a_whole_line() {
        let long = client(|_| (200, "one 1\ntwo 2\n".to_owned()));
        assert_eq!(page(&long, "/m", 12).await.unwrap(), "one 1\ntwo 2\n");
        assert_eq!(page(&long, "/m", 8).await.unwrap(), "one 1\n# cut after 8 bytes\n");
    }

    #[test]
    fn pods_of_other_programs_are_left_alone() {
        assert!(is_switchyard(&both()));
        let mut other = both();
        other.metadata.name = Some("postgres-0".to_owned());
        assert!(!is_switchyard(&other));
        let labels = [(NAME_LABEL.to_owned(), "switchyard".to_owned())];
        other.metadata.labels = Some(labels.into());
        assert!(is_switchyard(&other));
    }
}
