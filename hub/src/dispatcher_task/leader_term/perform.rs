//! What the dispatcher wants done, done: wishes to clusters' ports, writes to the API in tasks of their own.

use std::sync::Arc;

use serde_json::Value;
use switchyard_api::v1beta2::Workload;
use switchyard_controller::store::Key;
use switchyard_dispatcher::{
    CANNOT_SEND, DispatchAction, DispatchEvent, Name, Observation, Reason, Uid, WorkloadWrite,
    WriteOutcome, WriteResult,
};
use switchyard_proto::v1::{Phase, State};
use switchyard_scheduler::{RefusedReason, WorkloadKey};
use tokio::time::Instant;

use super::TermState;
use crate::cluster_channel::Content;
use crate::dispatcher_task::mirror::{self, Show};
use crate::dispatcher_task::status_mirror_queue::Work;
use crate::dispatcher_task::writes::{EndNote, Write, finish_reason};
use crate::dispatcher_task::{Answer, Hands, assignment, payload, replicas};

impl TermState {
    pub(super) fn apply(&mut self, event: DispatchEvent) {
        let actions = self.dispatcher.apply(event, self.clock.now());
        let mut refusals = Vec::new();
        for action in actions {
            self.act(action, &mut refusals);
        }
        // What could not even be sent is as good as refused by the cluster.
        for (cluster, observation) in refusals {
            self.apply(DispatchEvent::Observed { cluster, observation });
        }
    }

    fn act(&mut self, action: DispatchAction, refusals: &mut Vec<(Name, Observation)>) {
        match action {
            DispatchAction::Assign { cluster, uid, namespace, name, attempt, phase } => {
                if let Err(why) = self.desire(&cluster, &uid, (&namespace, &name), attempt, phase) {
                    tracing::warn!(workload = %name, %namespace, %cluster, why, "cannot be sent");
                    let reasons = vec![Reason::new(CANNOT_SEND, why)];
                    let state = State::Refused;
                    let (job_status, origin, gate) = (false, None, None);
                    let observation = Observation {
                        uid,
                        namespace,
                        name,
                        attempt,
                        state,
                        reasons,
                        job_status,
                        origin,
                        gate,
                    };
                    refusals.push((cluster, observation));
                }
            }
            DispatchAction::ForgetTombstone { cluster, uid, attempt } => {
                self.ports.of(&cluster).forget(&uid, attempt);
                let ours = self.dispatcher.hub_uid(&uid);
                self.told.forget(&cluster, &ours);
            }
            DispatchAction::AcknowledgeEnd { cluster, uid, attempt } => {
                self.ports.of(&cluster).persisted(&uid, attempt)
            }
            DispatchAction::Write { uid, write } => self.perform_write(&uid, write),
            DispatchAction::ReturnReservation { uid, message, retry_at } => {
                if let Some(reservation) = self.reservations.remove(&uid) {
                    let retry_at = switchyard_scheduler::Time(retry_at.saturating_mul(1_000_000));
                    let reason =
                        RefusedReason::DispatchFailed { message, retry_at: Some(retry_at) };
                    self.refuse(&reservation.workload, reason);
                    self.followers(&reservation.workload);
                }
            }
            DispatchAction::Requeue { uid } => {
                if let Some(key) = self.places.get(&uid) {
                    self.engine.retry(WorkloadKey {
                        namespace: key.namespace.clone(),
                        name: key.name.clone(),
                    });
                }
            }
            DispatchAction::ReservationPersisted { uid } => {
                if let Some(key) = self.places.get(&uid) {
                    self.engine.preemption_failed(WorkloadKey {
                        namespace: key.namespace.clone(),
                        name: key.name.clone(),
                    });
                }
            }
            DispatchAction::MirrorStatus { uid, cluster, attempt } => {
                self.show(&cluster, &uid, attempt)
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

    /// Starts a write. A release and an end wait until the job's last status is shown.
    fn perform_write(&mut self, uid: &Uid, write: Arc<WorkloadWrite>) {
        match &*write {
            WorkloadWrite::Commit { cluster, attempt, adopts: Some(theirs) } => tracing::info!(
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
                    self.slots.release(write, Instant::now());
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

    fn desire(
        &self,
        cluster: &Name,
        theirs: &Uid,
        (namespace, name): (&Name, &Name),
        attempt: u64,
        phase: Phase,
    ) -> Result<(), String> {
        let port = self.ports.of(cluster);
        let uid = &self.dispatcher.hub_uid(theirs);
        let fence = self.dispatcher.fence(uid, cluster);
        if phase == Phase::Absent {
            let tombstone = assignment(theirs, namespace, name, attempt, phase, None, None);
            port.set(tombstone, None);
            return Ok(());
        }
        let workload = self.ctx.stores.workloads.get(namespace, name);
        let workload = workload.filter(|workload| workload.metadata.uid.as_deref() == Some(uid));
        let workload = workload.ok_or("the workload is gone")?;
        let known = port
            .content(theirs)
            .filter(|_| port.attempt(theirs) == Some(attempt) || !payload::may_shrink(&workload));
        let content = known
            .map_or_else(|| assignment::made_of(&self.ctx, &workload, self.held(&workload)), Ok);
        let content = content.map_err(|error| error.to_string())?;
        let priority = assignment::priority(&workload);
        // That of the content, which was made for the workload whose copy it was.
        let named = port.name(theirs, attempt).unwrap_or_else(|| name.to_string());
        let assignment =
            assignment(theirs, namespace, &named, attempt, phase, Some(priority), fence);
        let assignment = assignment::gated(assignment, self.dispatcher.gate(uid, cluster));
        if phase == Phase::Reserve && port.attempt(theirs) != Some(attempt) {
            let held = self
                .reservations
                .get(uid)
                .map(|reservation| reservation.admission.cluster_queue.as_str());
            let queue = held
                .or(switchyard_controller::workload::admitted_by(&workload))
                .unwrap_or_default();
            self.hands.metrics.dispatched(queue, cluster);
        }
        port.set(assignment, Some(content));
        Ok(())
    }

    /// Shows how the job stands there, soon, if its cluster has told. What is told of an object is told with its first
    /// replica, of the pods of all.
    fn show(&mut self, cluster: &Name, uid: &Uid, attempt: u64) {
        let Some(status) =
            self.told.get(cluster, uid, attempt).and_then(|told| told.job_status.clone())
        else {
            return;
        };
        let stores = &self.ctx.stores;
        let workload = self.places.get(uid).and_then(|key| stores.workloads.by_key(key));
        for follower in
            workload.map(|workload| replicas::followers_of(stores, &workload)).unwrap_or_default()
        {
            if let Some(follower) = follower.metadata.uid.as_deref() {
                self.show_with(&Uid::from(follower), cluster, &status);
            }
        }
        self.slots.status(uid, status, Instant::now());
    }

    /// Shows a later replica what was told with the first, if it is on the same cluster.
    fn show_with(&mut self, follower: &Uid, cluster: &Name, status: &Arc<Value>) {
        if self.dispatcher.committed(follower).is_some_and(|(there, _)| there == *cluster) {
            self.slots.status(follower, status.clone(), Instant::now());
        }
    }

    /// Pods that come to a group after it was sent show what is known of them there.
    pub(super) fn show_members(&mut self, workload: &Workload, uid: &Uid) {
        let Some((cluster, attempt)) = self.dispatcher.committed(uid) else { return };
        match replicas::first_of(&self.ctx.stores, workload)
            .and_then(|first| first.metadata.uid.clone())
        {
            None => self.show(&cluster, uid, attempt),
            Some(first) => self.show_as_first(uid, &cluster, &Uid::from(first.as_str())),
        }
    }

    /// What comes to a group after it was sent goes after the others; so does another number of an object's replicas or of an
    /// elastic job's pods, and what else its kind has follow.
    pub(super) fn follow_job(&self, workload: &Workload, uid: &Uid) {
        let Some((cluster, _)) = self.dispatcher.committed(uid) else { return };
        let (port, theirs) = (self.ports.of(&cluster), self.dispatcher.cluster_uid(uid));
        let Some(known) = port.content(&theirs) else { return };
        // That none of them is there any more is not for the cluster to know before its Workload goes.
        let Ok(now) = assignment::made_of(&self.ctx, workload, self.held(workload)) else { return };
        if payload::has_changed(&known.job, &now.job) && payload::is_of_its_size(workload, &now.job)
        {
            port.exchange(&theirs, Arc::new(Content::new(known.workload.clone(), now.job.clone())));
        }
    }

    fn show_as_first(&mut self, uid: &Uid, cluster: &Name, first: &Uid) {
        let Some((there, attempt)) = self.dispatcher.committed(first) else { return };
        let told = self.told.get(&there, first, attempt).and_then(|told| told.job_status.clone());
        if let Some(status) = told.filter(|_| there == *cluster) {
            self.show_with(uid, cluster, &status);
        }
    }

    fn write(&self, uid: &Uid, what: Arc<WorkloadWrite>) {
        let Some(write) = self.prepare(uid, what, None) else { return };
        let (hands, epoch) = (self.hands.clone(), self.epoch);
        tokio::spawn(async move {
            let Ok(_place) = hands.writers.acquire().await else { return };
            let written = write.perform(&hands.ctx, &hands.metrics).await;
            // Nobody listens any more at shutdown only.
            let _ = hands.answers.send((epoch, Answer::Written(written))).await;
        });
    }

    fn prepare(&self, uid: &Uid, what: Arc<WorkloadWrite>, end: Option<EndNote>) -> Option<Write> {
        let key = self.places.get(uid)?.clone();
        Some(Write {
            key,
            uid: uid.clone(),
            reservation: self.reservations.get(uid).cloned(),
            what,
            end,
        })
    }

    fn finish(
        &mut self,
        uid: &Uid,
        what: Arc<WorkloadWrite>,
        cluster: &Name,
        attempt: u64,
        success: bool,
    ) {
        let told = self.told.get(cluster, uid, attempt);
        let reason = told.and_then(|told| told.reason.clone());
        let code = finish_reason(success, reason.as_ref().map(|reason| reason.code.as_str()));
        let message = reason.map_or_else(|| "Job finished".to_owned(), |reason| reason.message);
        let status = told.and_then(|told| told.job_status.clone());
        let end = EndNote { reason: code.to_owned(), message };
        if let Some(write) = self.prepare(uid, what, Some(end)) {
            self.slots.finish(write, status, Instant::now());
        }
    }

    pub(super) fn start_slots(&mut self) {
        self.start_trouble_writes();
        for work in self.slots.take(Instant::now()) {
            let (hands, epoch) = (self.hands.clone(), self.epoch);
            let key = self.places.get(&work.uid).cloned();
            tokio::spawn(async move {
                let Ok(_place) = hands.writers.acquire().await else { return };
                let answer = show(&hands, key, work).await;
                let _ = hands.answers.send((epoch, answer)).await;
            });
        }
    }

    pub(super) fn refuse(&self, workload: &Workload, reason: RefusedReason) {
        let text = |text: &Option<String>| Name::from(text.as_deref().unwrap_or_default());
        let key = WorkloadKey {
            namespace: text(&workload.metadata.namespace),
            name: text(&workload.metadata.name),
        };
        self.engine.refuse(key, text(&workload.metadata.uid), reason);
    }
}

/// Shows a status, then writes the end. An end is never written before its status is shown.
async fn show(hands: &Hands, key: Option<Key>, work: Work) -> Answer {
    let ctx = &hands.ctx;
    let Work { uid, show, finish } = work;
    let workload = key.as_ref().and_then(|key| ctx.stores.workloads.by_key(key));
    let workload = workload.filter(|workload| workload.metadata.uid.as_deref() == Some(&*uid));
    if let (Some(what), Some(workload)) = (&show, &workload)
        && let Err(error) = mirror::show(ctx, workload, what).await
    {
        tracing::warn!(workload = ?key, error = format!("{error:#}"), "job status not written");
        // The dispatcher asks for the end again; what is shown on the way is shown later.
        let written = finish.map(|write| WriteResult {
            uid: write.uid,
            outcome: WriteOutcome::Failed,
            facts: None,
        });
        let unshown = if written.is_some() { None } else { show };
        return Answer::Shown { uid, unshown, written };
    }
    let written = match finish {
        Some(write) => Some(write.perform(ctx, &hands.metrics).await),
        None => None,
    };
    Answer::Shown { uid, unshown: None::<Show>, written }
}
