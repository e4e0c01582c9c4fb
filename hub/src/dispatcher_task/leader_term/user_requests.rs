//! What operators ask of the hub by annotations, for the audit stream.
//!
//! The stores hold no `managedFields`, so the writer of an annotation is read from the API server, in a task of its own. Leaders
//! change: what is in force when a term begins is written again, as found.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;
use switchyard_api::names;
use switchyard_api::v1beta2::{MultiKueueCluster, Workload};
use switchyard_dispatcher::{AdoptRequest, ClusterConfig, Name, Uid, WorkloadFacts};
use tokio::sync::Semaphore;

use crate::audit::{self, Line, Operation, Outcome, Who};

/// Writers that are read at once. Beyond it a line names none.
const READS: usize = 8;
/// How long the API server may take to name one.
const DEADLINE: Duration = Duration::from_secs(5);

/// An operation, with the annotation that asks for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Asked {
    operation: Operation,
    annotation: &'static str,
    why: String,
    result: Outcome,
}

impl Asked {
    fn new(operation: Operation, annotation: &'static str, why: String, result: Outcome) -> Self {
        Self { operation, annotation, why, result }
    }
}

/// What the change of a cluster's annotations asks. `is_open`: the circuit breaker is.
pub(super) fn of_cluster(
    before: Option<&ClusterConfig>,
    now: &ClusterConfig,
    is_open: bool,
) -> Vec<Asked> {
    let found = before.is_none();
    let none = ClusterConfig::default();
    let before = before.unwrap_or(&none);
    let why = |text: &str| if found { format!("{text}, as found") } else { text.to_owned() };
    let mut asked = Vec::new();
    if (before.cordoned, before.draining) != (now.cordoned, now.draining) {
        let operation = match (now.cordoned, now.draining) {
            (_, true) => Operation::Drain,
            (true, false) => Operation::Cordon,
            (false, false) => Operation::Uncordon,
        };
        asked.push(Asked::new(
            operation,
            names::SCHEDULING,
            why(operation.name()),
            Outcome::Accepted,
        ));
    }
    if now.declared_lost && !before.declared_lost {
        let why = why("the loss that it is in now");
        asked.push(Asked::new(
            Operation::DeclareLost,
            names::DECLARED_LOST,
            why,
            Outcome::Accepted,
        ));
    }
    // A value that was there before this term releases nothing.
    if !found && before.release != now.release {
        let result = if is_open { Outcome::Accepted } else { Outcome::NoEffect };
        let why = now.release.as_deref().unwrap_or("the annotation was taken away").to_owned();
        asked.push(Asked::new(Operation::ReleaseBreaker, names::BREAKER_RELEASE, why, result));
    }
    asked
}

/// The requests of a workload that were written last.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Requests {
    moving: Option<(u64, Name)>,
    adopt: Option<AdoptRequest>,
}

impl Requests {
    fn of(facts: &WorkloadFacts) -> Self {
        Self { moving: facts.move_request.clone(), adopt: facts.adopt.clone() }
    }
}

/// Where a workload stands, as far as its requests depend on it.
#[derive(Clone, Copy, Debug)]
struct Standing {
    attempt: u64,
    finished: bool,
    /// It has adopted a copy.
    adopted: bool,
}

impl Standing {
    fn of(facts: &WorkloadFacts) -> Self {
        Self {
            attempt: facts.state.attempt,
            finished: facts.state.finished,
            adopted: facts.state.cluster_uid.is_some(),
        }
    }
}

/// What the change of a workload's annotations asks.
fn of_workload(before: &Requests, now: &Requests, at: Standing) -> Vec<Asked> {
    let result =
        |counts: bool| if counts && !at.finished { Outcome::Accepted } else { Outcome::NoEffect };
    let mut asked = Vec::new();
    if let Some((attempt, to)) = now.moving.as_ref().filter(|_| before.moving != now.moving) {
        let why = format!("attempt {attempt} to {to}");
        asked.push(Asked::new(Operation::Move, names::MOVE, why, result(*attempt == at.attempt)));
    }
    if let Some(adopt) = now.adopt.as_ref().filter(|_| before.adopt != now.adopt) {
        let why = match adopt {
            AdoptRequest::NoCopy => "none".to_owned(),
            AdoptRequest::Copy(cluster, uid) => format!("{uid} on {cluster}"),
        };
        asked.push(Asked::new(Operation::Adopt, names::ADOPT, why, result(!at.adopted)));
    }
    asked
}

/// The memory of one term.
pub(super) struct Auditor {
    client: Client,
    reads: Arc<Semaphore>,
    /// Of workloads that ask for something.
    requests: BTreeMap<Uid, Requests>,
}

impl Auditor {
    pub(super) fn new(client: Client) -> Self {
        Self { client, reads: Arc::new(Semaphore::new(READS)), requests: BTreeMap::new() }
    }

    /// A workload as it is now.
    pub(super) fn workload(&mut self, facts: &WorkloadFacts) {
        let before = self.requests.get(&facts.uid).cloned().unwrap_or_default();
        let now = Requests::of(facts);
        if now == before {
            return;
        }
        let asked = of_workload(&before, &now, Standing::of(facts));
        if now == Requests::default() {
            self.requests.remove(&facts.uid);
        } else {
            self.requests.insert(facts.uid.clone(), now);
        }
        let api: Api<Workload> = Api::namespaced(self.client.clone(), &facts.namespace);
        let object = format!("Workload/{}/{}", facts.namespace, facts.name);
        self.write(&api, &facts.name, &object, asked);
    }

    /// A workload is gone.
    pub(super) fn gone(&mut self, uid: &Uid) {
        self.requests.remove(uid);
    }

    /// What was asked of a cluster.
    pub(super) fn cluster(&self, name: &str, asked: Vec<Asked>) {
        let api: Api<MultiKueueCluster> = Api::all(self.client.clone());
        self.write(&api, name, &format!("MultiKueueCluster/{name}"), asked);
    }

    fn write<K>(&self, api: &Api<K>, name: &str, object: &str, asked: Vec<Asked>)
    where
        K: Resource + Clone + DeserializeOwned + std::fmt::Debug + Send + Sync + 'static,
    {
        for Asked { operation, annotation, why, result } in asked {
            let line =
                |who| Line { operation, who, object: object.to_owned(), why: why.clone(), result };
            let Ok(place) = self.reads.clone().try_acquire_owned() else {
                line(Who::Unknown).write();
                continue;
            };
            let (line, api, name) = (line(Who::Unknown), api.clone(), name.to_owned());
            tokio::spawn(async move {
                let _place = place;
                let found = tokio::time::timeout(DEADLINE, api.get_metadata(&name)).await;
                let who = found.ok().and_then(Result::ok).map_or(Who::Unknown, |found| {
                    let entries = found.metadata.managed_fields.unwrap_or_default();
                    audit::writer(
                        &entries,
                        &["f:metadata", "f:annotations", &format!("f:{annotation}")],
                    )
                });
                Line { who, ..line }.write();
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The rules before and now, whether the breaker is open, and what is told.
    type ClusterCase =
        (&'static str, Option<ClusterConfig>, ClusterConfig, bool, &'static [&'static str]);
    /// The requests before and now, where the workload stands, and what is told.
    type WorkloadCase = (&'static str, Requests, Requests, Standing, &'static [&'static str]);

    fn told(asked: &[Asked]) -> Vec<String> {
        asked
            .iter()
            .map(|it| format!("{} ({}): {:?}", it.operation.name(), it.why, it.result))
            .collect()
    }

    #[test]
    fn changed_cluster_rules_are_told_once() {
        let none = ClusterConfig::default;
        let cordoned = || ClusterConfig { cordoned: true, ..none() };
        let drained = || ClusterConfig { cordoned: true, draining: true, ..none() };
        let lost = || ClusterConfig { declared_lost: true, ..none() };
        let released = |value: &str| ClusterConfig { release: Some(value.into()), ..none() };
        let cases: [ClusterCase; 12] = [
            ("nothing asked", Some(none()), none(), false, &[]),
            ("a new cluster", None, none(), false, &[]),
            ("cordon", Some(none()), cordoned(), false, &["cordon (cordon): Accepted"]),
            ("cordon, still", Some(cordoned()), cordoned(), false, &[]),
            (
                "drain after cordon",
                Some(cordoned()),
                drained(),
                false,
                &["drain (drain): Accepted"],
            ),
            ("uncordon", Some(drained()), none(), false, &["uncordon (uncordon): Accepted"]),
            (
                "cordoned before this term",
                None,
                cordoned(),
                false,
                &["cordon (cordon, as found): Accepted"],
            ),
            (
                "lost",
                Some(none()),
                lost(),
                false,
                &["declare-lost (the loss that it is in now): Accepted"],
            ),
            ("back", Some(lost()), none(), false, &[]),
            ("release", Some(none()), released("1"), true, &["release-breaker (1): Accepted"]),
            (
                "release of a closed one",
                Some(released("1")),
                released("2"),
                false,
                &["release-breaker (2): NoEffect"],
            ),
            ("released before this term", None, released("1"), true, &[]),
        ];
        for (case, before, now, is_open, expected) in cases {
            assert_eq!(told(&of_cluster(before.as_ref(), &now, is_open)), expected, "{case}");
        }
    }

    #[test]
    fn new_requests_of_workloads_are_told_with_their_result() {
        let moving =
            |attempt: u64| Requests { moving: Some((attempt, "east".into())), adopt: None };
        let adopting = |adopt: AdoptRequest| Requests { moving: None, adopt: Some(adopt) };
        let copy = || adopting(AdoptRequest::Copy("east".into(), "u".into()));
        let none = Requests::default;
        let at = Standing { attempt: 3, finished: false, adopted: false };
        let cases: [WorkloadCase; 9] = [
            ("nothing", none(), none(), at, &[]),
            ("move", none(), moving(3), at, &["move (attempt 3 to east): Accepted"]),
            ("move, still", moving(3), moving(3), at, &[]),
            (
                "an attempt that is over",
                none(),
                moving(2),
                at,
                &["move (attempt 2 to east): NoEffect"],
            ),
            ("taken back", moving(3), none(), at, &[]),
            (
                "a finished job",
                none(),
                moving(3),
                Standing { finished: true, ..at },
                &["move (attempt 3 to east): NoEffect"],
            ),
            ("adopt", none(), copy(), at, &["adopt (u on east): Accepted"]),
            ("adopt none", copy(), adopting(AdoptRequest::NoCopy), at, &["adopt (none): Accepted"]),
            (
                "one that has adopted",
                none(),
                copy(),
                Standing { adopted: true, ..at },
                &["adopt (u on east): NoEffect"],
            ),
        ];
        for (case, before, now, at, expected) in cases {
            assert_eq!(told(&of_workload(&before, &now, at)), expected, "{case}");
        }
    }
}
