//! Where a worker's kubeconfig lies: a Secret in our namespace, or a file below one allowed directory.

use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use switchyard_api::names::KUBECONFIG_SECRET_KEY;
use switchyard_api::v1beta2::{KubeConfig, LocationType};

use super::kubeconfig::BadKubeconfig;

/// Where kubeconfigs by path may lie.
pub const PATH_PREFIX: &str = "/etc/multikueue/kubeconfigs";
/// One call, answer included.
const CALL: Duration = Duration::from_secs(15);
/// A kubeconfig takes a few KiB.
const MAX_BYTES: u64 = 1 << 20;

/// Reads kubeconfigs.
#[derive(Clone)]
pub struct Source {
    secrets: Api<Secret>,
    prefix: PathBuf,
}

impl Source {
    /// Reads Secrets from there, and files only below `prefix`.
    pub fn new(secrets: Api<Secret>, prefix: impl Into<PathBuf>) -> Self {
        Self { secrets, prefix: prefix.into() }
    }

    /// The kubeconfig as it is now.
    ///
    /// # Errors
    /// [`BadKubeconfig::Unreadable`] says why there is none, [`BadKubeconfig::Unavailable`] why that is not known.
    pub async fn load(&self, reference: &KubeConfig) -> Result<Vec<u8>, BadKubeconfig> {
        match reference.location_type {
            LocationType::Secret => self.secret(&reference.location).await,
            LocationType::Path => {
                let path = allowed(&reference.location, &self.prefix).map_err(BadKubeconfig::Unreadable)?;
                file(&path).await.map_err(BadKubeconfig::Unreadable)
            }
        }
    }

    async fn secret(&self, name: &str) -> Result<Vec<u8>, BadKubeconfig> {
        let found = tokio::time::timeout(CALL, self.secrets.get_opt(name)).await;
        let found = found.map_err(|_| BadKubeconfig::Unavailable(format!("no answer within {CALL:?}")))?;
        let found = found.map_err(|error| BadKubeconfig::Unavailable(error.to_string()))?;
        let secret = found.ok_or_else(|| BadKubeconfig::Unreadable(format!("Secret \"{name}\" not found")))?;
        let mut data = secret.data.unwrap_or_default();
        let missing = || format!("key \"{KUBECONFIG_SECRET_KEY}\" not found in secret \"{name}\"");
        data.remove(KUBECONFIG_SECRET_KEY).map(|bytes| bytes.0).ok_or_else(|| BadKubeconfig::Unreadable(missing()))
    }
}

async fn file(path: &Path) -> Result<Vec<u8>, String> {
    let said = |error: std::io::Error| format!("open {}: {error}", path.display());
    let size = tokio::fs::metadata(path).await.map_err(said)?.len();
    if size > MAX_BYTES {
        return Err(format!("{} has {size} bytes, more than a kubeconfig has", path.display()));
    }
    tokio::fs::read(path).await.map_err(said)
}

/// The file behind `raw`, if it lies below `prefix` after all links are followed.
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
    let resolved =
        path.canonicalize().map_err(|error| format!("cannot resolve kubeconfig path symlinks: {raw}: {error}"))?;
    if !resolved.starts_with(&prefix) {
        return Err(format!("{NOT}: \"{}\" is not under \"{}\"", resolved.display(), prefix.display()));
    }
    Ok(resolved)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_files_below_the_prefix_are_read_whatever_links_say() {
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
        assert_eq!(judge("config"), "kubeconfig path is not under the allowed prefix: path must be absolute");
        let up = format!("{}/../secret", inside.display());
        assert_eq!(judge(&up), "kubeconfig path is not under the allowed prefix: path contains \"..\"");
        assert!(judge(&at("missing")).starts_with("cannot resolve kubeconfig path symlinks"));
        assert_eq!(judge(""), "kubeconfig path must not be empty");
        let missing = base.path().join("none");
        assert!(allowed(&at("config"), &missing).unwrap_err().contains("is not under"));
    }
}
