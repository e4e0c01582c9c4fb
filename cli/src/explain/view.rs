//! An explanation for programs. Fields are only ever added.

use jiff::Timestamp;
use kube::ResourceExt as _;
use serde::Serialize;
use switchyard_api::conditions::{self, find, reasons::quota_reserved};
use switchyard_api::v1beta2::{LocalQueue, StopPolicy, Workload};
use switchyard_controller::stores::Stores;
use switchyard_controller::workload::admission_gates;
use switchyard_scheduler::{Explanation, QueuePosition, Reason};

use super::clusters::{self, ClusterView};
use super::placed::{AdmissionView, CheckView, DispatchView};
use super::quota::{PodSetView, VictimView};
use super::settings::{AssumedConfig, ConfigSource};
use super::topology::PlacementView;
use super::{unknown, verdict};
use crate::job_row::{JobRow, JobState, row};

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ExplanationView {
    /// The outlook in a sentence.
    pub verdict: String,
    /// The change that lets the job start.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub change: Option<String>,
    /// Its problem on the worker cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trouble: Option<TroubleView>,
    pub namespace: String,
    pub workload: String,
    pub uid: String,
    pub job: JobView,
    /// Effective priority.
    pub priority: i32,
    pub local_queue: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster_queue: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cohort: Option<String>,
    pub created: Option<Timestamp>,
    /// As in `switchyard get jobs`.
    pub state: JobState,
    /// `Finished`, `Admitted`, `QuotaReserved`, `NotTried`, `Fits`, `Preempts` or `Blocked`.
    pub outlook: &'static str,
    /// Why it has no quota, as computed. Absent if it has quota, or would get it if it were the
    /// head.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<ReasonView>,
    /// The controller's condition about that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recorded: Option<RecordedView>,
    /// Why the LocalQueue is inactive.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub local_queue_inactive: Option<ReasonView>,
    /// Why the ClusterQueue is inactive.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub cluster_queue_inactive: Vec<ReasonView>,
    /// Position in the queue.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub place: Option<PositionView>,
    /// Requests and available quota by pod set.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub pod_sets: Vec<PodSetView>,
    /// Workloads that would be preempted.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub victims: Vec<VictimView>,
    /// The search for a place that found none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub placement: Option<PlacementView>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub admission: Option<AdmissionView>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub admission_checks: Vec<CheckView>,
    /// Dispatch to a worker cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dispatch: Option<DispatchView>,
    /// Worker clusters of its ClusterQueue, if rules, costs or room on nodes distinguish them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub clusters: Vec<ClusterView>,
    pub settings: SettingsView,
    /// Facts that may change the explanation and are not visible.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unknown: Vec<String>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct JobView {
    /// `Workload` if there is no job.
    pub kind: String,
    pub name: String,
}

/// A reason with Kueue's message.
#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ReasonView {
    pub reason: String,
    pub message: String,
}

/// Problem of a job on its worker cluster.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TroubleView {
    /// Reason of the condition `WorkerTrouble`.
    pub reason: String,
    pub message: String,
    pub since: Timestamp,
}

/// A condition that the controller wrote.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RecordedView {
    /// Type of the condition.
    pub condition: String,
    pub reason: String,
    pub message: String,
    pub since: Timestamp,
}

/// Position in the queue.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PositionView {
    /// From 0, as in the visibility API.
    pub position_in_cluster_queue: usize,
    pub pending_in_cluster_queue: usize,
    /// From 0.
    pub position_in_local_queue: usize,
    pub pending_in_local_queue: usize,
    /// `StrictFIFO` or `BestEffortFIFO`.
    pub queueing_strategy: &'static str,
    /// The head, if it is another workload.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub head: Option<HeadView>,
    /// End of the backoff.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backing_off_until: Option<Timestamp>,
}

/// The first workload of a queue.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct HeadView {
    /// `namespace/name`.
    pub workload: String,
    pub priority: i32,
    /// Why it would not be admitted now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<ReasonView>,
}

/// Assumptions about the controller's configuration.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SettingsView {
    pub source: ConfigSource,
    pub fair_sharing: bool,
    pub admission_fair_sharing: bool,
}

impl ReasonView {
    fn new(reason: &Reason) -> Self {
        Self { reason: reason.condition_reason().to_owned(), message: reason.message() }
    }

    /// As [`Self::new`]. For a workload on hold, the reason is its recorded condition or its
    /// admission gates, because the engine knows no details. `gated`: whether annotations gate
    /// admission.
    fn of(
        reason: &Reason,
        workload: &Workload,
        recorded: Option<&RecordedView>,
        gated: bool,
    ) -> Self {
        let recorded = recorded.filter(|it| HOLDS.contains(&it.reason.as_str()));
        match (reason, admission_gates(workload).filter(|_| gated), recorded) {
            (Reason::OnHold, _, Some(recorded)) => {
                Self { reason: recorded.reason.clone(), message: recorded.message.clone() }
            }
            (Reason::OnHold, Some(gates), None) => Self {
                reason: quota_reserved::ADMISSION_GATED.to_owned(),
                message: format!("Admission is gated by: {gates}"),
            },
            _ => Self::new(reason),
        }
    }
}

/// Reasons for which a workload is held.
const HOLDS: [&str; 2] = [quota_reserved::ADMISSION_GATED, quota_reserved::ON_HOLD];

impl ExplanationView {
    pub fn new(
        explanation: &Explanation,
        workload: &Workload,
        stores: &Stores,
        settings: &AssumedConfig,
    ) -> Self {
        let JobRow { namespace, job, kind, priority: _, state, created, .. } = row(workload);
        let queue =
            explanation.cluster_queue.as_ref().and_then(|name| stores.cluster_queues.get("", name));
        let status = workload.status.clone().unwrap_or_default();
        // For a waiting workload, what trying it would result in.
        let waits = matches!(
            explanation.reason,
            Some(Reason::Waiting { .. } | Reason::EquivalentFailed { .. })
        );
        let reason =
            if waits { explanation.solo_reason.as_ref() } else { explanation.reason.as_ref() };
        let recorded = recorded(workload);
        let gated = settings.config.enabled("AdmissionGatedBy");
        let reason =
            reason.map(|reason| ReasonView::of(reason, workload, recorded.as_ref(), gated));
        let mut view = Self {
            verdict: String::new(),
            change: None,
            trouble: trouble(workload),
            namespace,
            workload: workload.name_any(),
            uid: explanation.uid.to_string(),
            job: JobView { kind, name: job },
            priority: explanation.priority,
            local_queue: explanation.local_queue.name.to_string(),
            cluster_queue: explanation.cluster_queue.as_ref().map(ToString::to_string),
            cohort: queue
                .as_ref()
                .and_then(|queue| queue.spec.cohort_name.clone())
                .filter(|name| !name.is_empty()),
            created,
            state,
            outlook: explanation.outlook.name(),
            reason,
            recorded,
            local_queue_inactive: stores
                .local_queues
                .get(&explanation.local_queue.namespace, &explanation.local_queue.name)
                .and_then(|queue| closed(&queue)),
            cluster_queue_inactive: explanation
                .inactive
                .iter()
                .map(|cause| ReasonView {
                    reason: cause.reason.to_owned(),
                    message: cause.message.clone(),
                })
                .collect(),
            place: explanation.place.as_ref().map(PositionView::of),
            pod_sets: explanation.pod_sets.iter().map(PodSetView::new).collect(),
            victims: explanation.victims.iter().map(VictimView::new).collect(),
            placement: explanation
                .placement
                .as_ref()
                .map(|placement| PlacementView::new(placement, stores)),
            admission: AdmissionView::of(&status),
            admission_checks: CheckView::all(&status),
            dispatch: DispatchView::of(workload),
            clusters: clusters::of(workload, &explanation.pod_sets, queue.as_deref(), stores),
            settings: SettingsView {
                source: settings.source,
                fair_sharing: settings.config.fair_sharing.is_some(),
                admission_fair_sharing: settings.config.admission_fair_sharing.is_some(),
            },
            unknown: unknown::of(explanation, settings),
        };
        (view.verdict, view.change) = (verdict::verdict(&view), verdict::change(&view));
        view
    }
}

/// Why a LocalQueue is inactive, if it is.
fn closed(queue: &LocalQueue) -> Option<ReasonView> {
    let (reason, message) = match queue.spec.stop_policy {
        _ if queue.metadata.deletion_timestamp.is_some() => {
            ("Terminating", "it is being deleted".to_owned())
        }
        StopPolicy::None => return None,
        policy => ("Stopped", format!("its stopPolicy is {policy:?}")),
    };
    Some(ReasonView { reason: reason.to_owned(), message })
}

/// The condition that describes the state: finished, evicted or pending.
fn recorded(workload: &Workload) -> Option<RecordedView> {
    let all = &workload.status.as_ref()?.conditions;
    let holds = |condition| find(all, condition).filter(|found| found.status == conditions::TRUE);
    let waits =
        find(all, conditions::QUOTA_RESERVED).filter(|found| found.status != conditions::TRUE);
    let reserved = holds(conditions::QUOTA_RESERVED);
    let evicted = holds(conditions::EVICTED).filter(|_| reserved.is_some());
    let condition = holds(conditions::FINISHED).or(evicted).or(waits)?;
    Some(RecordedView {
        condition: condition.type_.clone(),
        reason: condition.reason.clone(),
        message: condition.message.clone(),
        since: condition.last_transition_time.0,
    })
}

fn trouble(workload: &Workload) -> Option<TroubleView> {
    let all = &workload.status.as_ref()?.conditions;
    let found =
        find(all, conditions::WORKER_TROUBLE).filter(|found| found.status == conditions::TRUE)?;
    let (reason, message) = (found.reason.clone(), found.message.clone());
    Some(TroubleView { reason, message, since: found.last_transition_time.0 })
}

impl PositionView {
    fn of(place: &QueuePosition) -> Self {
        let head = place.head.as_ref().map(|head| HeadView {
            workload: head.key.to_string(),
            priority: head.priority,
            reason: head.solo_reason.as_ref().map(ReasonView::new),
        });
        Self {
            position_in_cluster_queue: place.in_cluster_queue,
            pending_in_cluster_queue: place.of_cluster_queue,
            position_in_local_queue: place.in_local_queue,
            pending_in_local_queue: place.of_local_queue,
            queueing_strategy: if place.strict { "StrictFIFO" } else { "BestEffortFIFO" },
            head,
            backing_off_until: place
                .backing_off_until
                .map(switchyard_controller::engine::convert::time::wall_time),
        }
    }
}
