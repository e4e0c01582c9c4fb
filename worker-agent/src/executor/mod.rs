//! Performs the ledger's actions on the cluster's API server, and watches the objects that carry
//! the hub's id.

mod access;
mod act;
mod api_error;
mod change;
mod create;
mod dry_run;
mod group;
mod members;
mod read;
mod serving_pods;
mod stamp;
mod watch;

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use kube::Client;
use switchyard_jobs::{JobKind, enabled_kinds, kinds};
use switchyard_ledger::{Action, ObjectKind, Outcome, Verb};
use tokio::sync::Semaphore;

pub(crate) use access::Access;
use dry_run::DryRuns;
pub(crate) use watch::{is_others, is_out_of_reach, watch};

use crate::admissions::Admissions;
use crate::allow::Allowed;
use crate::clock::Clock;
use crate::proof::Seal;
use crate::settings::Settings;

/// The most concurrent dry runs of jobs.
const MAX_DRY_RUNS: usize = 8;

/// The outcome of a request without an answer after this is unknown.
const DEADLINE: Duration = Duration::from_secs(30);

/// The most concurrent requests that only clean up, so that new jobs do not wait behind the remains
/// of a burst.
const MAX_CLEANUPS: usize = 2;

/// Finished jobs older than this are deleted at normal priority, which bounds the backlog.
const CLEANUP_PRIORITY_AFTER: Duration = Duration::from_secs(20);

/// A kind whose jobs the agent finds and deletes, whether it creates them or not.
#[derive(Clone, Copy)]
struct HandledKind {
    kind: &'static dyn JobKind,
    /// Whether the agent creates jobs of the kind. If not, jobs may remain from an earlier
    /// configuration.
    enabled: bool,
}

/// The kinds that a configuration enables, then all others that a hub can send.
fn handled_kinds(frameworks: &[String]) -> Vec<HandledKind> {
    let mut known: Vec<HandledKind> = enabled_kinds(frameworks)
        .into_iter()
        .map(|kind| HandledKind { kind, enabled: true })
        .collect();
    for kind in kinds() {
        if known.iter().all(|it| it.kind.id() != kind.id()) {
            known.push(HandledKind { kind: *kind, enabled: false });
        }
    }
    known.retain(|known| known.kind.remote().is_some());
    known
}

/// How to reach each kind of copies, and whether the cluster must have the kind.
pub(crate) fn handled_access(frameworks: &[String]) -> impl Iterator<Item = (Access, bool)> {
    let jobs =
        handled_kinds(frameworks).into_iter().map(|known| (Access::job(known.kind), known.enabled));
    std::iter::once((Access::workload(), true)).chain(jobs)
}

/// Performs actions, a bounded number at once.
#[derive(Clone)]
pub(crate) struct Executor {
    client: Client,
    seal: Seal,
    origin: Arc<str>,
    allowed: Arc<Allowed>,
    permits: Arc<Semaphore>,
    cleanups: Arc<Semaphore>,
    dry_run_permits: Arc<Semaphore>,
    admissions: Option<Arc<dyn Admissions>>,
    kinds: Arc<[HandledKind]>,
    clock: Clock,
    /// None: the agent accepts jobs without a dry run.
    dry_runs: Option<Arc<DryRuns>>,
}

impl Executor {
    pub(crate) fn new(
        client: Client,
        settings: &Settings,
        seal: Seal,
        admissions: Option<Arc<dyn Admissions>>,
        clock: Clock,
    ) -> Self {
        let permits = Arc::new(Semaphore::new(settings.concurrency.max(1)));
        let origin = settings.origin.as_str().into();
        let kinds = handled_kinds(&settings.frameworks).into();
        let allowed = Arc::new(settings.allowed.clone());
        let (cleanups, dry_run_permits) =
            (Arc::new(Semaphore::new(MAX_CLEANUPS)), Arc::new(Semaphore::new(MAX_DRY_RUNS)));
        let dry_runs = settings
            .dry_runs
            .clone()
            .map(|counts| Arc::new(DryRuns::new(client.clone(), clock, counts)));
        Self {
            client,
            seal,
            origin,
            allowed,
            permits,
            cleanups,
            dry_run_permits,
            admissions,
            kinds,
            clock,
            dry_runs,
        }
    }

    /// Whether this process may write to the cluster, as far as it knows.
    pub(crate) fn may_write(&self) -> bool {
        self.admissions.as_ref().is_none_or(|admissions| admissions.may_write())
    }

    /// Logs if the agent's account lacks rights that dry runs need.
    pub(crate) async fn log_missing_rights(self) {
        if let Some(dry_runs) = &self.dry_runs {
            dry_runs.log_missing_rights().await;
        }
    }

    /// Why the cluster would refuse the job's pods.
    ///
    /// The dry run precedes the creation of the Workload, so that the hub learns of a refusal
    /// before it commits to this cluster.
    async fn dry_run_pods(&self, action: &Action) -> Option<Outcome> {
        let (ObjectKind::Workload, Verb::Create { namespace, payload, .. }) =
            (action.kind, &action.verb)
        else {
            return None;
        };
        let dry_runs =
            self.dry_runs.as_ref().filter(|_| self.refusal(payload, namespace).is_none())?;
        let _turn = self.dry_run_permits.acquire().await.ok()?;
        // A panic must not keep the workload's action slot busy.
        let rejection =
            AssertUnwindSafe(dry_runs.rejection(&payload.job, namespace)).catch_unwind().await;
        rejection.ok().flatten().map(Outcome::Rejected)
    }

    /// Performs one action when its turn comes. Always returns an outcome.
    pub(crate) async fn perform(self, action: Action) -> (Action, Outcome) {
        // Without a permit, so that slow webhooks do not delay the stop of other jobs.
        if let Some(refusal) = self.dry_run_pods(&action).await {
            return (action, refusal);
        }
        let _cleanup = match action.is_cleanup() {
            true => {
                tokio::time::timeout(CLEANUP_PRIORITY_AFTER, self.cleanups.acquire()).await.ok()
            }
            false => None,
        };
        let Ok(_permit) = self.permits.acquire().await else {
            return (action, Outcome::NotApplied("the executor has stopped".to_owned()));
        };
        // The action, or the whole process, may have waited long.
        if action.deadline.is_some_and(|until| until <= self.clock.now()) {
            return (
                action,
                Outcome::NotApplied("the agent's lease has lapsed: nothing is started".to_owned()),
            );
        }
        if !self.may_write() {
            return (
                action,
                Outcome::NotApplied("the agent's Lease is not held: nothing is written".to_owned()),
            );
        }
        // A panic must not keep the workload's action slot busy for ever.
        let acting = AssertUnwindSafe(self.act(&action)).catch_unwind();
        let outcome = match tokio::time::timeout(DEADLINE, acting).await {
            Ok(Ok(outcome)) => outcome,
            Ok(Err(_)) => {
                Outcome::Unknown("the action panicked, which is a mistake in the agent".to_owned())
            }
            Err(_) => Outcome::Unknown(format!(
                "the cluster's API server did not answer within {DEADLINE:?}"
            )),
        };
        let error = match &outcome {
            Outcome::Unknown(error) | Outcome::NotApplied(error) => Some(error),
            // The hub does not learn of a refused search, so log it.
            Outcome::Rejected(rejection) if matches!(action.verb, Verb::Find { .. }) => {
                Some(&rejection.message)
            }
            _ => None,
        };
        if let Some(error) = error {
            tracing::warn!(workload = action.workload_uid, kind = ?action.kind, error, "action failed, will be tried again");
        }
        (action, outcome)
    }
}
