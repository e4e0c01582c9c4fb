//! A worker refuses what its administrator does not allow. The hub's user reads the reason and the fix.
use std::time::Duration;

use crate::job_kinds::{CONFIG, FRAMEWORKS, table};
use anyhow::ensure;
use kube::api::ListParams;
use serde_json::{Value, json};
use switchyard_e2e::fleet::{Fleet, Tenant};
use switchyard_e2e::wait::eventually;
use switchyard_e2e::{ClusterSpec, NodeSpec, fixture, job, queues};

const SOON: Duration = Duration::from_secs(120);

async fn tenant<'a>(fleet: &'a Fleet, stem: &str) -> Tenant<'a> {
    let quota = [("cpu", "4")];
    fleet.tenant(stem).hub(&quota).worker("west", &quota).make().await.unwrap()
}

/// The user of a job reads why no cluster runs it.
async fn refused(tenant: &Tenant<'_>, job: &str, words: &str) {
    let told =
        tenant.await_status(job, "refused", SOON, |row| row.reason.contains(words)).await.unwrap();
    assert!(
        told.reason.contains("west: this cluster's agent does not let the hub"),
        "{}",
        told.reason
    );
}

#[test]
fn disallowed_namespace_account_or_kind_is_refused_with_reason() {
    fixture::run(async {
        let west = ClusterSpec::new("west").node(NodeSpec::new("n1").cpu(8));
        let fleet = Fleet::builder("allowed").agent(west).start().await.unwrap();
        fleet.hub().apply([queues::agent_cluster("west")]).await.unwrap();
        let token = fleet.join_token("west").await.unwrap();
        fleet.start_agent("west", &token).await.unwrap();
        fleet.connected("west").await.unwrap();
        let (open, closed) = (tenant(&fleet, "open").await, tenant(&fleet, "closed").await);

        fleet.kill("west");
        let flags = [
            "--allow-namespaces",
            open.name(),
            "--allow-service-accounts",
            "default",
            "--allow-kinds",
            "batch/job",
        ];
        fleet.start_agent_with("west", &token, &flags).await.unwrap();
        fleet.connected("west").await.unwrap();
        closed.submit(closed.job("outside")).await.unwrap();
        open.submit(open.job("as-robot").pod_field("serviceAccountName", json!("robot")))
            .await
            .unwrap();
        open.submit(open.job("plain").run_for(Duration::from_millis(200))).await.unwrap();
        refused(&closed, "outside", "--allow-namespaces").await;
        refused(&open, "as-robot", "--allow-service-accounts").await;
        job::complete(&fleet.hub().admin, open.name(), "plain", SOON).await.unwrap();
        // Nothing of what was refused was made.
        closed.await_empty("west", SOON).await.unwrap();
        assert_eq!(fleet.pods("west", open.name()).await.unwrap(), 0);

        fleet.kill("west");
        fleet
            .start_agent_with("west", &token, &["--allow-kinds", "jobset.x-k8s.io/jobset"])
            .await
            .unwrap();
        open.submit(open.job("plain-again")).await.unwrap();
        refused(&open, "plain-again", "--allow-kinds").await;
        assert_eq!(fleet.pods("west", open.name()).await.unwrap(), 0);
    });
}

const WRAPPER: &str = "workload.codeflare.dev/v1beta2";
const SPARK: &str = "sparkoperator.k8s.io/v1beta2";

fn named(api_version: &str, kind: &str, tenant: &Tenant<'_>, name: &str, spec: &Value) -> Value {
    let labels = json!({"kueue.x-k8s.io/queue-name": "main"});
    let metadata = json!({"name": name, "namespace": tenant.name(), "labels": labels});
    json!({"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": spec})
}

/// An AppWrapper around a Pod as each of these accounts, of which the first alone is a pod set.
fn wrapper(tenant: &Tenant<'_>, name: &str, accounts: &[&str]) -> Value {
    let container = json!({"name": "c", "image": "i", "resources": {"requests": {"cpu": 1}}});
    let component = |(index, account): (usize, &&str)| {
        let (kind, spec) = (
            json!({"apiVersion": "v1", "kind": "Pod"}),
            json!({
                "restartPolicy": "Never", "serviceAccountName": account, "containers": [container],
            }),
        );
        let mut pod = kind;
        pod["metadata"] = json!({"name": format!("{name}-{index}")});
        pod["spec"] = spec;
        match index {
            0 => json!({"template": pod, "podSets": [{"replicas": 1, "path": "template"}]}),
            _ => json!({"template": pod}),
        }
    };
    let components: Vec<Value> = accounts.iter().enumerate().map(component).collect();
    named(WRAPPER, "AppWrapper", tenant, name, &json!({"components": components}))
}

fn spark(tenant: &Tenant<'_>, name: &str, driver: &str, configuration: &Value) -> Value {
    let spec = json!({
        "type": "Scala", "mode": "cluster", "sparkVersion": "4.0.0", "mainApplicationFile": "local:///app.jar",
        "sparkConf": configuration, "executor": {"instances": 1, "coreRequest": "1"},
        "driver": {"coreRequest": "1", "serviceAccount": driver},
    });
    named(SPARK, "SparkApplication", tenant, name, &spec)
}

#[test]
fn service_accounts_are_found_in_wrapped_jobs_and_fields() {
    fixture::run(async {
        let config = format!("{CONFIG}{FRAMEWORKS}");
        let west = ClusterSpec::new("west").node(NodeSpec::new("n1").cpu(64));
        let fleet = Fleet::builder("accounts")
            .agent(west)
            .config(&config)
            .agent_config(&config)
            .start()
            .await
            .unwrap();
        table::install_crds(&[fleet.hub(), fleet.worker("west")]).await.unwrap();
        fleet.hub().apply([queues::agent_cluster("west")]).await.unwrap();
        let token = fleet.join_token("west").await.unwrap();
        fleet
            .start_agent_with("west", &token, &["--allow-service-accounts", "default"])
            .await
            .unwrap();
        fleet.connected("west").await.unwrap();
        let quota = [("cpu", "32"), ("memory", "100Gi")];
        let tenant =
            fleet.tenant("accounts").hub(&quota).worker("west", &quota).make().await.unwrap();
        let none = json!({});
        let executor =
            json!({"spark.kubernetes.authenticate.executor.serviceAccountName": "robot"});
        let file =
            json!({"spark.kubernetes.driver.podTemplateFile": "https://example.com/pod.yaml"});
        for (name, object, words) in [
            ("wrapped", wrapper(&tenant, "wrapped", &["robot"]), "/robot;"),
            ("undeclared", wrapper(&tenant, "undeclared", &["default", "robot"]), "/robot;"),
            ("driver", spark(&tenant, "driver", "robot", &none), "/robot;"),
            ("executor", spark(&tenant, "executor", "default", &executor), "/robot;"),
            ("file", spark(&tenant, "file", "default", &file), "cannot be told: spec.sparkConf"),
        ] {
            fleet.hub().apply([object]).await.unwrap();
            let told = tenant
                .await_status(name, "refused", SOON, |row| row.reason.contains(words))
                .await
                .unwrap();
            assert!(told.reason.contains("--allow-service-accounts"), "{}", told.reason);
        }
        let ordinary =
            [wrapper(&tenant, "ordinary", &["default"]), spark(&tenant, "plain", "default", &none)];
        fleet.hub().apply(ordinary).await.unwrap();
        // Only the ordinary ones are created.
        for (api, kind, name) in
            [(WRAPPER, "AppWrapper", "ordinary"), (SPARK, "SparkApplication", "plain")]
        {
            let there = fleet.worker("west").dynamic(api, kind, tenant.name()).await.unwrap();
            eventually(SOON, format!("{kind} {name} alone on west"), async || {
                let all = there.list(&ListParams::default()).await?.items;
                let names: Vec<_> =
                    all.iter().filter_map(|it| it.metadata.name.as_deref()).collect();
                ensure!(names == [name], "{names:?}");
                Ok(())
            })
            .await
            .unwrap();
        }
    });
}
