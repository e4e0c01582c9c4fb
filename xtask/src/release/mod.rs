//! `cargo xtask release`: builds all files of a release into one directory. The same commit gives the same bytes.

mod bundle;
mod files;
mod images;
mod krew;
pub(crate) mod programs;
mod sbom;
pub(crate) mod source;
mod twice;

use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};

use bundle::Bundle;
use files::Files;
use source::Source;
use switchyard_chart::{ReleasedImages, manifests, package};
use switchyard_parts::{Part, Parts};

use crate::run;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The output directory. Files of an earlier release there are removed.
    #[arg(long, value_name = "DIR", default_value = "target/dist")]
    out: PathBuf,
    /// The registry from which clusters pull the images, with its path: HOST/PATH. Empty: image names have no registry, for
    /// images that are loaded from archives.
    #[arg(long, env = "SWITCHYARD_REGISTRY", value_name = "HOST/PATH", default_value = "", value_parser = registry)]
    registry: String,
    /// The URL from which the release's files can be downloaded, for the krew manifest.
    #[arg(long, env = "SWITCHYARD_DOWNLOAD_URL", value_name = "URL", default_value = "")]
    download_url: String,
    /// Programs built on a machine of another architecture, as ARCH=DIR: amd64=dist or arm64=dist. Can be
    /// repeated.
    #[arg(long, value_name = "ARCH=DIR", value_parser = architecture_and_directory)]
    programs: Vec<(String, PathBuf)>,
    /// Build only the programs of this machine's architecture.
    #[arg(long, conflicts_with_all = ["programs", "twice"])]
    programs_only: bool,
    /// Cargo's profile for the build. `draft` builds in a few minutes, to try this command.
    #[arg(long, value_name = "PROFILE", default_value = "release")]
    profile: String,
    /// Also build from a second clone in another directory, and compare all files.
    #[arg(long)]
    twice: bool,
    /// Build even with uncommitted changes. The version then shows this.
    #[arg(long)]
    uncommitted: bool,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let source = Source::of_checkout(args.uncommitted)?;
    let out = run::root().join(&args.out);
    let mut files = Files::empty(&out)?;
    let built = programs::build(&source, &args.profile)?;
    let architecture = programs::architecture()?;
    if args.programs_only {
        for program in programs::NAMES {
            files.add_program(
                &format!("{program}-linux-{architecture}"),
                &read(&built.join(program))?,
            )?;
        }
        return files.finish();
    }
    let mut bundle = Bundle { source, registry: args.registry.clone(), programs: Vec::new() };
    for program in programs::NAMES {
        bundle.add(architecture, program, read(&built.join(program))?);
    }
    for (architecture, dir) in &args.programs {
        if bundle.programs.iter().any(|it| it.architecture == *architecture) {
            bail!("--programs {architecture}={}: {architecture} is there already", dir.display());
        }
        for program in programs::NAMES {
            bundle.add(
                architecture,
                program,
                read(&dir.join(format!("{program}-linux-{architecture}")))?,
            );
        }
    }
    fill(&bundle, &args.download_url, &mut files)?;
    files.finish()?;
    files.print();
    if args.twice { twice::compare(args, &out) } else { Ok(()) }
}

/// Adds all files of the release.
fn fill(bundle: &Bundle, download_url: &str, files: &mut Files) -> anyhow::Result<()> {
    for program in &bundle.programs {
        let name = format!("{}-linux-{}", program.name, program.architecture);
        files.add_program(&name, &program.bytes)?;
        files.add(&format!("{name}.cdx.json"), &sbom::of_program(bundle, program)?)?;
    }
    let archives = bundle.command_line_archives()?;
    for archive in &archives {
        files.add(&archive.name, &archive.bytes)?;
    }
    files
        .add("switchyard.krew.yaml", krew::manifest(bundle, &archives, download_url).as_bytes())?;
    let images = images::all(bundle)?;
    for image in &images {
        files.add(&image.file, &image.archive.bytes)?;
        files.add(&image.file.replace(".tar", ".cdx.json"), &sbom::of_image(bundle, image)?)?;
    }
    let list: String = images.iter().map(|image| format!("{}\n", image.pinned())).collect();
    files.add("images.txt", list.as_bytes())?;
    let package = package(
        &run::root().join("deploy/charts/switchyard"),
        &released(bundle, &images),
        bundle.source.date,
    );
    let chart = files.add(&format!("switchyard-{}.tgz", bundle.source.version), &package?)?;
    let helm = Parts::new()?.binary(Part::Helm).context("Helm makes the manifests of the chart")?;
    for manifest in manifests(&helm, &chart)? {
        files.add(manifest.name, manifest.yaml.as_bytes())?;
    }
    Ok(())
}

/// The images in the chart's values.
fn released(bundle: &Bundle, images: &[images::ReleasedImage]) -> ReleasedImages {
    let digest = |program: &str| {
        let image = images.iter().find(|image| image.program == program);
        image.map(|image| image.archive.digest.clone()).unwrap_or_default()
    };
    let registry = bundle.registry.clone();
    ReleasedImages { registry, hub: digest("switchyard-hub"), agent: digest("switchyard-agent") }
}

fn read(path: &Path) -> anyhow::Result<Vec<u8>> {
    std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))
}

fn registry(text: &str) -> Result<String, String> {
    if text.contains("://") {
        return Err("name the registry without https://, as image names do".to_owned());
    }
    Ok(text.trim_end_matches('/').to_owned())
}

fn architecture_and_directory(text: &str) -> Result<(String, PathBuf), String> {
    match text.split_once('=') {
        Some((architecture @ ("amd64" | "arm64"), dir)) => {
            Ok((architecture.to_owned(), dir.into()))
        }
        _ => Err("write it as amd64=DIR or arm64=DIR".to_owned()),
    }
}
