//! Workloads' trouble on their clusters: when the hub reviews it, and when it writes the condition.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use switchyard_api::v1beta2::Workload;
use switchyard_controller::workload as state;
use switchyard_dispatcher::{Contact, LostContact, Name, StuckOutlook, Uid, UnixMillis};
use tokio::time::Instant;

use super::LeaderTerm;
use crate::api_objects::lost_since;
use crate::dispatcher_task::TaskResult;
use crate::dispatcher_task::troubles::{
    Connection, Loss, StuckJob, StuckNext, TroubleDescription, TroubleOutcome, TroubleWrite,
    Urgency, describe, recorded_trouble,
};

/// A shorter silence of a cluster is not reported: it would cost a write for each of its jobs.
const SILENT: Duration = Duration::from_secs(30);
/// The same after a MultiKueueCluster's deletion: its jobs may go on under another name.
const REMOVED: Duration = Duration::from_secs(5);

/// A job without a ready pod is reported for that alone after this time, in milliseconds: most
/// start sooner.
const STARTS_WITHIN: i64 = 60_000;

/// Whole seconds, so that messages differ only if the times do.
fn wall(at: UnixMillis) -> Option<Timestamp> {
    Timestamp::from_millisecond(at - at.rem_euclid(1000)).ok()
}

/// An unfinished workload on a cluster.
struct Sent {
    workload: Arc<Workload>,
    /// Its cluster and attempt.
    to: (Name, u64),
    /// None: all is well.
    description: Option<TroubleDescription>,
}

impl LeaderTerm {
    /// The outlook of a job without a ready pod, if `onStuck` counts for it.
    fn stuck_job(&self, uid: &Uid) -> Option<StuckJob> {
        let now = self.clock.now();
        let stuck = self.dispatcher.stuck(uid, now)?;
        let next = match stuck.next {
            StuckOutlook::Withdraw { at, .. } => StuckNext::WithdrawAt(wall(at)?),
            StuckOutlook::NoOtherCluster => StuckNext::NoOtherCluster,
            StuckOutlook::NoMovesLeft => StuckNext::NoMovesLeft,
        };
        Some(StuckJob {
            since: wall(stuck.since)?,
            next_move: stuck.moves + 1,
            times: stuck.times,
            next,
            is_long: now >= stuck.since.saturating_add(STARTS_WITHIN),
        })
    }

    /// Plans a write of the condition if the workload's trouble changed.
    pub(super) fn review_trouble(&mut self, uid: &Uid) {
        if let Some(stuck) = self.dispatcher.stuck(uid, self.clock.now()) {
            let long = self.clock.instant(stuck.since.saturating_add(STARTS_WITHIN));
            if long > Instant::now() {
                self.troubles.plan_at(uid, long);
            }
        }
        let Some(Sent { workload, description: now, .. }) = self.trouble_of(uid) else { return };
        let urgency = match (recorded_trouble(&workload), &now) {
            (None, None) => return,
            (Some((reason, message)), Some(now)) if reason == now.reason => {
                if message == now.message {
                    return;
                }
                Urgency::Words
            }
            _ => Urgency::Reason,
        };
        self.troubles.plan(uid, urgency, Instant::now());
    }

    /// A dispatched workload and its trouble. None while the trouble is not known.
    fn trouble_of(&self, uid: &Uid) -> Option<Sent> {
        let (cluster, attempt) = self.dispatcher.committed(uid)?;
        let workload = self.ctx.stores.workloads.by_key(self.active_keys.get(uid)?)?;
        if workload.metadata.uid.as_deref() != Some(uid)
            || state::is_finished(&workload)
            || state::is_evicted(&workload)
        {
            return None;
        }
        let connection = self.connection(&cluster, uid)?;
        let told = self.observations.get(&cluster, uid, attempt);
        // A new leader does not know yet what the cluster reported before.
        if told.is_none()
            && connection == Connection::Heard
            && !self.dispatcher.has_reported_inventory(&cluster)
        {
            return None;
        }
        let troubles = told.map(|told| told.troubles.as_slice()).unwrap_or_default();
        let stuck = self.stuck_job(uid);
        let description = describe(&cluster, &connection, troubles, stuck.as_ref());
        Some(Sent { workload, to: (cluster, attempt), description })
    }

    /// The hub's contact with a cluster. None while it is too early to report silence.
    fn connection(&self, cluster: &Name, uid: &Uid) -> Option<Connection> {
        // An earlier hub process may have noticed it.
        let since = |lost: LostContact| {
            let known = self.ctx.stores.multi_kueue_clusters.get("", cluster);
            let noticed = known.and_then(|known| lost_since(&known));
            noticed.into_iter().chain(wall(lost.since)).min()
        };
        let shown = |lost: LostContact, since: Timestamp| Loss {
            since,
            given_up: lost.given_up.and_then(wall),
            policy: lost.policy,
            is_fence_unsure: lost.is_fence_unsure,
            is_declared_lost: lost.is_declared_lost,
        };
        Some(match self.dispatcher.contact(cluster, uid) {
            Contact::Live => Connection::Heard,
            Contact::Removed(lost) if self.is_quiet_for(cluster, REMOVED) => {
                Connection::Removed(shown(lost, wall(lost.since)?))
            }
            Contact::Silent(lost) if self.is_quiet_for(cluster, SILENT) => {
                Connection::Silent(shown(lost, since(lost)?))
            }
            Contact::NotReady(lost) if self.is_quiet_for(cluster, SILENT) => {
                Connection::NotReady(shown(lost, since(lost)?))
            }
            Contact::Removed(_) | Contact::Silent(_) | Contact::NotReady(_) => return None,
        })
    }

    fn is_quiet_for(&self, cluster: &Name, time: Duration) -> bool {
        self.silent_since.get(cluster).is_some_and(|since| since.elapsed() >= time)
    }

    /// Marks the cluster of a workload that was read, if it is silent. The term may begin before the
    /// cluster's first Workload is read.
    pub(super) fn note_silence(&mut self, uid: &Uid) {
        if let Some((cluster, _)) = self.dispatcher.committed(uid)
            && !self.silent_since.contains_key(&cluster)
            && self.dispatcher.contact(&cluster, uid) != Contact::Live
        {
            self.mark_silent(&cluster);
        }
    }

    /// A cluster became silent or was removed.
    pub(super) fn mark_silent(&mut self, cluster: &Name) {
        let now = Instant::now();
        self.silent_since.entry(cluster.clone()).or_insert(now);
        for time in [REMOVED, SILENT] {
            self.reviews.insert((now + time, cluster.clone()));
        }
    }

    /// A cluster has sent its inventory.
    pub(super) fn mark_contact(&mut self, cluster: &Name) {
        if self.silent_since.remove(cluster).is_some() {
            self.review_cluster(cluster);
        }
    }

    pub(super) fn review_cluster(&mut self, cluster: &Name) {
        let is_there = |workload: &Workload| {
            workload
                .status
                .as_ref()
                .is_some_and(|status| status.cluster_name.as_deref() == Some(&**cluster))
        };
        for workload in self.ctx.stores.workloads.filter(is_there) {
            self.review_trouble(&Uid::from(workload.metadata.uid.as_deref().unwrap_or_default()));
        }
    }

    /// When the next review or write is due.
    pub(super) fn next_trouble(&self) -> Option<Instant> {
        let review = self.reviews.first().map(|(at, _)| *at);
        [self.troubles.next(), review].into_iter().flatten().min()
    }

    /// Reviews the workloads of silent clusters, and starts the writes that are due.
    pub(super) fn start_trouble_writes(&mut self) {
        let now = Instant::now();
        while let Some((at, cluster)) = self.reviews.first().cloned().filter(|(at, _)| *at <= now) {
            self.reviews.remove(&(at, cluster.clone()));
            self.review_cluster(&cluster);
        }
        while let Some(uid) = self.troubles.take(now) {
            let known = self.trouble_of(&uid).zip(self.active_keys.get(&uid).cloned());
            let Some((Sent { to: sent, description, .. }, key)) = known else {
                self.troubles.done(&uid, TroubleOutcome::Nothing, now);
                continue;
            };
            let (writer, epoch) = (self.writer.clone(), self.epoch);
            tokio::spawn(async move {
                let write = TroubleWrite { key, uid, sent, description };
                let wrote = write.perform(&writer.ctx).await;
                let _ = writer
                    .results
                    .send((epoch, TaskResult::TroubleWritten { uid: write.uid, wrote }))
                    .await;
            });
        }
    }

    /// A write of the condition has ended.
    pub(super) fn wrote_trouble(&mut self, uid: &Uid, wrote: TroubleOutcome) {
        self.troubles.done(uid, wrote, Instant::now());
        self.review_trouble(uid);
    }

    /// Counts the trouble that the API shows.
    pub(super) fn count_trouble(&mut self, workload: &Workload, uid: &Uid) {
        let cluster = workload.status.as_ref().and_then(|status| status.cluster_name.as_deref());
        let shown =
            recorded_trouble(workload).filter(|_| !state::is_finished(workload)).zip(cluster);
        self.writer
            .metrics
            .troubles
            .set(uid, shown.map(|((reason, _), cluster)| (cluster, reason)));
    }
}
