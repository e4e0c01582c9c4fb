//! `cargo xtask image`: builds the static programs of the images, puts each alone into a folder, and runs it there.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context;

use crate::release::{programs, source};
use crate::run;

/// The name and the program of each image.
const IMAGES: [(&str, &str); 3] =
    [("hub", "switchyard-hub"), ("agent", "switchyard-agent"), ("cli", "switchyard")];

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The output directory, with a folder for each image. Files of an earlier run are replaced.
    #[arg(long, value_name = "DIR", default_value = "target/image")]
    out: PathBuf,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let built = programs::with_stamps(source::stamps(), "release")?;
    for (image, program) in IMAGES {
        let root = run::root().join(&args.out).join(image);
        fill(&root, &built.join(program), program).with_context(|| format!("image {image}"))?;
    }
    Ok(())
}

/// Makes a folder with only the program, and checks that the program runs without any other file.
fn fill(root: &Path, built: &Path, program: &str) -> anyhow::Result<()> {
    if root.exists() {
        fs::remove_dir_all(root).with_context(|| format!("cannot replace {}", root.display()))?;
    }
    fs::create_dir_all(root).with_context(|| format!("cannot make {}", root.display()))?;
    let size = fs::copy(built, root.join(program))
        .with_context(|| format!("cannot copy {}", built.display()))?;
    let version = run::output(alone(root, program))?;
    println!("{}/{program}: {}, {} MB", root.display(), version.trim(), size.div_ceil(1_000_000));
    Ok(())
}

/// A command that runs the program with its folder as root directory. Without the right to `chroot`, as in some container
/// builds, it uses a user namespace.
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

    use super::{IMAGES, fill};
    use crate::release::source::{STAMPS, stamps};

    /// The values after an instruction of the Dockerfile.
    fn of<'a>(file: &'a str, instruction: &str) -> Vec<&'a str> {
        file.lines().filter_map(|line| line.strip_prefix(instruction)?.strip_prefix(' ')).collect()
    }

    #[test]
    fn dockerfile_copies_built_programs_and_runs_unprivileged() {
        let file = include_str!("../../deploy/Dockerfile");
        assert!(of(file, "RUN").contains(&"cargo xtask image --out /image"));
        let copies: Vec<String> =
            IMAGES.iter().map(|(image, _)| format!("--from=build /image/{image}/ /")).collect();
        let entries: Vec<String> =
            IMAGES.iter().map(|(_, program)| format!("[\"/{program}\"]")).collect();
        let copied = of(file, "COPY");
        assert_eq!(
            copied.into_iter().filter(|it| it.contains("/image/")).collect::<Vec<_>>(),
            copies
        );
        assert_eq!(of(file, "ENTRYPOINT"), entries);
        assert_eq!(
            of(file, "USER"),
            [switchyard_images::NON_ROOT],
            "a number, as runAsNonRoot must be able to see"
        );
        assert_eq!(of(file, "ARG"), STAMPS.map(|name| format!("{name}=\"\"")));
        let build = include_str!("../../api/src/build.rs");
        assert!(STAMPS.iter().all(|name| build.contains(&format!("option_env!(\"{name}\")"))));
    }

    #[test]
    fn the_programs_know_when_they_were_built() {
        let date = stamps().into_iter().find(|(name, _)| *name == STAMPS[1]).map(|(_, date)| date);
        let date = date.or_else(|| std::env::var(STAMPS[1]).ok()).unwrap();
        assert!(
            date.starts_with("20")
                && date.ends_with('Z')
                && date.len() == "2026-11-21T10:00:00Z".len(),
            "{date}"
        );
    }

    /// A program of one line in a folder of its own.
    fn program(folder: &str, flags: &[&str]) -> (PathBuf, PathBuf) {
        let dir =
            std::env::temp_dir().join(format!("switchyard-image-{}-{folder}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        fs::write(
            dir.join("tiny.rs"),
            "fn main() { println!(\"tiny {}\", std::env::args().len()); }",
        )
        .unwrap();
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
        let there: Vec<_> = fs::read_dir(dir.join("image"))
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        assert_eq!(there, ["tiny"]);
        fs::remove_dir_all(dir).unwrap();

        let (dir, linked) = program("linked", &["-Ctarget-feature=-crt-static"]);
        let error = fill(&dir.join("image"), &linked, "tiny").unwrap_err().to_string();
        assert!(error.contains("/tiny"), "{error}");
        fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn the_chart_names_the_images_by_their_programs() {
        let values = include_str!("../../deploy/charts/switchyard/values.yaml");
        for (image, program) in IMAGES.iter().filter(|(image, _)| *image != "cli") {
            assert!(values.contains(&format!("  {image}: {{repository: {program}, ")), "{image}");
        }
    }
}
