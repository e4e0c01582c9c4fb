//! Performs the writes of decisions.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use switchyard_api::{
    conditions::{
        self,
        reasons::{events, quota_reserved},
    },
    v1beta2::Workload,
};
use tokio::time::Instant;

use super::{Admitter, Numbered, PendingWrite, Preempt, build, reasons};
use crate::{
    context::patch_status,
    engine::convert::{self, workload_key},
    workload::{self, Edit, Evicted},
};
use switchyard_platform::write::WriteError;
use switchyard_platform::{store::Key, work_queue::Outcome};

/// Upper bound in milliseconds of the measured duration of a reason's write.
const SLOWEST_REASON: u64 = 1000;

impl Admitter {
    pub(super) async fn write(&self, key: Key) -> Outcome {
        let pending = self.pending_writes.lock().by_key.get(&key).cloned();
        let Some(Numbered { number, job, unwritten_cycle }) = pending else {
            return Outcome::Done;
        };
        let outcome = match job {
            PendingWrite::Reserve(reserve) => {
                self.write_reservation(&key, &reserve).await;
                Outcome::Done
            }
            PendingWrite::Pending { uid, reason, requests } => match self.current(&key, &uid) {
                Some(current) => {
                    let edit =
                        build::pending_status(self.ctx.edit_of_quota(&current), &reason, &requests);
                    self.write_pending(&key, &current, reason.condition_reason(), edit).await
                }
                None => Outcome::Done,
            },
            PendingWrite::Preempt(preempt) => match self.current(&key, &preempt.uid) {
                Some(current) => self.preempt(&key, &current, &preempt, unwritten_cycle).await,
                None => Outcome::Done,
            },
            PendingWrite::Reassign { uid, admission } => match self.current(&key, &uid) {
                Some(current) => self.reassign(&key, &current, &admission).await,
                None => Outcome::Done,
            },
            PendingWrite::Evict { uid, nodes } => match self.current(&key, &uid) {
                Some(current) => self.evict_from_nodes(&key, &current, &nodes).await,
                None => Outcome::Done,
            },
            PendingWrite::Migrate { uid, to_uid } => match self.current(&key, &uid) {
                Some(current) => self.migrate(&key, &current, &to_uid, unwritten_cycle).await,
                None => Outcome::Done,
            },
        };
        if outcome == Outcome::Done {
            self.pending_writes.lock().remove(&key, number);
        }
        self.drained.notify_one();
        outcome
    }

    pub(super) fn current(&self, key: &Key, uid: &str) -> Option<Arc<Workload>> {
        self.ctx
            .stores
            .workloads
            .by_key(key)
            .filter(|workload| workload.metadata.uid.as_deref() == Some(uid))
    }

    async fn write_pending(
        &self,
        key: &Key,
        current: &Workload,
        engines: &'static str,
        edit: Edit,
    ) -> Outcome {
        if !self.ctx.is_admissible(current) {
            return Outcome::Done;
        }
        let reason = |workload: &Workload| {
            workload::condition(workload, conditions::QUOTA_RESERVED)
                .map(|c| (c.reason.clone(), c.message.clone()))
        };
        let next = conditions::find(&edit.status.conditions, conditions::QUOTA_RESERVED);
        let next = next.map(|c| (c.reason.clone(), c.message.clone()));
        let before = reason(current);
        if let (Some((old, _)), Some((new, _))) = (&before, &next)
            && old == new
            && self.last_reasons.lock().get(key).is_some_and(|(_, told)| *told == engines)
            && let Some(left) = self.too_soon(key)
        {
            return Outcome::Requeue(left);
        }
        let began = Instant::now();
        let written = patch_status(&self.ctx, current, &edit.status, "pending").await;
        let took = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.reason_took.store(took.min(SLOWEST_REASON), Ordering::Relaxed);
        match written {
            Ok(None) | Err(WriteError::Gone | WriteError::NotLeading) => Outcome::Done,
            Ok(Some(after)) => {
                self.last_reasons.lock().insert(key.clone(), (Instant::now(), engines));
                // As in Kueue, waiting for the pods of other workloads causes no event.
                let quiet = engines == quota_reserved::WAITING_FOR_PODS_READY;
                if let Some((reason, message)) =
                    next.filter(|next| !quiet && before.as_ref() != Some(next))
                {
                    self.ctx.events.warning(&after, &reason, message);
                }
                Outcome::Done
            }
            Err(WriteError::Conflict) => Outcome::Failed,
            Err(error) => {
                tracing::warn!(workload = %key, %error, "reason for waiting not written");
                Outcome::Failed
            }
        }
    }

    #[tracing::instrument(name = "preemption", skip_all, fields(workload = %key))]
    async fn preempt(
        &self,
        key: &Key,
        current: &Workload,
        preempt: &Preempt,
        unwritten_cycle: Option<u64>,
    ) -> Outcome {
        let Some(cluster_queue) = workload::admitted_by(current).map(str::to_owned) else {
            let message = "preempted before its reservation was written";
            self.end_unwritten(key, &preempt.uid, unwritten_cycle, message);
            return Outcome::Done;
        };
        if workload::is_evicted(current) || workload::is_finished(current) {
            return Outcome::Done;
        }
        let decided =
            build::preempted_status(self.ctx.edit(current), preempt.reason, &preempt.message);
        self.evict(key, current, &cluster_queue, "preemption", decided, |after| {
            self.ctx.metrics.preempted(&preempt.preemptor.cluster_queue, preempt.reason);
            self.announce_preemption(after, &cluster_queue, preempt);
        })
        .await
    }

    /// Ends a reservation that the API does not show, so that there is nothing to evict. The engine
    /// takes the quota back.
    fn end_unwritten(&self, key: &Key, uid: &str, cycle: Option<u64>, message: &str) {
        if let Some(cycle) = cycle {
            self.refuse(workload_key(key), cycle, message);
        } else if let Some(placement) = &self.placement {
            placement.withdraw(key, uid);
        }
    }

    /// Evicts a variant that another one on a better flavor replaces.
    #[tracing::instrument(name = "migration", skip_all, fields(workload = %key))]
    async fn migrate(
        &self,
        key: &Key,
        current: &Workload,
        to_uid: &str,
        unwritten_cycle: Option<u64>,
    ) -> Outcome {
        let Some(cluster_queue) = workload::admitted_by(current).map(str::to_owned) else {
            let uid = current.metadata.uid.as_deref().unwrap_or_default();
            let message = "a variant on a better flavor is given quota";
            self.end_unwritten(key, uid, unwritten_cycle, message);
            return Outcome::Done;
        };
        if workload::is_evicted(current) || workload::is_finished(current) {
            return Outcome::Done;
        }
        let decided = build::migrated_status(self.ctx.edit(current), to_uid);
        self.evict(key, current, &cluster_queue, "migration", decided, |_| ()).await
    }

    /// Writes a decided eviction, with its event and metrics. `announce` adds further ones. `what`
    /// labels the write.
    pub(super) async fn evict(
        &self,
        key: &Key,
        current: &Workload,
        cluster_queue: &str,
        what: &'static str,
        (edit, evicted): (Edit, Evicted),
        announce: impl FnOnce(&Workload),
    ) -> Outcome {
        match patch_status(&self.ctx, current, &edit.status, what).await {
            Ok(Some(after)) => {
                self.ctx.announce_eviction(current, &after, cluster_queue, &evicted);
                announce(&after);
                Outcome::Done
            }
            Ok(None) | Err(WriteError::Gone) => Outcome::Done,
            Err(WriteError::Conflict) => Outcome::Failed,
            Err(error) => {
                tracing::warn!(workload = %key, %error, "{what} not written");
                self.inbox.preemption_failed(workload_key(key));
                Outcome::Done
            }
        }
    }

    /// Publishes the events of a preemption on victim and preemptor.
    fn announce_preemption(&self, victim: &Workload, cluster_queue: &str, preempt: &Preempt) {
        let priorities = |workload: &Workload| {
            (
                convert::priority(&self.ctx.config, workload),
                workload.spec.priority.unwrap_or_default(),
            )
        };
        let mut note = preempt.message.clone();
        // The preemptor may be gone by now.
        if let Some(preemptor) = self.current(&preempt.preemptor.key, &preempt.preemptor.uid) {
            let priorities =
                build::preemption_priorities(priorities(&preemptor), priorities(victim));
            let (key, uid) = (Key::of(victim), victim.metadata.uid.as_deref().unwrap_or_default());
            let told = format!(
                "Preempted workload {key} (UID: {uid}) in ClusterQueue {cluster_queue}{priorities}"
            );
            self.ctx.events.normal(&*preemptor, events::PREEMPTED_WORKLOAD, told);
            note.push_str(&priorities);
        }
        self.ctx.events.normal(victim, events::PREEMPTED, note);
    }

    pub(super) fn too_soon(&self, key: &Key) -> Option<Duration> {
        let (told, waiting) = {
            let told = self.last_reasons.lock();
            (told.get(key)?.0, told.len())
        };
        let left =
            (told + reasons::message_every(waiting)).saturating_duration_since(Instant::now());
        (!left.is_zero()).then_some(left)
    }
}
