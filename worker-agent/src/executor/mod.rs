//! The shell around the ledger: watches the cluster's objects that carry the hub's id, and performs the ledger's
//! actions on its API server.

mod act;
mod dry_run;
mod group;
mod members;
mod parts;
mod read;
mod stamp;
mod watch;

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use kube::Client;
use switchyard_jobs::{JobKind, enabled_kinds, kinds};
use tokio::sync::Semaphore;

pub(crate) use act::Access;
pub use dry_run::DryRunCounts;
use dry_run::DryRuns;
pub(crate) use watch::{is_others, is_out_of_reach, watch};

use crate::admissions::Admissions;
use crate::allow::Allowed;
use crate::clock::Clock;
use crate::core::Settings;
use crate::proof::Seal;
use switchyard_ledger::{Action, Kind, Outcome, Verb};

/// Jobs whose pods are tried at the same time.
const TRYING: usize = 8;

/// A write that takes longer than this has failed, as far as is known.
const DEADLINE: Duration = Duration::from_secs(30);

/// Of the writes in flight, so many may remove what has ended: what is to be started does not wait behind a burst's remains.
const TIDYING: usize = 2;

/// What has ended for so long is removed in its turn with everything else, so that no more is left lying than ends in that
/// time.
const TIDIED_WITHIN: Duration = Duration::from_secs(20);

/// Annotation on a Workload that the agent made inactive: it, and nobody else, may make it active again.
pub(crate) const SUSPENDED: &str = "switchyard.dev/suspended";

/// A kind whose jobs are found and removed here, whether they would be made or not.
#[derive(Clone, Copy)]
struct Known {
    kind: &'static dyn JobKind,
    /// Jobs of it are made. Of others an earlier configuration may have had some made.
    enabled: bool,
}

/// The kinds that a configuration names, then all others; none of those that nobody sends.
fn known(frameworks: &[String]) -> Vec<Known> {
    let mut known: Vec<Known> =
        enabled_kinds(frameworks).into_iter().map(|kind| Known { kind, enabled: true }).collect();
    for kind in kinds() {
        if known.iter().all(|it| it.kind.id() != kind.id()) {
            known.push(Known { kind: *kind, enabled: false });
        }
    }
    known.retain(|known| known.kind.is_sent());
    known
}

/// How each kind of copies is reached, and whether the cluster has to have it: Workloads, and all kinds of jobs.
pub(crate) fn reached(frameworks: &[String]) -> impl Iterator<Item = (Access, bool)> {
    let jobs = known(frameworks).into_iter().map(|known| (Access::job(known.kind), known.enabled));
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
    tidying: Arc<Semaphore>,
    trying: Arc<Semaphore>,
    admissions: Option<Arc<dyn Admissions>>,
    kinds: Arc<[Known]>,
    clock: Clock,
    /// None: jobs are taken untried.
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
        let kinds = known(&settings.frameworks).into();
        let allowed = Arc::new(settings.allowed.clone());
        let (tidying, trying) =
            (Arc::new(Semaphore::new(TIDYING)), Arc::new(Semaphore::new(TRYING)));
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
            tidying,
            trying,
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

    /// Says in the log if its account lacks rights that dry runs need.
    pub(crate) async fn say_rights(self) {
        if let Some(dry_runs) = &self.dry_runs {
            dry_runs.say_rights().await;
        }
    }

    /// Why the cluster would not run the pods of a job. The hub is to know before it settles on this cluster: they are tried before
    /// the Workload is created.
    async fn try_pods(&self, action: &Action) -> Option<Outcome> {
        let (Kind::Workload, Verb::Create { namespace, payload, .. }) = (action.kind, &action.verb)
        else {
            return None;
        };
        let dry_runs =
            self.dry_runs.as_ref().filter(|_| self.unwelcome(payload, namespace).is_none())?;
        let _turn = self.trying.acquire().await.ok()?;
        // A panic must not take the workload's slot with it.
        let trouble =
            AssertUnwindSafe(dry_runs.trouble(&payload.job, namespace)).catch_unwind().await;
        trouble.ok().flatten().map(Outcome::Refused)
    }

    /// Performs one action, when its turn comes. Always says how it went.
    pub(crate) async fn perform(self, action: Action) -> (Action, Outcome) {
        // Without a permit: while webhooks of the cluster are slow, other jobs are stopped all the same.
        if let Some(refusal) = self.try_pods(&action).await {
            return (action, refusal);
        }
        let _tidying = match action.tidies() {
            true => tokio::time::timeout(TIDIED_WITHIN, self.tidying.acquire()).await.ok(),
            false => None,
        };
        let Ok(_permit) = self.permits.acquire().await else {
            return (action, Outcome::Rejected("the executor has stopped".to_owned()));
        };
        // It may have waited long, and so may the whole process have.
        if action.until.is_some_and(|until| until <= self.clock.now()) {
            return (
                action,
                Outcome::Rejected("the hub's lease has lapsed: nothing is started".to_owned()),
            );
        }
        if !self.may_write() {
            return (
                action,
                Outcome::Rejected("the agent's Lease is not held: nothing is written".to_owned()),
            );
        }
        // A panic must not take the workload's slot with it: it would be busy for ever.
        let acting = AssertUnwindSafe(self.act(&action)).catch_unwind();
        let outcome = match tokio::time::timeout(DEADLINE, acting).await {
            Ok(Ok(outcome)) => outcome,
            Ok(Err(_)) => {
                Outcome::Failed("the action panicked, which is a mistake in the agent".to_owned())
            }
            Err(_) => Outcome::Failed(format!(
                "the cluster's API server did not answer within {DEADLINE:?}"
            )),
        };
        let error = match &outcome {
            Outcome::Failed(error) | Outcome::Rejected(error) => Some(error),
            // The hub is not told that nobody may look for what was made.
            Outcome::Refused(trouble) if matches!(action.verb, Verb::Find { .. }) => {
                Some(&trouble.message)
            }
            _ => None,
        };
        if let Some(error) = error {
            tracing::warn!(workload = action.workload_uid, kind = ?action.kind, error, "action failed, will be tried again");
        }
        (action, outcome)
    }
}
