//! The images of the programs.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use switchyard_images::packed::{Compression, Entry};
use switchyard_images::{Archive, Image, NON_ROOT, Platform};

use super::bundle::Bundle;
use super::programs;

/// The file where programs look for certificate authorities. They need it for workers whose kubeconfig names no CA, and for
/// trace collectors.
const AUTHORITIES: &str = "etc/ssl/certs/ca-certificates.crt";

/// An image of the release.
pub(crate) struct ReleasedImage {
    /// The program in it, which is also its name.
    pub(crate) program: &'static str,
    /// The archive's file.
    pub(crate) file: String,
    /// The name with tag by which clusters pull it.
    pub(crate) reference: String,
    pub(crate) archive: Archive,
}

impl ReleasedImage {
    /// The name by tag and digest.
    pub(crate) fn pinned(&self) -> String {
        format!("{}@{}", self.reference, self.archive.digest)
    }
}

/// The image of each program.
pub(crate) fn all(bundle: &Bundle) -> anyhow::Result<Vec<ReleasedImage>> {
    let authorities = authorities();
    programs::NAMES.iter().map(|program| image(bundle, program, &authorities)).collect()
}

fn image(
    bundle: &Bundle,
    program: &'static str,
    authorities: &str,
) -> anyhow::Result<ReleasedImage> {
    let platform = |built: &super::bundle::Program| Platform {
        architecture: built.architecture.clone(),
        files: vec![
            Entry::file(AUTHORITIES, authorities.as_bytes().to_vec()),
            Entry::program(program, built.bytes.clone()),
        ],
        entrypoint: vec![format!("/{program}")],
        user: NON_ROOT.to_owned(),
    };
    let registry =
        if bundle.registry.is_empty() { String::new() } else { format!("{}/", bundle.registry) };
    let labels = [
        ("title", program),
        ("version", &bundle.source.version),
        ("revision", &bundle.source.commit),
        ("licenses", "Apache-2.0"),
    ];
    let image = Image {
        repository: format!("{registry}{program}"),
        tag: bundle.source.version.clone(),
        created: bundle.source.date,
        labels: BTreeMap::from(
            labels.map(|(key, it)| (format!("org.opencontainers.image.{key}"), it.to_owned())),
        ),
        platforms: bundle.all_of(program).map(platform).collect(),
        compression: Compression::Gzip,
    };
    Ok(ReleasedImage {
        program,
        file: format!("{program}-image.tar"),
        reference: image.reference(),
        archive: image.archive()?,
    })
}

/// Mozilla's certificate authorities, of the version in Cargo.lock. Those of build machines differ.
fn authorities() -> String {
    let pem = |der: &[u8]| {
        let text = BASE64_STANDARD.encode(der);
        let lines: Vec<&str> =
            text.as_bytes().chunks(64).filter_map(|line| std::str::from_utf8(line).ok()).collect();
        format!("-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n", lines.join("\n"))
    };
    webpki_root_certs::TLS_SERVER_ROOT_CERTS.iter().map(|certificate| pem(certificate)).collect()
}

#[cfg(test)]
mod tests {
    use super::authorities;

    #[test]
    fn authorities_are_written_as_openssl_writes_them() {
        let text = authorities();
        assert!(text.starts_with("-----BEGIN CERTIFICATE-----\nMII"));
        assert!(text.lines().all(|line| line.len() <= 64));
        assert!(text.matches("-----END CERTIFICATE-----\n").count() > 100);
    }
}
