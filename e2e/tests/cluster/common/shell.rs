//! The commands of pages, run as a reader runs them.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use anyhow::ensure;
use switchyard_e2e::wait::eventually;
use switchyard_e2e::{Cluster, Part, Parts, paths};

/// The commands of a section, one after the other, up to the next heading of any level.
pub(crate) fn commands(page: &str, heading: &str) -> Vec<String> {
    let text = fs::read_to_string(paths::root().join(page)).unwrap();
    let (_, section) = text.split_once(&format!("\n{heading}\n")).expect("the heading");
    lines(section.split("\n#").next().unwrap_or_default())
}

/// A command that a page has in its text. It must be there.
pub(crate) fn in_text<'a>(page: &str, command: &'a str) -> &'a str {
    let text = fs::read_to_string(paths::root().join(page)).unwrap();
    assert!(text.contains(&format!("`{command}`")), "{page} lacks {command}");
    command
}

/// The commands of a whole page that work on clusters.
pub(crate) fn commands_of_page(page: &str) -> Vec<String> {
    let text = fs::read_to_string(paths::root().join(page)).unwrap();
    without_output(lines(&text))
}

/// Leaves out the output that a page shows: it begins with no program.
pub(crate) fn without_output(lines: Vec<String>) -> Vec<String> {
    const PROGRAMS: [&str; 4] = ["kubectl ", "helm ", "switchyard ", "sed "];
    let is_command = |line: &String| PROGRAMS.iter().any(|program| line.starts_with(program));
    lines.into_iter().filter(is_command).collect()
}

/// The indented lines. A line continues the one before if that ends with a backslash, or if it is
/// indented further or ends a loop.
fn lines(text: &str) -> Vec<String> {
    let mut commands: Vec<String> = Vec::new();
    let mut is_inside = false;
    for line in text.lines() {
        let Some(code) = line.strip_prefix("    ") else {
            is_inside = false;
            continue;
        };
        let is_open = commands.last().is_some_and(|command| command.ends_with('\\'));
        let continues = is_open || code.starts_with(' ') || code == "done";
        match commands.last_mut().filter(|_| is_inside) {
            Some(command) if continues => {
                command.push('\n');
                command.push_str(code);
            }
            _ if continues => {}
            _ => {
                commands.push(code.to_owned());
                is_inside = true;
            }
        }
    }
    commands.into_iter().map(|command| command.replace("\\\n", "")).collect()
}

/// A shell in the repository's root, for a user with every right on some clusters. The name of a
/// cluster is that of its context, and the first one is the current context.
pub(crate) struct Shell {
    kubeconfigs: OsString,
    path: String,
    home: tempfile::TempDir,
}

impl Shell {
    pub(crate) async fn new(clusters: &[&Cluster]) -> Self {
        let build = || {
            let parts = Parts::new().unwrap();
            [Part::Helm, Part::Kubectl].map(|part| parts.binary(part).unwrap())
        };
        let [helm, kubectl] = tokio::task::spawn_blocking(build).await.unwrap();
        let dirs = [helm, kubectl, paths::binary("switchyard").unwrap()].map(|program| {
            let dir: PathBuf = program.parent().unwrap().into();
            dir.display().to_string()
        });
        let kubeconfigs = clusters.iter().map(|cluster| cluster.kubeconfig());
        let shell = Self {
            kubeconfigs: std::env::join_paths(kubeconfigs).unwrap(),
            path: format!("{}:/usr/bin:/bin", dirs.join(":")),
            home: tempfile::tempdir().unwrap(),
        };
        // Files of the commands must not be left in the repository.
        for name in ["deploy", "examples"] {
            shell.link(name, &paths::root().join(name));
        }
        shell
    }

    /// Puts a file or folder into the folder of the shell.
    pub(crate) fn link(&self, name: &str, target: &Path) {
        std::os::unix::fs::symlink(target, self.home.path().join(name)).unwrap();
    }

    /// Programs of this folder come before others.
    pub(crate) fn prefer_programs_of(&mut self, dir: &Path) {
        self.path = format!("{}:{}", dir.display(), self.path);
    }

    fn output(&self, line: &str) -> Output {
        let mut command = Command::new("sh");
        command.args(["-c", line]).current_dir(self.home.path()).env_clear();
        command
            .env("PATH", &self.path)
            .env("HOME", self.home.path())
            .env("KUBECONFIG", &self.kubeconfigs)
            .output()
            .unwrap()
    }

    /// The output of a command; it must succeed.
    pub(crate) fn run(&self, line: &str) -> String {
        let output = self.output(line);
        let errors = String::from_utf8_lossy(&output.stderr);
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{line}: {said}{errors}");
        println!("$ {line}\n{said}");
        said.into_owned()
    }

    /// Repeats a command until its output has one of these texts.
    pub(crate) async fn until(&self, line: &str, expected: &[&str], time: Duration) {
        let said = eventually(time, format!("{line}: {expected:?}"), async || {
            let output = self.output(line);
            let errors = String::from_utf8_lossy(&output.stderr);
            let said = String::from_utf8_lossy(&output.stdout);
            let is_there = expected.iter().any(|text| said.contains(text));
            ensure!(output.status.success() && is_there, "{said}{errors}");
            Ok(said.into_owned())
        });
        println!("$ {line}\n{}", said.await.unwrap());
    }
}
