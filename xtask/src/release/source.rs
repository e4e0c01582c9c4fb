//! The source of a release: its version, commit and date.

use std::process::Command;

use anyhow::{Context as _, bail};
use jiff::Timestamp;

use crate::run;

/// The variables that programs are built with. `api/src/build.rs` reads them.
pub(crate) const STAMPS: [&str; 2] = ["SWITCHYARD_GIT_COMMIT", "SWITCHYARD_BUILD_DATE"];

/// The source that is built.
#[derive(Clone)]
pub(crate) struct Source {
    /// The version of the workspace.
    pub(crate) version: String,
    /// The commit, followed by `-changed` if files differ from it.
    pub(crate) commit: String,
    /// The time of the commit, which is also the time in all files of the release.
    pub(crate) date: Timestamp,
}

impl Source {
    /// The checkout's commit.
    ///
    /// # Errors
    /// Without a repository; and with uncommitted changes, unless `uncommitted` allows them.
    pub(crate) fn of_checkout(uncommitted: bool) -> anyhow::Result<Self> {
        let mut commit = git(&["rev-parse", "HEAD"]).context("a release needs the repository")?;
        if !git(&["status", "--porcelain"])?.is_empty() {
            if !uncommitted {
                bail!(
                    "files are changed and not committed: commit them, or pass --uncommitted for a trial"
                );
            }
            commit += "-changed";
        }
        let seconds: i64 = git(&["show", "--no-patch", "--format=%ct", "HEAD"])?.parse()?;
        Ok(Self {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            commit,
            date: Timestamp::from_second(seconds)?,
        })
    }

    /// The variables for the build.
    pub(crate) fn stamps(&self) -> [(&'static str, String); 2] {
        [(STAMPS[0], self.commit.clone()), (STAMPS[1], self.date.to_string())]
    }
}

/// The build information of programs outside a release. Environment variables, which the Dockerfile sets, take precedence.
/// Without a repository the commit is unknown, and the date is that of the build.
pub(crate) fn stamps() -> Vec<(&'static str, String)> {
    let source = Source::of_checkout(true).ok();
    let (commit, date) =
        source.map_or((None, Timestamp::now()), |source| (Some(source.commit), source.date));
    let date = Timestamp::from_second(date.as_second()).unwrap_or(date).to_string();
    let known = [commit.map(|commit| (STAMPS[0], commit)), Some((STAMPS[1], date))];
    let is_set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    known.into_iter().flatten().filter(|(name, _)| !is_set(name)).collect()
}

fn git(args: &[&str]) -> anyhow::Result<String> {
    let mut command = Command::new("git");
    command.args(args).current_dir(run::root());
    Ok(run::output(command)?.trim().to_owned())
}
