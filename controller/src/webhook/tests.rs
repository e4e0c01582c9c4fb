//! The webhook server with an in-process HTTPS client, and its facts from stores. No cluster.
#![expect(clippy::needless_pass_by_value, reason = "literals read better by value")]

use std::net::Ipv4Addr;

use http_body_util::{BodyExt, Full};
use hyper::{Request, StatusCode, body::Bytes};
use hyper_util::rt::{TokioExecutor, TokioIo};
use jiff::Timestamp;
use rustls::{
    ClientConfig, RootCertStore,
    crypto::aws_lc_rs,
    pki_types::{CertificateDer, ServerName, pem::PemObject},
};
use serde_json::{Value, json};
use switchyard_api::validate::ValidationGates;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsConnector;

use super::{job_webhook::owner_or_deny, review::ReviewOutcome, *};
use switchyard_platform::cert::{CertLifetimes, renew};

const DEADLINE: Duration = Duration::from_secs(10);

fn bundle(now: &str) -> Bundle {
    let now: Timestamp = now.parse().unwrap();
    renew(&CertLifetimes::default(), None, &BTreeSet::from(["127.0.0.1".to_owned()]), now)
        .unwrap()
        .unwrap()
}

struct Server {
    port: u16,
    certificate: Arc<Certificate>,
    shutdown: CancellationToken,
    ended: tokio::task::JoinHandle<()>,
}

async fn serve(bundle: &Bundle, rules: Vec<(String, Handler)>) -> Server {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let (certificate, shutdown) =
        (Certificate::new(bundle.certified_key().unwrap()), CancellationToken::new());
    let site = Open::new(
        "webhook",
        certificate.clone(),
        &switchyard_platform::https::TlsPolicy::default(),
        review::router(rules),
    )
    .unwrap();
    let ended = tokio::spawn(https::serve(listener, Arc::new(site), shutdown.clone()));
    Server { port, certificate, shutdown, ended }
}

fn connector(trusted: &str) -> TlsConnector {
    let mut roots = RootCertStore::empty();
    for root in CertificateDer::pem_slice_iter(trusted.as_bytes()) {
        roots.add(root.unwrap()).unwrap();
    }
    let mut config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec()];
    TlsConnector::from(Arc::new(config))
}

impl Server {
    async fn post(
        &self,
        trusted: &str,
        path: &str,
        body: Vec<u8>,
    ) -> std::io::Result<(StatusCode, Bytes)> {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).await?;
        let name = ServerName::try_from("127.0.0.1").unwrap();
        let stream = connector(trusted).connect(name, stream).await?;
        let (mut sender, connection) =
            hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
                .await
                .unwrap();
        tokio::spawn(connection);
        let uri = format!("https://127.0.0.1:{}{path}", self.port);
        let request = Request::post(uri)
            .header("content-type", "application/json")
            .body(Full::new(Bytes::from(body)))
            .unwrap();
        let response =
            tokio::time::timeout(DEADLINE, sender.send_request(request)).await.unwrap().unwrap();
        let status = response.status();
        Ok((status, response.into_body().collect().await.unwrap().to_bytes()))
    }

    async fn stop(self) {
        self.shutdown.cancel();
        tokio::time::timeout(DEADLINE, self.ended).await.unwrap().unwrap();
    }
}

fn review(object: Value) -> Value {
    json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": "u1", "operation": "CREATE", "namespace": "ns", "name": "a", "dryRun": false, "userInfo": {},
            "kind": {"group": "batch", "version": "v1", "kind": "Job"},
            "resource": {"group": "batch", "version": "v1", "resource": "jobs"},
            "object": object,
        },
    })
}

fn suspending() -> Vec<(String, Handler)> {
    let rule: Handler = Arc::new(|request: &ReviewRequest<'_>| {
        let mut wanted = request.object.clone();
        wanted["spec"]["suspend"] = json!(true);
        ReviewOutcome::Mutate(Box::new(wanted))
    });
    vec![("/mutate".into(), rule)]
}

#[tokio::test]
async fn large_job_is_answered_and_oversized_body_rejected() {
    let bundle = bundle("2026-11-21T10:00:00Z");
    let server = serve(&bundle, suspending()).await;
    let large = |bytes: usize| {
        let annotations = json!({"a": "x".repeat(bytes)});
        review(json!({"metadata": {"name": "a", "annotations": annotations}, "spec": {}}))
            .to_string()
            .into_bytes()
    };
    let (status, body) = server.post(&bundle.trusted(), "/mutate", large(1 << 20)).await.unwrap();
    let answer: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!((status, answer["response"]["allowed"].as_bool()), (StatusCode::OK, Some(true)));
    assert!(answer["response"]["patch"].is_string());
    let (status, _) = server.post(&bundle.trusted(), "/mutate", large(9 << 20)).await.unwrap();
    assert_eq!(status, StatusCode::PAYLOAD_TOO_LARGE);
    server.stop().await;
}

#[tokio::test]
async fn invalid_review_is_a_bad_request() {
    let bundle = bundle("2026-11-21T10:00:00Z");
    let server = serve(&bundle, suspending()).await;
    let (status, body) = server.post(&bundle.trusted(), "/mutate", b"{}".to_vec()).await.unwrap();
    assert_eq!(status, StatusCode::BAD_REQUEST);
    assert!(
        String::from_utf8_lossy(&body).starts_with("not an AdmissionReview of admission.k8s.io/v1")
    );
    let (status, _) = server.post(&bundle.trusted(), "/elsewhere", b"{}".to_vec()).await.unwrap();
    assert_eq!(status, StatusCode::NOT_FOUND);
    server.stop().await;
}

#[tokio::test]
async fn certificate_is_replaced_while_serving() {
    let (old, new) = (bundle("2026-11-21T10:00:00Z"), bundle("2026-11-21T10:00:00Z"));
    let server = serve(&old, suspending()).await;
    let body = || review(json!({"metadata": {"name": "a"}, "spec": {}})).to_string().into_bytes();
    assert!(
        server.post(&new.trusted(), "/mutate", body()).await.is_err(),
        "another CA is not trusted"
    );
    server.certificate.set(new.certified_key().unwrap());
    let (status, _) = server.post(&new.trusted(), "/mutate", body()).await.unwrap();
    assert_eq!(status, StatusCode::OK);
    assert!(server.post(&old.trusted(), "/mutate", body()).await.is_err());
    server.stop().await;
}

#[tokio::test]
async fn silent_client_delays_no_other() {
    let bundle = bundle("2026-11-21T10:00:00Z");
    let server = serve(&bundle, suspending()).await;
    let mut silent = Vec::new();
    for _ in 0..10 {
        silent.push(TcpStream::connect((Ipv4Addr::LOCALHOST, server.port)).await.unwrap());
    }
    let body = review(json!({"metadata": {"name": "a"}, "spec": {}})).to_string().into_bytes();
    let trusted = bundle.trusted();
    let answer =
        tokio::time::timeout(Duration::from_secs(2), server.post(&trusted, "/mutate", body));
    assert_eq!(answer.await.unwrap().unwrap().0, StatusCode::OK);
    drop(silent);
    server.stop().await;
}

#[test]
fn certificate_names_follow_the_advertised_address() {
    let names = |advertise: Advertise| advertise.names().into_iter().collect::<Vec<_>>();
    assert_eq!(names(Advertise::Url("https://10.0.0.1:9443".into())), ["10.0.0.1"]);
    assert_eq!(names(Advertise::Url("https://[::1]:9443/".into())), ["::1"]);
    assert_eq!(names(Advertise::Url("https://hub.example".into())), ["hub.example"]);
    let service = Advertise::Service { namespace: "ns".into(), name: "hook".into(), port: 443 };
    assert_eq!(names(service), ["hook.ns", "hook.ns.svc", "hook.ns.svc.cluster.local"]);
}

#[test]
fn paths_equal_kueues() {
    let path = |group: &str, kind: &str| {
        job_path("mutate", switchyard_jobs::kind_for(group, kind).unwrap().id())
    };
    assert_eq!(path("batch", "Job"), "/mutate-batch-v1-job");
    assert_eq!(path("jobset.x-k8s.io", "JobSet"), "/mutate-jobset-x-k8s-io-v1alpha2-jobset");
    assert_eq!(path("kubeflow.org", "MPIJob"), "/mutate-kubeflow-org-v2beta1-mpijob");
    assert_eq!(
        objects::path("validate", "clusterqueue"),
        "/validate-kueue-x-k8s-io-v1beta2-clusterqueue"
    );
}

fn request(object: &Value) -> ReviewRequest<'_> {
    ReviewRequest { namespace: "ns", object, old: None }
}

#[test]
fn pod_set_names_are_lowercased() {
    let workload =
        json!({"spec": {"podSets": [{"name": "Driver", "count": 1}, {"count": 2, "minCount": 1}]}});
    let defaulted = |partial: bool| {
        let ReviewOutcome::Mutate(changed) =
            objects::default_workload(&request(&workload), partial)
        else {
            panic!("no change")
        };
        changed["spec"]["podSets"].clone()
    };
    assert_eq!(
        defaulted(true),
        json!([{"name": "driver", "count": 1}, {"count": 2, "minCount": 1}])
    );
    assert_eq!(
        defaulted(false),
        json!([{"name": "driver", "count": 1}, {"count": 2}]),
        "all are needed"
    );
}

fn answer(singular: &str, object: Value, old: Option<Value>) -> String {
    let kind = objects::KINDS.iter().find(|kind| kind.singular == singular).unwrap();
    match kind.validate(
        &ReviewRequest { namespace: "ns", object: &object, old: old.as_ref() },
        ValidationGates::default(),
    ) {
        ReviewOutcome::Allow => String::new(),
        ReviewOutcome::Deny(reasons) => reasons.join("; "),
        ReviewOutcome::Mutate(_) | ReviewOutcome::Deferred(_) | ReviewOutcome::Warn(_) => {
            panic!("a validation changes nothing")
        }
    }
}

#[test]
fn kueue_kinds_are_validated() {
    let queue = |nominal: &str| {
        let resources = json!([{"name": "cpu", "nominalQuota": nominal}]);
        json!({
            "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ClusterQueue", "metadata": {"name": "cq"},
            "spec": {"resourceGroups": [{"coveredResources": ["cpu"], "flavors": [{"name": "f", "resources": resources}]}]},
        })
    };
    assert_eq!(answer("clusterqueue", queue("5"), None), "");
    let refused = answer("clusterqueue", queue("-5"), None);
    assert!(
        refused.contains("nominalQuota") && refused.contains("must be greater than or equal to 0"),
        "{refused}"
    );
    let mut deleting = queue("-5");
    deleting["metadata"]["deletionTimestamp"] = json!("2026-11-21T10:00:00Z");
    assert_eq!(answer("clusterqueue", deleting, Some(queue("5"))), "", "finalizers must come off");
    let shapeless =
        answer("clusterqueue", json!({"metadata": {}, "spec": {"resourceGroups": 5}}), None);
    assert!(shapeless.starts_with("the object has not the shape of its kind: "), "{shapeless}");
}

#[test]
fn unreadable_owners_deny_pods_only() {
    let kind = |group, kind| switchyard_jobs::kind_for(group, kind).unwrap();
    let (pod, job) = (kind("", "Pod"), kind("batch", "Job"));
    assert!(matches!(owner_or_deny(pod, Some(true), false), Ok(true)));
    assert!(matches!(owner_or_deny(pod, None, true), Err(ReviewOutcome::Deny(_))));
    assert!(matches!(owner_or_deny(job, None, true), Ok(true)));
    assert!(matches!(owner_or_deny(job, None, false), Ok(false)));
}

/// Opens more idle connections from one address than the server keeps.
#[tokio::test]
async fn idle_connections_delay_no_review() {
    const IDLE: usize = 300;
    let bundle = bundle("2026-11-21T10:00:00Z");
    let server =
        serve(&bundle, vec![("/x".into(), Arc::new(|_: &ReviewRequest<'_>| ReviewOutcome::Allow))])
            .await;
    let trusted = bundle.trusted();
    let mut idle = Vec::new();
    for _ in 0..IDLE {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, server.port)).await.unwrap();
        idle.push(
            connector(&trusted)
                .connect(ServerName::try_from("127.0.0.1").unwrap(), stream)
                .await
                .unwrap(),
        );
    }
    let body = review(json!({"metadata": {"name": "a"}})).to_string().into_bytes();
    let (status, _) = server.post(&trusted, "/x", body).await.unwrap();
    assert_eq!(status, StatusCode::OK);
    let is_open = |stream: &tokio_rustls::client::TlsStream<TcpStream>| loop {
        match stream.get_ref().0.try_read(&mut [0; 4096]) {
            Ok(0) => return false,
            Ok(_) => {}
            Err(error) => return error.kind() == std::io::ErrorKind::WouldBlock,
        }
    };
    let bounded = async {
        while idle.iter().filter(|stream| is_open(stream)).count() > 64 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(DEADLINE, bounded).await.unwrap();
    assert!(idle.iter().any(is_open), "those of late are still there");
    server.stop().await;
}
