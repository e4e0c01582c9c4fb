//! The changes on the clusters, one a line, to explain a fault.

use std::convert::Infallible;
use std::time::Duration;

use futures::future::{join, join_all};
use futures::{StreamExt as _, pin_mut};
use kube::api::DynamicObject;
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, ResourceExt as _};
use serde_json::Value;
use switchyard_e2e::Cluster;
use switchyard_e2e::fleet::Fleet;

use super::log::Log;

const KINDS: [(&str, &str); 3] =
    [("kueue.x-k8s.io/v1beta2", "Workload"), ("batch/v1", "Job"), ("v1", "Pod")];

/// Writes all changes of jobs, pods and Workloads, without end.
pub(crate) async fn follow(fleet: &Fleet, log: &Log) -> Infallible {
    let all = fleet
        .environment()
        .clusters()
        .iter()
        .flat_map(|cluster| KINDS.map(|kind| watch(cluster, kind, log)));
    let never = std::future::pending::<Infallible>();
    join(join_all(all), never).await.1
}

async fn watch(cluster: &Cluster, (version, kind): (&str, &str), log: &Log) {
    let Ok((resource, _)) = cluster.kind(version, kind).await else { return };
    let api: Api<DynamicObject> = Api::all_with(cluster.admin.clone(), &resource);
    let events = watcher(api, watcher::Config::default()).default_backoff();
    pin_mut!(events);
    while let Some(event) = events.next().await {
        let (what, object) = match event {
            Ok(watcher::Event::Apply(object)) => ("", object),
            Ok(watcher::Event::Delete(object)) => ("GONE ", object),
            Ok(_) => continue,
            Err(error) => {
                log.line(&format!("{}: {kind}: {error}", cluster.name()));
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        log.line(&format!("{}: {what}{kind} {}", cluster.name(), describe(kind, &object)));
    }
}

/// An object in a line.
fn describe(kind: &str, object: &DynamicObject) -> String {
    let (meta, data) = (&object.metadata, &object.data);
    let uid: String = object.uid().unwrap_or_default().chars().take(8).collect();
    let mut text =
        format!("{} {uid} v{}", object.name_any(), object.resource_version().unwrap_or_default());
    if meta.deletion_timestamp.is_some() {
        text += &format!(" DELETING {:?}", object.finalizers());
    }
    let status = &data["status"];
    for (name, value) in [
        ("active", &data["spec"]["active"]),
        ("suspend", &data["spec"]["suspend"]),
        ("parallelism", &data["spec"]["parallelism"]),
        ("phase", &status["phase"]),
        ("runs", &status["active"]),
        ("on", &status["clusterName"]),
        ("attempt", &status["dispatch"]["attempt"]),
        ("usage", &status["admission"]["podSetAssignments"][0]["resourceUsage"]["cpu"]),
        ("reclaimable", &status["reclaimablePods"]),
    ] {
        if !value.is_null() {
            text += &format!(" {name}={value}");
        }
    }
    if kind == "Workload" || kind == "Job" {
        let conditions = status["conditions"].as_array().cloned().unwrap_or_default();
        let held =
            conditions.iter().filter(|it| it["status"] == "True" || it["type"] == "Admitted");
        text += &held
            .map(|it| {
                format!(" {}={}:{}", word(&it["type"]), word(&it["status"]), word(&it["reason"]))
            })
            .collect::<String>();
        let checks = status["admissionChecks"].as_array().cloned().unwrap_or_default();
        text +=
            &checks.iter().map(|it| format!(" check={}", word(&it["state"]))).collect::<String>();
    }
    text
}

fn word(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}
