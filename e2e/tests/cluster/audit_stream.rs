//! The hub's audit stream: a line for what operators and agents ask, with who asked by what is known.

use std::time::Duration;

use anyhow::ensure;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use switchyard_api::v1beta2::MultiKueueCluster;
use switchyard_e2e::fleet::{Fleet, HUB};
use switchyard_e2e::wait::eventually;
use switchyard_e2e::{fixture, queues};

use crate::common::fleet;

const SOON: Duration = Duration::from_secs(120);

/// Waits until a line of the stream has all these parts, and returns it.
async fn written(fleet: &Fleet, parts: &[&str]) -> String {
    eventually(SOON, format!("an audit line with {parts:?}"), async || {
        let log = fleet.with(HUB, switchyard_e2e::Process::log)?;
        let mut lines = log.lines().filter(|line| line.contains("switchyard::audit"));
        let found =
            lines.find(|line| parts.iter().all(|part| line.contains(part))).map(str::to_owned);
        ensure!(found.is_some(), "there is none");
        Ok(found.unwrap_or_default())
    })
    .await
    .unwrap()
}

/// The patch of an annotation, and the parameters by which `operator` writes it.
fn annotation(name: &str, value: impl Into<Value>) -> (PatchParams, Patch<Value>) {
    let params =
        PatchParams { field_manager: Some("operator".to_owned()), ..PatchParams::default() };
    (params, Patch::Merge(json!({"metadata": {"annotations": {name: value.into()}}})))
}

#[test]
fn requests_of_operators_name_user_and_result() {
    fixture::run(async {
        let fleet = fleet().await;
        let cluster = fixture::unique("audited");
        fleet.hub().apply([queues::agent_cluster(&cluster)]).await.unwrap();
        let clusters: Api<MultiKueueCluster> = Api::all(fleet.hub().admin.clone());
        let object = format!("object=\"MultiKueueCluster/{cluster}\"");
        for (value, operation) in [
            (json!("cordon"), "operation=\"cordon\""),
            (json!("drain"), "operation=\"drain\""),
            (json!(null), "operation=\"uncordon\""),
        ] {
            let (params, patch) = annotation("switchyard.dev/scheduling", value);
            clusters.patch(&cluster, &params, &patch).await.unwrap();
            let line = written(fleet, &[operation, &object, "result=\"accepted\""]).await;
            let asked = written(fleet, &[operation, &object, "result=\"requested\""]).await;
            let by_user =
                asked.contains("who=\"e2e-admin\"") && asked.contains("known_by=\"user\"");
            assert!(by_user, "{asked}");
            let named =
                line.contains("who=\"operator\" ") && line.contains("known_by=\"field-manager\"");
            assert!(
                named != operation.contains("uncordon"),
                "who took it away is not known: {line}"
            );
        }
        let (params, patch) = annotation("switchyard.dev/breaker-release", "now\nINFO forged");
        clusters.patch(&cluster, &params, &patch).await.unwrap();
        let line =
            written(fleet, &["operation=\"release-breaker\"", &object, "result=\"no-effect\""])
                .await;
        assert!(line.contains("why=\"now\\nINFO forged\""), "{line}");

        let quota = [("cpu", "2")];
        let tenant =
            fleet.tenant("audited").hub(&quota).worker("west", &quota).worker("east", &quota);
        let tenant = tenant.make().await.unwrap();
        tenant.submit(tenant.job("long").cpu("2").run_forever()).await.unwrap();
        let row = tenant
            .await_status("long", "dispatched", SOON, |row| row.cluster.is_some())
            .await
            .unwrap();
        let to = if row.cluster.as_deref() == Some("west") { "east" } else { "west" };
        let workloads = tenant.hub_workloads();
        let workload = tenant.workload_of("long").await.unwrap();
        let now = workload.status.and_then(|status| status.dispatch).unwrap().attempt;
        let workload = workload.metadata.name.unwrap();
        let object = format!("object=\"Workload/{}/{workload}\"", tenant.name());
        for (attempt, result) in [(now + 6, "result=\"no-effect\""), (now, "result=\"accepted\"")] {
            let (params, patch) = annotation("switchyard.dev/move", format!("{attempt}/{to}"));
            workloads.patch(&workload, &params, &patch).await.unwrap();
            let why = format!("why=\"attempt {attempt} to {to}\"");
            written(fleet, &["operation=\"move\"", &object, "who=\"operator\" ", &why, result])
                .await;
        }
        fleet.await_pods(to, tenant.name(), 1).await.unwrap();
    });
}

#[test]
fn enrolments_name_cluster_and_address() {
    fixture::run(async {
        let fleet = fleet().await;
        for cluster in ["west", "east"] {
            let (object, who) =
                (format!("object=\"MultiKueueCluster/{cluster}\""), format!("who=\"{cluster}\""));
            let parts = [
                "operation=\"enrol\"",
                &*who,
                "known_by=\"token\"",
                &*object,
                "result=\"accepted\"",
            ];
            let line = written(fleet, &parts).await;
            assert!(line.contains("address=\"127.0.0.1:"), "{line}");
        }
    });
}
