//! Manifests, applied as `kubectl apply --server-side` does it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ApiResource, DynamicObject, Patch, PatchParams};
use kube::core::{GroupVersion, GroupVersionKind};
use kube::discovery::{Scope, pinned_kind};
use kube::{Api, ResourceExt};
use serde_json::Value;

use super::{Cluster, SETTLE_TIME, start};
use crate::wait::eventually;

/// The field manager of tests.
const MANAGER: &str = "switchyard-e2e";

/// Cached kinds: the resource of each (apiVersion, kind), and whether it is namespaced.
pub(super) type Kinds = tokio::sync::Mutex<BTreeMap<(String, String), (ApiResource, bool)>>;

impl Cluster {
    /// Applies all documents of a YAML text: first namespaces and CRDs, and waits for these; then the rest in order. Namespaced
    /// objects without a namespace go to `default`. Returns the server's objects in that order.
    pub async fn apply_yaml(&self, yaml: &str) -> anyhow::Result<Vec<DynamicObject>> {
        let documents: Vec<Value> = serde_saphyr::from_multiple(yaml).context("not YAML")?;
        self.apply(documents).await
    }

    /// Applies the `.yaml` files below a directory, in the order of their names.
    pub async fn apply_dir(&self, dir: impl AsRef<Path>) -> anyhow::Result<()> {
        self.apply_files(dir.as_ref(), |_| true).await
    }

    /// Applies those `.yaml` files below a directory whose paths are wanted.
    async fn apply_files(&self, dir: &Path, wanted: impl Fn(&Path) -> bool) -> anyhow::Result<()> {
        let mut documents = Vec::new();
        for file in yaml_files(dir)?.into_iter().filter(|file| wanted(file)) {
            let text = std::fs::read_to_string(&file)?;
            let more: Vec<Value> =
                serde_saphyr::from_multiple(&text).with_context(|| file.display().to_string())?;
            documents.extend(more);
        }
        ensure!(!documents.is_empty(), "no manifests in {}", dir.display());
        self.apply(documents).await.with_context(|| dir.display().to_string())?;
        Ok(())
    }

    /// Applies objects; see [`Cluster::apply_yaml`].
    pub async fn apply(
        &self,
        objects: impl IntoIterator<Item = Value>,
    ) -> anyhow::Result<Vec<DynamicObject>> {
        let mut objects: Vec<Value> =
            objects.into_iter().filter(|object| !object.is_null()).collect();
        objects.sort_by_key(|object| match object["kind"].as_str() {
            Some("Namespace") => 0,
            Some("CustomResourceDefinition") => 1,
            _ => 2,
        });
        let (first, rest) = objects.split_at(objects.partition_point(|object| {
            matches!(object["kind"].as_str(), Some("Namespace" | "CustomResourceDefinition"))
        }));
        let mut applied = Vec::with_capacity(objects.len());
        for object in first {
            applied.push(self.apply_one(object).await?);
        }
        for object in first.iter().filter(|object| object["kind"] == "CustomResourceDefinition") {
            self.await_established(object["metadata"]["name"].as_str().unwrap_or_default()).await?;
        }
        for object in rest {
            applied.push(self.apply_one(object).await?);
        }
        Ok(applied)
    }

    /// The API of any kind. `namespace` has no effect for cluster-scoped kinds.
    pub async fn dynamic(
        &self,
        api_version: &str,
        kind: &str,
        namespace: &str,
    ) -> anyhow::Result<Api<DynamicObject>> {
        let (resource, namespaced) = self.kind(api_version, kind).await?;
        let client = self.admin.clone();
        Ok(if namespaced {
            Api::namespaced_with(client, namespace, &resource)
        } else {
            Api::all_with(client, &resource)
        })
    }

    /// Installs the CRDs and webhooks of `deploy/`, and the roles of programs.
    ///
    /// The 57 roles for users are left out, because few tests need them. Kubernetes would aggregate
    /// each into its own roles again. See [`Cluster::install_user_roles`].
    pub async fn install(&self) -> anyhow::Result<()> {
        self.apply_dir(start::deploy().join("crds")).await?;
        self.apply_files(&start::deploy().join("rbac"), |file| !is_for_users(file)).await?;
        self.apply_dir(start::deploy().join("webhooks")).await
    }

    /// Installs the roles of `deploy/` for users.
    pub async fn install_user_roles(&self) -> anyhow::Result<()> {
        self.apply_files(&start::deploy().join("rbac"), is_for_users).await
    }

    async fn apply_one(&self, object: &Value) -> anyhow::Result<DynamicObject> {
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let (Some(version), Some(kind), Some(name)) =
            (text(&object["apiVersion"]), text(&object["kind"]), text(&object["metadata"]["name"]))
        else {
            bail!("an object needs apiVersion, kind and metadata.name: {object}");
        };
        let namespace =
            text(&object["metadata"]["namespace"]).unwrap_or_else(|| "default".to_owned());
        let api = self.dynamic(&version, &kind, &namespace).await?;
        let params = PatchParams::apply(MANAGER).force();
        let applied = api.patch(&name, &params, &Patch::Apply(object)).await;
        applied.with_context(|| format!("apply {kind} {namespace}/{name} to {}", self.name()))
    }

    /// The resource of a kind, and whether it is namespaced.
    pub async fn kind(&self, api_version: &str, kind: &str) -> anyhow::Result<(ApiResource, bool)> {
        let key = (api_version.to_owned(), kind.to_owned());
        if let Some(known) = self.kinds.lock().await.get(&key) {
            return Ok(known.clone());
        }
        let version: GroupVersion =
            api_version.parse().with_context(|| format!("apiVersion {api_version}"))?;
        let gvk = GroupVersionKind::gvk(&version.group, &version.version, kind);
        // A kind is served some time after its CRD is established.
        let found =
            eventually(SETTLE_TIME, format!("{} to serve {kind}", self.name()), async || {
                Ok(pinned_kind(&self.admin, &gvk).await?)
            });
        let (resource, capabilities) = found.await?;
        let known = (resource, capabilities.scope == Scope::Namespaced);
        self.kinds.lock().await.insert(key, known.clone());
        Ok(known)
    }

    async fn await_established(&self, name: &str) -> anyhow::Result<()> {
        let crds: Api<CustomResourceDefinition> = Api::all(self.admin.clone());
        eventually(SETTLE_TIME, format!("CRD {name} to be Established"), async || {
            let crd = crds.get(name).await?;
            let conditions = crd.status.and_then(|status| status.conditions).unwrap_or_default();
            let established =
                conditions.iter().any(|one| one.type_ == "Established" && one.status == "True");
            ensure!(established, "conditions {conditions:?}");
            Ok(())
        })
        .await
    }

    /// Creates a namespace with a new name that begins with `stem`, and waits until pods can be
    /// created in it.
    pub async fn namespace(&self, stem: &str) -> anyhow::Result<String> {
        let name = crate::names::unique(stem);
        let object = serde_json::json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        let applied = self.apply([object]).await?;
        self.await_service_account(&name, "default").await?;
        Ok(applied.first().map_or(name, ResourceExt::name_any))
    }
}

/// Whether a file of `deploy/rbac` has roles for users.
fn is_for_users(file: &Path) -> bool {
    file.file_stem().is_some_and(|name| name.to_string_lossy().starts_with("people"))
}

fn yaml_files(dir: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    let entries =
        std::fs::read_dir(dir).with_context(|| format!("no manifests at {}", dir.display()))?;
    for entry in entries {
        let path = entry?.path();
        if path.is_dir() {
            files.extend(yaml_files(&path)?);
        } else if path
            .extension()
            .is_some_and(|extension| extension == "yaml" || extension == "yml")
        {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}
