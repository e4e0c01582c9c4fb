//! The Go toolchain: found, and new enough.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Why Go cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum GoError {
    /// Not in `PATH`.
    #[error(
        "no `go` in PATH: the Kubernetes control planes of tests and demo are built from Go modules; \
         install Go {needed} or newer (https://go.dev/dl) and put its bin directory into PATH"
    )]
    Missing {
        /// The oldest version that will do.
        needed: &'static str,
    },
    /// Older than a module asks for.
    #[error(
        "`go` is too old: {path} is {found}, {module} needs go{needed}; \
         install Go {needed} or newer (https://go.dev/dl), or unset GOTOOLCHAIN=local to let Go fetch it"
    )]
    TooOld {
        /// The program.
        path: PathBuf,
        /// Its version, as `go1.22.1`.
        found: String,
        /// The version in `go.mod`, as `1.26.0`.
        needed: String,
        /// The module's directory.
        module: PathBuf,
    },
    /// It ran and failed.
    #[error("`{command}` failed in {dir}: {output}")]
    Failed {
        /// The command.
        command: String,
        /// Where it ran.
        dir: PathBuf,
        output: String,
    },
}

/// The version to name when there is no Go at all; else the modules' `go` lines decide.
const NEEDED: &str = "1.26.0";

/// A Go toolchain.
#[derive(Clone, Debug)]
pub struct Go {
    path: PathBuf,
}

impl Go {
    /// The first `go` in a `PATH`-like list.
    pub fn find(path: Option<&OsStr>) -> Result<Self, GoError> {
        let dirs = path.map(std::env::split_paths).into_iter().flatten();
        let found = dirs.map(|dir| dir.join("go")).find(|file| file.is_file());
        found.map(|path| Self { path }).ok_or(GoError::Missing { needed: NEEDED })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The version used in a module's directory, as `go1.26.8`, if it is at least what `go.mod` asks for. A newer
    /// toolchain that Go fetches itself counts.
    pub(crate) fn check(&self, module: &Path, go_mod: &str) -> Result<String, GoError> {
        let needed =
            go_mod.lines().find_map(|line| line.strip_prefix("go ")).map_or("1.0", str::trim);
        let too_old = |found: &str| GoError::TooOld {
            path: self.path.clone(),
            found: found.to_owned(),
            needed: needed.to_owned(),
            module: module.to_owned(),
        };
        let found = match self.output(module, &["env", "GOVERSION"]) {
            Ok(found) => found,
            // If Go may not fetch a newer toolchain, it fails in the module. Outside it prints its version.
            Err(error) => match self.output(&std::env::temp_dir(), &["env", "GOVERSION"]) {
                Ok(found) if numbers(&found) < numbers(needed) => return Err(too_old(&found)),
                _ => return Err(error),
            },
        };
        if numbers(&found) < numbers(needed) { Err(too_old(&found)) } else { Ok(found) }
    }

    /// The folder of a required module, fetched first if it is not there.
    pub(crate) fn module_dir(&self, dir: &Path, module: &str) -> Result<PathBuf, GoError> {
        let args = ["mod", "download", "-json", module];
        let output = self.output(dir, &args)?;
        let answer: serde_json::Value = serde_json::from_str(&output).unwrap_or_default();
        let found = answer.get("Dir").and_then(|dir| dir.as_str());
        found.map(PathBuf::from).ok_or_else(|| self.failed(&args, dir, output.clone()))
    }

    fn output(&self, dir: &Path, args: &[&str]) -> Result<String, GoError> {
        let run =
            Command::new(&self.path).args(args).current_dir(dir).env("GOWORK", "off").output();
        let output = run.map_err(|error| self.failed(args, dir, error.to_string()))?;
        if !output.status.success() {
            return Err(self.failed(
                args,
                dir,
                String::from_utf8_lossy(&output.stderr).trim().to_owned(),
            ));
        }
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    }

    fn failed(&self, args: &[&str], dir: &Path, output: String) -> GoError {
        GoError::Failed {
            command: format!("{} {}", self.path.display(), args.join(" ")),
            dir: dir.to_owned(),
            output,
        }
    }
}

/// `go1.26.8`, `1.26` or `go1.27rc1` as numbers that compare.
fn numbers(version: &str) -> Vec<u32> {
    let digits = |part: &str| {
        part.chars().take_while(char::is_ascii_digit).collect::<String>().parse().unwrap_or(0)
    };
    let mut numbers: Vec<u32> = version.trim_start_matches("go").split('.').map(digits).collect();
    numbers.resize(3, 0);
    numbers
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::fs;

    /// A directory for `PATH` with a `go` that tells this version and otherwise runs a line of shell.
    pub(crate) fn fake_go(dir: &Path, version: &str, line: &str) -> PathBuf {
        let script =
            format!("#!/bin/sh\nif [ \"$1\" = env ]; then echo {version}; exit 0; fi\n{line}\n");
        // Another process writes the script. Otherwise a child that another test forks could inherit the open file, and
        // executing it would fail.
        let write = "printf %s \"$1\" > go.new && chmod +x go.new && mv go.new go";
        let mut shell = Command::new("/bin/sh");
        assert!(
            shell.args(["-c", write, "sh", &script]).current_dir(dir).status().unwrap().success()
        );
        dir.to_owned()
    }

    #[test]
    fn no_go_in_path_says_what_to_install() {
        for path in [None, Some(OsStr::new("")), Some(OsStr::new("/nonexistent"))] {
            let error = Go::find(path).unwrap_err().to_string();
            assert!(
                error.contains("no `go` in PATH") && error.contains("Go 1.26.0 or newer"),
                "{error}"
            );
        }
    }

    #[test]
    fn an_old_go_is_refused_with_both_versions() {
        let dir = tempfile::tempdir().unwrap();
        let go = Go::find(Some(fake_go(dir.path(), "go1.21.3", "exit 1").as_os_str())).unwrap();
        let error = go.check(dir.path(), "module x\n\ngo 1.26.0\n").unwrap_err().to_string();
        assert!(
            error.contains("go1.21.3")
                && error.contains("needs go1.26.0")
                && error.contains("install"),
            "{error}"
        );
        assert_eq!(go.check(dir.path(), "module x\n\ngo 1.21\n").unwrap(), "go1.21.3");
    }

    #[test]
    fn needed_go_is_that_of_the_modules() {
        let modules = fs::read_dir(crate::paths::root().join("e2e/controlplane")).unwrap();
        // The README beside them is no module.
        let texts = modules
            .filter_map(|module| fs::read_to_string(module.unwrap().path().join("go.mod")).ok());
        let lines = texts
            .map(|text| text.lines().find_map(|line| line.strip_prefix("go ")).unwrap().to_owned());
        let newest = lines.max_by_key(|line| numbers(line)).unwrap();
        assert_eq!(newest, NEEDED, "mend NEEDED");
    }

    #[test]
    fn versions_compare_by_number() {
        for (older, newer) in
            [("go1.9.2", "1.26.0"), ("go1.26", "go1.26.1"), ("1.26.8", "go1.27rc1")]
        {
            assert!(numbers(older) < numbers(newer), "{older} < {newer}");
        }
        assert_eq!(numbers("go1.26"), numbers("1.26.0"));
    }
}
