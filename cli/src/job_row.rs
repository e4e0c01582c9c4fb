//! One line per job: state, cluster and reason.

use std::fmt;

use jiff::Timestamp;
use kube::ResourceExt as _;
use serde::Serialize;
use switchyard_api::conditions::reasons::worker_trouble;
use switchyard_api::conditions::{self, find, is_true};
use switchyard_api::v1beta2::{Admission, CheckState, Workload, WorkloadStatus};
use switchyard_jobs::named_job;

use crate::color::Color;

/// State of a job.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[value(rename_all = "PascalCase")]
pub enum JobState {
    /// Waits for quota.
    Pending,
    /// Holds quota; an admission check, such as finding a cluster, is not done.
    QuotaReserved,
    /// May run; `PodsReady` is not recorded yet.
    Admitted,
    Running,
    /// Releasing its quota.
    Evicted,
    /// `spec.active` is false.
    Deactivated,
    Succeeded,
    Failed,
}

impl fmt::Display for JobState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

impl JobState {
    pub(crate) const fn color(self) -> Color {
        match self {
            Self::Running | Self::Succeeded => Color::Good,
            Self::Failed | Self::Evicted | Self::Deactivated => Color::Bad,
            Self::Pending | Self::QuotaReserved | Self::Admitted => Color::Waiting,
        }
    }

    #[must_use]
    pub fn is_final(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct ReadyPods {
    /// Pods that are ready or have succeeded.
    pub ready: i64,
    /// Pods expected to run.
    pub all: i64,
}

impl fmt::Display for ReadyPods {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.ready, self.all)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct JobRow {
    pub namespace: String,
    /// Name of the job, or of the Workload if it has no owner.
    pub job: String,
    pub kind: String,
    pub workload: String,
    /// LocalQueue.
    pub queue: String,
    pub priority: i32,
    pub state: JobState,
    /// The worker cluster that it was dispatched to.
    pub cluster: Option<String>,
    /// How often it was dispatched.
    pub attempt: i64,
    /// Ready pods; absent if unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready: Option<ReadyPods>,
    /// Whether its cluster is silent, so that the last state may be old.
    #[serde(skip)]
    pub is_stale: bool,
    /// Why it waits, what is wrong, or how it ended.
    pub reason: String,
    /// The flavors that it is charged to.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub flavors: Vec<String>,
    /// Creation time of the Workload.
    pub created: Option<Timestamp>,
}

#[must_use]
pub fn row(workload: &Workload) -> JobRow {
    let owner = workload.owner_references().iter().find(|owner| owner.controller == Some(true));
    let owner = owner.map(|owner| (owner.kind.as_str(), owner.name.as_str()));
    // On a worker, a hub's copy has no owner, but names its job.
    let named = named_job(workload)
        .map(|(gvk, name)| (gvk.rsplit_once("Kind=").map_or(gvk, |(_, kind)| kind), name));
    let status = workload.status.clone().unwrap_or_default();
    let state = state(workload, &status);
    JobRow {
        namespace: workload.namespace().unwrap_or_default(),
        job: owner.or(named).map_or_else(|| workload.name_any(), |(_, name)| name.to_owned()),
        kind: owner.or(named).map_or_else(|| "Workload".to_owned(), |(kind, _)| kind.to_owned()),
        workload: workload.name_any(),
        queue: workload.spec.queue_name.clone().unwrap_or_default(),
        priority: workload.spec.priority.unwrap_or_default(),
        ready: all_ready(workload, state, &status),
        is_stale: is_stale(&status),
        state,
        reason: reason(state, &status),
        attempt: status.dispatch.map_or(0, |dispatch| dispatch.attempt),
        cluster: status.cluster_name,
        flavors: flavors(status.admission.as_ref()),
        created: workload.creation_timestamp().map(|time| time.0),
    }
}

/// Each flavor once, in the order of pod sets and resources.
fn flavors(admission: Option<&Admission>) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    let assigned = admission.iter().flat_map(|admission| &admission.pod_set_assignments);
    for flavor in assigned.flat_map(|pod_set| pod_set.flavors.values()) {
        if !found.contains(flavor) {
            found.push(flavor.clone());
        }
    }
    found
}

fn state(workload: &Workload, status: &WorkloadStatus) -> JobState {
    let holds = |condition| is_true(&status.conditions, condition);
    if let Some(finished) =
        find(&status.conditions, conditions::FINISHED).filter(|c| c.status == conditions::TRUE)
    {
        let succeeded = finished.reason == conditions::reasons::finished::SUCCEEDED;
        return if succeeded { JobState::Succeeded } else { JobState::Failed };
    }
    match () {
        () if holds(conditions::EVICTED) && holds(conditions::QUOTA_RESERVED) => JobState::Evicted,
        () if !workload.spec.is_active() => JobState::Deactivated,
        () if holds(conditions::ADMITTED) && holds(conditions::PODS_READY) => JobState::Running,
        () if holds(conditions::ADMITTED) => JobState::Admitted,
        () if holds(conditions::QUOTA_RESERVED) => JobState::QuotaReserved,
        () => JobState::Pending,
    }
}

/// All pods, if the Workload says that all are ready.
fn all_ready(workload: &Workload, state: JobState, status: &WorkloadStatus) -> Option<ReadyPods> {
    let all = workload.spec.pod_sets.iter().map(|pod_set| i64::from(pod_set.count)).sum();
    let is_fresh = !is_true(&status.conditions, conditions::WORKER_TROUBLE);
    (state == JobState::Running && is_fresh).then_some(ReadyPods { ready: all, all })
}

fn is_stale(status: &WorkloadStatus) -> bool {
    let trouble = find(&status.conditions, conditions::WORKER_TROUBLE)
        .filter(|found| found.status == conditions::TRUE);
    let silent = [
        worker_trouble::CLUSTER_UNREACHABLE,
        worker_trouble::AGENT_UNABLE,
        worker_trouble::CLUSTER_REMOVED,
    ];
    trouble.is_some_and(|found| silent.contains(&&*found.reason))
}

/// The message that explains the state; empty for a healthy running job.
fn reason(state: JobState, status: &WorkloadStatus) -> String {
    let message =
        |condition| find(&status.conditions, condition).map(|found| found.message.clone());
    let message = match state {
        JobState::Succeeded | JobState::Failed => message(conditions::FINISHED),
        JobState::Evicted => message(conditions::EVICTED),
        JobState::Deactivated => {
            message(conditions::EVICTED).or_else(|| Some("spec.active is false".to_owned()))
        }
        JobState::QuotaReserved => unready_check(status),
        JobState::Pending => {
            message(conditions::QUOTA_RESERVED).or_else(|| Some("not looked at yet".to_owned()))
        }
        JobState::Admitted | JobState::Running => message(conditions::WORKER_TROUBLE)
            .filter(|_| is_true(&status.conditions, conditions::WORKER_TROUBLE)),
    };
    message.unwrap_or_default()
}

/// The first admission check that is not ready.
fn unready_check(status: &WorkloadStatus) -> Option<String> {
    let check = status.admission_checks.iter().find(|check| check.state != CheckState::Ready)?;
    let message = if check.message.is_empty() { "waiting" } else { &check.message };
    Some(format!("{}: {message}", check.name))
}
