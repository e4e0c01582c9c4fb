//! The manifest by which krew installs `kubectl switchyard`.

use std::fmt::Write as _;

use super::bundle::{Bundle, CommandLineArchive};

/// The manifest. Without a URL, krew can install it only with `--archive`.
pub(crate) fn manifest(bundle: &Bundle, archives: &[CommandLineArchive], url: &str) -> String {
    let mut text = format!(
        "apiVersion: krew.googlecontainertools.github.com/v1alpha2\nkind: Plugin\nmetadata:\n  name: switchyard\nspec:\n  \
         version: v{}\n  shortDescription: See where jobs run and why they wait\n  description: |\n    \
         Switchyard dispatches Kubernetes batch and GPU jobs to many clusters. This plugin shows\n    \
         where each job is and why it waits, adds worker clusters, and checks an installation.\n  platforms:\n",
        bundle.source.version
    );
    for CommandLineArchive { architecture, name, bytes } in archives {
        let uri = if url.is_empty() {
            name.clone()
        } else {
            format!("{}/{name}", url.trim_end_matches('/'))
        };
        let digest = switchyard_images::hex(bytes);
        // Writing to a String does not fail.
        let _ = write!(
            text,
            "  - selector:\n      matchLabels:\n        os: linux\n        arch: {architecture}\n    uri: {uri}\n    \
             sha256: {digest}\n    bin: switchyard\n"
        );
    }
    text
}
