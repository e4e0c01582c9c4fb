//! Reads a worker's kubeconfig: from a Secret in the hub's namespace, a file below one allowed
//! directory, or a ClusterProfile in the hub's namespace.

use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind};
use kube::config::Kubeconfig;
use switchyard_api::names::KUBECONFIG_SECRET_KEY;
use switchyard_api::v1beta2::{KubeConfig, LocationType, MultiKueueCluster};
use switchyard_config::AccessProvider;

use super::profile;
use switchyard_hub_pki::kubeconfig::{self, BadKubeconfig, ExecPlugins};

/// The default directory of kubeconfigs by path.
pub const PATH_PREFIX: &str = "/etc/multikueue/kubeconfigs";
/// Deadline of one call to the hub's API server.
const CALL: Duration = Duration::from_secs(15);
/// A kubeconfig takes a few KiB.
const MAX_BYTES: u64 = 1 << 20;

/// Names a worker's kubeconfig.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KubeconfigRef {
    KubeConfig(KubeConfig),
    /// The name of a ClusterProfile.
    ClusterProfile(String),
}

/// Reads ClusterProfiles.
#[derive(Clone)]
pub struct ClusterProfiles {
    api: Api<DynamicObject>,
    providers: Vec<AccessProvider>,
}

impl ClusterProfiles {
    /// Reads the profiles of a namespace, with the configured access providers.
    pub fn new(client: kube::Client, namespace: &str, providers: Vec<AccessProvider>) -> Self {
        let kind = GroupVersionKind::gvk("multicluster.x-k8s.io", "v1alpha1", "ClusterProfile");
        Self {
            api: Api::namespaced_with(client, namespace, &ApiResource::from_gvk(&kind)),
            providers,
        }
    }

    async fn kubeconfig(&self, name: &str) -> Result<Vec<u8>, BadKubeconfig> {
        let missing = || {
            BadKubeconfig::Profile(format!(
                "ClusterProfile.multicluster.x-k8s.io \"{name}\" not found"
            ))
        };
        let found = with_deadline(self.api.get_opt(name)).await?.ok_or_else(missing)?;
        profile::kubeconfig(name, &found.data, &self.providers).map_err(BadKubeconfig::Profile)
    }
}

#[derive(Clone)]
pub struct KubeconfigSource {
    secrets: Api<Secret>,
    prefix: PathBuf,
    /// None if the feature gate for ClusterProfiles is off.
    profiles: Option<ClusterProfiles>,
}

impl KubeconfigSource {
    /// Reads Secrets, and files below `prefix`.
    pub fn new(secrets: Api<Secret>, prefix: impl Into<PathBuf>) -> Self {
        Self { secrets, prefix: prefix.into(), profiles: None }
    }

    /// Also reads ClusterProfiles.
    #[must_use]
    pub fn with_profiles(self, profiles: Option<ClusterProfiles>) -> Self {
        Self { profiles, ..self }
    }

    /// The kubeconfig reference of a MultiKueueCluster. None if it has an agent.
    pub(super) fn reference(&self, cluster: &MultiKueueCluster) -> Option<KubeconfigRef> {
        let source = &cluster.spec.cluster_source;
        let profile = source.cluster_profile_ref.as_ref().filter(|_| self.profiles.is_some());
        let kubeconfig = source.kube_config.clone().map(KubeconfigRef::KubeConfig);
        kubeconfig
            .or_else(|| profile.map(|profile| KubeconfigRef::ClusterProfile(profile.name.clone())))
    }

    /// Loads the present kubeconfig.
    ///
    /// # Errors
    /// [`BadKubeconfig::Unavailable`] if the hub could not read it now; others if there is none.
    pub async fn load(&self, reference: &KubeconfigRef) -> Result<Vec<u8>, BadKubeconfig> {
        let reference = match (reference, &self.profiles) {
            (KubeconfigRef::KubeConfig(reference), _) => reference,
            (KubeconfigRef::ClusterProfile(name), Some(profiles)) => {
                return profiles.kubeconfig(name).await;
            }
            (KubeconfigRef::ClusterProfile(_), None) => {
                return Err(BadKubeconfig::Profile(
                    "ClusterProfiles are not switched on".to_owned(),
                ));
            }
        };
        match reference.location_type {
            LocationType::Secret => self.secret(&reference.location).await,
            LocationType::Path => {
                let path = allowed(&reference.location, &self.prefix)
                    .map_err(BadKubeconfig::Unreadable)?;
                file(&path).await.map_err(BadKubeconfig::Unreadable)
            }
        }
    }

    async fn secret(&self, name: &str) -> Result<Vec<u8>, BadKubeconfig> {
        let found = with_deadline(self.secrets.get_opt(name)).await?;
        let secret = found
            .ok_or_else(|| BadKubeconfig::Unreadable(format!("Secret \"{name}\" not found")))?;
        let mut data = secret.data.unwrap_or_default();
        let missing = || format!("key \"{KUBECONFIG_SECRET_KEY}\" not found in secret \"{name}\"");
        data.remove(KUBECONFIG_SECRET_KEY)
            .map(|bytes| bytes.0)
            .ok_or_else(|| BadKubeconfig::Unreadable(missing()))
    }
}

impl KubeconfigRef {
    /// Parses and checks a loaded kubeconfig.
    ///
    /// # Errors
    /// The first fault found.
    pub fn parse(&self, bytes: &[u8]) -> Result<Kubeconfig, BadKubeconfig> {
        let exec = match self {
            Self::KubeConfig(_) => ExecPlugins::Refused,
            Self::ClusterProfile(_) => ExecPlugins::Allowed,
        };
        kubeconfig::parse(bytes, exec)
    }
}

/// Applies the deadline to a call to the hub's API server.
async fn with_deadline<T>(
    call: impl Future<Output = Result<T, kube::Error>>,
) -> Result<T, BadKubeconfig> {
    let answer = tokio::time::timeout(CALL, call).await;
    let answer =
        answer.map_err(|_| BadKubeconfig::Unavailable(format!("no answer within {CALL:?}")))?;
    answer.map_err(|error| BadKubeconfig::Unavailable(error.to_string()))
}

async fn file(path: &Path) -> Result<Vec<u8>, String> {
    let said = |error: std::io::Error| format!("open {}: {error}", path.display());
    let size = tokio::fs::metadata(path).await.map_err(said)?.len();
    if size > MAX_BYTES {
        return Err(format!("{} has {size} bytes, more than a kubeconfig has", path.display()));
    }
    tokio::fs::read(path).await.map_err(said)
}

/// The file behind `raw`, if it lies below `prefix` after all links are resolved.
fn allowed(raw: &str, prefix: &Path) -> Result<PathBuf, String> {
    const NOT: &str = "kubeconfig path is not under the allowed prefix";
    if raw.is_empty() {
        return Err("kubeconfig path must not be empty".into());
    }
    let path = Path::new(raw);
    if path.components().any(|part| part == Component::ParentDir) {
        return Err(format!("{NOT}: path contains \"..\""));
    }
    if !path.is_absolute() {
        return Err(format!("{NOT}: path must be absolute"));
    }
    let Ok(prefix) = prefix.canonicalize() else {
        return Err(format!("{NOT}: \"{raw}\" is not under \"{}\"", prefix.display()));
    };
    let resolved = path
        .canonicalize()
        .map_err(|error| format!("cannot resolve kubeconfig path symlinks: {raw}: {error}"))?;
    if !resolved.starts_with(&prefix) {
        return Err(format!(
            "{NOT}: \"{}\" is not under \"{}\"",
            resolved.display(),
            prefix.display()
        ));
    }
    Ok(resolved)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_outside_the_prefix_are_refused_despite_links() {
        let base = tempfile::tempdir().unwrap();
        let inside = base.path().join("allowed");
        let twin = base.path().join("allowed-not");
        for folder in [&inside, &twin] {
            std::fs::create_dir(folder).unwrap();
            std::fs::write(folder.join("config"), "x").unwrap();
        }
        std::fs::write(base.path().join("secret"), "x").unwrap();
        std::os::unix::fs::symlink(base.path().join("secret"), inside.join("link")).unwrap();
        std::os::unix::fs::symlink(inside.join("config"), inside.join("current")).unwrap();
        let judge = |path: &str| allowed(path, &inside).err().unwrap_or_default();
        let at = |name: &str| inside.join(name).display().to_string();
        assert_eq!(judge(&at("config")), "");
        assert_eq!(judge(&at("current")), "", "a link that stays inside");
        assert!(judge(&at("link")).contains("is not under"), "{}", judge(&at("link")));
        assert!(judge(&twin.join("config").display().to_string()).contains("is not under"));
        assert_eq!(
            judge("config"),
            "kubeconfig path is not under the allowed prefix: path must be absolute"
        );
        let up = format!("{}/../secret", inside.display());
        assert_eq!(
            judge(&up),
            "kubeconfig path is not under the allowed prefix: path contains \"..\""
        );
        assert!(judge(&at("missing")).starts_with("cannot resolve kubeconfig path symlinks"));
        assert_eq!(judge(""), "kubeconfig path must not be empty");
        let missing = base.path().join("none");
        assert!(allowed(&at("config"), &missing).unwrap_err().contains("is not under"));
    }
}
