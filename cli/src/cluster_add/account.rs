//! The hub's account on a worker without an agent, and its token.

use std::ops::ControlFlow;
use std::time::Duration;

use anyhow::Context as _;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::discovery::{self, Scope};
use kube::{Client, ResourceExt as _};
use serde_json::{Value, json};
use switchyard_api::names;

use crate::deadline::Deadline;
use crate::wait;

/// The account in `deploy/rbac/kubeconfig-worker.yaml`.
const ACCOUNT: &str = "switchyard-remote-hub";

/// `generateName` of the Secrets with its tokens.
const TOKEN: &str = "switchyard-remote-hub-token-";

/// The field manager of manifests, which is that of `kubectl apply --server-side`: a later release's
/// manifest, applied with kubectl, must not conflict with fields of this command.
const KUBECTL: &str = "kubectl";

/// The type of Secrets that Kubernetes fills with a token.
const TYPE: &str = "kubernetes.io/service-account-token";

/// For Kubernetes to issue a token.
const DEADLINE: Duration = Duration::from_secs(20);

/// A token of the account, and the Secret that keeps it valid.
pub(super) struct Token {
    pub(super) text: String,
    secret: String,
    /// Whether this command made the Secret beside an earlier one.
    is_beside: bool,
    secrets: Api<Secret>,
    namespace: String,
    hub_id: String,
}

impl Token {
    /// Deletes a token that nothing uses: one that was made beside another. A failure leaves it, and
    /// the next rotation deletes it.
    pub(super) async fn discard(&self) {
        if self.is_beside
            && let Err(error) = self.secrets.delete(&self.secret, &DeleteParams::default()).await
        {
            eprintln!("Secret {}/{} is not deleted: {error}", self.namespace, self.secret);
        }
    }

    /// Deletes the tokens from before a rotation, which are refused from then on.
    pub(super) async fn revoke_others(&self) -> anyhow::Result<()> {
        if !self.is_beside {
            return Ok(());
        }
        let all = token_secrets(&self.secrets, &self.hub_id).await?;
        for name in all.iter().map(Secret::name_any).filter(|name| *name != self.secret) {
            match self.secrets.delete(&name, &DeleteParams::default()).await {
                Err(kube::Error::Api(status)) if status.code == 404 => {}
                deleted => drop(deleted.with_context(|| format!("deleting the token {name}"))?),
            }
        }
        Ok(())
    }

    /// The message about a rotation that the hub has not followed.
    pub(super) fn left_over(&self) -> String {
        format!(
            "The tokens from before are still valid: repeat the command, or delete the other Secrets with the label {}={} of namespace {} on the \
             worker, but not {}",
            names::HUB_ID,
            self.hub_id,
            self.namespace,
            self.secret
        )
    }
}

/// The Secrets with tokens of the account for one hub. A worker can have several hubs.
async fn token_secrets(secrets: &Api<Secret>, hub_id: &str) -> anyhow::Result<Vec<Secret>> {
    let params = ListParams::default()
        .fields(&format!("type={TYPE}"))
        .labels(&format!("{}={hub_id}", names::HUB_ID));
    let listed = secrets.list(&params).await;
    let listed = listed.map_err(|error| {
        crate::with_required_right(&error, "listing the account's tokens", "list secrets there")
    })?;
    Ok(listed.items)
}

/// Creates the account and its roles, and returns its newest token for a hub. `rotate` makes a new
/// one; the others stay valid until [`Token::revoke_others`].
pub(super) async fn token(
    worker: &Client,
    namespace: &str,
    hub_id: &str,
    rotate: bool,
    deadline: Deadline,
) -> anyhow::Result<Token> {
    let own = |text: &str| text.replace(crate::DEFAULT_HUB_NAMESPACE, namespace);
    apply_all(worker, &own(include_str!("../../../deploy/rbac/namespace.yaml"))).await?;
    apply_all(worker, &own(include_str!("../../../deploy/rbac/kubeconfig-worker.yaml"))).await?;
    let secrets: Api<Secret> = Api::namespaced(worker.clone(), namespace);
    let there = token_secrets(&secrets, hub_id).await?;
    let newest = there.iter().max_by_key(|secret| (secret.creation_timestamp(), secret.name_any()));
    let is_beside = rotate && newest.is_some();
    let secret = match newest {
        Some(newest) if !rotate => newest.name_any(),
        _ => create_secret(&secrets, hub_id).await?,
    };
    let mut token = Token {
        text: String::new(),
        secret,
        is_beside,
        secrets,
        namespace: namespace.to_owned(),
        hub_id: hub_id.to_owned(),
    };
    match issued(&token.secrets, namespace, &token.secret, deadline).await {
        Ok(text) => token.text = text,
        Err(error) => {
            token.discard().await;
            return Err(error);
        }
    }
    Ok(token)
}

/// Creates the Secret of a token, and returns its name.
async fn create_secret(secrets: &Api<Secret>, hub_id: &str) -> anyhow::Result<String> {
    let object = json!({
        "apiVersion": "v1", "kind": "Secret", "type": TYPE,
        "metadata": {
            "generateName": TOKEN,
            "labels": {names::HUB_ID: hub_id},
            "annotations": {"kubernetes.io/service-account.name": ACCOUNT},
        },
    });
    let object: Secret = serde_json::from_value(object).context("the token's Secret")?;
    let created = secrets.create(&PostParams::default(), &object).await;
    let created = created.map_err(|error| {
        crate::with_required_right(&error, "making a token", "create secrets on the worker")
    })?;
    Ok(created.name_any())
}

/// Waits for the token that Kubernetes writes into a Secret.
async fn issued(
    secrets: &Api<Secret>,
    namespace: &str,
    name: &str,
    deadline: Deadline,
) -> anyhow::Result<String> {
    let goal = format!("Kubernetes has written a token into the Secret {namespace}/{name}");
    wait::poll(deadline.at_most(DEADLINE), &goal, async || {
        let secret = secrets.get_opt(name).await;
        let secret = secret.map_err(|error| crate::with_hint(&error, "reading the token"))?;
        Ok(match secret.and_then(|secret| secret.data?.remove("token")) {
            Some(token) => ControlFlow::Break(
                String::from_utf8(token.0).context("the token is no text")?,
            ),
            None => ControlFlow::Continue(format!(
                "the Secret {namespace}/{name} has no token yet: the controller manager of Kubernetes writes it"
            )),
        })
    })
    .await
}

/// Applies all objects of a manifest in order, as `kubectl apply --server-side` does.
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
        let params = PatchParams::apply(KUBECTL).force();
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
