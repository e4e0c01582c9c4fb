//! The hub's account on a worker without an agent, and its token.

use std::time::Duration;

use anyhow::{Context as _, bail};
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, DeleteParams, DynamicObject, Patch, PatchParams};
use kube::discovery::{self, Scope};
use kube::{Client, ResourceExt as _};
use serde_json::{Value, json};

use super::{FIELD_MANAGER, POLL_INTERVAL, apply};

/// The account in `deploy/rbac/kubeconfig-worker.yaml`.
const ACCOUNT: &str = "switchyard-remote-hub";

/// The Secret with its token.
const TOKEN: &str = "switchyard-remote-hub-token";

/// For Kubernetes to issue a token.
const DEADLINE: Duration = Duration::from_secs(20);

/// Creates the account and its roles, and returns its token. `rotate` replaces the token; the old
/// one becomes invalid.
pub(super) async fn token(
    worker: &Client,
    namespace: &str,
    rotate: bool,
) -> anyhow::Result<String> {
    let own = |text: &str| text.replace(crate::DEFAULT_HUB_NAMESPACE, namespace);
    apply_all(worker, &own(include_str!("../../../deploy/rbac/namespace.yaml"))).await?;
    apply_all(worker, &own(include_str!("../../../deploy/rbac/kubeconfig-worker.yaml"))).await?;
    let secrets: Api<Secret> = Api::namespaced(worker.clone(), namespace);
    if rotate && secrets.get_opt(TOKEN).await.context("reading the old token")?.is_some() {
        secrets.delete(TOKEN, &DeleteParams::default()).await.context("deleting the old token")?;
    }
    let object = json!({
        "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/service-account-token",
        "metadata": {
            "name": TOKEN, "namespace": namespace, "annotations": {"kubernetes.io/service-account.name": ACCOUNT},
        },
    });
    apply(&secrets, TOKEN, &object, "patch secrets on the worker").await?;
    let end = tokio::time::Instant::now() + DEADLINE;
    loop {
        let secret = secrets.get_opt(TOKEN).await.context("reading the token")?;
        if let Some(token) = secret.and_then(|secret| secret.data?.remove("token")) {
            return String::from_utf8(token.0).context("the token is no text");
        }
        if tokio::time::Instant::now() >= end {
            bail!(
                "Kubernetes has written no token into the Secret {namespace}/{TOKEN} within {} s: does its controller manager run?",
                DEADLINE.as_secs()
            );
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

/// Applies all objects of a manifest in order.
pub(super) async fn apply_all(client: &Client, text: &str) -> anyhow::Result<()> {
    let objects: Vec<Option<Value>> = serde_saphyr::from_multiple(text).context("not YAML")?;
    for object in objects.into_iter().flatten() {
        let object: DynamicObject =
            serde_json::from_value(object).context("not a Kubernetes object")?;
        let name = object.name_any();
        let types = object.types.clone().with_context(|| format!("{name} has no kind"))?;
        let kind = kube::core::GroupVersionKind::try_from(&types).with_context(|| name.clone())?;
        let (resource, capabilities) =
            discovery::pinned_kind(client, &kind).await.with_context(|| types.kind.clone())?;
        let api: Api<DynamicObject> = match (capabilities.scope, object.namespace()) {
            (Scope::Cluster, _) => Api::all_with(client.clone(), &resource),
            (Scope::Namespaced, Some(namespace)) => {
                Api::namespaced_with(client.clone(), &namespace, &resource)
            }
            (Scope::Namespaced, None) => Api::default_namespaced_with(client.clone(), &resource),
        };
        let params = PatchParams::apply(FIELD_MANAGER).force();
        let applied = api.patch(&name, &params, &Patch::Apply(&object)).await;
        applied.map_err(|error| {
            crate::with_required_right(
                &error,
                &format!("applying {} {name}", types.kind),
                &format!("patch {}", resource.plural),
            )
        })?;
    }
    Ok(())
}
