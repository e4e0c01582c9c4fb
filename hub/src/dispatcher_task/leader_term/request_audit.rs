//! Writes operators' requests by annotation to the audit stream.
//!
//! The stores drop `managedFields`, so the annotation's writer is read from the API server in a
//! task of its own. A new leader writes the annotations in force again, marked as found.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;
use switchyard_api::names;
use switchyard_api::v1beta2::{MultiKueueCluster, Workload};
use switchyard_dispatcher::{AdoptRequest, ClusterConfig, Name, Uid, WorkloadFacts};
use tokio::sync::Semaphore;

use crate::audit::{self, Actor, AuditOperation, AuditOutcome, AuditRecord};

/// Concurrent reads of writers. Beyond it, a record names no writer.
const READS: usize = 8;
/// Deadline of one read.
const DEADLINE: Duration = Duration::from_secs(5);

/// An operation, and the annotation that asks for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct UserRequest {
    operation: AuditOperation,
    annotation: &'static str,
    why: String,
    result: AuditOutcome,
}

impl UserRequest {
    fn new(
        operation: AuditOperation,
        annotation: &'static str,
        why: String,
        result: AuditOutcome,
    ) -> Self {
        Self { operation, annotation, why, result }
    }
}

/// The requests in a change of a cluster's annotations. `is_open`: whether the circuit breaker is
/// open.
pub(super) fn cluster_requests(
    before: Option<&ClusterConfig>,
    now: &ClusterConfig,
    is_open: bool,
) -> Vec<UserRequest> {
    let found = before.is_none();
    let none = ClusterConfig::default();
    let before = before.unwrap_or(&none);
    let why = |text: &str| if found { format!("{text}, as found") } else { text.to_owned() };
    let mut asked = Vec::new();
    if (before.cordoned, before.draining) != (now.cordoned, now.draining) {
        let operation = match (now.cordoned, now.draining) {
            (_, true) => AuditOperation::Drain,
            (true, false) => AuditOperation::Cordon,
            (false, false) => AuditOperation::Uncordon,
        };
        asked.push(UserRequest::new(
            operation,
            names::SCHEDULING,
            why(operation.name()),
            AuditOutcome::Accepted,
        ));
    }
    if now.declared_lost && !before.declared_lost {
        let why = why("the loss that it is in now");
        asked.push(UserRequest::new(
            AuditOperation::DeclareLost,
            names::DECLARED_LOST,
            why,
            AuditOutcome::Accepted,
        ));
    }
    // A value set before this term releases nothing.
    if !found && before.release != now.release {
        let result = if is_open { AuditOutcome::Accepted } else { AuditOutcome::NoEffect };
        let why = now.release.as_deref().unwrap_or("the annotation was taken away").to_owned();
        asked.push(UserRequest::new(
            AuditOperation::ReleaseBreaker,
            names::BREAKER_RELEASE,
            why,
            result,
        ));
    }
    asked
}

/// The requests of a workload that were last written to the stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct WorkloadAnnotations {
    moving: Option<(u64, Name)>,
    adopt: Option<AdoptRequest>,
}

impl WorkloadAnnotations {
    fn of(facts: &WorkloadFacts) -> Self {
        Self { moving: facts.move_request.clone(), adopt: facts.adopt.clone() }
    }
}

/// The workload's state, as far as its requests depend on it.
#[derive(Clone, Copy, Debug)]
struct RequestState {
    attempt: u64,
    finished: bool,
    adopted: bool,
}

impl RequestState {
    fn of(facts: &WorkloadFacts) -> Self {
        Self {
            attempt: facts.state.attempt,
            finished: facts.state.finished,
            adopted: facts.state.cluster_uid.is_some(),
        }
    }
}

/// The requests in a change of a workload's annotations.
fn workload_requests(
    before: &WorkloadAnnotations,
    now: &WorkloadAnnotations,
    at: RequestState,
) -> Vec<UserRequest> {
    let result = |counts: bool| {
        if counts && !at.finished { AuditOutcome::Accepted } else { AuditOutcome::NoEffect }
    };
    let mut asked = Vec::new();
    if let Some((attempt, to)) = now.moving.as_ref().filter(|_| before.moving != now.moving) {
        let why = format!("attempt {attempt} to {to}");
        asked.push(UserRequest::new(
            AuditOperation::Move,
            names::MOVE,
            why,
            result(*attempt == at.attempt),
        ));
    }
    if let Some(adopt) = now.adopt.as_ref().filter(|_| before.adopt != now.adopt) {
        let why = match adopt {
            AdoptRequest::NoCopy => "none".to_owned(),
            AdoptRequest::Copy(cluster, uid) => format!("{uid} on {cluster}"),
        };
        asked.push(UserRequest::new(AuditOperation::Adopt, names::ADOPT, why, result(!at.adopted)));
    }
    asked
}

/// Remembers what was written in this term.
pub(super) struct RequestAuditor {
    client: Client,
    reads: Arc<Semaphore>,
    /// Workloads with a request.
    requests: BTreeMap<Uid, WorkloadAnnotations>,
}

impl RequestAuditor {
    pub(super) fn new(client: Client) -> Self {
        Self { client, reads: Arc::new(Semaphore::new(READS)), requests: BTreeMap::new() }
    }

    /// Audits the requests of a changed workload.
    pub(super) fn workload(&mut self, facts: &WorkloadFacts) {
        let before = self.requests.get(&facts.uid).cloned().unwrap_or_default();
        let now = WorkloadAnnotations::of(facts);
        if now == before {
            return;
        }
        let asked = workload_requests(&before, &now, RequestState::of(facts));
        if now == WorkloadAnnotations::default() {
            self.requests.remove(&facts.uid);
        } else {
            self.requests.insert(facts.uid.clone(), now);
        }
        let api: Api<Workload> = Api::namespaced(self.client.clone(), &facts.namespace);
        let object = format!("Workload/{}/{}", facts.namespace, facts.name);
        self.write(&api, &facts.name, &object, asked);
    }

    pub(super) fn gone(&mut self, uid: &Uid) {
        self.requests.remove(uid);
    }

    /// Audits the requests for a cluster.
    pub(super) fn cluster(&self, name: &str, asked: Vec<UserRequest>) {
        let api: Api<MultiKueueCluster> = Api::all(self.client.clone());
        self.write(&api, name, &format!("MultiKueueCluster/{name}"), asked);
    }

    fn write<K>(&self, api: &Api<K>, name: &str, object: &str, asked: Vec<UserRequest>)
    where
        K: Resource + Clone + DeserializeOwned + std::fmt::Debug + Send + Sync + 'static,
    {
        for UserRequest { operation, annotation, why, result } in asked {
            let line = |who| AuditRecord {
                operation,
                who,
                object: object.to_owned(),
                why: why.clone(),
                result,
            };
            let Ok(place) = self.reads.clone().try_acquire_owned() else {
                line(Actor::Unknown).write();
                continue;
            };
            let (line, api, name) = (line(Actor::Unknown), api.clone(), name.to_owned());
            tokio::spawn(async move {
                let _place = place;
                let found = tokio::time::timeout(DEADLINE, api.get_metadata(&name)).await;
                let who = found.ok().and_then(Result::ok).map_or(Actor::Unknown, |found| {
                    let entries = found.metadata.managed_fields.unwrap_or_default();
                    audit::writer(
                        &entries,
                        &["f:metadata", "f:annotations", &format!("f:{annotation}")],
                    )
                });
                AuditRecord { who, ..line }.write();
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rules before and now, whether the breaker is open, and the expected records.
    type ClusterCase =
        (&'static str, Option<ClusterConfig>, ClusterConfig, bool, &'static [&'static str]);
    /// Requests before and now, the workload's state, and the expected records.
    type WorkloadCase = (
        &'static str,
        WorkloadAnnotations,
        WorkloadAnnotations,
        RequestState,
        &'static [&'static str],
    );

    fn told(asked: &[UserRequest]) -> Vec<String> {
        asked
            .iter()
            .map(|it| format!("{} ({}): {:?}", it.operation.name(), it.why, it.result))
            .collect()
    }

    #[test]
    fn changed_cluster_rules_are_audited_once() {
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
            assert_eq!(told(&cluster_requests(before.as_ref(), &now, is_open)), expected, "{case}");
        }
    }

    #[test]
    fn workload_request_is_audited_with_its_result() {
        let moving = |attempt: u64| WorkloadAnnotations {
            moving: Some((attempt, "east".into())),
            adopt: None,
        };
        let adopting =
            |adopt: AdoptRequest| WorkloadAnnotations { moving: None, adopt: Some(adopt) };
        let copy = || adopting(AdoptRequest::Copy("east".into(), "u".into()));
        let none = WorkloadAnnotations::default;
        let at = RequestState { attempt: 3, finished: false, adopted: false };
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
                RequestState { finished: true, ..at },
                &["move (attempt 3 to east): NoEffect"],
            ),
            ("adopt", none(), copy(), at, &["adopt (u on east): Accepted"]),
            ("adopt none", copy(), adopting(AdoptRequest::NoCopy), at, &["adopt (none): Accepted"]),
            (
                "one that has adopted",
                none(),
                copy(),
                RequestState { adopted: true, ..at },
                &["adopt (u on east): NoEffect"],
            ),
        ];
        for (case, before, now, at, expected) in cases {
            assert_eq!(told(&workload_requests(&before, &now, at)), expected, "{case}");
        }
    }
}
