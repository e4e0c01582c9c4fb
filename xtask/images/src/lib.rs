//! OCI images from static programs, without a container engine. The same input gives the same bytes.

pub mod packed;

use std::collections::BTreeMap;

use anyhow::Context as _;
use jiff::Timestamp;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use packed::{Compression, Entry};

const INDEX: &str = "application/vnd.oci.image.index.v1+json";
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const LAYER: &str = "application/vnd.oci.image.layer.v1.tar";

/// An image, for one or several processor architectures.
pub struct Image {
    /// The repository, such as `switchyard-hub` or `registry.example/team/switchyard-hub`.
    pub repository: String,
    /// The tag.
    pub tag: String,
    /// The creation time of the image and its files.
    pub created: Timestamp,
    /// Labels of the image.
    pub labels: BTreeMap<String, String>,
    /// One entry for each architecture.
    pub platforms: Vec<Platform>,
    /// Whether layers are compressed. Images of tests are made faster without.
    pub compression: Compression,
}

/// Neither root nor a user of the nodes, as `UID:GID`. `runAsNonRoot` needs a number.
pub const NON_ROOT: &str = "65532:65532";

/// The content of an image for one architecture.
pub struct Platform {
    /// The architecture by its Go name, such as `amd64`.
    pub architecture: String,
    /// The files of the only layer. Paths have no leading slash.
    pub files: Vec<Entry>,
    /// The command and its first arguments.
    pub entrypoint: Vec<String>,
    /// The user, as `UID:GID`.
    pub user: String,
}

/// An image as one file, in the layout of OCI and of `docker save`.
pub struct Archive {
    /// The file. `docker load`, `ctr image import` and `kind load image-archive` take it.
    pub bytes: Vec<u8>,
    /// The digest of the image's index, as `sha256:...`. A registry shows the same one.
    pub digest: String,
}

impl Image {
    /// The name with the tag.
    #[must_use]
    pub fn reference(&self) -> String {
        format!("{}:{}", self.repository, self.tag)
    }

    /// Packs the image.
    ///
    /// # Errors
    /// When a path is too long for a tar archive.
    pub fn archive(&self) -> anyhow::Result<Archive> {
        let mut blobs = Blobs::default();
        let (mut manifests, mut legacy) = (Vec::new(), Vec::new());
        for platform in &self.platforms {
            let layer = packed::tar(&platform.files, self.created).context("layer")?;
            let diff_id = digest(&layer);
            let media_type = format!("{LAYER}{}", self.compression.suffix());
            let layer = blobs.add(&media_type, self.compression.apply(&layer)?);
            let config = blobs.add_json(CONFIG, &self.config(platform, &diff_id));
            legacy.push(json!({
                "Config": path(&config),
                "RepoTags": [self.reference()],
                "Layers": [path(&layer)],
            }));
            let manifest = json!({
                "schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": [layer],
                "annotations": self.labels,
            });
            let mut manifest = blobs.add_json(MANIFEST, &manifest);
            manifest["platform"] = json!({"architecture": platform.architecture, "os": "linux"});
            manifests.push(manifest);
        }
        let index = json!({"schemaVersion": 2, "mediaType": INDEX, "manifests": manifests});
        let index = blobs.add_json(INDEX, &index);
        let digest = index["digest"].as_str().unwrap_or_default().to_owned();
        let names = json!({"schemaVersion": 2, "mediaType": INDEX, "manifests": self.named(&index, &digest)});
        let mut entries = vec![
            Entry::file("oci-layout", br#"{"imageLayoutVersion":"1.0.0"}"#.to_vec()),
            Entry::file("index.json", names.to_string().into_bytes()),
            // Docker without containerd's image store reads this list. It knows no architectures: the first one is listed.
            Entry::file(
                "manifest.json",
                Value::from_iter(legacy.into_iter().take(1)).to_string().into_bytes(),
            ),
        ];
        entries.extend(
            blobs
                .0
                .into_iter()
                .map(|(digest, bytes)| Entry::file(&format!("blobs/sha256/{digest}"), bytes)),
        );
        Ok(Archive { bytes: packed::tar(&entries, self.created)?, digest })
    }

    /// The index under each name that a pod can use: by tag, and by digest. A kubelet looks up a pinned image by its digest
    /// alone.
    fn named(&self, index: &Value, digest: &str) -> Vec<Value> {
        let full = full_name(&self.repository);
        let names = [format!("{full}:{}", self.tag), format!("{full}@{digest}")];
        let named = names.into_iter().zip([Some(&self.tag), None]).map(|(name, tag)| {
            let mut index = index.clone();
            index["annotations"] = json!({"io.containerd.image.name": name});
            if let Some(tag) = tag {
                index["annotations"]["org.opencontainers.image.ref.name"] = json!(tag);
            }
            index
        });
        named.collect()
    }

    fn config(&self, platform: &Platform, diff_id: &str) -> Value {
        let created = self.created.to_string();
        json!({
            "created": created,
            "architecture": platform.architecture,
            "os": "linux",
            "config": {
                "User": platform.user, "Entrypoint": platform.entrypoint, "WorkingDir": "/", "Labels": self.labels,
            },
            "rootfs": {"type": "layers", "diff_ids": [diff_id]},
            "history": [{"created": created, "created_by": "cargo xtask release"}],
        })
    }
}

/// The full name of a repository, as container engines complete it: with registry and path.
#[must_use]
pub fn full_name(repository: &str) -> String {
    match repository.split_once('/') {
        Some((host, _)) if host.contains(['.', ':']) || host == "localhost" => {
            repository.to_owned()
        }
        Some(_) => format!("docker.io/{repository}"),
        None => format!("docker.io/library/{repository}"),
    }
}

/// The SHA-256 of these bytes, as `sha256:` and hexadecimal digits.
#[must_use]
pub fn digest(bytes: &[u8]) -> String {
    format!("sha256:{}", hex(bytes))
}

/// The SHA-256 of these bytes in hexadecimal digits.
#[must_use]
pub fn hex(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn path(descriptor: &Value) -> String {
    let digest = descriptor["digest"].as_str().unwrap_or_default();
    format!("blobs/sha256/{}", digest.trim_start_matches("sha256:"))
}

/// The content of an archive by its digests.
#[derive(Default)]
struct Blobs(BTreeMap<String, Vec<u8>>);

impl Blobs {
    /// Adds a blob and returns its descriptor.
    fn add(&mut self, media_type: &str, bytes: Vec<u8>) -> Value {
        let hex = hex(&bytes);
        let descriptor = json!({"mediaType": media_type, "digest": format!("sha256:{hex}"), "size": bytes.len()});
        self.0.insert(hex, bytes);
        descriptor
    }

    fn add_json(&mut self, media_type: &str, value: &Value) -> Value {
        self.add(media_type, value.to_string().into_bytes())
    }
}

#[cfg(test)]
mod tests;
