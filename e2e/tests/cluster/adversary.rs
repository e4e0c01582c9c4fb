//! A tenant attacks the hub through objects of its own. No other tenant notices.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, ensure};
use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::{Api, ResourceExt as _};
use serde_json::json;
use switchyard_api::v1beta2::MultiKueueCluster;
use switchyard_e2e::fixture;
use switchyard_e2e::fleet::{Fleet, Tenant};
use switchyard_e2e::wait::eventually;

use crate::common::{WORKERS, fleet};

const SOON: Duration = Duration::from_secs(90);

/// The hub's id, which is no secret: it is the name of the authority that the hub shows to anybody who connects.
async fn hub_id(fleet: &Fleet) -> String {
    let namespaces: Api<Namespace> = Api::all(fleet.hub().admin.clone());
    namespaces.get("kube-system").await.unwrap().uid().unwrap()
}

/// The session of each worker.
async fn sessions(fleet: &Fleet) -> BTreeMap<&'static str, String> {
    let clusters: Api<MultiKueueCluster> = Api::all(fleet.hub().admin.clone());
    let mut sessions = BTreeMap::new();
    for worker in WORKERS {
        let status = clusters.get(worker).await.unwrap().status.unwrap_or_default();
        let session = status.agent.and_then(|agent| agent.session_id).unwrap_or_default();
        assert!(!session.is_empty(), "{worker} has no session");
        sessions.insert(worker, session);
    }
    sessions
}

async fn ends(tenant: &Tenant<'_>, job: &str) {
    eventually(SOON, format!("{job} to end"), async || {
        let job = tenant.hub_jobs().get(job).await?;
        let status = job.status.context("no status")?;
        ensure!(status.succeeded == Some(1), "{status:?}");
        Ok(())
    })
    .await
    .unwrap();
}

/// Forged uids. A hub could give out only the first.
fn uids() -> Vec<String> {
    vec!["x".to_owned(), String::new(), "x".repeat(130), "ж".to_owned()]
}

#[test]
fn forged_marks_end_no_session_and_stop_no_job() {
    fixture::run(async {
        let fleet = fleet().await;
        let quota = [("cpu", "8")];
        let tenant = fleet.tenant("forger").hub(&quota).worker("west", &quota).worker("east", &quota);
        let tenant = tenant.make().await.unwrap();
        let (hub, before) = (hub_id(fleet).await, sessions(fleet).await);
        let highest = u64::MAX.to_string();
        for (index, uid) in uids().iter().enumerate() {
            let job = tenant.job(&format!("template-{index}")).cpu("100m").run_for(Duration::from_millis(200));
            let job = job.pod_label("switchyard.dev/hub-id", &hub).pod_annotation("switchyard.dev/workload-uid", uid);
            tenant.submit(job.pod_annotation("switchyard.dev/attempt", &highest)).await.unwrap();
            for worker in WORKERS {
                let pod = json!({
                    "apiVersion": "v1", "kind": "Pod",
                    "metadata": {
                        "name": format!("bare-{index}"), "namespace": tenant.name(),
                        "labels": {"switchyard.dev/hub-id": hub},
                        "annotations": {"switchyard.dev/workload-uid": uid, "switchyard.dev/attempt": highest},
                    },
                    "spec": {"containers": [{"name": "c", "image": "i"}]},
                });
                fleet.worker(worker).apply([pod]).await.unwrap();
            }
        }
        tenant.submit(tenant.job("honest").cpu("100m").run_for(Duration::from_millis(200))).await.unwrap();
        ends(&tenant, "honest").await;
        for index in 0..uids().len() {
            ends(&tenant, &format!("template-{index}")).await;
        }
        assert_eq!(sessions(fleet).await, before, "no session has ended");
        for worker in WORKERS {
            let pods: Api<Pod> = Api::namespaced(fleet.worker(worker).admin.clone(), tenant.name());
            for index in 0..uids().len() {
                assert!(pods.get_opt(&format!("bare-{index}")).await.unwrap().is_some(), "it is the tenant's own");
            }
        }
    });
}
