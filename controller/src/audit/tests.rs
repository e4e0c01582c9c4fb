//! The memory of findings, and the objects that are compared.

use std::convert::Infallible;

use axum::http::{Request, Response};
use k8s_openapi::api::core::v1::Pod;
use kube::client::Body;
use serde_json::{Value, json};
use switchyard_audit::{Cluster, audit};
use switchyard_config::Configuration;
use tokio::time::Instant;

use super::{FindingMemory, GRACE, seen};
use crate::{fixtures, stores::Stores};
use switchyard_platform::object::Object;

fn pod(name: &str, metadata: &Value) -> Value {
    let requests = json!({"requests": {"cpu": "1"}});
    let container = json!({"name": "c", "image": "i", "env": [{"name": "a", "value": "b"}], "resources": requests});
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "ns", "uid": name},
        "spec": {"nodeName": "n", "containers": [container], "volumes": [{"name": "v", "emptyDir": {}}]},
        "status": {"phase": "Running", "podIP": "10.0.0.1"},
    });
    for (key, value) in metadata.as_object().into_iter().flatten() {
        pod["metadata"][key] = value.clone();
    }
    pod
}

fn of(kind: &str, uid: &str) -> Value {
    let version = if kind == "Job" { "batch/v1" } else { "apps/v1" };
    json!({"ownerReferences": [{"apiVersion": version, "kind": kind, "name": "j", "uid": uid, "controller": true}]})
}

/// Findings about queued pods without a Workload.
fn found(names: &[&str]) -> Vec<switchyard_audit::Finding> {
    let queued = json!({"labels": {"kueue.x-k8s.io/queue-name": "lq"}});
    let pods =
        names.iter().map(|name| serde_json::from_value(pod(name, &queued)).unwrap()).collect();
    audit(&Cluster { pods, ..Cluster::default() })
}

#[test]
fn finding_is_shown_once_it_has_lasted() {
    let (mut memory, begin) = (FindingMemory::default(), Instant::now());
    // Second, found pods, and shown pods with a `+` before new ones.
    let grace = GRACE.as_secs();
    let table: [(u64, &[&str], &[&str]); 6] = [
        (0, &["a"], &[]),
        (grace - 1, &["a", "b"], &[]),
        (grace, &["a", "b"], &["+a"]),
        (2 * grace, &["a", "b"], &["a", "+b"]),
        (3 * grace, &["b"], &["b"]),
        (4 * grace, &["a", "b"], &["b"]),
    ];
    for (at, names, expected) in table {
        let lasting = memory.lasting(found(names), begin + std::time::Duration::from_secs(at));
        let name = |it: &super::Lasting| {
            let name = it.finding.objects.first().map(|pod| pod.name.clone()).unwrap_or_default();
            if it.is_new { format!("+{name}") } else { name }
        };
        assert_eq!(lasting.iter().map(name).collect::<Vec<_>>(), expected, "after {at} s");
    }
}

/// An API server that lists these pods, one per page.
fn client(pods: Vec<Value>) -> kube::Client {
    let service = tower::service_fn(move |request: Request<Body>| {
        let query = request.uri().query().unwrap_or_default().to_owned();
        let at = query
            .split('&')
            .find_map(|pair| pair.strip_prefix("continue=")?.parse().ok())
            .unwrap_or(0_usize);
        let more =
            if at + 1 < pods.len() { json!({"continue": (at + 1).to_string()}) } else { json!({}) };
        let items: Vec<Value> = pods.get(at).cloned().into_iter().collect();
        let list = json!({"apiVersion": "v1", "kind": "PodList", "metadata": more, "items": items});
        async move { Ok::<_, Infallible>(Response::new(Body::from(list.to_string().into_bytes()))) }
    });
    kube::Client::new(service, "ns")
}

#[tokio::test]
async fn pods_are_listed_page_by_page_and_reduced() {
    let queued = json!({"labels": {"kueue.x-k8s.io/queue-name": "lq"}});
    let listed = [
        pod("plain", &json!({})),
        pod("queued", &queued),
        pod("of-job", &of("Job", "j")),
        pod("of-daemon", &of("DaemonSet", "d")),
        pod("prebuilt", &json!({"annotations": {"kueue.x-k8s.io/prebuilt-workload-name": "w"}})),
    ];
    let client = client(listed.into());
    let pods: Vec<Pod> = seen::pods(&client, 3).await.unwrap();
    let names: Vec<&str> = pods.iter().filter_map(|pod| pod.metadata.name.as_deref()).collect();
    assert_eq!(names, ["queued", "of-job", "prebuilt"]);
    let mut expected = pod("queued", &queued);
    expected["spec"]["containers"] =
        json!([{"name": "c", "resources": {"requests": {"cpu": "1"}}}]);
    expected["spec"].as_object_mut().unwrap().remove("volumes");
    expected["status"] = json!({"phase": "Running"});
    assert_eq!(serde_json::to_value(&pods[0]).unwrap(), expected);
    let error = seen::pods(&client, 2).await.unwrap_err().to_string();
    assert!(error.contains("more than 2 pods"), "{error}");
}

#[test]
fn jobs_above_pods_come_from_memory() {
    let stores = Stores::new(&Configuration::default());
    let job = |name: &str| {
        let labels = json!({"kueue.x-k8s.io/queue-name": "lq"});
        let metadata = json!({"name": name, "namespace": "ns", "uid": name, "labels": labels});
        Object::new(
            json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": {}}),
        )
        .unwrap()
    };
    let jobs = stores.job("batch", "Job").unwrap();
    jobs.store.insert(job("j"));
    jobs.store.insert(job("without-pods"));
    stores.workloads.insert(fixtures::workload("w"));
    let pods = vec![serde_json::from_value(pod("p", &of("Job", "j"))).unwrap()];
    let seen = seen::see(&stores, pods);
    assert_eq!((seen.owners.len(), seen.workloads.len()), (1, 1));
    let messages: Vec<String> = audit(&seen).into_iter().map(|finding| finding.message).collect();
    assert_eq!(messages, ["Pod ns/p runs for Job ns/j, but it has no Workload"]);
}
