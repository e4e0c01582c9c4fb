//! The end of a run: what still waits ends, and what is deleted leaves nothing behind.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use kube::api::{DeleteParams, DynamicObject, ListParams};
use kube::{Api, ResourceExt as _};
use serde_json::Value;
use switchyard_api::names;
use switchyard_e2e::Cluster;
use switchyard_e2e::fleet::{Fleet, HUB};
use switchyard_e2e::job::RUN_FOR;
use switchyard_e2e::wait::eventually;

use super::SOON;
use super::log::Log;
use super::perform::gone;

/// How long jobs may take that still wait, once nothing holds them.
const ENDS: Duration = Duration::from_secs(180);
/// How long what is deleted may take to be gone.
const GOES: Duration = Duration::from_secs(120);

/// The kinds that users create, owners first.
const MADE: [(&str, &str); 5] = [
    ("batch/v1", "CronJob"),
    ("apps/v1", "Deployment"),
    ("apps/v1", "StatefulSet"),
    ("batch/v1", "Job"),
    ("v1", "Pod"),
];
/// The kinds that controllers create for those.
const COMES: [(&str, &str); 3] = [
    ("apps/v1", "ReplicaSet"),
    ("apps/v1", "ControllerRevision"),
    ("kueue.x-k8s.io/v1beta2", "Workload"),
];
/// The objects before the first job and after the last.
const STAYS: [(&str, &str); 9] = [
    ("kueue.x-k8s.io/v1beta2", "ClusterQueue"),
    ("kueue.x-k8s.io/v1beta2", "LocalQueue"),
    ("kueue.x-k8s.io/v1beta2", "Cohort"),
    ("kueue.x-k8s.io/v1beta2", "MultiKueueCluster"),
    ("kueue.x-k8s.io/v1beta2", "AdmissionCheck"),
    ("kueue.x-k8s.io/v1beta2", "ResourceFlavor"),
    ("coordination.k8s.io/v1", "Lease"),
    ("v1", "ConfigMap"),
    ("v1", "Secret"),
];
/// In which an agent notes until when its hub's word holds: one for all jobs, made with the first.
const AGENTS_LEASE: &str = "switchyard-agent-hub";

/// All objects of a kind in all namespaces.
async fn list(
    cluster: &Cluster,
    (version, kind): (&str, &str),
) -> anyhow::Result<Vec<DynamicObject>> {
    let (resource, _) = cluster.kind(version, kind).await?;
    let all: Api<DynamicObject> = Api::all_with(cluster.admin.clone(), &resource);
    Ok(all
        .list(&ListParams::default())
        .await
        .with_context(|| format!("{kind}s of {}", cluster.name()))?
        .items)
}

/// The objects that stay on a cluster, by name, with finalizers and annotations.
pub(crate) type Inventory = BTreeMap<String, String>;

/// Objects that all clusters have without any job.
pub(crate) async fn inventory(fleet: &Fleet) -> anyhow::Result<Inventory> {
    let mut all = Inventory::new();
    for cluster in fleet.environment().clusters() {
        for kind in STAYS {
            for object in
                list(cluster, kind).await?.into_iter().filter(|it| it.name_any() != AGENTS_LEASE)
            {
                let namespace = object.namespace().unwrap_or_default();
                let key =
                    format!("{} {namespace}/{} on {}", kind.1, object.name_any(), cluster.name());
                // Leases and Secrets keep what programs remember.
                let mut annotations = object.annotations().clone();
                annotations.retain(|_, _| !matches!(kind.1, "Lease" | "Secret" | "ConfigMap"));
                all.insert(
                    key,
                    format!("finalizers {:?}, annotations {annotations:?}", object.finalizers()),
                );
            }
        }
    }
    Ok(all)
}

/// Waits until all that ends by itself has ended, after what does not is deleted.
pub(crate) async fn all_end(fleet: &Fleet) -> anyhow::Result<()> {
    let hub = fleet.hub();
    for kind in MADE {
        for object in list(hub, kind).await? {
            if kind.1 == "Pod" && !object.owner_references().is_empty() {
                continue;
            }
            if !ends(kind.1, &object) || is_incomplete(hub, &object).await? {
                delete(hub, kind, &object, DeleteParams::background()).await?;
            }
        }
    }
    eventually(ENDS, "all jobs to end", async || {
        let mut waiting = String::new();
        for kind in [MADE[3], MADE[4]] {
            for object in list(hub, kind).await?.iter().filter(|object| !has_ended(object)) {
                let _ = write!(
                    waiting,
                    "\n  {} {}: {}",
                    kind.1,
                    object.name_any(),
                    object.data["status"]
                );
            }
        }
        ensure!(waiting.is_empty(), "{waiting}{}", workloads(hub).await?);
        Ok(())
    })
    .await
}

/// The Workloads of a cluster that are not finished, a line each.
async fn workloads(cluster: &Cluster) -> anyhow::Result<String> {
    let mut text = String::new();
    for workload in list(cluster, COMES[2]).await? {
        let conditions =
            workload.data["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let says = |it: &Value| {
            format!("{} {} {}: {}", it["type"], it["status"], it["reason"], it["message"])
        };
        if !conditions.iter().any(|it| it["type"] == "Finished" && it["status"] == "True") {
            let says: Vec<String> = conditions.iter().map(says).collect();
            let on = &workload.data["status"]["clusterName"];
            let _ =
                write!(text, "\n  Workload {} on {on}: {}", workload.name_any(), says.join("; "));
        }
    }
    Ok(text)
}

/// Whether a job ends by itself. A job beyond its maximum execution time is deactivated, and does not.
fn ends(kind: &str, object: &DynamicObject) -> bool {
    if object.labels().contains_key(names::MAX_EXEC_TIME_SECONDS) {
        return false;
    }
    let annotations = match kind {
        "Pod" => object.annotations().get(RUN_FOR).cloned(),
        "Job" => object.data["spec"]["template"]["metadata"]["annotations"][RUN_FOR]
            .as_str()
            .map(str::to_owned),
        _ => return false,
    };
    annotations.as_deref() != Some("forever")
}

/// Whether a pod's group has fewer pods than it says, as where an API server refused some of them.
async fn is_incomplete(hub: &Cluster, pod: &DynamicObject) -> anyhow::Result<bool> {
    let Some(group) = pod.labels().get(names::POD_GROUP_NAME) else { return Ok(false) };
    let total = pod.annotations().get(names::POD_GROUP_TOTAL_COUNT);
    let pods = list(hub, MADE[4]).await?;
    let live = |it: &&DynamicObject| {
        it.labels().get(names::POD_GROUP_NAME) == Some(group)
            && it.metadata.deletion_timestamp.is_none()
            && it.data["status"]["phase"] != "Failed"
    };
    Ok(total.and_then(|total| total.parse().ok()) != Some(pods.iter().filter(live).count()))
}

fn has_ended(object: &DynamicObject) -> bool {
    let status = &object.data["status"];
    let conditions = status["conditions"].as_array().cloned().unwrap_or_default();
    let over =
        |it: &Value| (it["type"] == "Complete" || it["type"] == "Failed") && it["status"] == "True";
    matches!(status["phase"].as_str(), Some("Succeeded" | "Failed")) || conditions.iter().any(over)
}

async fn delete(
    cluster: &Cluster,
    (version, kind): (&str, &str),
    object: &DynamicObject,
    params: DeleteParams,
) -> anyhow::Result<()> {
    let namespace = object.namespace().unwrap_or_default();
    let api = cluster.dynamic(version, kind, &namespace).await?;
    gone(api.delete(&object.name_any(), &params).await)
        .with_context(|| format!("delete {kind} {}", object.name_any()))?;
    // A group waits for other pods in their place until its Workload is deleted.
    if let Some(group) = object.labels().get(names::POD_GROUP_NAME).filter(|_| kind == "Pod") {
        let workloads = cluster.dynamic(COMES[2].0, COMES[2].1, &namespace).await?;
        gone(workloads.delete(group, &DeleteParams::default()).await)?;
    }
    Ok(())
}

/// Deletes all jobs, and waits until nothing of them is anywhere.
pub(crate) async fn none_left(fleet: &Fleet) -> anyhow::Result<()> {
    for kind in MADE {
        for (index, object) in list(fleet.hub(), kind).await?.into_iter().enumerate() {
            let params = if index % 2 == 0 {
                DeleteParams::background()
            } else {
                DeleteParams::foreground()
            };
            delete(fleet.hub(), kind, &object, params).await?;
        }
    }
    eventually(GOES, "nothing of any job to be left", async || {
        let mut left = String::new();
        for cluster in fleet.environment().clusters() {
            for kind in MADE.into_iter().chain(COMES) {
                for object in list(cluster, kind).await? {
                    let (name, finalizers) = (object.name_any(), object.finalizers());
                    let _ = write!(
                        left,
                        "\n  {} {name} on {}, finalizers {finalizers:?}",
                        kind.1,
                        cluster.name()
                    );
                }
            }
        }
        ensure!(left.is_empty(), "{left}");
        Ok(())
    })
    .await
}

/// Waits until no queue shows that anything is used, held or waiting.
pub(crate) async fn nothing_used(fleet: &Fleet) -> anyhow::Result<()> {
    eventually(SOON, "every usage to be zero", async || {
        let mut used = String::new();
        for cluster in fleet.environment().clusters() {
            for kind in &STAYS[..3] {
                for object in list(cluster, *kind).await? {
                    let status = &object.data["status"];
                    if !is_zero(status) {
                        let _ = write!(
                            used,
                            "\n  {} {} on {}: {status}",
                            kind.1,
                            object.name_any(),
                            cluster.name()
                        );
                    }
                }
            }
        }
        ensure!(used.is_empty(), "{used}");
        Ok(())
    })
    .await
}

/// Whether the status of a queue or a cohort is free of usage, share and workloads.
fn is_zero(status: &Value) -> bool {
    match status {
        Value::Object(fields) => fields.iter().all(|(name, value)| match name.as_str() {
            "total" | "borrowed" => value == "0",
            "pendingWorkloads" | "reservingWorkloads" | "admittedWorkloads" | "weightedShare" => {
                value == 0
            }
            _ => is_zero(value),
        }),
        Value::Array(items) => items.iter().all(is_zero),
        _ => true,
    }
}

/// The differences between two inventories.
pub(crate) fn difference(before: &Inventory, after: &Inventory) -> Vec<String> {
    let new = after
        .iter()
        .filter(|(key, _)| !before.contains_key(*key))
        .map(|(key, _)| format!("{key} is left"));
    let gone =
        before.keys().filter(|key| !after.contains_key(*key)).map(|key| format!("{key} is gone"));
    let other = before.iter().filter_map(|(key, was)| {
        let is = after.get(key)?;
        (is != was).then(|| format!("{key} had {was}, has {is}"))
    });
    new.chain(gone).chain(other).collect()
}

/// Deletes all queues, and waits until they are gone: nothing holds them any more.
pub(crate) async fn queues_go(fleet: &Fleet) -> anyhow::Result<()> {
    let kinds = [STAYS[1], STAYS[0], STAYS[2]];
    for cluster in fleet.environment().clusters() {
        for kind in kinds {
            for object in list(cluster, kind).await? {
                delete(cluster, kind, &object, DeleteParams::background()).await?;
            }
        }
    }
    eventually(SOON, "all queues to be gone", async || {
        for cluster in fleet.environment().clusters() {
            for kind in kinds {
                let left: Vec<String> =
                    list(cluster, kind).await?.iter().map(kube::ResourceExt::name_any).collect();
                ensure!(left.is_empty(), "{left:?} on {}", cluster.name());
            }
        }
        Ok(())
    })
    .await
}

/// Writes all objects of all clusters beside the log, to explain a fault.
pub(crate) async fn keep(fleet: &Fleet, log: &Log, name: &str) {
    for cluster in fleet.environment().clusters() {
        let mut all = Vec::new();
        for kind in MADE.into_iter().chain(COMES).chain(STAYS[..5].iter().copied()) {
            if cluster.name() != HUB && kind.1 == "CronJob" {
                continue;
            }
            all.extend(list(cluster, kind).await.unwrap_or_default().into_iter().filter_map(
                |object| {
                    let mut object = serde_json::to_value(object).ok()?;
                    object["metadata"].as_object_mut()?.remove("managedFields");
                    Some(object)
                },
            ));
        }
        let path = log.path().with_file_name(format!("{name}-{}.json", cluster.name()));
        let text = serde_json::to_string_pretty(&all).unwrap_or_default();
        match std::fs::write(&path, text) {
            Ok(()) => log.line(&format!("objects of {} in {}", cluster.name(), path.display())),
            Err(error) => log.line(&format!("cannot write {}: {error}", path.display())),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_status_is_zero_without_usage_and_workloads() {
        let flavor = |total: &str| json!([{"name": "f", "resources": [{"name": "cpu", "total": total, "borrowed": "0"}]}]);
        for (what, status, zero) in [
            ("none", json!(null), true),
            (
                "zeros",
                json!({"flavorsUsage": flavor("0"), "pendingWorkloads": 0, "conditions": [{"status": "True"}]}),
                true,
            ),
            ("usage", json!({"flavorsReservation": flavor("500m")}), false),
            ("a workload that waits", json!({"pendingWorkloads": 1}), false),
            ("a share", json!({"fairSharing": {"weightedShare": 3}}), false),
        ] {
            assert_eq!(is_zero(&status), zero, "{what}");
        }
    }

    #[test]
    fn an_inventory_differs_by_what_is_new_gone_or_changed() {
        let inventory = |items: &[(&str, &str)]| -> Inventory {
            items.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
        };
        let before = inventory(&[("a", "1"), ("b", "1"), ("c", "1")]);
        let after = inventory(&[("b", "1"), ("c", "2"), ("d", "1")]);
        assert_eq!(difference(&before, &after), ["d is left", "a is gone", "c had 1, has 2"]);
        assert_eq!(difference(&before, &before), [""; 0]);
    }
}
