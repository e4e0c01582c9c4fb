//! A kind that only the configuration knows: its own controller, which the test plays in both clusters, makes and ends the
//! Workloads.

use anyhow::{Context as _, ensure};
use clap::Parser as _;
use kube::{
    Api, Client, ResourceExt as _,
    api::{DeleteParams, DynamicObject, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use switchyard_api::{conditions, names, v1beta2::Workload};
use switchyard_e2e::Cluster;
use switchyard_e2e::fleet::{Fleet, HUB};
use switchyard_e2e::wait::eventually;

use super::table::SOON;

pub(crate) const API: &str = "birds.example.com/v1";
pub(crate) const NAME: &str = "gulls";
const KEPT: &str = "terns";

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
    submit(hub, &here, namespace, NAME).await?;

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

/// Sends one, ends the fleet's programs, and hands the copy back: `hand-back` finds a kind that only
/// the hub's configuration knew, and the copy can be deleted without Switchyard.
pub(crate) async fn is_handed_back(fleet: &Fleet, namespace: &str) -> anyhow::Result<()> {
    let (hub, west) = (fleet.hub(), fleet.worker("west"));
    let (here, there) =
        (hub.dynamic(API, "Flock", namespace).await?, west.dynamic(API, "Flock", namespace).await?);
    submit(hub, &here, namespace, KEPT).await?;
    let is_held = async || {
        let finalizers = there.get(KEPT).await?.metadata.finalizers.unwrap_or_default();
        anyhow::Ok(finalizers.iter().any(|it| it == names::TERMINAL_STATE))
    };
    eventually(SOON, "a copy with the finalizer", async || {
        ensure!(is_held().await?, "it has no finalizer");
        Ok(())
    })
    .await?;
    fleet.kill(HUB);
    fleet.kill("west");

    let planned = hand_back(west, &["--copies", "--dry-run"]).await?;
    ensure!(planned["dryRun"] == true && is_held().await?, "a dry run changes nothing: {planned}");
    let done = hand_back(west, &["--copies"]).await?;
    ensure!(done["copies"] == planned["copies"] && done["copies"] != 0, "{planned} {done}");
    ensure!(!done.to_string().contains("flocks"), "every Flock is read: {done}");
    ensure!(!is_held().await?, "it is held");
    let again = hand_back(west, &["--copies", "--dry-run"]).await?;
    ensure!(again["copies"] == 0 && again["changed"] == 0, "{again}");
    there.delete(KEPT, &DeleteParams::background()).await?;
    ensure!(there.get_opt(KEPT).await?.is_none(), "it waits for a finalizer");
    Ok(())
}

/// `switchyard migrate hand-back` on a cluster.
pub(crate) async fn hand_back(cluster: &Cluster, more: &[&str]) -> anyhow::Result<Value> {
    let kubeconfig = cluster.kubeconfig().to_str().context("path")?;
    let words = ["switchyard", "--kubeconfig", kubeconfig, "migrate", "hand-back", "--yes"];
    let words = words.iter().chain(&["-o", "json"]).chain(more);
    let mut out = Vec::new();
    switchyard::run(switchyard::Args::try_parse_from(words)?, &mut out).await?;
    Ok(serde_json::from_slice(&out)?)
}

/// Makes one on the hub, with its Workload.
pub(crate) async fn submit(
    hub: &Cluster,
    here: &Api<DynamicObject>,
    namespace: &str,
    name: &str,
) -> anyhow::Result<()> {
    let flock = json!({
        "apiVersion": API, "kind": "Flock",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"birds": 3, "managedBy": "kueue.x-k8s.io/multikueue"},
    });
    let created = here.create(&PostParams::default(), &serde_json::from_value(flock)?).await?;
    queue(&hub.admin, namespace, &created).await
}

/// Makes its Workload, as its controller on the hub does.
async fn queue(client: &Client, namespace: &str, flock: &DynamicObject) -> anyhow::Result<()> {
    let name = flock.name_any();
    let owner = json!({
        "apiVersion": API, "kind": "Flock", "name": name, "uid": flock.uid(), "controller": true,
    });
    let container = json!({"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}});
    let pod_set =
        json!({"name": "main", "count": 3, "template": {"spec": {"containers": [container]}}});
    let workload: Workload = serde_json::from_value(json!({
        "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload",
        "metadata": {
            "name": format!("flock-{name}"), "namespace": namespace, "ownerReferences": [owner],
        },
        "spec": {"queueName": "main", "podSets": [pod_set]},
    }))?;
    Api::namespaced(client.clone(), namespace).create(&PostParams::default(), &workload).await?;
    Ok(())
}

/// Says that it is done, as its controller on the worker does once it was admitted there.
pub(crate) async fn finish(client: &Client, namespace: &str) -> anyhow::Result<()> {
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
