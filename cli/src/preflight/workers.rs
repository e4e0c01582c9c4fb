//! Checks the workers of a MultiKueue manager.

use std::collections::BTreeMap;

use super::census::ClusterLink;
use super::release::Release;
use super::report::{Effect, Finding};

/// Subject of findings about a worker.
const WORKER: &str = "worker";

/// A worker and what was read there with the manager's kubeconfig.
pub(super) struct Worker {
    pub(super) link: ClusterLink,
    /// The facts, or why there are none.
    pub(super) facts: Result<WorkerFacts, Unread>,
}

/// Why a worker was not read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Unread {
    /// --skip-workers, or a way that leads only from the manager's pods.
    Skipped(String),
    /// Switchyard refuses the kubeconfig.
    Refused(String),
    /// The kubeconfig, or the worker's API server, does not answer from here.
    Failed(String),
}

#[derive(Clone, Debug, Default)]
pub(super) struct WorkerFacts {
    /// Uid of its namespace kube-system.
    pub(super) uid: Option<String>,
    /// Version of Kueue, where the account may read it.
    pub(super) kueue: Option<Release>,
    /// Rights that the account lacks.
    pub(super) missing: Vec<Right>,
}

/// A right of `deploy/rbac/kubeconfig-worker.yaml`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Right {
    /// As in messages, such as `patch jobs.batch`.
    pub(super) text: String,
    /// Resource with its subresource, without its group.
    pub(super) resource: String,
}

/// Resources without which the hub does not use a worker, beside those of the enabled kinds.
const NEEDED: [&str; 3] = ["workloads", "workloads/status", "namespaces"];

/// Checks each worker. `hub` is the uid of the manager's namespace kube-system; `kinds` are the
/// plurals of the enabled kinds.
pub(super) fn assess(hub: Option<&str>, workers: &[Worker], kinds: &[&str]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut seen: BTreeMap<&str, &str> = BTreeMap::new();
    for Worker { link, facts } in workers {
        let name = link.name.as_str();
        let finding = |effect, message: String| Finding::new(effect, WORKER, message).object(name);
        let facts = match facts {
            Ok(facts) => facts,
            Err(Unread::Refused(why)) => {
                findings.push(
                    finding(Effect::Refused, format!("its kubeconfig is refused: {why}"))
                        .mend("make another kubeconfig: switchyard cluster add NAME --from-context CONTEXT does"),
                );
                continue;
            }
            Err(Unread::Skipped(why)) => {
                findings.push(finding(Effect::Differs, format!("not read: {why}")));
                continue;
            }
            Err(Unread::Failed(why)) => {
                findings.push(
                    finding(Effect::Differs, format!("not read: {why}"))
                        .mend("run this where the manager's pods reach the worker, or check its account by hand"),
                );
                continue;
            }
        };
        if let Some(uid) = facts.uid.as_deref() {
            if hub == Some(uid) {
                findings.push(
                    finding(Effect::Refused, "it is the hub's own cluster (OwnCluster)".to_owned())
                        .mend("use another cluster as the worker"),
                );
            }
            if let Some(other) = seen.insert(uid, name) {
                findings.push(
                    finding(
                        Effect::Refused,
                        format!("it is the same cluster as {other} (DuplicateCluster)"),
                    )
                    .mend("let the jobs of one of them end, and delete that MultiKueueCluster"),
                );
            }
        }
        findings.extend(rights(name, &facts.missing, kinds));
        findings.push(match facts.kueue {
            Some(release) if release.is_tested_minor() => {
                finding(Effect::Same, format!("it keeps Kueue {release}; its jobs go on"))
            }
            Some(release) => {
                finding(Effect::Differs, format!("its Kueue {release} is in no test as a worker"))
                    .mend("v0.19 is tested")
            }
            None => finding(
                Effect::Same,
                "it keeps its Kueue; the account cannot read its version".to_owned(),
            ),
        });
    }
    findings
}

fn rights(name: &str, missing: &[Right], kinds: &[&str]) -> Vec<Finding> {
    let is_needed =
        |right: &&Right| NEEDED.contains(&&*right.resource) || kinds.contains(&&*right.resource);
    let is_of_kind = |right: &&Right| {
        switchyard_jobs::kinds().iter().any(|kind| kind.id().plural == right.resource)
    };
    let texts = |rights: Vec<&Right>| -> Vec<String> {
        rights.into_iter().map(|right| right.text.clone()).collect()
    };
    let needed = texts(missing.iter().filter(is_needed).collect());
    // A kind that is not enabled is not sent.
    let useful = texts(missing.iter().filter(|it| !is_needed(it) && !is_of_kind(it)).collect());
    let mend = "on the worker: kubectl apply -f deploy/rbac/kubeconfig-worker.yaml, and bind its \
                ClusterRole to the account of the kubeconfig";
    let mut findings = Vec::new();
    for (effect, missing, message) in [
        (Effect::Refused, needed, "its account may not"),
        (Effect::Differs, useful, "capacity and reasons are missing, as its account may not"),
    ] {
        if !missing.is_empty() {
            let message = format!("{message}: {}", crate::check::shorten(&missing));
            findings.push(Finding::new(effect, WORKER, message).object(name).mend(mend));
        }
    }
    findings
}
