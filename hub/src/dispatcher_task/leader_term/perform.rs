//! Performs the dispatcher's decisions: sets assignments in clusters' channels, and starts API
//! writes in tasks of their own.

use std::sync::Arc;

use serde_json::Value;
use switchyard_api::v1beta2::{OtherFlavor, Workload};
use switchyard_controller::Reservation;
use switchyard_dispatcher::{
    DispatchAction, DispatchEvent, FlavorMismatch, Name, Observation, RequestedAssignment, Uid,
    WorkloadWrite, WriteOutcome, WriteResult,
};
use switchyard_platform::store::Key;
use switchyard_proto::v1::{Payload, Phase};
use switchyard_scheduler::{RefusedReason, WorkloadKey};
use tokio::time::Instant;

use super::LeaderTerm;
use crate::dispatcher_task::job_status::{self, JobStatus};
use crate::dispatcher_task::payload::PayloadError;
use crate::dispatcher_task::status_mirror_queue::MirrorWork;
use crate::dispatcher_task::workload_writes::{EndNote, PendingWrite, finish_reason};
use crate::dispatcher_task::{TaskResult, WriteContext, assignment, gather, payload, replicas};

/// The CRD's limit of `status.dispatch.otherFlavors`.
const MAX_OTHER_FLAVORS: usize = 64;

impl LeaderTerm {
    pub(super) fn apply(&mut self, event: DispatchEvent) {
        let actions = self.dispatcher.apply(event, self.clock.now());
        let mut refusals = Vec::new();
        for action in actions {
            self.perform(action, &mut refusals);
        }
        for (cluster, observation) in refusals {
            self.apply(DispatchEvent::Observed { cluster, observation });
        }
    }

    fn perform(&mut self, action: DispatchAction, refusals: &mut Vec<(Name, Observation)>) {
        match action {
            DispatchAction::Assign(wanted) => refusals.extend(self.assign(wanted)),
            DispatchAction::ForgetTombstone { cluster, uid, attempt } => {
                self.channels.of(&cluster).forget(&uid, attempt);
                let ours = self.dispatcher.hub_uid(&uid);
                self.observations.forget(&cluster, &ours);
            }
            DispatchAction::AcknowledgeEnd { cluster, uid, attempt } => {
                self.channels.of(&cluster).persisted(&uid, attempt)
            }
            DispatchAction::Write { uid, write } => self.perform_write(&uid, write),
            DispatchAction::ReturnReservation { uid, message, retry_at } => {
                if let Some(reservation) = self.reservations.remove(&uid) {
                    let retry_at = switchyard_scheduler::Time(retry_at.saturating_mul(1_000_000));
                    let reason =
                        RefusedReason::DispatchFailed { message, retry_at: Some(retry_at) };
                    self.refuse(&reservation, reason);
                    self.update_later_replicas(&reservation.workload);
                }
            }
            DispatchAction::Requeue { uid } => {
                if let Some(key) = self.active_keys.get(&uid) {
                    self.engine.retry(WorkloadKey {
                        namespace: key.namespace.clone(),
                        name: key.name.clone(),
                    });
                }
            }
            DispatchAction::ReservationPersisted { uid } => {
                if let Some(key) = self.active_keys.get(&uid) {
                    self.engine.preemption_failed(WorkloadKey {
                        namespace: key.namespace.clone(),
                        name: key.name.clone(),
                    });
                }
            }
            DispatchAction::MirrorStatus { uid, cluster, attempt } => {
                self.plan_status(&cluster, &uid, attempt)
            }
            DispatchAction::BreakerChanged { open } => {
                match &open {
                    Some(why) => tracing::error!(
                        why,
                        "circuit breaker open: nothing is given up until it is released"
                    ),
                    None => tracing::info!("circuit breaker closed"),
                }
                self.reports.set_breaker(self.dispatcher.breaker());
            }
            DispatchAction::OrphanFound { cluster, uid, attempt } => {
                if let Some(left_out) = self.may_log(&cluster) {
                    tracing::warn!(
                        %cluster, workload_uid = %uid, attempt, left_out,
                        "a workload with this hub's id is on a cluster, and the hub does not know it"
                    );
                }
            }
            DispatchAction::RejectAttempt { cluster, uid, attempt } => {
                if let Some(left_out) = self.may_log(&cluster) {
                    tracing::warn!(%cluster, workload_uid = %uid, attempt, left_out, "an attempt that no hub gave out");
                }
            }
        }
    }

    /// Starts a write. A release and an end wait until the job's last status is written.
    fn perform_write(&mut self, uid: &Uid, write: Arc<WorkloadWrite>) {
        match &*write {
            WorkloadWrite::Commit { cluster, attempt, adopts: Some(theirs), .. } => tracing::info!(
                %cluster, workload_uid = %uid, known_as = %theirs, attempt, "taking over what runs on a cluster"
            ),
            WorkloadWrite::Rename { from, cluster, attempt } => tracing::info!(
                %cluster, from = from.as_deref(), workload_uid = %uid, attempt,
                "what runs goes on under the cluster's other name"
            ),
            WorkloadWrite::Commit { .. }
            | WorkloadWrite::Record { .. }
            | WorkloadWrite::Retry { .. } => {}
            WorkloadWrite::Release => {
                if let Some(write) = self.prepare(uid, write, None) {
                    self.mirror_queue.release(write, Instant::now());
                }
                return;
            }
            WorkloadWrite::Finish { cluster, attempt, success } => {
                let (cluster, attempt, success) = (cluster.clone(), *attempt, *success);
                return self.finish(uid, write, &cluster, attempt, success);
            }
        }
        self.write(uid, write);
    }

    /// Sends an assignment, or returns its refusal. If the job was not read yet, an attempt that
    /// its cluster may run waits for it: watches may be apart.
    fn assign(&mut self, wanted: RequestedAssignment) -> Option<(Name, Observation)> {
        if self.unsent.get(&wanted.uid).is_some_and(|waiting| waiting.cluster == wanted.cluster) {
            self.unsent.remove(&wanted.uid);
        }
        let error = self.send_assignment(&wanted).err()?;
        let why = error.to_string();
        tracing::warn!(
            workload = %wanted.name, namespace = %wanted.namespace, cluster = %wanted.cluster, why,
            "cannot be sent"
        );
        if matches!(error, PayloadError::OwnerMissing { .. }) && wanted.phase != Phase::Reserve {
            self.unsent.insert(wanted.uid.clone(), wanted);
            return None;
        }
        let observation = Observation::unsent(&wanted, why);
        Some((wanted.cluster, observation))
    }

    /// The workload or its job changed: sends what waited for the job. The assignment may be older
    /// than the workload, which took over the copy of the slice that it replaces.
    pub(super) fn send_unsent(&mut self, workload: &Workload, uid: &Uid) {
        if self.dispatcher.has_successor(uid) {
            return;
        }
        let Some(waiting) = self.unsent.remove(&self.dispatcher.cluster_uid(uid)) else { return };
        let to = (waiting.cluster.clone(), waiting.attempt);
        let name = Name::from(workload.metadata.name.as_deref().unwrap_or_default());
        if self.dispatcher.committed(uid).is_some_and(|committed| committed == to)
            && let Some((cluster, observation)) =
                self.assign(RequestedAssignment { name, ..waiting })
        {
            self.apply(DispatchEvent::Observed { cluster, observation });
        }
    }

    fn send_assignment(&self, wanted: &RequestedAssignment) -> Result<(), PayloadError> {
        let RequestedAssignment { cluster, uid: theirs, namespace, name, .. } = wanted;
        let (attempt, phase) = (wanted.attempt, wanted.phase);
        let channel = self.channels.of(cluster);
        let uid = &self.dispatcher.hub_uid(theirs);
        let fence = self.dispatcher.fence(uid, cluster);
        if phase == Phase::Absent {
            let tombstone = assignment(theirs, namespace, name, attempt, phase, None, None);
            channel.set(tombstone, None);
            return Ok(());
        }
        let workload = self.ctx.stores.workloads.get(namespace, name);
        let workload = workload.filter(|workload| workload.metadata.uid.as_deref() == Some(uid));
        let workload = workload.ok_or(PayloadError::WorkloadMissing)?;
        let known = channel.payload(theirs).filter(|_| {
            channel.attempt(theirs) == Some(attempt) || !payload::may_shrink(&workload)
        });
        let content = known.map_or_else(
            || assignment::build_payload(&self.ctx, &workload, self.held(&workload)),
            Ok,
        );
        let content = content?;
        let priority = assignment::priority(&workload);
        // An adopted copy keeps the name of the workload that it was created for.
        let named = channel.name(theirs, attempt).unwrap_or_else(|| name.to_string());
        let assignment =
            assignment(theirs, namespace, &named, attempt, phase, Some(priority), fence);
        let assignment =
            assignment::with_preemption_gate(assignment, self.dispatcher.gate(uid, cluster));
        let assignment =
            assignment::with_flavor_pins(assignment, &self.dispatcher.flavor_pins(uid, cluster));
        if phase == Phase::Reserve && channel.attempt(theirs) != Some(attempt) {
            let held = self
                .reservations
                .get(uid)
                .map(|reservation| reservation.admission.cluster_queue.as_str());
            let queue = held
                .or(switchyard_controller::workload::admitted_by(&workload))
                .unwrap_or_default();
            self.writer.metrics.dispatched(queue, cluster);
        }
        channel.set(assignment, Some(content));
        Ok(())
    }

    /// Plans to show the remote job's status. The first replica's status covers the pods of all
    /// replicas.
    fn plan_status(&mut self, cluster: &Name, uid: &Uid, attempt: u64) {
        let Some(status) =
            self.observations.get(cluster, uid, attempt).and_then(|told| told.job_status.clone())
        else {
            return;
        };
        let stores = &self.ctx.stores;
        let workload = self.active_keys.get(uid).and_then(|key| stores.workloads.by_key(key));
        for follower in
            workload.map(|workload| replicas::later_replicas(stores, &workload)).unwrap_or_default()
        {
            if let Some(follower) = follower.metadata.uid.as_deref() {
                self.show_on_later_replica(&Uid::from(follower), cluster, &status);
            }
        }
        self.mirror_queue.plan_status(uid, status, Instant::now());
    }

    /// Shows a later replica the status of the first one, if both are on the same cluster.
    fn show_on_later_replica(&mut self, follower: &Uid, cluster: &Name, status: &Arc<Value>) {
        if self.dispatcher.committed(follower).is_some_and(|(there, _)| there == *cluster) {
            self.mirror_queue.plan_status(follower, status.clone(), Instant::now());
        }
    }

    /// Shows pods that joined a group after it was sent the status of their copies.
    pub(super) fn show_group_members(&mut self, workload: &Workload, uid: &Uid) {
        let Some((cluster, attempt)) = self.dispatcher.committed(uid) else { return };
        match replicas::first_replica(&self.ctx.stores, workload)
            .and_then(|first| first.metadata.uid.clone())
        {
            None => self.plan_status(&cluster, uid, attempt),
            Some(first) => {
                self.show_first_replica_status(uid, &cluster, &Uid::from(first.as_str()))
            }
        }
    }

    /// Sends changes of a running job after it: new pods of a group, another number of replicas or
    /// pods, and other fields that its kind propagates.
    pub(super) fn propagate_spec(&self, workload: &Workload, uid: &Uid) {
        let Some((cluster, _)) = self.dispatcher.committed(uid) else { return };
        let (channel, theirs) = (self.channels.of(&cluster), self.dispatcher.cluster_uid(uid));
        let Some(known) = channel.payload(&theirs) else { return };
        // If the job has no pods left, keep the payload: the Workload's deletion follows.
        let Ok(now) = assignment::build_payload(&self.ctx, workload, self.held(workload)) else {
            return;
        };
        if payload::needs_update(&known.job, &now.job)
            && payload::has_workload_size(workload, &now.job)
        {
            channel.replace_payload(
                &theirs,
                Arc::new(Payload::new(known.workload.clone(), now.job.clone())),
            );
        }
    }

    fn show_first_replica_status(&mut self, uid: &Uid, cluster: &Name, first: &Uid) {
        let Some((there, attempt)) = self.dispatcher.committed(first) else { return };
        let told =
            self.observations.get(&there, first, attempt).and_then(|told| told.job_status.clone());
        if let Some(status) = told.filter(|_| there == *cluster) {
            self.show_on_later_replica(uid, cluster, &status);
        }
    }

    fn write(&self, uid: &Uid, what: Arc<WorkloadWrite>) {
        let Some(write) = self.prepare(uid, what, None) else { return };
        let (writer, epoch) = (self.writer.clone(), self.epoch);
        tokio::spawn(async move {
            let Ok(_permit) = writer.permits.acquire().await else { return };
            let written = write.perform(&writer.ctx, &writer.metrics).await;
            // The receiver is gone at shutdown only.
            let _ = writer.results.send((epoch, TaskResult::Written(written))).await;
        });
    }

    fn prepare(
        &self,
        uid: &Uid,
        what: Arc<WorkloadWrite>,
        end: Option<EndNote>,
    ) -> Option<PendingWrite> {
        let key = self.active_keys.get(uid)?.clone();
        Some(PendingWrite {
            key,
            uid: uid.clone(),
            reservation: self.reservations.get(uid).cloned(),
            other_flavors: self.other_flavors(uid, &what),
            decided: Instant::now(),
            what,
            end,
        })
    }

    /// The flavors that differ from the charge on the cluster that a write commits.
    fn other_flavors(&self, uid: &Uid, what: &WorkloadWrite) -> Vec<OtherFlavor> {
        let WorkloadWrite::Commit { cluster, adopts, .. } = what else { return Vec::new() };
        if let Some(replaced) = adopts.as_ref().and_then(|_| self.replaced(uid)) {
            // The slice takes over the copy with its quota.
            let dispatch = replaced.status.as_ref().and_then(|status| status.dispatch.as_ref());
            return dispatch.map(|it| it.other_flavors.clone()).unwrap_or_default();
        }
        let other = |FlavorMismatch { pod_set, resource, pin, used }| OtherFlavor {
            pod_set,
            resource,
            charged: pin,
            used,
        };
        let mismatches = self.dispatcher.flavor_mismatches(uid, cluster).into_iter();
        mismatches.map(other).take(MAX_OTHER_FLAVORS).collect()
    }

    /// The workload slice that this one replaces.
    fn replaced(&self, uid: &Uid) -> Option<Arc<Workload>> {
        let key = self.active_keys.get(uid)?;
        gather::replaced(&self.ctx, self.ctx.stores.workloads.by_key(key)?.as_ref())
    }

    fn finish(
        &mut self,
        uid: &Uid,
        what: Arc<WorkloadWrite>,
        cluster: &Name,
        attempt: u64,
        success: bool,
    ) {
        let told = self.observations.get(cluster, uid, attempt);
        let reason = told.and_then(|told| told.reason.clone());
        let code = finish_reason(success, reason.as_ref().map(|reason| reason.code.as_str()));
        let message = reason.map_or_else(|| "Job finished".to_owned(), |reason| reason.message);
        let status = told.and_then(|told| told.job_status.clone());
        let end = EndNote { reason: code.to_owned(), message };
        if let Some(write) = self.prepare(uid, what, Some(end)) {
            self.mirror_queue.finish(write, status, Instant::now());
        }
    }

    pub(super) fn start_due_writes(&mut self) {
        self.start_trouble_writes();
        for work in self.mirror_queue.take(Instant::now()) {
            let (writer, epoch) = (self.writer.clone(), self.epoch);
            let key = self.active_keys.get(&work.uid).cloned();
            tokio::spawn(async move {
                let Ok(_permit) = writer.permits.acquire().await else { return };
                let answer = show_status(&writer, key, work).await;
                let _ = writer.results.send((epoch, answer)).await;
            });
        }
    }

    pub(super) fn refuse(&self, reservation: &Reservation, reason: RefusedReason) {
        let metadata = &reservation.workload.metadata;
        let text = |text: &Option<String>| Name::from(text.as_deref().unwrap_or_default());
        let key = WorkloadKey { namespace: text(&metadata.namespace), name: text(&metadata.name) };
        self.engine.refuse(key, reservation.cycle, reason);
    }
}

/// Writes a status, then the end. The end is never written before its status.
async fn show_status(writer: &WriteContext, key: Option<Key>, work: MirrorWork) -> TaskResult {
    let ctx = &writer.ctx;
    let MirrorWork { uid, show, finish } = work;
    let workload = key.as_ref().and_then(|key| ctx.stores.workloads.by_key(key));
    let workload = workload.filter(|workload| workload.metadata.uid.as_deref() == Some(&*uid));
    if let (Some(what), Some(workload)) = (&show, &workload)
        && let Err(error) = job_status::write_job_status(ctx, workload, what).await
    {
        tracing::warn!(workload = ?key, error = format!("{error:#}"), "job status not written");
        // The dispatcher asks for the end again. Other statuses are retried.
        let written = finish.map(|write| WriteResult {
            uid: write.uid,
            outcome: WriteOutcome::Failed,
            facts: None,
        });
        let unshown = if written.is_some() { None } else { show };
        return TaskResult::StatusShown { uid, unshown, written };
    }
    let written = match finish {
        Some(write) => Some(write.perform(ctx, &writer.metrics).await),
        None => None,
    };
    TaskResult::StatusShown { uid, unshown: None::<JobStatus>, written }
}
