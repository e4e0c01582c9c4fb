//! A reader who follows the pages.

use std::cell::RefCell;
use std::time::Duration;

use switchyard_e2e::Environment;

use super::release::Release;
use crate::common::shell::Shell;

/// Longer than a step takes on a busy machine.
pub(super) const WAIT: Duration = Duration::from_secs(180);

/// A reader who types what the pages say, and looks again until the answer has what they promise.
pub(super) struct Reader<'a> {
    shell: &'a Shell,
    /// The beginnings of commands, and what their answers end up with.
    promises: &'a [(&'a str, &'a str)],
    seen: RefCell<Vec<&'a str>>,
}

impl<'a> Reader<'a> {
    pub(super) fn new(shell: &'a Shell, promises: &'a [(&'a str, &'a str)]) -> Self {
        Self { shell, promises, seen: RefCell::default() }
    }

    pub(super) async fn follows(&self, lines: Vec<String>) {
        assert!(!lines.is_empty(), "the page has no command");
        for line in lines {
            match self.promises.iter().find(|(command, _)| line.starts_with(command)) {
                Some(&(command, text)) => {
                    self.shell.until(&line, &[text], WAIT).await;
                    self.seen.borrow_mut().push(command);
                }
                None => _ = self.shell.run(&line),
            }
        }
    }

    /// Checks that the pages had each command with a promise.
    pub(super) fn is_done(&self) {
        let seen = self.seen.borrow();
        for (command, _) in self.promises {
            assert!(seen.contains(command), "no page says {command:?} any more");
        }
    }
}

/// A shell in a clone of the repository with a release in `dist`.
pub(super) async fn shell(
    environment: &Environment,
    clusters: &[&str],
    release: &Release,
) -> Shell {
    let clusters: Vec<_> = clusters.iter().map(|name| environment.cluster(name)).collect();
    let mut shell = Shell::new(&clusters).await;
    shell.link("dist", release.folder());
    shell.prefer_programs_of(release.programs());
    shell
}
