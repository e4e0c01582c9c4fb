//! An explanation as programs read it. Fields are only ever added.

use jiff::Timestamp;
use kube::ResourceExt as _;
use serde::Serialize;
use switchyard_api::conditions::{self, find, reasons::quota_reserved};
use switchyard_api::v1beta2::{LocalQueue, StopPolicy, Workload};
use switchyard_controller::stores::Stores;
use switchyard_controller::workload::admission_gates;
use switchyard_scheduler::{Explanation, Place, Reason};

use super::clusters::{self, ClusterView};
use super::placed::{AdmissionView, CheckView, DispatchView};
use super::quota::{PodSetView, VictimView};
use super::settings::{Settings, Source};
use super::{unknown, verdict};
use crate::status::{Row, State, row};

/// Why a workload waits, or where it is.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct View {
    /// Its outlook as things are, in a sentence.
    pub verdict: String,
    /// The change that lets its job start.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub change: Option<String>,
    /// Its trouble on the cluster that it was sent to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trouble: Option<TroubleView>,
    /// Its namespace.
    pub namespace: String,
    /// The Workload.
    pub workload: String,
    /// Its uid.
    pub uid: String,
    /// The job that it is of.
    pub job: JobView,
    /// Its effective priority.
    pub priority: i32,
    /// Its LocalQueue.
    pub local_queue: String,
    /// The ClusterQueue behind it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster_queue: Option<String>,
    /// That one's Cohort.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cohort: Option<String>,
    /// When it was created.
    pub created: Option<Timestamp>,
    /// What it does, as `switchyard status` shows it.
    pub state: State,
    /// What becomes of it as things are: `Finished`, `Admitted`, `QuotaReserved`, `NotTried`, `Fits`, `Preempts` or
    /// `Blocked`.
    pub outlook: &'static str,
    /// Why it has no quota, worked out from the lists; absent if it has, or would get it if it were its turn.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<ReasonView>,
    /// What the controller has written about that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recorded: Option<RecordedView>,
    /// What keeps the LocalQueue from letting workloads in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub local_queue_inactive: Option<ReasonView>,
    /// Everything that keeps the ClusterQueue from admitting.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub cluster_queue_inactive: Vec<ReasonView>,
    /// Where it stands among those that wait.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub place: Option<PlaceView>,
    /// What each pod set asks for and what there is.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub pod_sets: Vec<PodSetView>,
    /// Who would be preempted for it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub victims: Vec<VictimView>,
    /// The quota that it holds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub admission: Option<AdmissionView>,
    /// Its admission checks.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub admission_checks: Vec<CheckView>,
    /// Its way to a worker cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dispatch: Option<DispatchView>,
    /// The worker clusters of its ClusterQueue, where rules or costs make a difference between them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub clusters: Vec<ClusterView>,
    /// How the controller is taken to decide.
    pub settings: SettingsView,
    /// What could make it otherwise and cannot be seen from here.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unknown: Vec<String>,
}

/// A job.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct JobView {
    /// Its kind; `Workload` where there is no job.
    pub kind: String,
    /// Its name.
    pub name: String,
}

/// A reason and what it says, in Kueue's words.
#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ReasonView {
    /// The reason of the condition.
    pub reason: String,
    /// Its message.
    pub message: String,
}

/// The trouble of a job on its worker cluster.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TroubleView {
    /// The reason of the condition `WorkerTrouble`.
    pub reason: String,
    /// Its message.
    pub message: String,
    /// Since when.
    pub since: Timestamp,
}

/// What the controller has written.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RecordedView {
    /// The condition it is from.
    pub condition: String,
    /// Its reason.
    pub reason: String,
    /// Its message.
    pub message: String,
    /// Since when.
    pub since: Timestamp,
}

/// A place in the queue.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PlaceView {
    /// From 0, as the visibility API counts.
    pub position_in_cluster_queue: usize,
    /// How many wait there.
    pub pending_in_cluster_queue: usize,
    /// From 0.
    pub position_in_local_queue: usize,
    /// How many wait there.
    pub pending_in_local_queue: usize,
    /// `StrictFIFO` or `BestEffortFIFO`.
    pub queueing_strategy: &'static str,
    /// The head that it waits behind.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub head: Option<HeadView>,
    /// It may not come back before this.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backing_off_until: Option<Timestamp>,
}

/// The workload that is first.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct HeadView {
    /// `namespace/name`.
    pub workload: String,
    /// Its priority.
    pub priority: i32,
    /// Why it would not be admitted now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<ReasonView>,
}

/// How the controller is taken to decide.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SettingsView {
    /// Where that is from.
    pub source: Source,
    /// Shares count.
    pub fair_sharing: bool,
    /// Past use of LocalQueues counts.
    pub admission_fair_sharing: bool,
}

impl ReasonView {
    fn new(reason: &Reason) -> Self {
        Self { reason: reason.condition_reason().to_owned(), message: reason.message() }
    }

    /// The engine knows that a workload is held, and the workload itself by what.
    /// `gated`: annotations hold workloads back.
    fn of(
        reason: &Reason,
        workload: &Workload,
        recorded: Option<&RecordedView>,
        gated: bool,
    ) -> Self {
        let recorded = recorded.filter(|it| HOLDS.contains(&it.reason.as_str()));
        match (reason, admission_gates(workload).filter(|_| gated), recorded) {
            (Reason::Held, _, Some(recorded)) => {
                Self { reason: recorded.reason.clone(), message: recorded.message.clone() }
            }
            (Reason::Held, Some(gates), None) => Self {
                reason: quota_reserved::ADMISSION_GATED.to_owned(),
                message: format!("Admission is gated by: {gates}"),
            },
            _ => Self::new(reason),
        }
    }
}

/// Reasons for which a workload is not queued.
const HOLDS: [&str; 2] = [quota_reserved::ADMISSION_GATED, quota_reserved::ON_HOLD];

impl View {
    /// What is shown of an explanation.
    pub fn new(
        explanation: &Explanation,
        workload: &Workload,
        stores: &Stores,
        settings: &Settings,
    ) -> Self {
        let Row { namespace, job, kind, priority: _, state, created, .. } = row(workload);
        let queue =
            explanation.cluster_queue.as_ref().and_then(|name| stores.cluster_queues.get("", name));
        let status = workload.status.clone().unwrap_or_default();
        // If it is its turn, what trying it comes to; otherwise why it is not tried.
        let waits = matches!(
            explanation.reason,
            Some(Reason::Waiting { .. } | Reason::EquivalentFailed { .. })
        );
        let reason = if waits { explanation.alone.as_ref() } else { explanation.reason.as_ref() };
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
            place: explanation.place.as_ref().map(PlaceView::of),
            pod_sets: explanation.pod_sets.iter().map(PodSetView::new).collect(),
            victims: explanation.victims.iter().map(VictimView::new).collect(),
            admission: AdmissionView::of(&status),
            admission_checks: CheckView::all(&status),
            dispatch: DispatchView::of(workload),
            clusters: clusters::of(workload, queue.as_deref(), stores),
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

/// Why a LocalQueue is closed, if it is.
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

/// The condition that says how the workload stands: that it ended, must go, or waits.
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

/// The trouble that the Workload's condition shows.
fn trouble(workload: &Workload) -> Option<TroubleView> {
    let all = &workload.status.as_ref()?.conditions;
    let found =
        find(all, conditions::WORKER_TROUBLE).filter(|found| found.status == conditions::TRUE)?;
    let (reason, message) = (found.reason.clone(), found.message.clone());
    Some(TroubleView { reason, message, since: found.last_transition_time.0 })
}

impl PlaceView {
    fn of(place: &Place) -> Self {
        let head = place.head.as_ref().map(|head| HeadView {
            workload: head.key.to_string(),
            priority: head.priority,
            reason: head.alone.as_ref().map(ReasonView::new),
        });
        Self {
            position_in_cluster_queue: place.in_cluster_queue,
            pending_in_cluster_queue: place.of_cluster_queue,
            position_in_local_queue: place.in_local_queue,
            pending_in_local_queue: place.of_local_queue,
            queueing_strategy: if place.strict { "StrictFIFO" } else { "BestEffortFIFO" },
            head,
            backing_off_until: place.backing_off_until.map(switchyard_controller::clock::wall_time),
        }
    }
}
