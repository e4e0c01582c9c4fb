//! One job in one line: its state, where it is, and why it waits.

use std::fmt;

use jiff::Timestamp;
use kube::ResourceExt as _;
use serde::Serialize;
use switchyard_api::conditions::reasons::worker_trouble;
use switchyard_api::conditions::{self, find, is_true};
use switchyard_api::v1beta2::{CheckState, Workload, WorkloadStatus};
use switchyard_jobs::named_job;

/// What a job does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum State {
    /// Waits for quota.
    Pending,
    /// Holds quota; its checks, such as finding a cluster, are not done.
    QuotaReserved,
    /// May run. Its pods are not ready yet, or that they are has not been written down.
    Admitted,
    /// Runs.
    Running,
    /// Gives its quota back.
    Evicted,
    /// Not to be run: `spec.active` is false.
    Deactivated,
    /// Ended well.
    Succeeded,
    /// Ended badly.
    Failed,
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

impl State {
    /// Whether nothing more will happen.
    #[must_use]
    pub fn is_final(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed)
    }
}

/// How many pods are ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Ready {
    /// Pods that are ready, or have succeeded.
    pub ready: i64,
    /// All that are to be.
    pub all: i64,
}

impl fmt::Display for Ready {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.ready, self.all)
    }
}

/// A job in one line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Row {
    /// Its namespace.
    pub namespace: String,
    /// Name of the job; of the Workload where it has no owner.
    pub job: String,
    /// Kind of the job.
    pub kind: String,
    /// Name of its Workload.
    pub workload: String,
    /// Its LocalQueue.
    pub queue: String,
    /// Its priority.
    pub priority: i32,
    /// What it does.
    pub state: State,
    /// The worker cluster that it was sent to.
    pub cluster: Option<String>,
    /// How often it has been sent to a cluster.
    pub attempt: i64,
    /// How many of its pods are ready, or have succeeded, of how many; absent where nothing says so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready: Option<Ready>,
    /// Its cluster is silent: the last state that the hub heard may be old.
    #[serde(skip)]
    pub is_stale: bool,
    /// Why it waits, what is wrong where it runs, or how it ended.
    pub reason: String,
    /// When it was queued.
    pub created: Option<Timestamp>,
}

/// What is shown of a workload.
#[must_use]
pub fn row(workload: &Workload) -> Row {
    let owner = workload.owner_references().iter().find(|owner| owner.controller == Some(true));
    let owner = owner.map(|owner| (owner.kind.as_str(), owner.name.as_str()));
    // On a worker nobody owns what the hub's agent made; it says which job it stands for.
    let named = named_job(workload)
        .map(|(gvk, name)| (gvk.rsplit_once("Kind=").map_or(gvk, |(_, kind)| kind), name));
    let status = workload.status.clone().unwrap_or_default();
    let state = state(workload, &status);
    Row {
        namespace: workload.namespace().unwrap_or_default(),
        job: owner.or(named).map_or_else(|| workload.name_any(), |(_, name)| name.to_owned()),
        kind: owner.or(named).map_or_else(|| "Workload".to_owned(), |(kind, _)| kind.to_owned()),
        workload: workload.name_any(),
        queue: workload.spec.queue_name.clone().unwrap_or_default(),
        priority: workload.spec.priority.unwrap_or_default(),
        ready: ready(workload, state, &status),
        is_stale: is_stale(&status),
        state,
        reason: reason(state, &status),
        attempt: status.dispatch.map_or(0, |dispatch| dispatch.attempt),
        cluster: status.cluster_name,
        created: workload.creation_timestamp().map(|time| time.0),
    }
}

fn state(workload: &Workload, status: &WorkloadStatus) -> State {
    let holds = |condition| is_true(&status.conditions, condition);
    if let Some(finished) =
        find(&status.conditions, conditions::FINISHED).filter(|c| c.status == conditions::TRUE)
    {
        let succeeded = finished.reason == conditions::reasons::finished::SUCCEEDED;
        return if succeeded { State::Succeeded } else { State::Failed };
    }
    match () {
        () if holds(conditions::EVICTED) && holds(conditions::QUOTA_RESERVED) => State::Evicted,
        () if !workload.spec.is_active() => State::Deactivated,
        () if holds(conditions::ADMITTED) && holds(conditions::PODS_READY) => State::Running,
        () if holds(conditions::ADMITTED) => State::Admitted,
        () if holds(conditions::QUOTA_RESERVED) => State::QuotaReserved,
        () => State::Pending,
    }
}

/// All of the pods, where the Workload says that all are ready.
fn ready(workload: &Workload, state: State, status: &WorkloadStatus) -> Option<Ready> {
    let all = workload.spec.pod_sets.iter().map(|pod_set| i64::from(pod_set.count)).sum();
    let is_fresh = !is_true(&status.conditions, conditions::WORKER_TROUBLE);
    (state == State::Running && is_fresh).then_some(Ready { ready: all, all })
}

fn is_stale(status: &WorkloadStatus) -> bool {
    let trouble = find(&status.conditions, conditions::WORKER_TROUBLE)
        .filter(|found| found.status == conditions::TRUE);
    let silent = [worker_trouble::CLUSTER_UNREACHABLE, worker_trouble::CLUSTER_REMOVED];
    trouble.is_some_and(|found| silent.contains(&&*found.reason))
}

/// The message that explains the state. Running needs none.
fn reason(state: State, status: &WorkloadStatus) -> String {
    let message =
        |condition| find(&status.conditions, condition).map(|found| found.message.clone());
    let message = match state {
        State::Succeeded | State::Failed => message(conditions::FINISHED),
        State::Evicted => message(conditions::EVICTED),
        State::Deactivated => {
            message(conditions::EVICTED).or_else(|| Some("spec.active is false".to_owned()))
        }
        State::QuotaReserved => unready_check(status),
        State::Pending => {
            message(conditions::QUOTA_RESERVED).or_else(|| Some("not looked at yet".to_owned()))
        }
        State::Admitted | State::Running => message(conditions::WORKER_TROUBLE)
            .filter(|_| is_true(&status.conditions, conditions::WORKER_TROUBLE)),
    };
    message.unwrap_or_default()
}

/// The first admission check that holds the workload back.
fn unready_check(status: &WorkloadStatus) -> Option<String> {
    let check = status.admission_checks.iter().find(|check| check.state != CheckState::Ready)?;
    let message = if check.message.is_empty() { "waiting" } else { &check.message };
    Some(format!("{}: {message}", check.name))
}
