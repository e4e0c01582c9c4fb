//! The visibility API and the metrics over HTTPS, behind a real API server: who may read them, and what they say.

use std::sync::Arc;
use std::time::Duration;

use crate::visible::{NAMESPACE, lead, listener};
use anyhow::ensure;
use kube::{Client, Config};
use serde_json::{Value, json};
use switchyard_config::Configuration;
use switchyard_controller::{Handle, Options};
use switchyard_e2e::{Cluster, ClusterSpec, Environment, JobBuilder, fixture, queues, wait};

/// Longer than anything here takes on a busy machine.
const WAIT: Duration = Duration::from_secs(120);
const GROUP: &str = "/apis/visibility.kueue.x-k8s.io";

/// A controller that serves both and the probes, and the ports.
async fn controller(cluster: &Cluster) -> (Handle, u16, u16, u16) {
    cluster.install().await.unwrap();
    cluster.install_user_roles().await.unwrap();
    let (client, _) = cluster.service_account(NAMESPACE, "switchyard").await.unwrap();
    let mut options = Options::new(client, Arc::new(Configuration::default()), "one", NAMESPACE);
    let ((visibility, at), (metrics, metrics_at), (health, probes_at)) =
        (listener(), listener(), listener());
    (options.visibility, options.metrics) = (Some(visibility.into()), Some(metrics.into()));
    options.health = Some(health);
    let handle = switchyard_controller::start(options).unwrap();
    handle.ready(WAIT).await.unwrap();
    (handle, at, metrics_at, probes_at)
}

async fn get(client: &Client, path: &str) -> kube::Result<Value> {
    client.request(http::Request::get(path).body(Vec::new()).unwrap()).await
}

/// The names of the jobs on a list, each with its places in the ClusterQueue and in the LocalQueue.
fn places(list: &Value) -> Vec<String> {
    let place = |item: &Value| {
        let job = item["metadata"]["ownerReferences"][0]["name"].as_str().unwrap_or_default();
        format!("{job} {} {}", item["positionInClusterQueue"], item["positionInLocalQueue"])
    };
    list["items"].as_array().unwrap().iter().map(place).collect()
}

async fn expect(client: &Client, path: &str, expected: &[&str]) {
    let check = async || {
        let list = get(client, path).await?;
        ensure!(places(&list) == expected, "{list}");
        Ok(())
    };
    wait::eventually(WAIT, format!("{path} to list {expected:?}"), check).await.unwrap();
}

/// The code of a refusal; none if it was none.
fn code(answer: kube::Result<Value>) -> Option<u16> {
    match answer {
        Err(kube::Error::Api(status)) => Some(status.code),
        _ => None,
    }
}

/// A client of Switchyard's server, not of the API server.
async fn direct(cluster: &Cluster, port: u16, account: Option<(&str, &str)>) -> Client {
    let mut config = Config::new(format!("https://localhost:{port}").parse().unwrap());
    config.accept_invalid_certs = true;
    if let Some((namespace, name)) = account {
        let token = cluster.service_account_token(namespace, name).await.unwrap();
        config.auth_info.token = Some(token.into());
    }
    Client::try_from(config).unwrap()
}

/// Lets an account do what a ClusterRole says, everywhere or in its namespace.
fn binding(kind: &str, role: &str, namespace: &str) -> Value {
    let mut binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": {"name": fixture::unique("bound")},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": [{"kind": "ServiceAccount", "name": "default", "namespace": namespace}],
    });
    if kind == "RoleBinding" {
        binding["metadata"]["namespace"] = namespace.into();
    }
    binding
}

/// The API server has taken over how the API is described, in both versions of OpenAPI.
async fn described(cluster: &Cluster) {
    let check = async || {
        let documents = get(&cluster.admin, "/openapi/v3").await?;
        for version in ["v1beta1", "v1beta2"] {
            let found = &documents["paths"][format!("apis/visibility.kueue.x-k8s.io/{version}")]["serverRelativeURL"];
            ensure!(found.is_string(), "{version} is not described: {documents}");
            let document = get(&cluster.admin, found.as_str().unwrap_or_default()).await?;
            let schema = format!("io.k8s.sigs.kueue.apis.visibility.{version}.PendingWorkload");
            let priority =
                &document["components"]["schemas"][&schema]["properties"]["priority"]["type"];
            ensure!(priority == "integer", "{document}");
        }
        let document = get(&cluster.admin, "/openapi/v2").await?;
        for version in ["v1beta1", "v1beta2"] {
            let path = format!("{GROUP}/{version}/clusterqueues/{{name}}/pendingworkloads");
            ensure!(document["paths"][&path]["get"].is_object(), "no {path} in /openapi/v2");
            let schema =
                format!("io.k8s.sigs.kueue.apis.visibility.{version}.PendingWorkloadsSummary");
            ensure!(document["definitions"][&schema].is_object(), "no {schema} in /openapi/v2");
        }
        Ok(())
    };
    wait::eventually(WAIT, "the API server to describe the visibility API", check).await.unwrap();
}

#[test]
fn what_waits_is_listed_to_those_who_may_see_it() {
    fixture::run(async {
        let one = ClusterSpec::new("one");
        let environment = Environment::builder("visibility").cluster(one).start().await.unwrap();
        let cluster = environment.cluster("one");
        let (handle, port, metrics, probes) = controller(cluster).await;
        lead(cluster, port).await;

        let (mine, other) =
            (cluster.namespace("mine").await.unwrap(), cluster.namespace("other").await.unwrap());
        cluster.apply(queues::simple(&mine, "all", &[("cpu", "0")])).await.unwrap();
        cluster.apply([queues::local_queue(&other, "queue", "all")]).await.unwrap();
        for (namespace, job, priority) in
            [(&mine, "first", 30), (&other, "second", 20), (&mine, "third", 10)]
        {
            cluster.apply([queues::priority_class(job, priority)]).await.unwrap();
            let job = JobBuilder::new(namespace, job)
                .queue("queue")
                .cpu("1")
                .suspended()
                .priority_class(job);
            job.create(&cluster.admin).await.unwrap();
        }

        let list = |version: &str| format!("{GROUP}/{version}/clusterqueues/all/pendingworkloads");
        let all = ["first 0 0", "second 1 0", "third 2 1"];
        expect(&cluster.admin, &list("v1beta2"), &all).await;
        expect(&cluster.admin, &list("v1beta1"), &all).await;
        expect(&cluster.admin, &format!("{}?offset=1&limit=1", list("v1beta2")), &all[1..2]).await;
        expect(&cluster.admin, &format!("{}?offset=1&limit=0", list("v1beta2")), &all[1..]).await;
        let local = format!("{GROUP}/v1beta2/namespaces/{mine}/localqueues/queue/pendingworkloads");
        expect(&cluster.admin, &local, &["first 0 0", "third 2 1"]).await;
        let missing =
            get(&cluster.admin, &format!("{GROUP}/v1beta2/clusterqueues/none/pendingworkloads"))
                .await;
        assert_eq!(code(missing), Some(404));

        // A user of one namespace sees that namespace's queue and no other list, by whichever way.
        let (user, _) = cluster.service_account(&mine, "default").await.unwrap();
        let directly = direct(cluster, port, Some((&mine, "default"))).await;
        for client in [&user, &directly] {
            assert_eq!(code(get(client, &local).await), Some(403));
        }
        cluster.apply([binding("RoleBinding", "kueue-batch-user-role", &mine)]).await.unwrap();
        for client in [&user, &directly] {
            expect(client, &local, &["first 0 0", "third 2 1"]).await;
            assert_eq!(code(get(client, &list("v1beta2")).await), Some(403));
        }
        let forged = http::Request::get(list("v1beta2")).header("X-Remote-User", "admin");
        let forged = forged.header("X-Remote-Group", "system:masters").body(Vec::new()).unwrap();
        let nobody = direct(cluster, port, None).await;
        assert_eq!(
            code(nobody.request(forged).await),
            Some(401),
            "headers are not believed without the certificate"
        );

        described(cluster).await;

        // Metrics: with the role, over HTTPS, and nowhere else.
        assert_eq!(switchyard_e2e::http::get(probes, "/readyz").await.unwrap(), "ok");
        let elsewhere =
            switchyard_e2e::http::get(probes, "/metrics").await.unwrap_err().to_string();
        assert!(elsewhere.contains("404"), "{elsewhere}");
        let reader = direct(cluster, metrics, Some((&other, "default"))).await;
        let scrape = async || {
            reader.request_text(http::Request::get("/metrics").body(Vec::new()).unwrap()).await
        };
        assert!(scrape().await.is_err());
        cluster
            .apply([binding("ClusterRoleBinding", "kueue-metrics-reader", &other)])
            .await
            .unwrap();
        let check = async || {
            let page = scrape().await?;
            ensure!(page.contains("kueue_pending_workloads{cluster_queue=\"all\""), "{page}");
            Ok(())
        };
        wait::eventually(WAIT, "metrics to be read", check).await.unwrap();

        handle.shutdown();
        handle.ended().await.unwrap();
    });
}
