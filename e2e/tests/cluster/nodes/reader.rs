//! A reader who follows the pages.

use std::cell::RefCell;
use std::time::Duration;

use serde_json::Value;
use switchyard_e2e::wait::eventually;
use switchyard_e2e::{Cluster, Environment};

use super::release::Release;
use crate::common::kueue_chart;
use crate::common::shell::{self, Shell};

/// Longer than a step takes on a busy machine.
pub(super) const WAIT: Duration = Duration::from_secs(180);

/// A reader who types what the pages say, and expects the answers that they promise. A command that
/// reads is repeated until its answer is there; others run once. `kubectl apply` is repeated until it
/// succeeds, since a Service leads to a pod only a moment after that is ready.
pub(super) struct Reader<'a> {
    shell: &'a Shell,
    /// The beginnings of commands, and texts of their answers.
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
            let promise = self.promises.iter().find(|(command, _)| line.starts_with(command));
            let text = promise.map_or("", |(_, text)| text);
            if is_repeatable(&line, promise.is_some()) {
                self.shell.until(&line, &[text], WAIT).await;
            } else {
                let said = self.shell.run(&line);
                assert!(said.contains(text), "{line}: {said:?} lacks {text:?}");
            }
            self.seen.borrow_mut().extend(promise.map(|(command, _)| command));
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

/// Whether a reader may type a command again: to see what it promises, or because it failed.
fn is_repeatable(line: &str, has_promise: bool) -> bool {
    const READS: [&str; 4] = ["get", "why", "check", "logs"];
    let has = |word: &str| line.split_whitespace().any(|it| it == word);
    // While another replica of the hub begins to lead, no cluster is connected, and a move is refused.
    (has_promise && READS.into_iter().any(has))
        || (has("kubectl") && has("apply"))
        || line.starts_with("switchyard move ")
}

/// The commands of a section of the guide for Kueue's users, with the name of their ClusterQueue.
pub(super) fn commands_with_queue(page: &str, heading: &str, queue: &str) -> Vec<String> {
    let adapted = |line: String| kueue_chart::from_module(&line.replace("NAME...", queue));
    shell::commands(page, heading).into_iter().map(adapted).collect()
}

/// Applies objects once the webhooks answer. A Service leads to a pod only a moment after that is ready.
pub(super) async fn apply(cluster: &Cluster, objects: Vec<Value>) {
    let applied = async || cluster.apply(objects.clone()).await;
    eventually(WAIT, "the webhooks to answer", applied).await.unwrap();
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
