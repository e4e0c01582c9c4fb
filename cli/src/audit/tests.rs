use std::convert::Infallible;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use switchyard_audit::{Cluster, Finding};

use super::report::{Listed, Report};
use super::{list_cluster, worker};
use crate::Output;

/// An API server that answers paths with lists and records the requests.
#[derive(Clone, Default)]
struct Server {
    answers: Vec<(&'static str, u16, Value)>,
    requests: Arc<Mutex<Vec<String>>>,
}

impl Server {
    fn list(mut self, path: &'static str, items: Value) -> Self {
        let mut list = json!({"apiVersion": "v1", "kind": "List", "metadata": {}});
        list["items"] = items;
        self.answers.push((path, 200, list));
        self
    }

    fn refuses(mut self, path: &'static str, code: u16, reason: &str, message: &str) -> Self {
        self.answers.push((path, code, failure(code, reason, message)));
        self
    }

    fn client(&self) -> Client {
        let server = self.clone();
        let service = tower::service_fn(move |request: http::Request<Body>| {
            std::future::ready(Ok::<_, Infallible>(server.answer(request.uri())))
        });
        Client::new(service, "default")
    }

    fn answer(&self, uri: &http::Uri) -> http::Response<Body> {
        let query = uri.query().unwrap_or_default().trim_start_matches('&');
        self.requests.lock().unwrap().push(format!("{}?{query}", uri.path()));
        let answer = self
            .answers
            .iter()
            .find(|(path, ..)| format!("{}?{query}", uri.path()).ends_with(path));
        let answer =
            answer.or_else(|| self.answers.iter().find(|(path, ..)| uri.path().ends_with(path)));
        let none = || json!({"apiVersion": "v1", "kind": "List", "metadata": {}, "items": []});
        let (code, body) =
            answer.map_or_else(|| (200, none()), |(_, code, body)| (*code, body.clone()));
        let body = Body::from(body.to_string().into_bytes());
        http::Response::builder().status(code).body(body).unwrap()
    }

    /// The requests without their common parts, sorted.
    fn requests(&self) -> Vec<String> {
        let mut requests = self.requests.lock().unwrap().clone();
        requests.sort();
        requests
    }
}

fn failure(code: u16, reason: &str, message: &str) -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason, "message": message})
}

fn object(name: &str, owner: &[&str; 3]) -> Value {
    let [api_version, kind, owner] = owner;
    let owner = json!({"apiVersion": api_version, "kind": kind, "name": owner, "uid": format!("uid-{owner}"), "controller": true});
    json!({"metadata": {"name": name, "namespace": "ns", "uid": format!("uid-{name}"), "ownerReferences": [owner]}})
}

fn pods() -> Value {
    let mut ended = object("done", &["kubeflow.org/v1", "TFJob", "tf"]);
    ended["status"] = json!({"phase": "Succeeded"});
    json!([
        object("of-a-set", &["batch/v1", "Job", "set-0"]),
        object("of-a-node", &["v1", "Node", "node"]),
        object("of-a-farm", &["example.com/v1", "Farm", "farm"]),
        ended,
    ])
}

#[tokio::test]
async fn owner_kinds_are_listed_only_if_referred_to() {
    let server = Server::default()
        .list("/api/v1/pods", pods())
        .list("/jobs", json!([object("set-0", &["jobset.x-k8s.io/v1alpha2", "JobSet", "set"])]))
        .list(
            "/jobsets",
            json!([object("set", &["workload.codeflare.dev/v1beta2", "AppWrapper", "gone"])]),
        )
        .refuses("/appwrappers", 404, "NotFound", "404 page not found");
    let seen = list_cluster(&server.client(), "hub", None).await.unwrap();
    let owners: Vec<&str> = seen.owners.iter().map(|owner| owner.kind.as_str()).collect();
    assert_eq!((owners, seen.pods.len()), (vec!["Job", "JobSet"], 4));
    insta::assert_snapshot!(server.requests().join("\n"), @r"
    /api/v1/pods?limit=500
    /apis/batch/v1/jobs?resourceVersion=0&resourceVersionMatch=NotOlderThan
    /apis/jobset.x-k8s.io/v1alpha2/jobsets?resourceVersion=0&resourceVersionMatch=NotOlderThan
    /apis/kueue.x-k8s.io/v1beta2/clusterqueues?limit=500
    /apis/kueue.x-k8s.io/v1beta2/cohorts?limit=500
    /apis/kueue.x-k8s.io/v1beta2/localqueues?limit=500
    /apis/kueue.x-k8s.io/v1beta2/workloads?limit=500
    /apis/workload.codeflare.dev/v1beta2/appwrappers?resourceVersion=0&resourceVersionMatch=NotOlderThan
    ");
}

#[tokio::test]
async fn long_list_is_read_page_by_page() {
    let page = |token: &str| json!({"apiVersion": "v1", "kind": "List", "metadata": {"continue": token}, "items": [object("p", &["v1", "Node", "n"])]});
    let mut server = Server::default();
    server.answers.push(("continue=next", 200, page("")));
    server.answers.push(("/api/v1/namespaces/ns/pods", 200, page("next")));
    let seen = list_cluster(&server.client(), "hub", Some("ns")).await.unwrap();
    assert_eq!((seen.pods.len(), seen.namespace.as_deref()), (2, Some("ns")));
    let pods: Vec<String> =
        server.requests().into_iter().filter(|request| request.contains("/pods")).collect();
    insta::assert_snapshot!(pods.join("\n"), @r"
    /api/v1/namespaces/ns/pods?limit=500
    /api/v1/namespaces/ns/pods?limit=500&continue=next
    ");
}

#[tokio::test]
async fn denied_list_names_the_missing_right() {
    let refused = async |path, code, reason, message| {
        let server =
            Server::default().list("/api/v1/pods", pods()).refuses(path, code, reason, message);
        list_cluster(&server.client(), "hub", None)
            .await
            .map(|_| ())
            .map_err(|error| format!("{error:#}"))
    };
    let jobs = refused("/jobs", 403, "Forbidden", "jobs.batch is forbidden: User u cannot list it")
        .await
        .unwrap_err();
    let right = "it takes the right to list jobs.batch, as the role switchyard-viewer of deploy/rbac has it";
    assert_eq!(
        jobs,
        format!("listing jobs.batch: jobs.batch is forbidden: User u cannot list it; {right}")
    );
    let workloads = refused("/workloads", 404, "NotFound", "404 page not found").await.unwrap_err();
    assert!(
        workloads.starts_with("listing workloads.kueue.x-k8s.io: 404 page not found; "),
        "{workloads}"
    );
    assert_eq!(refused("/cohorts", 404, "NotFound", "404 page not found").await, Ok(()));
}

#[test]
fn viewer_role_allows_all_lists() {
    let role = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/rbac/viewer.yaml");
    let role: Value = serde_saphyr::from_str(&std::fs::read_to_string(role).unwrap()).unwrap();
    let has = |rule: &Value, list: &str, text: &str| {
        rule[list].as_array().unwrap().iter().any(|it| it == text)
    };
    let may_list = |group: &str, plural: &str| {
        let mut rules = role["rules"].as_array().unwrap().iter();
        rules.any(|it| {
            has(it, "apiGroups", group) && has(it, "resources", plural) && has(it, "verbs", "list")
        })
    };
    let jobs = switchyard_jobs::kinds().iter().map(|kind| (kind.id().group, kind.id().plural));
    let queues = ["workloads", "clusterqueues", "localqueues", "cohorts"]
        .map(|plural| ("kueue.x-k8s.io", plural));
    for (group, plural) in jobs.chain(queues).chain([("apps", "replicasets")]) {
        assert!(may_list(group, plural), "{plural}.{group}");
    }
}

/// A pod that runs while its Workload is pending.
fn found() -> Vec<Finding> {
    let pod = json!({
        "metadata": {"name": "p", "namespace": "ns", "uid": "p", "labels": {"kueue.x-k8s.io/queue-name": "lq"}},
        "spec": {"nodeName": "n", "containers": [{"name": "c"}]}, "status": {"phase": "Running"},
    });
    let workload = json!({
        "metadata": {
            "name": "pod-p", "namespace": "ns",
            "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "p", "controller": true}],
        },
        "spec": {"podSets": []},
    });
    let cluster = Cluster {
        name: "hub".into(),
        pods: vec![serde_json::from_value(pod).unwrap()],
        workloads: vec![serde_json::from_value(workload).unwrap()],
        ..Cluster::default()
    };
    switchyard_audit::audit(&cluster)
}

fn report(findings: Vec<Finding>, namespace: Option<&str>) -> Report {
    let of = |cluster: &str| Listed {
        cluster: cluster.into(),
        pods: 12,
        workloads: 4,
        cluster_queues: 2,
    };
    Report {
        findings,
        listed: vec![of("hub"), of("west")],
        namespace: namespace.map(str::to_owned),
    }
}

#[test]
fn text_has_findings_and_counts() {
    insta::assert_snapshot!(report(found(), None).text(), @r"
    FINDING                CLUSTER   WHAT
    RunsWithoutAdmission   hub       Pod ns/p runs, but its Workload ns/pod-p is not admitted

    1 finding: 12 pods, 4 Workloads, 2 ClusterQueues on hub; 12 pods, 4 Workloads, 2 ClusterQueues on west.
    ");
    insta::assert_snapshot!(report(Vec::new(), None).text(), @"No findings: 12 pods, 4 Workloads, 2 ClusterQueues on hub; 12 pods, 4 Workloads, 2 ClusterQueues on west.");
    insta::assert_snapshot!(report(Vec::new(), Some("team")).text(), @r"
    No findings: 12 pods, 4 Workloads, 2 ClusterQueues on hub; 12 pods, 4 Workloads, 2 ClusterQueues on west.
    Only namespace team was looked at: sums over queues and cohorts were not compared.
    ");
}

#[test]
fn report_renders_as_json_and_yaml() {
    let render = |output: Output| output.render(&report(found(), None), Report::text).unwrap();
    insta::assert_snapshot!(render(Output::Json), @r#"
    {
      "findings": [
        {
          "kind": "RunsWithoutAdmission",
          "cluster": "hub",
          "objects": [
            {
              "kind": "Pod",
              "namespace": "ns",
              "name": "p"
            },
            {
              "kind": "Workload",
              "namespace": "ns",
              "name": "pod-p"
            }
          ],
          "message": "Pod ns/p runs, but its Workload ns/pod-p is not admitted"
        }
      ],
      "listed": [
        {
          "cluster": "hub",
          "pods": 12,
          "workloads": 4,
          "clusterQueues": 2
        },
        {
          "cluster": "west",
          "pods": 12,
          "workloads": 4,
          "clusterQueues": 2
        }
      ]
    }
    "#);
    insta::assert_snapshot!(render(Output::Yaml), @r"
    findings:
    - kind: RunsWithoutAdmission
      cluster: hub
      objects:
      - kind: Pod
        namespace: ns
        name: p
      - kind: Workload
        namespace: ns
        name: pod-p
      message: Pod ns/p runs, but its Workload ns/pod-p is not admitted
    listed:
    - cluster: hub
      pods: 12
      workloads: 4
      clusterQueues: 2
    - cluster: west
      pods: 12
      workloads: 4
      clusterQueues: 2
    ");
}

#[test]
fn worker_flag_takes_name_and_kubeconfig() {
    assert_eq!(worker("west=a/b=c"), Ok(("west".to_owned(), PathBuf::from("a/b=c"))));
    for text in ["west", "=path", "west="] {
        assert!(worker(text).is_err(), "{text}");
    }
}
