//! A kind that only the configuration knows: its own controller, which the test plays in both clusters, makes and ends the
//! Workloads.

use anyhow::{Context as _, ensure};
use kube::{
    Api, Client, ResourceExt as _,
    api::{DeleteParams, DynamicObject, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use switchyard_api::{conditions, v1beta2::Workload};
use switchyard_e2e::Cluster;
use switchyard_e2e::wait::eventually;

use super::table::SOON;

const API: &str = "birds.example.com/v1";
const NAME: &str = "gulls";

/// Rights on the kind that an administrator gives Switchyard.
pub(crate) fn roles() -> [Value; 2] {
    let rbac = "rbac.authorization.k8s.io";
    let role = json!({
        "apiVersion": format!("{rbac}/v1"), "kind": "ClusterRole", "metadata": {"name": "flocks"},
        "rules": [{"apiGroups": ["birds.example.com"], "resources": ["flocks", "flocks/status"], "verbs": ["*"]}],
    });
    let binding = json!({
        "apiVersion": format!("{rbac}/v1"), "kind": "ClusterRoleBinding", "metadata": {"name": "flocks"},
        "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": "flocks"},
        "subjects": [{"apiGroup": rbac, "kind": "Group", "name": "system:serviceaccounts:switchyard-system"}],
    });
    [role, binding]
}

/// The kind.
pub(crate) fn crd() -> Value {
    let any = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let version = json!({
        "name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
        "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": any, "status": any}}},
    });
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "flocks.birds.example.com"},
        "spec": {
            "group": "birds.example.com", "scope": "Namespaced", "versions": [version],
            "names": {"kind": "Flock", "plural": "flocks", "singular": "flock", "listKind": "FlockList"},
        },
    })
}

/// Sends one, shows its status, ends it.
pub(crate) async fn runs_there(
    hub: &Cluster,
    west: &Cluster,
    namespace: &str,
) -> anyhow::Result<()> {
    let (here, there) =
        (hub.dynamic(API, "Flock", namespace).await?, west.dynamic(API, "Flock", namespace).await?);
    let created = here
        .create(
            &PostParams::default(),
            &serde_json::from_value(json!({
                "apiVersion": API, "kind": "Flock",
                "metadata": {"name": NAME, "namespace": namespace},
                "spec": {"birds": 3, "managedBy": "kueue.x-k8s.io/multikueue"},
            }))?,
        )
        .await?;
    queue(&hub.admin, namespace, &created).await?;

    let copy =
        eventually(SOON, "the copy of the Flock", async || Ok(there.get(NAME).await?)).await?;
    ensure!(copy.data["spec"] == json!({"birds": 3}), "{}", copy.data);
    let named = copy.labels().get("kueue.x-k8s.io/prebuilt-workload-name").map(String::as_str);
    ensure!(named == Some("flock-gulls"), "{named:?}");

    let flying = Patch::Merge(json!({"status": {"flying": 3}}));
    there.patch_status(NAME, &PatchParams::default(), &flying).await?;
    eventually(SOON, "the Flock's status on the hub", async || {
        let shown = here.get(NAME).await?.data["status"].clone();
        ensure!(shown == json!({"flying": 3}), "{shown}");
        Ok(())
    })
    .await?;

    finish(&west.admin, namespace).await?;
    let workloads: Api<Workload> = Api::namespaced(hub.admin.clone(), namespace);
    eventually(SOON, "the Flock's Workload finished", async || {
        let status = workloads.get("flock-gulls").await?.status.unwrap_or_default();
        let finished =
            conditions::find(&status.conditions, conditions::FINISHED).context("not finished")?;
        ensure!(finished.reason == "Succeeded" && finished.message == "landed", "{finished:?}");
        Ok(())
    })
    .await?;
    eventually(SOON, "the copy to be collected", async || {
        ensure!(there.get_opt(NAME).await?.is_none(), "it is still there");
        Ok(())
    })
    .await?;
    here.delete(NAME, &DeleteParams::background()).await?;
    Ok(())
}

/// Makes its Workload, as its controller on the hub does.
async fn queue(client: &Client, namespace: &str, flock: &DynamicObject) -> anyhow::Result<()> {
    let owner = json!({
        "apiVersion": API, "kind": "Flock", "name": NAME, "uid": flock.uid(), "controller": true,
    });
    let container = json!({"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}});
    let pod_set =
        json!({"name": "main", "count": 3, "template": {"spec": {"containers": [container]}}});
    let workload: Workload = serde_json::from_value(json!({
        "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload",
        "metadata": {"name": "flock-gulls", "namespace": namespace, "ownerReferences": [owner]},
        "spec": {"queueName": "main", "podSets": [pod_set]},
    }))?;
    Api::namespaced(client.clone(), namespace).create(&PostParams::default(), &workload).await?;
    Ok(())
}

/// Says that it is done, as its controller on the worker does once it was admitted there.
async fn finish(client: &Client, namespace: &str) -> anyhow::Result<()> {
    let workloads: Api<Workload> = Api::namespaced(client.clone(), namespace);
    eventually(SOON, "the Flock's Workload finished on the worker", async || {
        let workload = workloads.get("flock-gulls").await?;
        let status = workload.status.unwrap_or_default();
        ensure!(
            conditions::is_true(&status.conditions, conditions::ADMITTED),
            "{:?}",
            status.conditions
        );
        let mut conditions = serde_json::to_value(&status.conditions)?;
        if let Some(conditions) = conditions.as_array_mut() {
            conditions.push(json!({
                "type": "Finished", "status": "True", "reason": "Succeeded", "message": "landed",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }));
        }
        let version: Value = json!({"resourceVersion": workload.metadata.resource_version});
        let patch =
            Patch::Merge(json!({"metadata": version, "status": {"conditions": conditions}}));
        workloads.patch_status("flock-gulls", &PatchParams::default(), &patch).await?;
        Ok(())
    })
    .await
}
