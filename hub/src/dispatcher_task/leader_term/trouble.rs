//! The trouble of workloads on their clusters: when the hub reviews it, and when it writes the condition.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use switchyard_api::v1beta2::Workload;
use switchyard_controller::workload as state;
use tokio::time::Instant;

use super::TermState;
use crate::api_objects::lost_since;
use crate::dispatch::{Contact, Name, Time, Uid};
use crate::dispatcher_task::Answer;
use crate::dispatcher_task::troubles::{
    Connection, TroubleWrite, Urgency, Word, Wrote, recorded, word,
};

/// A cluster that is away for less is not said to be: each of its jobs costs a write.
const SILENT: Duration = Duration::from_secs(30);
/// The same of one whose MultiKueueCluster is deleted: its jobs may go on under another name.
const REMOVED: Duration = Duration::from_secs(5);

/// A workload that was sent and goes on.
struct Sent {
    workload: Arc<Workload>,
    /// Its cluster, and its attempt there.
    to: (Name, u64),
    /// Its trouble there.
    word: Option<Word>,
}

impl TermState {
    /// Plans to write what is wrong with a workload on its cluster, if that is news.
    pub(super) fn review_trouble(&mut self, uid: &Uid) {
        let Some(Sent { workload, word: now, .. }) = self.trouble_of(uid) else { return };
        let urgency = match (recorded(&workload), &now) {
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

    /// A workload that was sent, and what is wrong there; none while that cannot be said.
    fn trouble_of(&self, uid: &Uid) -> Option<Sent> {
        let (cluster, attempt) = self.dispatcher.committed(uid)?;
        let workload = self.ctx.stores.workloads.by_key(self.places.get(uid)?)?;
        if workload.metadata.uid.as_deref() != Some(uid)
            || state::is_finished(&workload)
            || state::is_evicted(&workload)
        {
            return None;
        }
        let connection = self.connection(&cluster, uid)?;
        let told = self.told.of(&cluster, uid, attempt);
        // A hub that has just begun does not know yet what was told before.
        if told.is_none() && connection == Connection::Heard && !self.dispatcher.has_told(&cluster)
        {
            return None;
        }
        let troubles = told.map(|told| told.troubles.as_slice()).unwrap_or_default();
        let word = word(&cluster, &connection, troubles);
        Some(Sent { workload, to: (cluster, attempt), word })
    }

    /// How the hub stands with a cluster; none while it is too early to say.
    fn connection(&self, cluster: &Name, uid: &Uid) -> Option<Connection> {
        let wall = |at: Time| Timestamp::from_millisecond(at - at.rem_euclid(1000)).ok();
        Some(match self.dispatcher.contact(cluster, uid) {
            Contact::Heard => Connection::Heard,
            Contact::Removed { given_up } if self.is_quiet_for(cluster, REMOVED) => {
                Connection::Removed { given_up: given_up.and_then(wall) }
            }
            Contact::Silent { since, given_up } if self.is_quiet_for(cluster, SILENT) => {
                let known = self.ctx.stores.multi_kueue_clusters.get("", cluster);
                let since = known
                    .and_then(|known| lost_since(&known))
                    .into_iter()
                    .chain(wall(since))
                    .min()?;
                Connection::Silent { since, given_up: given_up.and_then(wall) }
            }
            Contact::Removed { .. } | Contact::Silent { .. } => return None,
        })
    }

    fn is_quiet_for(&self, cluster: &Name, time: Duration) -> bool {
        self.quiet.get(cluster).is_some_and(|since| since.elapsed() >= time)
    }

    /// A cluster is silent from now on, or was removed.
    pub(super) fn fell_quiet(&mut self, cluster: &Name) {
        let now = Instant::now();
        self.quiet.entry(cluster.clone()).or_insert(now);
        for time in [REMOVED, SILENT] {
            self.reviews.insert((now + time, cluster.clone()));
        }
    }

    /// A cluster has told all that it has.
    pub(super) fn was_heard(&mut self, cluster: &Name) {
        if self.quiet.remove(cluster).is_some() {
            self.review_cluster(cluster);
        }
    }

    fn review_cluster(&mut self, cluster: &Name) {
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

    /// When something of this is due.
    pub(super) fn next_trouble(&self) -> Option<Instant> {
        let review = self.reviews.first().map(|(at, _)| *at);
        [self.troubles.next(), review].into_iter().flatten().min()
    }

    /// Reviews the workloads of quiet clusters, and begins the writes that are due.
    pub(super) fn start_trouble_writes(&mut self) {
        let now = Instant::now();
        while let Some((at, cluster)) = self.reviews.first().cloned().filter(|(at, _)| *at <= now) {
            self.reviews.remove(&(at, cluster.clone()));
            self.review_cluster(&cluster);
        }
        while let Some(uid) = self.troubles.take(now) {
            let known = self.trouble_of(&uid).zip(self.places.get(&uid).cloned());
            let Some((Sent { to: sent, word, .. }, key)) = known else {
                self.troubles.done(&uid, Wrote::Nothing, now);
                continue;
            };
            let (hands, epoch) = (self.hands.clone(), self.epoch);
            tokio::spawn(async move {
                let write = TroubleWrite { key, uid, sent, word };
                let wrote = write.perform(&hands.ctx).await;
                let _ =
                    hands.answers.send((epoch, Answer::Troubled { uid: write.uid, wrote })).await;
            });
        }
    }

    /// A write of a condition has ended.
    pub(super) fn wrote_trouble(&mut self, uid: &Uid, wrote: Wrote) {
        self.troubles.done(uid, wrote, Instant::now());
        self.review_trouble(uid);
    }

    /// Counts the trouble that the API shows of a workload.
    pub(super) fn count_trouble(&mut self, workload: &Workload, uid: &Uid) {
        let cluster = workload.status.as_ref().and_then(|status| status.cluster_name.as_deref());
        let shown = recorded(workload).filter(|_| !state::is_finished(workload)).zip(cluster);
        self.hands.metrics.troubles.set(uid, shown.map(|((reason, _), cluster)| (cluster, reason)));
    }
}
