//! Observations: what agents report of workloads, as the dispatcher takes it.

use std::sync::Arc;

use switchyard_proto::v1 as proto;
use switchyard_syntax::flavor_pins::FlavorPins;

use super::{CANNOT_SEND, JobIdentity, Name, Reason, RequestedAssignment, State, Uid, UnixMillis};

/// State of one workload on one cluster, as its agent reports it.
#[derive(Debug, Clone)]
pub struct Observation {
    /// Uid of the hub's Workload, as the cluster knows it.
    pub uid: Uid,
    pub namespace: Name,
    pub name: Name,
    pub attempt: u64,
    pub state: State,
    /// Why it is in this state.
    pub reasons: Vec<Reason>,
    /// The report contains a job status that differs from the last one.
    pub job_status: bool,
    /// The agent examined its pods, and none is ready or has succeeded.
    pub no_ready_pod: bool,
    /// The job that the copy was made for, if the agent knows it.
    pub origin: Option<CopyOrigin>,
    /// The copy's preemption gate, if it has one.
    pub gate: Option<PreemptionGate>,
    /// The flavors of the copy's quota, if this report has them.
    pub flavors: Option<Arc<FlavorPins>>,
}

impl Observation {
    /// An assignment that the hub cannot send counts as refused by its cluster.
    pub fn unsent(wanted: &RequestedAssignment, why: String) -> Self {
        Self {
            uid: wanted.uid.clone(),
            namespace: wanted.namespace.clone(),
            name: wanted.name.clone(),
            attempt: wanted.attempt,
            state: State::Refused,
            reasons: vec![Reason::new(CANNOT_SEND, why)],
            job_status: false,
            no_ready_pod: false,
            origin: None,
            gate: None,
            flavors: None,
        }
    }
}

/// Whether the job has ended.
pub fn is_terminal(state: State) -> bool {
    matches!(state, State::Succeeded | State::Failed)
}

/// Origin of a copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CopyOrigin {
    pub subject: JobIdentity,
    /// The job exists, and not only its Workload.
    pub has_job: bool,
    /// Creation time of the Workload, by the cluster's clock.
    pub created: UnixMillis,
}

impl From<&proto::Origin> for CopyOrigin {
    fn from(origin: &proto::Origin) -> Self {
        Self {
            subject: JobIdentity {
                kind: origin.kind.as_str().into(),
                job: origin.job_name.as_str().into(),
                pod_sets: origin.pod_sets.as_slice().into(),
            },
            has_job: origin.has_job,
            created: origin.created.as_ref().map_or(0, |at| at.seconds.saturating_mul(1_000)),
        }
    }
}

/// Whether the attempt runs. After a deletion on the worker, and once its agent has stopped it,
/// [`State::Running`] only means that pods are left.
pub(crate) fn is_running(state: State, reasons: &[Reason]) -> bool {
    let ends = [switchyard_proto::DELETED_ON_WORKER, switchyard_proto::STOPPING];
    state == State::Running && !has_reason(reasons, &ends)
}

/// Whether one of the reasons has one of these codes.
pub(crate) fn has_reason(reasons: &[Reason], codes: &[&str]) -> bool {
    reasons.iter().any(|reason| codes.contains(&reason.code.as_str()))
}

/// State of a copy's preemption gate.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PreemptionGate {
    /// When it was opened, by the hub's clock. None: closed.
    pub opened: Option<UnixMillis>,
    /// Since when it blocks a preemption, by the cluster's clock. None: it does not.
    pub blocked: Option<UnixMillis>,
}

impl From<&proto::PreemptionGate> for PreemptionGate {
    fn from(gate: &proto::PreemptionGate) -> Self {
        let millis = |seconds: i64| seconds.saturating_mul(1_000);
        Self { opened: gate.opened_at().map(millis), blocked: gate.blocked_since().map(millis) }
    }
}

impl From<PreemptionGate> for proto::PreemptionGate {
    fn from(gate: PreemptionGate) -> Self {
        let seconds = |at: UnixMillis| at.div_euclid(1_000);
        Self::new(gate.opened.map(seconds), gate.blocked.map(seconds))
    }
}
