//! Packages the chart, with the images of the release in its values.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, ensure};
use jiff::Timestamp;
use switchyard_images::packed::{self, Entry};

/// The list of files that `helm package` leaves out too.
const IGNORE: &str = ".helmignore";

/// The images that a package names.
#[derive(Clone, Debug, Default)]
pub struct ReleasedImages {
    /// The registry with its path; may be empty.
    pub registry: String,
    /// The digest of `switchyard-hub`, as `sha256:...`; may be empty.
    pub hub: String,
    /// The digest of `switchyard-agent`.
    pub agent: String,
}

/// The package of the chart in `dir`, as Helm makes it. All files have one time, so that the bytes depend on the content
/// alone.
///
/// # Errors
/// When the chart cannot be read, or its values lack the lines that a release fills in.
pub fn package(dir: &Path, images: &ReleasedImages, time: Timestamp) -> anyhow::Result<Vec<u8>> {
    let mut entries = Vec::new();
    collect(dir, "switchyard", &mut entries)?;
    entries.sort_by(|a, b| a.path.cmp(&b.path));
    // Helm reads the chart's name first, so `Chart.yaml` comes first.
    entries.sort_by_key(|entry| entry.path != "switchyard/Chart.yaml");
    let values = entries
        .iter_mut()
        .find(|entry| entry.path == "switchyard/values.yaml")
        .context("values.yaml")?;
    let text = std::str::from_utf8(&values.content).context("values.yaml is not UTF-8")?;
    values.content = filled(text, images)?.into_bytes();
    packed::gzip(&packed::tar(&entries, time)?)
}

/// The files below a directory. Links, such as those to `deploy/crds`, are followed.
fn collect(dir: &Path, name: &str, entries: &mut Vec<Entry>) -> anyhow::Result<()> {
    for entry in fs::read_dir(dir).with_context(|| format!("cannot read {}", dir.display()))? {
        let entry = entry?;
        let file = entry.file_name().into_string().ok().context("a file's name is not UTF-8")?;
        let (path, name) = (entry.path(), format!("{name}/{file}"));
        if path.is_dir() {
            collect(&path, &name, entries)?;
        } else if file != IGNORE {
            entries.push(Entry::file(
                &name,
                fs::read(&path).with_context(|| path.display().to_string())?,
            ));
        }
    }
    Ok(())
}

/// The values with the registry and the digests of the release.
fn filled(values: &str, images: &ReleasedImages) -> anyhow::Result<String> {
    let mut text = values.to_owned();
    for (line, value) in [
        ("  imageRegistry: \"\"\n", &images.registry),
        ("  hub: {repository: switchyard-hub, digest: \"\"}\n", &images.hub),
        ("  agent: {repository: switchyard-agent, digest: \"\"}\n", &images.agent),
    ] {
        ensure!(
            text.matches(line).count() == 1,
            "values.yaml has to have one line `{}`",
            line.trim()
        );
        text = text.replace(line, &line.replace("\"\"", &format!("\"{value}\"")));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_name_the_images_of_the_release() {
        let images = ReleasedImages {
            registry: "registry.example/team".to_owned(),
            hub: "sha256:aa".to_owned(),
            agent: "sha256:bb".to_owned(),
        };
        let values = include_str!("../../../deploy/charts/switchyard/values.yaml");
        let filled = filled(values, &images).unwrap();
        for line in [
            "  imageRegistry: \"registry.example/team\"",
            "  hub: {repository: switchyard-hub, digest: \"sha256:aa\"}",
            "  agent: {repository: switchyard-agent, digest: \"sha256:bb\"}",
        ] {
            assert!(filled.lines().any(|it| it == line), "no line {line}");
        }
    }

    #[test]
    fn chart_and_programs_have_one_version() {
        let chart = include_str!("../../../deploy/charts/switchyard/Chart.yaml");
        for field in ["version", "appVersion"] {
            assert!(
                chart.contains(&format!("\n{field}: {}\n", env!("CARGO_PKG_VERSION"))),
                "{field}"
            );
        }
    }
}
