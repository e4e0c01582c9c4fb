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

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use sha2::{Digest as _, Sha256};

    use super::*;
    use crate::release::source::Source;
    use crate::run;

    /// A release with the command line for two architectures.
    fn bundle() -> Bundle {
        let source = Source {
            version: "0.1.0".to_owned(),
            commit: "0".repeat(40),
            date: jiff::Timestamp::UNIX_EPOCH,
        };
        let mut bundle = Bundle { source, registry: String::new(), programs: Vec::new() };
        for architecture in ["amd64", "arm64"] {
            bundle.add(architecture, "switchyard", format!("for {architecture}").into_bytes());
            bundle.add(architecture, "switchyard-hub", b"another program".to_vec());
        }
        bundle
    }

    #[test]
    fn manifest_has_krews_fields_and_the_digests_of_its_archives() {
        let bundle = bundle();
        let archives = bundle.command_line_archives().unwrap();
        let text = manifest(&bundle, &archives, "https://example.org/v0.1.0/");
        let parsed: Value = serde_saphyr::from_str(&text).unwrap();
        assert_eq!(parsed["apiVersion"], "krew.googlecontainertools.github.com/v1alpha2");
        assert_eq!(parsed["kind"], "Plugin");
        assert_eq!(parsed["metadata"]["name"], "switchyard");
        assert_eq!(parsed["spec"]["version"], "v0.1.0");
        // Krew's index allows 50 characters.
        let short = parsed["spec"]["shortDescription"].as_str().unwrap();
        assert!((1..=50).contains(&short.len()), "{short}");
        assert!(parsed["spec"]["description"].as_str().unwrap().ends_with("installation.\n"));
        let expected: Vec<Value> = archives
            .iter()
            .map(|archive| {
                let digest = Sha256::digest(&archive.bytes);
                let digest: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
                let architecture = &archive.architecture;
                json!({
                    "selector": {"matchLabels": {"os": "linux", "arch": architecture}},
                    "uri": format!("https://example.org/v0.1.0/switchyard-0.1.0-linux-{architecture}.tar.gz"),
                    "sha256": digest,
                    "bin": "switchyard",
                })
            })
            .collect();
        assert_eq!(parsed["spec"]["platforms"], Value::Array(expected));
        assert_eq!(archives.len(), 2);
    }

    #[test]
    fn archive_without_a_url_is_named_alone() {
        let bundle = bundle();
        let archives = bundle.command_line_archives().unwrap();
        let parsed: Value = serde_saphyr::from_str(&manifest(&bundle, &archives, "")).unwrap();
        assert_eq!(parsed["spec"]["platforms"][0]["uri"], archives[0].name.as_str());
    }

    #[test]
    fn archive_has_the_program_the_readme_and_the_license() {
        let archives = bundle().command_line_archives().unwrap();
        let entries = switchyard_images::packed::untar(&archives[1].bytes).unwrap();
        let names: Vec<&str> = entries.iter().map(|entry| entry.path.as_str()).collect();
        assert_eq!(names, ["switchyard", "README.md", "LICENSE"]);
        assert_eq!((entries[0].mode, &*entries[0].content), (0o755, &b"for arm64"[..]));
        let license = std::fs::read(run::root().join("LICENSE")).unwrap();
        assert_eq!(entries[2].content, license);
    }
}
