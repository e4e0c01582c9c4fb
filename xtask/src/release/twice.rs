//! Checks that a second build of the same commit gives the same bytes.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, bail};

use super::Args;
use super::files::SUMS;
use crate::run;

/// Builds the release from a fresh clone in another directory, and compares the digests.
pub(crate) fn compare(args: &Args, first: &Path) -> anyhow::Result<()> {
    if args.uncommitted {
        bail!("--twice builds a clone, which has no changes that are not committed");
    }
    let clone = std::env::temp_dir().join(format!("switchyard-release-{}", std::process::id()));
    let result = again(args, first, &clone);
    if clone.exists() {
        fs::remove_dir_all(&clone).with_context(|| format!("cannot remove {}", clone.display()))?;
    }
    result
}

fn again(args: &Args, first: &Path, clone: &Path) -> anyhow::Result<()> {
    let mut git = Command::new("git");
    git.args(["clone", "--quiet", "--local"]).arg(run::root()).arg(clone);
    run::step("clone the repository", git)?;
    let mut second =
        run::cargo(&["run", "--quiet", "--locked", "--package", "xtask", "--", "release"]);
    second.current_dir(clone).env("CARGO_TARGET_DIR", clone.join("target"));
    second.args(["--out", "dist", "--profile", &args.profile, "--registry", &args.registry]);
    second.args(["--download-url", &args.download_url]);
    for (architecture, dir) in &args.programs {
        second
            .arg("--programs")
            .arg(format!("{architecture}={}", std::path::absolute(dir)?.display()));
    }
    run::long_step("build the release a second time", "about 12 minutes", second)?;
    let differing = difference(&sums(first)?, &sums(&clone.join("dist"))?);
    if !differing.is_empty() {
        bail!("a second build of the same commit differs in {}", differing.join(", "));
    }
    println!("a second build of the same commit gave the same bytes");
    Ok(())
}

fn sums(dir: &Path) -> anyhow::Result<String> {
    let path = dir.join(SUMS);
    fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
}

/// The files that only one list has, or that have two digests.
fn difference(first: &str, second: &str) -> Vec<String> {
    let parse = |sums: &str| -> BTreeMap<String, String> {
        let lines = sums.lines().filter_map(|line| line.split_once("  "));
        lines.map(|(digest, name)| (name.to_owned(), digest.to_owned())).collect()
    };
    let (first, second) = (parse(first), parse(second));
    let names: std::collections::BTreeSet<&String> = first.keys().chain(second.keys()).collect();
    names.into_iter().filter(|name| first.get(*name) != second.get(*name)).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::difference;

    #[test]
    fn files_differ_by_digest_and_by_being_there() {
        assert!(difference("1  a\n2  b\n", "2  b\n1  a\n").is_empty());
        assert_eq!(difference("1  a\n2  b\n4  d\n", "1  a\n3  b\n5  c\n"), ["b", "c", "d"]);
    }
}
