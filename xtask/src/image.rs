//! `cargo xtask image`: the static programs that images consist of, each alone in its folder, and each tried there.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail};

use crate::run;

/// What each image holds: its name, and its program.
const IMAGES: [(&str, &str); 3] = [("hub", "switchyard-hub"), ("agent", "switchyard-agent"), ("cli", "switchyard")];

/// The variables that the programs are built with: the commit and the date.
const STAMPS: [&str; 2] = ["SWITCHYARD_GIT_COMMIT", "SWITCHYARD_BUILD_DATE"];

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Where to: a folder for each image. What is there of an earlier run is replaced.
    #[arg(long, value_name = "DIR", default_value = "target/image")]
    out: PathBuf,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let target = format!("{}-unknown-linux-musl", std::env::consts::ARCH);
    let mut install = Command::new("rustup");
    install.args(["target", "add", &target]).current_dir(run::root());
    run::step(&format!("the target {target}"), install)?;
    if Command::new("musl-gcc").arg("--version").output().is_err() {
        bail!("missing: musl-gcc (package musl-tools): the cryptography is partly written in C");
    }
    let mut build = vec!["build", "--release", "--locked", "--target", &target];
    build.extend(IMAGES.iter().flat_map(|(_, program)| ["--bin", program]));
    let mut build = run::cargo(&build);
    build.envs(stamps());
    run::long_step("build static programs for release", "about 10 minutes", build)?;
    let built = run::target().join(&target).join("release");
    for (image, program) in IMAGES {
        let root = run::root().join(&args.out).join(image);
        fill(&root, &built.join(program), program).with_context(|| format!("image {image}"))?;
    }
    Ok(())
}

/// What the programs say of their build (`kueue_build_info`), but for what the environment says already, as the Dockerfile's
/// arguments do. Where there is no repository, nothing is known of the commit.
fn stamps() -> Vec<(&'static str, String)> {
    let said = |mut command: Command| {
        let output = command.current_dir(run::root()).output().ok().filter(|it| it.status.success());
        output.map(|it| String::from_utf8_lossy(&it.stdout).trim().to_owned())
    };
    let (mut commit, mut date) = (Command::new("git"), Command::new("date"));
    commit.args(["rev-parse", "HEAD"]);
    date.args(["-u", "+%Y-%m-%dT%H:%M:%SZ"]);
    let stamps = [(STAMPS[0], commit), (STAMPS[1], date)];
    let missing = stamps.into_iter().filter(|(name, _)| std::env::var_os(name).is_none_or(|value| value.is_empty()));
    missing.filter_map(|(name, command)| Some((name, said(command)?))).collect()
}

/// Makes a folder that holds the program only, and tries whether it runs with nothing else in sight.
fn fill(root: &Path, built: &Path, program: &str) -> anyhow::Result<()> {
    if root.exists() {
        fs::remove_dir_all(root).with_context(|| format!("cannot replace {}", root.display()))?;
    }
    fs::create_dir_all(root).with_context(|| format!("cannot make {}", root.display()))?;
    let size = fs::copy(built, root.join(program)).with_context(|| format!("cannot copy {}", built.display()))?;
    let version = run::output(alone(root, program))?;
    println!("{}/{program}: {}, {} MB", root.display(), version.trim(), size.div_ceil(1_000_000));
    Ok(())
}

/// The program, in a file system that ends at its folder. A namespace of its own stands in for root's rights where a
/// container's build does not give one.
fn alone(root: &Path, program: &str) -> Command {
    let path = format!("/{program}");
    let chroot = Command::new("chroot").arg(root).args([&path, "--version"]).output();
    let mut command = if chroot.is_ok_and(|it| it.status.success()) {
        let mut command = Command::new("chroot");
        command.arg(root);
        command
    } else {
        let mut command = Command::new("unshare");
        command.args(["--map-root-user", "--root"]).arg(root);
        command
    };
    command.args([&path, "--version"]);
    command
}

#[cfg(test)]
mod tests {
    use std::{fs, path::PathBuf, process::Command};

    use super::{IMAGES, STAMPS, fill, stamps};

    /// The values after an instruction of the Dockerfile.
    fn of<'a>(file: &'a str, instruction: &str) -> Vec<&'a str> {
        file.lines().filter_map(|line| line.strip_prefix(instruction)?.strip_prefix(' ')).collect()
    }

    #[test]
    fn the_dockerfile_copies_what_is_built_here_and_runs_it_as_nobody_special() {
        let file = include_str!("../../deploy/Dockerfile");
        assert!(of(file, "RUN").contains(&"cargo xtask image --out /image"));
        let copies: Vec<String> = IMAGES.iter().map(|(image, _)| format!("--from=build /image/{image}/ /")).collect();
        let entries: Vec<String> = IMAGES.iter().map(|(_, program)| format!("[\"/{program}\"]")).collect();
        let copied = of(file, "COPY");
        assert_eq!(copied.into_iter().filter(|it| it.contains("/image/")).collect::<Vec<_>>(), copies);
        assert_eq!(of(file, "ENTRYPOINT"), entries);
        assert_eq!(of(file, "USER"), ["65532:65532"], "a number, as runAsNonRoot must be able to see");
        assert_eq!(of(file, "ARG"), STAMPS.map(|name| format!("{name}=\"\"")));
        let metrics = include_str!("../../controller/src/metrics.rs");
        assert!(STAMPS.iter().all(|name| metrics.contains(&format!("option_env!(\"{name}\")"))));
    }

    #[test]
    fn the_programs_know_when_they_were_built() {
        let date = stamps().into_iter().find(|(name, _)| *name == STAMPS[1]).map(|(_, date)| date);
        let date = date.or_else(|| std::env::var(STAMPS[1]).ok()).unwrap();
        assert!(date.starts_with("20") && date.ends_with('Z') && date.len() == "2026-11-21T10:00:00Z".len(), "{date}");
    }

    /// A program of one line in a folder of its own.
    fn program(folder: &str, flags: &[&str]) -> (PathBuf, PathBuf) {
        let dir = std::env::temp_dir().join(format!("switchyard-image-{}-{folder}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        fs::write(dir.join("tiny.rs"), "fn main() { println!(\"tiny {}\", std::env::args().len()); }").unwrap();
        let mut rustc = Command::new("rustc");
        rustc.args(flags).args(["--edition=2024", "-o", "tiny", "tiny.rs"]).current_dir(&dir);
        assert!(rustc.status().unwrap().success());
        (dir.clone(), dir.join("tiny"))
    }

    #[test]
    fn a_program_that_needs_something_beside_it_is_found_out() {
        let (dir, fixed) = program("fixed", &["-Ctarget-feature=+crt-static"]);
        fs::create_dir_all(dir.join("image")).unwrap();
        fs::write(dir.join("image/left"), "of an earlier run").unwrap();
        fill(&dir.join("image"), &fixed, "tiny").unwrap();
        let there: Vec<_> = fs::read_dir(dir.join("image")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(there, ["tiny"]);
        fs::remove_dir_all(dir).unwrap();

        let (dir, linked) = program("linked", &["-Ctarget-feature=-crt-static"]);
        let error = fill(&dir.join("image"), &linked, "tiny").unwrap_err().to_string();
        assert!(error.contains("/tiny"), "{error}");
        fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn the_chart_names_the_images_by_their_programs() {
        let image_of = include_str!("../../deploy/charts/switchyard/templates/_helpers.tpl");
        for (image, program) in IMAGES.iter().filter(|(image, _)| *image != "cli") {
            assert!(image_of.contains(&format!("\"{program}\"")), "{image}");
        }
    }
}
