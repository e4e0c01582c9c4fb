//! A hub's marks on objects that no agent created.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use serde_json::{Value, json};
use switchyard_e2e::fleet::{Fleet, Tenant};
use switchyard_e2e::{fixture, job};

use super::{WORKERS, beside_an_honest_tenant, ends, fleet, hub_id, orphans, ran_once, tenant};

/// Forged uids. A hub can assign only the first.
fn uids() -> Vec<String> {
    vec!["x".to_owned(), String::new(), "x".repeat(130), "ж".to_owned()]
}

fn pod_spec() -> Value {
    json!({"containers": [{"name": "c", "image": "i"}]})
}

/// The marks on an object that a tenant creates on a worker.
fn marked(name: &str, tenant: &Tenant<'_>, hub: &str, uid: &str, attempt: &str) -> Value {
    json!({
        "name": name, "namespace": tenant.name(), "labels": {"switchyard.dev/hub-id": hub},
        "annotations": {"switchyard.dev/workload-uid": uid, "switchyard.dev/attempt": attempt},
    })
}

/// Puts marks into the pod templates of jobs for these workers, and on pods there.
async fn forge(fleet: &Fleet, forger: &Tenant<'_>, workers: &[&str]) {
    let (hub, highest) = (hub_id(fleet).await, u64::MAX.to_string());
    for (index, uid) in uids().iter().enumerate() {
        let job = forger
            .job(&format!("template-{index}"))
            .cpu("100m")
            .run_for(Duration::from_millis(200));
        let job = job
            .pod_label("switchyard.dev/hub-id", &hub)
            .pod_annotation("switchyard.dev/workload-uid", uid);
        forger.submit(job.pod_annotation("switchyard.dev/attempt", &highest)).await.unwrap();
        for worker in workers {
            let metadata = marked(&format!("bare-{index}"), forger, &hub, uid, &highest);
            let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": pod_spec()});
            fleet.worker(worker).apply([pod]).await.unwrap();
        }
    }
    for index in 0..uids().len() {
        ends(forger, &format!("template-{index}")).await;
        ran_once(forger, &format!("template-{index}")).await;
    }
    for worker in workers {
        let pods: Api<Pod> = Api::namespaced(fleet.worker(worker).admin.clone(), forger.name());
        for index in 0..uids().len() {
            assert!(
                pods.get_opt(&format!("bare-{index}")).await.unwrap().is_some(),
                "it is the tenant's own"
            );
        }
    }
}

#[test]
fn forged_marks_end_no_session_and_stop_no_job() {
    fixture::run(async {
        let fleet = fleet().await;
        let agents = ["west", "east"];
        let forger = tenant(fleet, "forger", &agents).await;
        beside_an_honest_tenant(fleet, forge(fleet, &forger, &agents)).await;
    });
}

#[test]
fn forged_marks_on_kubeconfig_worker_end_no_session() {
    fixture::run(async {
        let fleet = fleet().await;
        let forger = tenant(fleet, "forger", &["plain"]).await;
        beside_an_honest_tenant(fleet, forge(fleet, &forger, &["plain"])).await;
    });
}

#[test]
fn marked_pods_of_worker_job_are_ignored() {
    fixture::run(async {
        let fleet = fleet().await;
        let forger = tenant(fleet, "forger", &WORKERS).await;
        let attack = async {
            let hub = hub_id(fleet).await;
            for worker in WORKERS {
                // Valid marks: only the pods' controller tells them from an agent's objects.
                let uid = "11111111-2222-3333-4444-555555555555";
                let mut marks = marked("", &forger, &hub, uid, "1");
                marks["annotations"][job::RUN_FOR] = "forever".into();
                let template = json!({"metadata": {"labels": marks["labels"], "annotations": marks["annotations"]},
                    "spec": {"restartPolicy": "Never", "containers": pod_spec()["containers"]}});
                let job = json!({"apiVersion": "batch/v1", "kind": "Job",
                    "metadata": {"name": "own", "namespace": forger.name()},
                    "spec": {"parallelism": 3, "completions": 3, "template": template}});
                fleet.worker(worker).apply([job]).await.unwrap();
                fleet.await_pods(worker, forger.name(), 3).await.unwrap();
            }
            forger
                .submit(forger.job("after").cpu("100m").run_for(Duration::from_millis(200)))
                .await
                .unwrap();
            ends(&forger, "after").await;
        };
        beside_an_honest_tenant(fleet, attack).await;
        assert_eq!(orphans(fleet, forger.name()).await, [""; 0]);
        for worker in WORKERS {
            let pods: Api<Pod> = Api::namespaced(fleet.worker(worker).admin.clone(), forger.name());
            let own = job::pods_of("own");
            assert_eq!(pods.list(&own).await.unwrap().items.len(), 3, "they are the tenant's own");
        }
    });
}

#[test]
fn workload_with_long_job_name_ends_no_session() {
    fixture::run(async {
        let fleet = fleet().await;
        let forger = tenant(fleet, "forger", &WORKERS).await;
        let attack = async {
            let hub = hub_id(fleet).await;
            for worker in WORKERS {
                let mut metadata = marked("long", &forger, &hub, &format!("long-{worker}"), "1");
                metadata["annotations"]["kueue.x-k8s.io/job-owner-name"] = "x".repeat(300).into();
                metadata["annotations"]["kueue.x-k8s.io/job-owner-gvk"] =
                    "batch/v1, Kind=Job".into();
                let pod_set = json!({"name": "main", "count": 1, "template": {"spec": pod_spec()}});
                let workload = json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload",
                    "metadata": metadata, "spec": {"queueName": "none", "podSets": [pod_set]}});
                fleet.worker(worker).apply([workload]).await.unwrap();
            }
            forger
                .submit(forger.job("after").cpu("100m").run_for(Duration::from_millis(200)))
                .await
                .unwrap();
            ends(&forger, "after").await;
        };
        beside_an_honest_tenant(fleet, attack).await;
    });
}
