//! Builds static programs, which need no other files.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, bail};

use super::source::Source;
use crate::run;

/// The programs, which are also the names of their packages.
pub(crate) const NAMES: [&str; 3] = ["switchyard-hub", "switchyard-agent", "switchyard"];

/// This machine's architecture by its Go name.
pub(crate) fn architecture() -> anyhow::Result<&'static str> {
    match std::env::consts::ARCH {
        "x86_64" => Ok("amd64"),
        "aarch64" => Ok("arm64"),
        other => bail!("releases are built on x86_64 and aarch64, not on {other}"),
    }
}

/// The target of static programs on an architecture.
pub(crate) fn target(architecture: &str) -> &'static str {
    if architecture == "arm64" { "aarch64-unknown-linux-musl" } else { "x86_64-unknown-linux-musl" }
}

/// Builds the programs of this machine's architecture, and returns their directory.
pub(crate) fn build(source: &Source, profile: &str) -> anyhow::Result<PathBuf> {
    with_stamps(source.stamps(), profile)
}

/// As [`build`], with these environment variables.
pub(crate) fn with_stamps(
    stamps: impl IntoIterator<Item = (&'static str, String)>,
    profile: &str,
) -> anyhow::Result<PathBuf> {
    let target = target(architecture()?);
    let mut install = Command::new("rustup");
    install.args(["target", "add", target]).current_dir(run::root());
    run::step(&format!("the target {target}"), install)?;
    if !run::has("musl-gcc", "--version") {
        bail!("missing: musl-gcc (package musl-tools): the cryptography is partly written in C");
    }
    let mut build = vec!["build", "--profile", profile, "--locked", "--target", target];
    build.extend(NAMES.iter().flat_map(|name| ["--package", name]));
    let mut build = run::cargo(&build);
    build.envs(stamps).envs(flags(&same_everywhere())?);
    run::long_step(&format!("build static programs ({profile})"), "about 10 minutes", build)?;
    let profile = if profile == "dev" { "debug" } else { profile };
    Ok(run::target().join(target).join(profile))
}

/// Directories of this machine, and the names that replace them in programs.
fn same_everywhere() -> Vec<(PathBuf, &'static str)> {
    let home = || Some(PathBuf::from(std::env::var_os("HOME")?).join(".cargo"));
    let cargo = std::env::var_os("CARGO_HOME").map(PathBuf::from).or_else(home);
    let cargo = cargo.map(|cargo| (cargo, "/cargo"));
    cargo
        .into_iter()
        .chain([(run::target(), "/switchyard/target"), (run::root(), "/switchyard")])
        .collect()
}

/// Environment variables that keep the compilers from writing paths of this machine into a program.
fn flags(paths: &[(PathBuf, &str)]) -> anyhow::Result<Vec<(&'static str, OsString)>> {
    let text = |path: &Path| {
        path.to_str().map(str::to_owned).with_context(|| format!("{} is not UTF-8", path.display()))
    };
    let (mut rust, mut c) = (Vec::new(), Vec::new());
    // For rustc and gcc, the last matching path counts, so the longest comes last.
    let mut paths = paths.to_vec();
    paths.sort_by_key(|(path, _)| path.as_os_str().len());
    for (path, name) in paths {
        let path = text(&path)?;
        rust.push(format!("--remap-path-prefix={path}={name}"));
        c.push(format!("-ffile-prefix-map={path}={name}"));
    }
    rust.push("-Clink-arg=-Wl,--build-id=none".to_owned());
    Ok(vec![
        ("CARGO_ENCODED_RUSTFLAGS", rust.join("\u{1f}").into()),
        ("CFLAGS", c.join(" ").into()),
    ])
}

#[cfg(test)]
mod tests {
    use super::flags;

    #[test]
    fn longest_path_is_mapped_last() {
        let flags = flags(&[("/src/target".into(), "/t"), ("/src".into(), "/s")]).unwrap();
        let value = |name: &str| {
            flags.iter().find(|(it, _)| *it == name).unwrap().1.to_str().unwrap().to_owned()
        };
        assert_eq!(value("CFLAGS"), "-ffile-prefix-map=/src=/s -ffile-prefix-map=/src/target=/t");
        assert!(
            value("CARGO_ENCODED_RUSTFLAGS")
                .starts_with("--remap-path-prefix=/src=/s\u{1f}--remap-path-prefix=/src/target=/t")
        );
    }
}
